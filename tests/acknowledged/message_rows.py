"""Verbs by which messages are stored, held back, moved and given back: each once, or never."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ledgermq.client.core.results import SendResult
from ledgermq.client.sending.delivery import delivery_of
from ledgermq.client.sending.message_options import QueueChoice
from ledgermq.client.sending.outgoing import OutgoingMessage, properties_bytes
from ledgermq.client.sending.record_encoder import Column, Form, RecordEncoder, RowColumns, Target
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.client.sending.transaction_parts import HALF, Parts
from ledgermq.formats.records.message_id import UniqueIdMaker
from ledgermq.formats.records.properties import STAGE
from ledgermq.model.errors import LedgerError, MessageIllegalError
from ledgermq.model.limits import STAGED_TOPIC
from ledgermq.model.names.stages import Stage
from ledgermq.model.offset_ranges import ranges_of
from ledgermq.wire.send_frame import SendRun
from ledgermq.wire.staged_pack import encode_pack
from tests.acknowledged.rows import (
    WORLD,
    WORLD_MESSAGES,
    WORLD_QUEUES,
    Arguments,
    ForgottenError,
    Note,
    Row,
    Stored,
    outcome_of,
)
from tests.acknowledged.steps import (
    Connections,
    Errand,
    Pause,
)
from tests.suite.patience import PATIENCE_S

PLAIN, ONCE, LATER, BOUGHT, SUNK = "ack-plain", "ack-once", "ack-later", "ack-bought", "ack-sunk"
TOPICS = {PLAIN: 4, ONCE: 1, LATER: 2, BOUGHT: 2, SUNK: 2}
DEDUPLICATION_MS = 3_600_000
DAY_MS = 86_400_000
DEAD = -1
SOON = 1
"""Delay level of a second."""

SOON_MS = 1_000
COMES_MS = 500
"""So long after its time a delayed message has come, where nothing is wrong; else the end waits."""

CANCELLED_AFTER_MS = 3_000
ROWS = 2
CONSUMED = 5
"""Messages of a queue, of which a batch's rows were made."""

PAUSE_S = 0.02
PRODUCERS = "ack-producers"


def _put(
    to: Connections,
    topic: str,
    body: bytes,
    *,
    unique_id: str | None = None,
    level: int = 0,
    delay_ms: int | None = None,
) -> SendFuture[SendResult]:
    delivery = delivery_of(level, delay=delay_ms, deliver_at=None)
    choice = QueueChoice(topic.encode(), 0, None, delivery)
    message = OutgoingMessage(body, unique_id=unique_id)
    return to.producer.send_to(choice, message, queues=TOPICS[topic])


def _body(note: Note) -> bytes:
    return f"{note.row.verb} {note.name}".encode()


def _least(note: Note) -> int:
    return int(note.is_acknowledged)


@dataclass
class PlainSend(Row):
    """A message for a queue."""

    verb: str = "SEND"

    def act(self, note: Note, to: Connections) -> Errand:
        note.is_begun = True
        result: SendResult = yield _put(to, PLAIN, _body(note))
        note.facts["offset"] = result.queue_offset
        note.is_acknowledged = True

    def again(self, note: Note, to: Connections) -> Errand:
        """To send it again is another message."""
        yield from ()

    def read(self, note: Note, to: Connections) -> Errand:
        """It is in the log; to its queue it comes a moment later, as docs/testing.md says."""
        limit = time.monotonic() + PATIENCE_S
        while note.is_acknowledged:
            queue = yield to.ask("queue", topic=PLAIN, queue=0)
            if queue["max"] > note.facts["offset"]:
                return
            if time.monotonic() > limit:
                raise ForgottenError(f"stored at {note.facts['offset']}, the queue has {queue}")
            yield Pause(PAUSE_S)

    def stored(self, note: Note) -> list[Stored]:
        return [Stored(PLAIN, _body(note), _least(note), 1)]


