"""Send to all groups of a cluster that have a topic, and read it in all of them.

python examples/several_groups.py tcp://10.0.0.1:10912
"""

from __future__ import annotations

import sys
from collections import Counter

from ledgermq.client import ClusterConsumer, ClusterProducer

TOPIC = "orders"
GROUP = "billing"


def send(address: str, count: int) -> None:
    """Send orders of four customers: each customer's go to one queue of one group, in order."""
    with ClusterProducer(address) as producer:
        for number in range(count):
            producer.send(TOPIC, b"order %d" % number, queue_key=f"customer {number % 4}")
        producer.flush()


def bill(address: str, count: int) -> Counter[str]:
    """Bill ``count`` orders; how many there were in each group."""
    billed: Counter[str] = Counter()
    with ClusterConsumer(address, topic=TOPIC, group=GROUP) as consumer:
        while billed.total() < count:
            broker_group, orders = consumer.poll()
            for order in orders:
                if order.body == b"order 13":
                    # What concerns one message is a matter of the group that it is in.
                    consumer.of(broker_group).retry_later(order, delay_level=1)
                else:
                    billed[broker_group] += 1
            consumer.commit()
    return billed


def main(address: str) -> None:
    """Send, and bill; the address is that of any node of any group."""
    send(address, 40)
    # One of them comes again, and is refused again.
    billed = bill(address, 39)
    print(f"billed: {billed.total()} in {len(billed)} groups")


if __name__ == "__main__":
    main(*sys.argv[1:])
