"""Send to all groups of a cluster that have a topic, and share its queues among two members.

python examples/several_groups.py tcp://10.0.0.1:10912
"""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from ledgermq.client import GroupConsumer, Producer

TOPIC = "orders"
GROUP = "billing"


def send(address: str, count: int) -> None:
    """Send orders of four customers: each customer's go to one queue of one group, in order."""
    with Producer(address) as producer:
        for number in range(count):
            producer.send(TOPIC, b"order %d" % number, queue_key=f"customer {number % 4}")
        producer.flush()


def bill(address: str, name: str, billed: list[str], count: int) -> None:
    """Bill orders, until all members together have billed ``count``; notes each one's group."""
    with GroupConsumer(address, group=GROUP, name=name) as consumer:
        consumer.subscribe(TOPIC)
        while len(billed) < count:
            for order in consumer.poll(0.5):
                if order.body == b"order 13":
                    # It goes back to the group that it is in.
                    consumer.retry_later(order, delay_level=1)
                else:
                    billed.append(order.broker_group)
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
