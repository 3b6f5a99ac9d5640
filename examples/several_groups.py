"""Send to all groups of a cluster that have a topic, and share its queues among two members.

python examples/several_groups.py tcp://10.0.0.1:10912
"""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from ledgermq.client import ClusterGroupConsumer, ClusterProducer

TOPIC = "orders"
GROUP = "billing"


def send(address: str, count: int) -> None:
    """Send orders of four customers: each customer's go to one queue of one group, in order."""
    with ClusterProducer(address) as producer:
        for number in range(count):
            producer.send(TOPIC, b"order %d" % number, queue_key=f"customer {number % 4}")
        producer.flush()


def bill(address: str, name: str, billed: list[str], count: int) -> None:
    """Bill orders, until all members together have billed ``count``; notes each one's group."""
    with ClusterGroupConsumer(address, group=GROUP, name=name) as consumer:
        consumer.subscribe(TOPIC)
        while len(billed) < count:
            broker_group, orders = consumer.poll(0.5)
            for order in orders:
                if order.body == b"order 13":
                    # What concerns one message is a matter of the group that it is in.
                    consumer.retry_later(broker_group, order, delay_level=1)
                else:
                    billed.append(broker_group)
            consumer.commit()


def main(address: str) -> None:
    """Send, and bill; the address is that of any node of any group."""
    send(address, 40)
    billed: list[str] = []
    with ThreadPoolExecutor() as threads:
        # One order comes again, and is refused again.
        members = [threads.submit(bill, address, name, billed, 39) for name in ("one", "two")]
    for member in members:
        member.result()
    print(f"billed: {len(billed)} in {len(Counter(billed))} groups")


if __name__ == "__main__":
    main(*sys.argv[1:])
