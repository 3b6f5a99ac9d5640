"""Readers: members of a group that give messages back, and readers of a whole topic."""

from __future__ import annotations

from collections.abc import Sequence

from ledgermq.client import (
    Consumer,
    GroupConsumer,
    MessageBatch,
    RebalanceListener,
    TopicQueue,
)
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.model.errors import LedgerError
from tests.random_faults.clients.place import (
    BATCHES,
    CREDITS,
    DEBITS,
    KEYS,
    LATER,
    TIMEOUT_S,
    WORK,
    WORKERS,
    Client,
    Place,
)
from tests.random_faults.records import Recorder

POLL_S = 0.5
GIVEN_BACK = 0.05
TAILED = (KEYS, BATCHES, LATER, DEBITS, CREDITS)
OPTIONS = ConsumerOptions(messages_max=64, hold_ms=500, timeout_s=TIMEOUT_S)


def value_of(body: bytes | memoryview) -> str:
    """The first word of a body."""
    return bytes(body).split(b" ", 1)[0].decode()


class GroupMember(Client, RebalanceListener):
    """A member of a group: commits what it reads, gives some back once."""

    pause_s = 0.0

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._consumer = self.opened.enter_context(
            GroupConsumer(
                place.addresses, group=WORKERS, name=place.name, options=OPTIONS, listener=self
            )
        )
        self._consumer.subscribe(WORK)

    def on_assigned(self, queues: Sequence[TopicQueue]) -> None:
        """Record it."""
        self._note("assigned", queues)

    def on_revoked(self, queues: Sequence[TopicQueue]) -> None:
        """Record it."""
        self._note("revoked", queues)

    def on_lost(self, queues: Sequence[TopicQueue]) -> None:
        """Record it."""
        self._note("lost", queues)

    def turn(self) -> None:
        """One batch."""
        number = self.records.begin("poll")
        try:
            batch = self._consumer.poll(POLL_S)
        except LedgerError as error:
            self.records.failed(number, error, is_send=False)
            return
        _note_read(self.records, number, batch)
        if not len(batch):
            return
        self._give_back(batch)
        number = self.records.begin("commit")
        try:
            self._consumer.commit()
        except LedgerError as error:
            self.records.failed(number, error, is_send=False)
        else:
            self.records.ok(number)

    def _give_back(self, batch: MessageBatch) -> None:
        for message in batch:
            if message.reconsume_times or self.chance.random() > GIVEN_BACK:
                continue
            number = self.records.begin("give back", values=[value_of(message.body)])
            try:
                self._consumer.retry_later(message, delay_level=1)
            except LedgerError as error:
                self.records.failed(number, error, is_send=False)
            else:
                self.records.ok(number)

    def _note(self, change: str, queues: Sequence[TopicQueue]) -> None:
        self.records.note(change, queues=[[one.topic, one.queue_id] for one in queues])


class TailReader(Client):
    """Reads a whole topic as it grows; each such client another one."""

    pause_s = 0.0

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        topic = TAILED[int(place.name.removeprefix("tail")) % len(TAILED)]
        self._consumer = self.opened.enter_context(
            Consumer(place.addresses, topic=topic, name=place.name, start="first", options=OPTIONS)
        )
        self._resets = 0

    def turn(self) -> None:
        """One batch."""
        number = self.records.begin("read", topic=self._consumer.topic)
        try:
            batch = self._consumer.poll(POLL_S)
            resets = len(self._consumer.resets)
        except LedgerError as error:
            self.records.failed(number, error, is_send=False)
            return
        _note_read(self.records, number, batch)
        if resets > self._resets:
            self.records.note("reset", told=str(self._consumer.resets[self._resets :]))
            self._resets = resets


def _note_read(records: Recorder, number: int, batch: MessageBatch) -> None:
    messages = list(batch)
    told = {
        "topic": messages[0].stored_topic if messages else "",
        "queue": messages[0].queue_id if messages else 0,
        "offsets": [one.queue_offset for one in messages],
        "values": [value_of(one.body) for one in messages],
        "times": [one.reconsume_times for one in messages],
    }
    records.ok(number, **told)
