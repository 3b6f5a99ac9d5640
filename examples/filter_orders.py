"""Read a part of a topic: by tag, and by SQL over properties.

python examples/filter_orders.py ipc:///run/ledgermq
"""

from __future__ import annotations

import sys

from ledgermq.client import Consumer, MessageFilter, OutgoingMessage, Producer

TOPIC = "orders"


def main() -> None:
    """Store eight orders, print those of the EU, and the dear ones of them."""
    address = sys.argv[1]
    orders = [
        OutgoingMessage(
            f"order {number}".encode(),
            tag="eu" if number % 2 else "us",
            properties={"price": str(number * 100)},
        )
        for number in range(8)
    ]
    with Producer(address) as producer:
        begin = producer.send_batch(TOPIC, orders, queue_id=0).result()[0].queue_offset

    by_tag = MessageFilter.by_tags("eu || uk")
    by_sql = MessageFilter.by_sql("TAGS = 'eu' AND price BETWEEN 300 AND 500")
    for wanted, count in ((by_tag, 4), (by_sql, 2)):
        print(wanted.expression)
        start = {0: begin}
        with Consumer(address, topic=TOPIC, start=start, queues=[0], filter=wanted) as consumer:
            for _, message in zip(range(count), consumer, strict=False):
                print("  ", message.text())


if __name__ == "__main__":
    main()
