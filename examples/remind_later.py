"""Have messages delivered later, and take one back before its time.

python examples/remind_later.py ipc:///run/ledgermq
"""

from __future__ import annotations

import sys
from datetime import timedelta

from ledgermq.client import Consumer, Producer

TOPIC = "reminders"
UNPAID = {b"order 1": 1.5, b"order 2": 60.0, b"order 3": 0.5}
"""Seconds after which a customer is reminded; days in real life."""


def main() -> None:
    """Three reminders, of which one is not needed any more; print the others as they come."""
    address = sys.argv[1]
    with Producer(address) as producer:
        begin = producer.send(TOPIC, b"opening", queue_id=0).result().queue_offset
        reminders = {
            order: producer.send(TOPIC, order, queue_id=0, delay=timedelta(seconds=seconds))
            for order, seconds in UNPAID.items()
        }
        # Order 2 was paid.
        producer.cancel(reminders[b"order 2"].result().unique_id)
        producer.send(TOPIC, b"all orders", queue_id=0, delay_level=2).result()
    with Consumer(address, topic=TOPIC, queues=[0], start={0: begin + 1}) as consumer:
        for _, message in zip(range(3), consumer, strict=False):
            print(bytes(message.body).decode())


if __name__ == "__main__":
    main()
