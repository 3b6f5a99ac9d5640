"""Give messages back that could not be processed, and replay what was given up.

python examples/retry_later.py ipc:///run/ledgermq
"""

from __future__ import annotations

import sys

from ledgermq.client import Consumer, DeadLetters, Producer

TOPIC = "orders"
GROUP = "billing"


class CardRefusedError(Exception):
    """An order that cannot be billed now."""


def bill(order: bytes) -> None:
    """What an application does."""
    if order.startswith(b"bad"):
        raise CardRefusedError(order.decode())


def consume(address: str, count: int) -> list[bytes]:
    """Bill ``count`` orders; what is refused twice becomes a dead letter."""
    billed: list[bytes] = []
    with Consumer(address, topic=TOPIC, group=GROUP) as consumer:
        for message in consumer:
            order = message.body
            try:
                bill(order)
                billed.append(order)
            except CardRefusedError:
                # Level 1 is a second; left out, RocketMQ's table has it: 10 s, 30 s, 1 min, …
                (result,) = consumer.retry_later(message, delay_level=1, times_max=1)
                print(f"{order!r}: {'dead' if result.is_dead else 'again later'}")
                count -= result.is_dead
            consumer.commit(message)
            if len(billed) >= count:
                return billed
    return billed


def replay(address: str) -> int:
    """Give all dead letters to the group once more; how many there are."""
    with DeadLetters(address, group=GROUP) as letters:
        offsets = [
            letter.message.queue_offset for letter in letters.read(0) if not letter.is_replayed
        ]
        return len(letters.replay(offsets).replayed) if offsets else 0


def main(address: str) -> None:
    """Send three orders, one of them bad, and bill them."""
    with Producer(address) as producer:
        for order in (b"good 1", b"bad 2", b"good 3"):
            producer.send(TOPIC, order).result()
    billed = consume(address, 3)
    print(f"billed: {sorted(billed)}")
    print(f"replayed: {replay(address)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