@dataclass
class DeduplicatedSend(Row):
    """A message that is stored once, however often it is sent."""

    verb: str = "SEND once"

    def act(self, note: Note, to: Connections) -> Errand:
        note.is_begun = True
        result = yield _put(to, ONCE, _body(note), unique_id=f"once-{note.name}")
        note.facts["offset"] = result.queue_offset
        note.is_acknowledged = True

    def again(self, note: Note, to: Connections) -> Errand:
        result = yield _put(to, ONCE, _body(note), unique_id=f"once-{note.name}")
        if note.is_acknowledged and not result.is_duplicate:
            raise ForgottenError(f"stored twice: {result}")
        note.facts["offset"] = result.queue_offset
        note.is_acknowledged = True

    def read(self, note: Note, to: Connections) -> Errand:
        yield from ()

    def stored(self, note: Note) -> list[Stored]:
        return [Stored(ONCE, _body(note), _least(note), 1)]


@dataclass
class DelayedSend(Row):
    """A message by a delay level, or by a time of its own."""

    verb: str
    delay_ms: int | None = None

    def act(self, note: Note, to: Connections) -> Errand:
        if self.delay_ms is None:
            delay_ms, sent = SOON_MS, _put(to, LATER, _body(note), level=SOON)
        else:
            # Some are due before the node dies, some while it is dead, some later.
            delay_ms = self.delay_ms * (1 + note.number % 10)
            sent = _put(to, LATER, _body(note), delay_ms=delay_ms)
        note.facts["due"] = time.monotonic() + (delay_ms + COMES_MS) / 1_000
        note.is_begun = True
        yield sent
        note.is_acknowledged = True

    def again(self, note: Note, to: Connections) -> Errand:
        """To send it again is another message."""
        yield from ()

    def read(self, note: Note, to: Connections) -> Errand:
        """What waits shows when it comes: the end counts."""
        yield from ()

    def stored(self, note: Note) -> list[Stored]:
        return [Stored(LATER, _body(note), _least(note), 1)]


@dataclass
class FarTimer(Row):
    """A message that waits for a day: it is listed until then."""

    verb: str = "SEND far"

    def act(self, note: Note, to: Connections) -> Errand:
        sent = _put(to, LATER, _body(note), delay_ms=DAY_MS)
        note.facts["id"] = sent.unique_id
        note.is_begun = True
        yield sent
        note.is_acknowledged = True

    def again(self, note: Note, to: Connections) -> Errand:
        yield from ()

    def read(self, note: Note, to: Connections) -> Errand:
        listed = yield to.ask("timers", count=1_000)
        # They are listed as they are due, a thousand at once.
        is_listed = any(row["id"] == note.facts["id"] for row in listed["timers"])
        if note.is_acknowledged and not is_listed and len(listed["timers"]) < 1_000:
            raise ForgottenError(
                f"timer not listed: {note.facts['id']}, of {listed['waiting']} that wait"
            )

    def stored(self, note: Note) -> list[Stored]:
        return [Stored(LATER, _body(note), 0, 0)]


@dataclass
class TimerCancel(Row):
    """A message that is taken back before its time."""

    verb: str = "timer_cancel"

    def act(self, note: Note, to: Connections) -> Errand:
        """The message is sent here, too: it comes before all others are prepared, else."""
        sent = _put(to, LATER, _body(note), delay_ms=CANCELLED_AFTER_MS)
        note.facts["id"] = sent.unique_id
        yield sent
        note.facts["due"] = time.monotonic() + CANCELLED_AFTER_MS / 1_000
        note.is_begun = True
        yield to.ask("timer_cancel", id=note.facts["id"])
        note.is_acknowledged = True

    def again(self, note: Note, to: Connections) -> Errand:
        outcome = yield from outcome_of(to.ask("timer_cancel", id=note.facts["id"]))
        if not isinstance(outcome, LedgerError):
            if note.is_acknowledged:
                raise ForgottenError("taken back twice")
            note.is_acknowledged = True
        elif not isinstance(outcome, MessageIllegalError):
            raise ForgottenError(f"the same call again: {outcome!r}")

    def read(self, note: Note, to: Connections) -> Errand:
        listed = yield to.ask("timers", count=1_000)
        if note.is_acknowledged and any(row["id"] == note.facts["id"] for row in listed["timers"]):
            raise ForgottenError(f"taken back, and listed: {note.facts['id']}")

    def stored(self, note: Note) -> list[Stored]:
        return [Stored(LATER, _body(note), 0, 0 if note.is_acknowledged else 1)]


