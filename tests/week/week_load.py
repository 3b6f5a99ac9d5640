"""What is sent in the week, and what is known of each message that was acknowledged."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from hashlib import shake_128
from typing import NamedTuple

from ledgermq.client import BatchResult, Producer, ProducerOptions
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.model.errors import LedgerError
from tests.suite.patience import PATIENCE_S

TOPICS, QUEUES = 20, 2
FOR_EVER = 5
"""So many topics have no age."""

BODY_SIZE, BATCH = 3_000, 4
RATE, IN_FLIGHT = 25, 8
"""Batches a second, and those without an answer, at most."""


class AgedTopic(NamedTuple):
    """A topic, and how old its messages get, in ms; 0: as old as anything."""

    name: str
    keep_ms: int


def aged_topics(minutes: float) -> list[AgedTopic]:
    """Ages from a minute of an hour to 48 of it, and for ever."""
    count = TOPICS - FOR_EVER
    ages = [minutes * 1_000 * 48 ** (number / (count - 1)) for number in range(count)]
    return [AgedTopic(f"aged{number}", int(age)) for number, age in enumerate(ages)] + [
        AgedTopic(f"kept{number}", 0) for number in range(FOR_EVER)
    ]


def body_of(topic: str, number: int) -> bytes:
    """The body of a message; no compression makes less of it."""
    name = f"{topic} {number} ".encode()
    return name + shake_128(name).digest(BODY_SIZE)


class Stored(NamedTuple):
    """Where a message is."""

    position: int
    stored_ms: int
    body: bytes


class Sending(NamedTuple):
    """What was sent and has no answer yet."""

    topic: str
    queue: int
    bodies: list[bytes]
    future: SendFuture[BatchResult]


Places = dict[tuple[str, int], dict[int, Stored]]
"""By topic and queue, then by offset; a body as its first words."""


def name_in(body: bytes) -> bytes:
    """The words that a body was made of.

    Raises:
        AssertionError: it is not what was sent.
    """
    topic, number, _ = body.split(b" ", 2)
    assert body == body_of(topic.decode(), int(number)), body[:60]
    return b"%s %s" % (topic, number)


class WeekLoad:
    """A thread that sends to all topics until it is told to stop, whatever becomes of the nodes."""

    def __init__(self, addresses: Sequence[str], topics: Sequence[AgedTopic], seed: int) -> None:
        self._addresses = list(addresses)
        self._topics = topics
        self._chance = random.Random(seed)
        self._stop = threading.Event()
        self._guard = threading.Lock()
        self._acknowledged: Places = defaultdict(dict)
        self.refused: Counter[str] = Counter()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def acknowledged(self, topic: str) -> dict[int, dict[int, Stored]]:
        """What was acknowledged of a topic until now, by queue and offset."""
        with self._guard:
            return {queue: dict(self._acknowledged[topic, queue]) for queue in range(QUEUES)}

    def count(self) -> int:
        """How many messages were acknowledged."""
        with self._guard:
            return sum(map(len, self._acknowledged.values()))

    def check(self) -> None:
        """Raise what has ended it, if anything has."""
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Send no more."""
        self._stop.set()
        self._thread.join()
        self.check()

    def _run(self) -> None:
        number = 0
        try:
            options = ProducerOptions(timeout_s=PATIENCE_S)
            with Producer(self._addresses, options=options) as producer:
                waiting: deque[Sending] = deque()
                while not self._stop.wait(1 / RATE):
                    waiting.append(self._send(producer, number))
                    number += BATCH
                    if len(waiting) >= IN_FLIGHT:
                        self._take(waiting.popleft())
                while waiting:
                    self._take(waiting.popleft())
        except BaseException as error:
            self._error = error

    def _send(self, producer: Producer, number: int) -> Sending:
        topic = self._chance.choice(self._topics).name
        queue = self._chance.randrange(QUEUES)
        bodies = [body_of(topic, one) for one in range(number, number + BATCH)]
        return Sending(topic, queue, bodies, producer.send_batch(topic, bodies, queue_id=queue))

    def _take(self, sending: Sending) -> None:
        topic, queue, bodies, future = sending
        try:
            results = future.result(PATIENCE_S)
        except LedgerError as error:
            # It may be stored, and nobody was promised it.
            self.refused[type(error).__name__] += 1
            return
        with self._guard:
            for body, one in zip(bodies, results, strict=True):
                self._acknowledged[topic, queue][one.queue_offset] = Stored(
                    one.physical_offset, one.store_timestamp, name_in(body)
                )
