"""A producer that sends until it is told to stop, whatever dies; run as a script by the tests.

    kill_producer.py ADDRESS TOPIC NAME JOURNAL TIMEOUT_S

Batches of 1 to 20 messages in bursts, so that several are under way; bodies are ``NAME NUMBER …``.
"""

from __future__ import annotations

import random
import sys
import time
from collections import deque
from pathlib import Path

from ledgermq.client import Producer
from ledgermq.client.core.results import BatchResult
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.model.errors import LedgerError
from tests.process import stop_signal
from tests.process.kill_journal import Frame, JournalWriter

QUEUES = 4
BATCH_MAX = 20
BURST_MAX = 8
PAUSE_S = 0.04
UNDER_WAY_MAX = 64


class Load:
    """One producer's messages, numbered through over all queues."""

    def __init__(self, producer: Producer, topic: str, name: str, journal: JournalWriter) -> None:
        self._producer = producer
        self._topic = topic
        self._name = name
        self._journal = journal
        self._random = random.Random(name)
        self._frames = 0
        self._messages = 0
        self._under_way: deque[SendFuture[BatchResult]] = deque()

    def burst(self) -> None:
        """Send some batches, then wait until not too many are under way."""
        for _ in range(self._random.randint(1, BURST_MAX)):
            self._send()
        while self._under_way and (
            self._under_way[0].done() or len(self._under_way) > UNDER_WAY_MAX
        ):
            self._under_way.popleft().exception()

    def _send(self) -> None:
        number, first = self._frames, self._messages
        queue_id = self._random.randrange(QUEUES)
        bodies = [
            b"%s %d %s" % (self._name.encode(), first + row, b"x" * self._random.randrange(300))
            for row in range(self._random.randint(1, BATCH_MAX))
        ]

        def note(future: SendFuture[BatchResult]) -> None:
            error = future.exception(0)
            if error is None:
                self._journal.acknowledged(number, future.result(0))
            else:
                self._journal.failed(number, error)

        sent_ns = time.monotonic_ns()
        try:
            future = self._producer.send_batch(
                self._topic, bodies, queue_id=queue_id, callback=note
            )
        except LedgerError as error:
            # No room or no node for as long as this producer waits: the next ones may fare better.
            self._journal.not_sent(error)
            return
        self._journal.sent(number, Frame(sent_ns, first, len(bodies), queue_id, future.unique_id))
        self._under_way.append(future)
        self._frames += 1
        self._messages += len(bodies)


def main() -> None:
    address, topic, name, journal, timeout_s = sys.argv[1:]
    stop_signal.hold_back()
    options = ProducerOptions(timeout_s=float(timeout_s))
    with Producer(address, name=name, options=options) as producer:
        load = Load(producer, topic, name, JournalWriter(Path(journal)))
        while not stop_signal.came(PAUSE_S):
            load.burst()


if __name__ == "__main__":
    main()
