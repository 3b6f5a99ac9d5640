"""What every client of a run has, and the names that several of them use."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ledgermq.client import BatchResult, ProducerOptions, SendResult
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.model.errors import LedgerError
from tests.random_faults.records import Recorder

KEYS, BATCHES, WORK, ONCE, LATER = "keys", "batches", "work", "once", "later"
DEBITS, CREDITS, REGISTER, PORT, BULK = "debits", "credits", "register", "port", "bulk"
QUEUES = 4
TOPICS = (KEYS, BATCHES, WORK, ONCE, LATER, DEBITS, CREDITS, REGISTER, PORT, BULK)
WINDOW_MS = 86_400_000
WORKERS = "workers"
TIMEOUT_S = 30.0
"""Of a client that waits until all is well again: no fault is longer."""

UNDER_WAY_MAX = 16


@dataclass(frozen=True)
class Place:
    """Where a client is, what it draws by, and where it records; ``folder`` is the run's."""

    name: str
    addresses: str
    ports: Sequence[str]
    folder: Path
    chance: random.Random
    records: Recorder


class Client:
    """One client; a context, within which ``turn`` is called again and again.

    Attributes:
        pause_s: between two turns: nodes are to be at work, and not to be overwhelmed.
    """

    pause_s = 0.1

    def __init__(self, place: Place) -> None:
        self.place = place
        self.chance = place.chance
        self.records = place.records
        self.opened = ExitStack()
        self._values = 0

    def turn(self) -> None:
        """Do one thing."""
        raise NotImplementedError

    def finish(self) -> None:
        """What is to be done behind the last turn."""

    def value(self) -> str:
        """One that nobody had before: the first word of a body."""
        self._values += 1
        return f"{self.place.name}-{self._values}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.opened.close()

    def options(self, timeout_s: float = TIMEOUT_S) -> ProducerOptions:
        return ProducerOptions(timeout_s=timeout_s)

    def body(self, value: str) -> bytes:
        """A value, and some more behind it."""
        return f"{value} ".encode() + b"x" * self.chance.randrange(300)


class Sends:
    """Sends that are under way, at most some at a time, each recorded with its outcome."""

    def __init__(self, records: Recorder) -> None:
        self._records = records
        self._under_way: deque[SendFuture[Any]] = deque()

    def one(self, number: int, send: Any) -> None:
        """Send one message by ``send(callback=…)``; ``number`` is its operation's."""

        def note(future: SendFuture[SendResult]) -> None:
            self._note(number, future, lambda: place_of(future.result(0)))

        self._send(number, send, note)

    def batch(self, number: int, send: Any) -> None:
        """Send several by ``send(callback=…)``."""

        def note(future: SendFuture[BatchResult]) -> None:
            self._note(number, future, lambda: places_of(future.result(0)))

        self._send(number, send, note)

    def wait(self) -> None:
        """Until not too many are under way."""
        while self._under_way and (
            self._under_way[0].done() or len(self._under_way) > UNDER_WAY_MAX
        ):
            self._under_way.popleft().exception()

    def wait_all(self) -> None:
        """Until none is."""
        while self._under_way:
            self._under_way.popleft().exception()

    def _send(self, number: int, send: Any, note: Any) -> None:
        try:
            self._under_way.append(send(callback=note))
        except LedgerError as error:
            self._records.failed(number, error, is_send=True)

    def _note(self, number: int, future: SendFuture[Any], told: Any) -> None:
        error = future.exception(0)
        if error is None:
            self._records.ok(number, **told())
        else:
            self._records.failed(number, error, is_send=True)


def place_of(result: SendResult) -> dict[str, Any]:
    """Where a message is, as it is recorded."""
    return {
        "queues": [result.queue_id],
        "offsets": [result.queue_offset],
        "positions": [result.physical_offset],
        "duplicates": [result.is_duplicate],
        "id": result.unique_id,
    }


def places_of(results: BatchResult) -> dict[str, Any]:
    """The same of a batch."""
    return {
        "queues": [one.queue_id for one in results],
        "offsets": [one.queue_offset for one in results],
        "positions": [one.physical_offset for one in results],
        "duplicates": [one.is_duplicate for one in results],
    }
