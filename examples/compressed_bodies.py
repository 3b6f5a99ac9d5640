"""Send a large text compressed, and read it without knowing.

python examples/compressed_bodies.py ipc:///run/ledgermq
"""

from __future__ import annotations

import sys

from ledgermq.client import Consumer, Producer, ProducerOptions

TOPIC = "texts"
TEXT = b"the same words, again and again; " * 1_000


def main() -> None:
    """Store a text, read it, and print how much was stored of how much."""
    address = sys.argv[1]
    options = ProducerOptions(compress_above=1_024, compression="zlib", compression_level=9)
    with Producer(address, options=options) as producer:
        stored = producer.send(TOPIC, TEXT, queue_id=0).result()
    with Consumer(address, topic=TOPIC, queues=[0], start={0: stored.queue_offset}) as consumer:
        message = next(iter(consumer))
        if message.body_fault is not None:
            sys.exit(f"kept as it is, {len(message.stored_body)} bytes: {message.body_fault}")
        print(len(message.stored_body) < len(message.body) == len(TEXT))


if __name__ == "__main__":
    main()
