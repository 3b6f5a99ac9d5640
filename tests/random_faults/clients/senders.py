"""Senders: of messages with keys, of batches, of work for a group, of ids that are sent again."""

from __future__ import annotations

import time
from collections import deque
from functools import partial

from ledgermq.client import OutgoingMessage, Producer
from tests.random_faults.clients.place import (
    BATCHES,
    BULK,
    KEYS,
    ONCE,
    QUEUES,
    TIMEOUT_S,
    WORK,
    Client,
    Place,
    Sends,
)

KEYS_COUNT = 16
BURST_MAX = 4
BATCH_MAX = 8
IMPATIENT_S = 1.0
REMEMBERED = 300
FLOOD = "flood"
"""The file that says that much is to be sent."""

BULK_BATCHES, BULK_BODIES, BULK_BODY = 24, 32, 16_384
"""More than a leader has in mind of what clients may send again (``bed.LIMITS``)."""


class _Sender(Client):
    topic = ""
    timeout_s = TIMEOUT_S

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.producer = self.opened.enter_context(
            Producer(place.addresses, name=place.name, options=self.options(self.timeout_s))
        )
        self.sends = Sends(self.records)

    def finish(self) -> None:
        """Wait for all outcomes."""
        self.sends.wait_all()


class KeySender(_Sender):
    """Messages with keys, several under way: those of one key are stored in their order."""

    topic = KEYS

    def turn(self) -> None:
        """A burst of single messages."""
        for _ in range(self.chance.randint(1, BURST_MAX)):
            key, value = f"{self.place.name}-{self.chance.randrange(KEYS_COUNT)}", self.value()
            number = self.records.begin("send", topic=KEYS, key=key, values=[value])
            self.sends.one(
                number,
                partial(self.producer.send, KEYS, self.body(value), queue_key=key, keys=[value]),
            )
        self.sends.wait()


class BatchSender(_Sender):
    """Batches and single messages to drawn queues; the second such client gives up soon."""

    topic = BATCHES

    def __init__(self, place: Place) -> None:
        self.timeout_s = IMPATIENT_S if place.name.endswith("1") else TIMEOUT_S
        super().__init__(place)

    def turn(self) -> None:
        """A burst."""
        for _ in range(self.chance.randint(1, BURST_MAX)):
            queue = self.chance.randrange(QUEUES)
            values = [self.value() for _ in range(self.chance.randint(1, BATCH_MAX))]
            number = self.records.begin("send", topic=self.topic, queue=queue, values=values)
            bodies = [self.body(value) for value in values]
            self.sends.batch(
                number, partial(self.producer.send_batch, self.topic, bodies, queue_id=queue)
            )
        self.sends.wait()


class WorkSender(BatchSender):
    """The same for a group of consumers."""

    topic = WORK
    pause_s = 0.4


class BulkSender(_Sender):
    """Little at most times, and very much as long as a file says so: while others are cut off."""

    topic = BULK
    pause_s = 0.5

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._left = BULK_BATCHES

    def turn(self) -> None:
        """A message, or one batch after the other."""
        if not (self.place.folder / FLOOD).exists():
            self._left = BULK_BATCHES
            self._send([b"little"])
            return
        while self._left > 0:
            self._left -= 1
            self._send([self.chance.randbytes(BULK_BODY) for _ in range(BULK_BODIES)])

    def _send(self, bodies: list[bytes]) -> None:
        values = [self.value() for _ in bodies]
        queue = self.chance.randrange(QUEUES)
        number = self.records.begin("send", topic=BULK, queue=queue, values=values)
        whole = [f"{value} ".encode() + body for value, body in zip(values, bodies, strict=True)]
        self.sends.batch(number, partial(self.producer.send_batch, BULK, whole, queue_id=queue))
        self.sends.wait_all()


class OnceSender(_Sender):
    """Ids that are sent again: at once by another such client, later by itself, within batches.

    Some of them are of a moment, which clients have in common.
    """

    topic = ONCE

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._sent: deque[str] = deque(maxlen=REMEMBERED)

    def turn(self) -> None:
        """One message, or a batch."""
        queue = self.chance.randrange(QUEUES)
        ids = [self._id() for _ in range(self.chance.choice((1, 1, 1, 3, 5)))]
        values = [self.value() for _ in ids]
        number = self.records.begin("send", topic=ONCE, queue=queue, values=values, ids=ids)
        messages = [
            OutgoingMessage(self.body(value), unique_id=one)
            for one, value in zip(ids, values, strict=True)
        ]
        self.sends.batch(number, partial(self.producer.send_batch, ONCE, messages, queue_id=queue))
        self.sends.wait()

    def _id(self) -> str:
        kind = self.chance.random()
        if kind < 0.4 and self._sent:
            return self.chance.choice(self._sent)
        if kind < 0.7:
            one = f"moment-{int(time.monotonic() * 2)}-{self.chance.randrange(2)}"
        else:
            one = f"id-{self.value()}"
        self._sent.append(one)
        return one