def _half(note: Note, to: Connections, group: str = PRODUCERS) -> SendFuture[SendResult]:
    note.facts["group"] = group
    parts = Parts(group)
    half = parts.add(BOUGHT, 0, OutgoingMessage(_body(note)))
    note.facts["transaction"] = parts.id
    return to.producer.send_to(HALF, half)


def _end(note: Note, decision: str) -> Arguments:
    return {
        "group": note.facts["group"],
        "transaction": note.facts["transaction"],
        "decision": decision,
        "messages": 1,
        "offset": note.facts["offset"],
    }


@dataclass
class TransactionEnd(Row):
    """A transaction of one message, committed or rolled back."""

    verb: str
    decision: str

    def prepare(self, note: Note, to: Connections) -> Errand:
        result = yield _half(note, to)
        note.facts["offset"] = result.queue_offset

    def act(self, note: Note, to: Connections) -> Errand:
        note.is_begun = True
        yield to.ask("transaction_end", **_end(note, self.decision))
        note.is_acknowledged = True

    def again(self, note: Note, to: Connections) -> Errand:
        answer = yield to.ask("transaction_end", **_end(note, self.decision))
        if note.is_acknowledged and answer["messages"]:
            raise ForgottenError(f"ended twice: {answer}")
        note.is_acknowledged = True

    def read(self, note: Note, to: Connections) -> Errand:
        listed = yield to.ask("transactions", count=1_000)
        names = [row["transaction"] for row in listed["transactions"]]
        if note.is_acknowledged and note.facts["transaction"] in names:
            raise ForgottenError("transaction has ended, and waits for its end")

    def stored(self, note: Note) -> list[Stored]:
        if self.decision == "rollback":
            return [Stored(BOUGHT, _body(note), 0, 0)]
        return [Stored(BOUGHT, _body(note), _least(note), 1)]


@dataclass
class HalfMessage(Row):
    """A half message is stored, and its transaction ended after the death.

    Attributes:
        is_asked: only once its producers were asked how it ended.
    """

    verb: str
    is_asked: bool = False

    def is_for(self, connections: Connections) -> bool:
        """Only nodes that are alone ask often (``nodes.QUICK``)."""
        return connections.has_port or not self.is_asked

    def act(self, note: Note, to: Connections) -> Errand:
        half = _half(note, to, f"asked-{note.name}" if self.is_asked else PRODUCERS)
        note.is_begun = True
        note.facts["offset"] = (yield half).queue_offset
        note.is_acknowledged = True

    def again(self, note: Note, to: Connections) -> Errand:
        if not note.is_acknowledged:
            return
        if self.is_asked and "ended" not in note.facts:
            yield from self._question(note, to)
        answer = yield to.ask("transaction_end", **_end(note, "commit"))
        if answer["messages"] != 1 - note.facts.get("ended", 0):
            raise ForgottenError(f"commit of a half message came to {answer}")
        note.facts["ended"] = 1

    def _question(self, note: Note, to: Connections) -> Errand:
        limit = time.monotonic() + PATIENCE_S
        while time.monotonic() < limit:
            told = yield to.ask("transaction_checks", group=note.facts["group"], wait_ms=5_000)
            if note.facts["transaction"] in [one["transaction"] for one in told["checks"]]:
                return
        raise ForgottenError("nobody is asked how the transaction ended")

    def read(self, note: Note, to: Connections) -> Errand:
        listed = yield to.ask("transactions", count=1_000)
        names = [row["transaction"] for row in listed["transactions"]]
        is_listed = note.facts["transaction"] in names or len(names) == 1_000
        if note.is_acknowledged and "ended" not in note.facts and not is_listed:
            raise ForgottenError("half message is not listed")

    def stored(self, note: Note) -> list[Stored]:
        ended = note.facts.get("ended", 0)
        return [Stored(BOUGHT, _body(note), ended, ended)]


