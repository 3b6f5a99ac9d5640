"""A consumer that reads a group until it is told to stop, and writes its history; a script.

    fault_consumer.py ADDRESSES TOPIC NAME HISTORY

It goes along the end of each queue, and now and then reads again what it has read before.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

from ledgermq.client import Consumer
from ledgermq.client.core.received import MessageBatch
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.model.errors import LedgerError
from tests.process import stop_signal
from tests.process.fault_producer import QUEUES
from tests.process.history import HistoryWriter

PAUSE_S = 0.02
MESSAGES_MAX = 64
TIMEOUT_S = 1.0
AGAIN_SHARE = 0.2


def values_of(batch: MessageBatch, first: int) -> list[str]:
    """What the bodies begin with; the offsets of the messages follow one another."""
    offsets = [message.queue_offset for message in batch]
    assert offsets == list(range(first, first + len(offsets))), (first, offsets)
    return [bytes(message.body).split(b" ", 1)[0].decode() for message in batch]


def main() -> None:
    addresses, topic, name, path = sys.argv[1:]
    parent = os.getppid()
    stop_signal.hold_back()
    history = HistoryWriter(Path(path), name)
    chance = random.Random(name)
    reached: Counter[int] = Counter()
    options = ConsumerOptions(timeout_s=TIMEOUT_S)
    with Consumer(addresses, topic=topic, name=name, options=options) as consumer:
        # A test that was killed cannot tell its load to stop.
        while not stop_signal.came(PAUSE_S) and os.getppid() == parent:
            queue = chance.randrange(QUEUES)
            first = reached[queue]
            if chance.random() < AGAIN_SHARE:
                first = chance.randint(0, first)
            start_ns = time.monotonic_ns()
            try:
                batch = consumer.pull(queue, first, messages_max=MESSAGES_MAX)
            except LedgerError:
                # Nobody leads now, or who led did not answer: that says nothing of the messages.
                continue
            values = values_of(batch, first)
            history.read(queue, first, values, is_end=False, start_ns=start_ns)
            reached[queue] = max(reached[queue], first + len(values))


if __name__ == "__main__":
    main()
