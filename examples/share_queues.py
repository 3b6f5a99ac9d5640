"""Two members of a group share the queues of a topic; one leaves, and the other goes on.

    python examples/share_queues.py ipc:///run/ledgermq

Prints what happens. Needs a node, and makes the topic ``orders`` if the node lets it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from ledgermq.client import GroupConsumer, Producer, RebalanceListener, TopicQueue

WAIT_S = 30.0


class Shares(RebalanceListener):
    """Tells which queues come and go; what was done is committed before they go."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: set[TopicQueue] = set()

    def on_assigned(self, queues: Sequence[TopicQueue]) -> None:
        """Queues came."""
        self.queues |= set(queues)

    def on_revoked(self, queues: Sequence[TopicQueue]) -> None:
        """Queues are about to go."""
        self.queues -= set(queues)


def read(consumers: Sequence[GroupConsumer], done: list[str], until: Callable[[], bool]) -> None:
    """Let the consumers work in turn, as processes of their own would."""
    deadline = time.monotonic() + WAIT_S
    while not until():
        if time.monotonic() > deadline:
            raise SystemExit("the queues were not shared in time")
        for consumer in consumers:
            for message in consumer.poll(0.1):
                done.append(message.text())
            consumer.commit()


def are_shared(left: set[TopicQueue], right: set[TopicQueue]) -> bool:
    """Whether each has its half: of an odd number, as with a queue of retries, one has one more."""
    return bool(left and right) and abs(len(left) - len(right)) <= 1


def main(address: str) -> None:
    """Send, share, leave, go on."""
    with Producer(address) as producer:
        for number in range(40):
            producer.send("orders", f"order {number}".encode())

        done: list[str] = []
        left, right = Shares("left"), Shares("right")
        with GroupConsumer(address, group="billing", name="left", listener=left) as first:
            first.subscribe("orders")
            with GroupConsumer(address, group="billing", name="right", listener=right) as second:
                second.subscribe("orders")
                read([first, second], done, lambda: are_shared(left.queues, right.queues))
                print(f"shared: {len(left.queues)} and {len(right.queues)} queues")
            print(f"right has left: it has {len(right.queues)} queues")
            for number in range(40, 60):
                producer.send("orders", f"order {number}".encode())
            read([first], done, lambda: len(set(done)) == 60)
    print(f"billed {len(set(done))} orders, {len(done) - len(set(done))} of them twice")


if __name__ == "__main__":
    main(sys.argv[1])