@dataclass
class SendBack(Row):
    """A message that a group gives back: it dies at once, or comes again after a second."""

    verb: str
    level: int

    def _arguments(self, note: Note) -> Arguments:
        return {
            "group": f"back{self.level}-{note.name}",
            "topic": WORLD,
            "queue": note.number % WORLD_QUEUES,
            "offset": note.number % WORLD_MESSAGES,
            "delay_level": self.level,
            "token": f"token{self.level}-{note.name}",
        }

    def act(self, note: Note, to: Connections) -> Errand:
        if self.level != DEAD:
            note.facts["due"] = time.monotonic() + (SOON_MS + COMES_MS) / 1_000
        note.is_begun = True
        yield to.ask("send_back", **self._arguments(note))
        note.is_acknowledged = True

    def again(self, note: Note, to: Connections) -> Errand:
        answer = yield to.ask("send_back", **self._arguments(note))
        if note.is_acknowledged and not answer["repeated"]:
            raise ForgottenError(f"given back twice: {answer}")
        note.is_acknowledged = True

    def read(self, note: Note, to: Connections) -> Errand:
        if self.level != DEAD:
            return
        letters = yield to.ask("dead_letters", group=f"back{self.level}-{note.name}")
        if note.is_acknowledged and sum(row["max"] for row in letters["queues"]) != 1:
            raise ForgottenError(f"dead letters are {letters}")

    def stored(self, note: Note) -> list[Stored]:
        prefix = "%DLQ%" if self.level == DEAD else "%RETRY%"
        return [Stored(f"{prefix}back{self.level}-{note.name}", None, _least(note), 1)]


@dataclass
class Replay(Row):
    """A dead letter that is given to its group once more."""

    verb: str = "dead_letters_replay"

    def _arguments(self, note: Note) -> Arguments:
        return {
            "group": f"replay-{note.name}",
            "queue": 0,
            "offsets": [0],
            "origin": False,
            "again": False,
            "token": note.number + 1,
        }

    def prepare(self, note: Note, to: Connections) -> Errand:
        back = SendBack("send_back", DEAD)._arguments(note)
        yield to.ask("send_back", **{**back, "group": f"replay-{note.name}"})

    def act(self, note: Note, to: Connections) -> Errand:
        note.is_begun = True
        answer = yield to.ask("dead_letters_replay", **self._arguments(note))
        if answer["replayed"] != [0]:
            raise ForgottenError(f"not replayed: {answer}")
        note.is_acknowledged = True

    def again(self, note: Note, to: Connections) -> Errand:
        """By somebody else: the token of who asked first is known as well."""
        token = 10_000_000 + note.number if note.number % 2 else note.number + 1
        answer = yield to.ask("dead_letters_replay", **{**self._arguments(note), "token": token})
        if note.is_acknowledged and note.number % 2 and answer["already"] != [0]:
            raise ForgottenError(f"replayed twice: {answer}")
        if [0] not in (answer["replayed"], answer["already"]):
            raise ForgottenError(f"not replayed: {answer}")
        note.is_acknowledged = True

    def read(self, note: Note, to: Connections) -> Errand:
        letters = yield to.ask("dead_letters", group=f"replay-{note.name}")
        if note.is_acknowledged and [row["replayed"] for row in letters["queues"]] != [[[0, 1]]]:
            raise ForgottenError(f"dead letters are {letters}")

    def stored(self, note: Note) -> list[Stored]:
        return [
            Stored(f"%RETRY%replay-{note.name}", None, _least(note), 1),
            Stored(f"%DLQ%replay-{note.name}", None, 1, 1),
        ]


