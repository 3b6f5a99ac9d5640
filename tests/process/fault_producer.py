"""A producer that sends to a group until it is told to stop, and writes its history; a script.

    fault_producer.py ADDRESSES TOPIC NAME HISTORY TIMEOUT_S

Bursts of batches or of single messages, so that several are under way. A value is the first word of
a body.
"""

from __future__ import annotations

import os
import random
import sys
from collections import deque
from pathlib import Path

from ledgermq.client import Producer
from ledgermq.client.core.results import BatchResult, SendResult
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.model.errors import LedgerError
from tests.process import stop_signal
from tests.process.history import HistoryWriter

QUEUES = 4
BATCH_MAX = 8
BURST_MAX = 6
PAUSE_S = 0.06
UNDER_WAY_MAX = 32

AnySent = SendFuture[SendResult] | SendFuture[BatchResult]


class Load:
    """The messages of one producer."""

    def __init__(self, producer: Producer, topic: str, name: str, history: HistoryWriter) -> None:
        self._producer = producer
        self._topic = topic
        self._name = name
        self._history = history
        self._random = random.Random(name)
        self._messages = 0
        self._under_way: deque[AnySent] = deque()

    def burst(self) -> None:
        """Send some, then wait until not too many are under way."""
        for _ in range(self._random.randint(1, BURST_MAX)):
            if self._random.random() < 0.5:
                self._send_batch()
            else:
                self._send_one()
        while self._under_way and (
            self._under_way[0].done() or len(self._under_way) > UNDER_WAY_MAX
        ):
            self._under_way.popleft().exception()

    def _send_batch(self) -> None:
        queue = self._random.randrange(QUEUES)
        values = [self._next_value() for _ in range(self._random.randint(1, BATCH_MAX))]
        number = self._history.append(queue, values)

        def note(future: SendFuture[BatchResult]) -> None:
            error = future.exception(0)
            if error is None:
                self._history.acked(number, [one.queue_offset for one in future.result(0)])
            else:
                self._history.failed(number, error)

        try:
            self._under_way.append(
                self._producer.send_batch(
                    self._topic, list(map(self._body, values)), queue_id=queue, callback=note
                )
            )
        except LedgerError as error:
            self._history.failed(number, error)

    def _send_one(self) -> None:
        queue = self._random.randrange(QUEUES)
        value = self._next_value()
        number = self._history.append(queue, [value])

        def note(future: SendFuture[SendResult]) -> None:
            error = future.exception(0)
            if error is None:
                self._history.acked(number, [future.result(0).queue_offset])
            else:
                self._history.failed(number, error)

        try:
            self._under_way.append(
                self._producer.send(self._topic, self._body(value), queue_id=queue, callback=note)
            )
        except LedgerError as error:
            self._history.failed(number, error)

    def _next_value(self) -> str:
        self._messages += 1
        return f"{self._name}-{self._messages}"

    def _body(self, value: str) -> bytes:
        return f"{value} ".encode() + b"x" * self._random.randrange(300)


def main() -> None:
    addresses, topic, name, path, timeout_s = sys.argv[1:]
    parent = os.getppid()
    stop_signal.hold_back()
    options = ProducerOptions(timeout_s=float(timeout_s))
    with Producer(addresses, name=name, options=options) as producer:
        load = Load(producer, topic, name, HistoryWriter(Path(path), name))
        # A test that was killed cannot tell its load to stop.
        while not stop_signal.came(PAUSE_S) and os.getppid() == parent:
            load.burst()


if __name__ == "__main__":
    main()
