"""Send messages with ids of their own, which a topic with a window stores once.

python examples/store_once.py ipc:///run/ledgermq
"""

from __future__ import annotations

import sys

from ledgermq.client import Admin, OutgoingMessage, Producer

TOPIC = "payments"


def main(address: str) -> None:
    """Send two payments, and everything again as after a crash of the application."""
    with Admin(address) as admin:
        admin.create_topic(TOPIC, queues=4, deduplication_window_ms=10 * 60_000)
    with Producer(address) as producer:
        first = producer.send(TOPIC, b"17 euros", unique_id="invoice-4711").result()
        print(f"{first.unique_id}: {'a duplicate' if first.is_duplicate else 'stored'}")
    with Producer(address) as producer:
        batch = [
            OutgoingMessage(b"17 euros", unique_id="invoice-4711"),
            OutgoingMessage(b"20 euros", unique_id="invoice-4712"),
        ]
        again, second = producer.send_batch(TOPIC, batch).result()
        for result in (again, second):
            print(f"{result.unique_id}: {'a duplicate' if result.is_duplicate else 'stored'}")
        is_same = (again.queue_id, again.queue_offset) == (first.queue_id, first.queue_offset)
        print(f"its place is that of the first: {is_same}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "ipc:///run/ledgermq")