@dataclass
class SinkBatch(Row):
    """Rows that are staged, and committed: at once, or after the death.

    Attributes:
        call: by which they are; one that has ``consumed`` in its name tells of a group, too.
    """

    verb: str
    is_committed_first: bool
    call: str = "sink_commit"

    def _bodies(self, note: Note) -> list[bytes]:
        return [f"{self.verb} {note.name} {row}".encode() for row in range(ROWS)]

    def _stage(self, note: Note, to: Connections) -> SendFuture[SendResult]:
        producer = to.producer
        form = producer.form()
        rows_form = Form(0, form.store_host_size, form.body_size_max)
        host = producer.born_host
        encoder = RecordEncoder(rows_form, born_host=host, ids=UniqueIdMaker(host[0]))
        own = [properties_bytes(None, (), None)] * ROWS
        rows = RowColumns(Column.of(self._bodies(note)), Column.of(own), b"\1" * ROWS)
        records, sizes = encoder.encode_rows(Target(SUNK.encode(), 0), rows, 0, ROWS)
        runs = [SendRun(ROWS, 0, SUNK.encode())]
        pack = encode_pack(form.store_host_size, sizes.tobytes(), runs, records)
        stage = Stage(f"sink-{note.name}", 1, "stage")
        message = OutgoingMessage(pack, properties={STAGE: stage.label})
        return producer.send_to(QueueChoice(STAGED_TOPIC.encode(), 0), message)

    @property
    def _has_group(self) -> bool:
        return "consumed" in self.call

    def _commit(self, note: Note) -> Arguments:
        group = {"group": f"sunk-{note.name}", "consumed": {WORLD: {"0": [None, CONSUMED]}}}
        return {
            **(group if self._has_group else {}),
            "sink": f"sink-{note.name}",
            "batch": 1,
            "stages": [["stage", ranges_of((note.facts["offset"],))]],
            "once": bool(note.number % 2),
        }

    def prepare(self, note: Note, to: Connections) -> Errand:
        if self.is_committed_first:
            note.facts["offset"] = (yield self._stage(note, to)).queue_offset

    def act(self, note: Note, to: Connections) -> Errand:
        note.is_begun = True
        if self.is_committed_first:
            yield to.ask(self.call, **self._commit(note))
            note.facts["committed"] = True
        else:
            note.facts["offset"] = (yield self._stage(note, to)).queue_offset
        note.is_acknowledged = True

    def again(self, note: Note, to: Connections) -> Errand:
        if "offset" not in note.facts:
            return
        answer = yield to.ask(self.call, **self._commit(note))
        if "committed" in note.facts and not answer["already"]:
            raise ForgottenError(f"committed twice: {answer}")
        note.facts["committed"] = note.is_acknowledged = True

    def read(self, note: Note, to: Connections) -> Errand:
        listed = yield to.ask("sinks")
        names = [row["sink"] for row in listed["sinks"]]
        if "committed" in note.facts and f"sink-{note.name}" not in names:
            raise ForgottenError("batch is not known")
        if "committed" in note.facts and self._has_group:
            group = f"sunk-{note.name}"
            answer = yield to.ask("group_offset", group=group, topic=WORLD)
            if answer["offsets"] != {"0": CONSUMED}:
                raise ForgottenError(f"batch is known, and not its offset: {answer}")

    def stored(self, note: Note) -> list[Stored]:
        least = int("committed" in note.facts)
        return [Stored(SUNK, body, least, 1) for body in self._bodies(note)]


def message_rows() -> list[Row]:
    """All of them."""
    return [
        PlainSend(),
        DeduplicatedSend(),
        DelayedSend("SEND later"),
        DelayedSend("SEND timed", 250),
        FarTimer(),
        TimerCancel(),
        HalfMessage("SEND half"),
        HalfMessage("SEND half asked", is_asked=True),
        TransactionEnd("transaction_end", "commit"),
        TransactionEnd("transaction_end rollback", "rollback"),
        SendBack("send_back", SOON),
        SendBack("send_back dead", DEAD),
        Replay(),
        SinkBatch("SEND staged", is_committed_first=False),
        SinkBatch("sink_commit", is_committed_first=True),
        SinkBatch("sink_commit_consumed", True, "sink_commit_consumed"),
    ]
