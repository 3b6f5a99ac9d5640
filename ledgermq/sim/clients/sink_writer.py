"""Simulated writer of batches: each staged by attempts, of which one is to count."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby

from ledgermq.formats.records.message import Message, encode_message
from ledgermq.formats.records.properties import STAGE, UNIQ_KEY, encode_properties
from ledgermq.model.errors import LedgerError, StagedUnknownError
from ledgermq.model.limits import STAGED_TOPIC
from ledgermq.model.names.stages import Stage
from ledgermq.model.offset_ranges import ranges_of
from ledgermq.sim.checks.checker import CommittedMessage, require
from ledgermq.sim.checks.service_checker import SentMessage, ServiceChecker
from ledgermq.sim.checks.sink_checker import Attempt
from ledgermq.sim.clients.producer import STORE_HOST_SIZE, plain_messages
from ledgermq.sim.clients.service_clients import ServiceClient, is_undone, is_unknown
from ledgermq.sim.machine.consumer_port import Outcome
from ledgermq.sim.node import QUEUES, TOPIC
from ledgermq.sim.world import World
from ledgermq.wire.send_frame import SendRun
from ledgermq.wire.staged_pack import encode_pack

PACKS_MAX = 2
ACT_MS = 40
FORGETS_FRACTION = 0.4
"""Share of the acknowledged commits that their driver has not noted when it dies."""

WAIT_MS = 1_000


@dataclass(slots=True)
class _Staging:
    """An attempt whose packs are being stored, ``wanted`` of them."""

    attempt: Attempt
    wanted: int
    planned: int = 0
    offsets: list[int] = field(default_factory=list)


class SinkWriter(ServiceClient):
    """Stages one attempt after the other, and commits batches with those that are whole.

    As drivers that die and tasks that run twice would, it asks for a batch with several attempts
    while it does not know of a commit, or has forgotten it; what it does not need it drops, or
    leaves behind.

    Attributes:
        batch: the one that is to be committed next.
    """

    def __init__(self, world: World, name: str, checker: ServiceChecker) -> None:
        super().__init__(world, name)
        self.batch = 0
        self._checker = checker
        self._staging: _Staging | None = None
        self._of_frame: dict[int, _Staging] = {}
        self._whole: list[_Staging] = []
        self._numbers = count()

    def make(self, number: int) -> Sequence[Message]:
        """The next pack, as the frame with this number."""
        staging = self._staging
        if staging is None or staging.planned == staging.wanted:
            attempt = Attempt(f"{self.name}-{next(self._numbers)}", self.batch)
            staging = _Staging(attempt, self.random.randint(1, PACKS_MAX))
            self._staging = staging
        name = f"{staging.attempt.name}-{staging.planned}"
        staging.planned += 1
        self._of_frame[number] = staging
        rows = plain_messages(name, number, self.random)
        self._checker.sinks.plan(staging.attempt, [row.unique_id for row in rows])
        self._checker.plan(name, SentMessage(STAGED_TOPIC, STAGED_TOPIC))
        stage = Stage(self.name, staging.attempt.batch, staging.attempt.name)
        return [
            Message(
                topic=STAGED_TOPIC,
                queue_id=0,
                body=_pack_of(rows),
                properties=encode_properties({UNIQ_KEY: name, STAGE: stage.label}),
            )
        ]

    def take(self, number: int, stored: Sequence[CommittedMessage]) -> None:
        """The pack of that frame is stored."""
        staging = self._of_frame.pop(number)
        staging.offsets += [one.queue_offset for one in stored]
        if len(staging.offsets) == staging.wanted:
            self._whole.append(staging)

    def act(self) -> None:
        """Commit the batch with an attempt, or drop one that came too late."""
        if self.is_stopped:
            return
        late = [one for one in self._whole if one.attempt.batch < self.batch]
        self._whole = [one for one in self._whole if one.attempt.batch == self.batch]
        if late and self.random.random() < 0.3:
            asked = {"sink": self.name, "batch": late[0].attempt.batch}
            stages = [] if self.random.random() < 0.5 else [one.attempt.name for one in late]
            self.ask("sink_abort", {**asked, "stages": stages}, lambda _: self._go_on())
        elif self._whole:
            self._commit(self.random.choice(self._whole))
        else:
            self._go_on()

    def _go_on(self) -> None:
        self.soon(self.act, ACT_MS)

    def _commit(self, staging: _Staging) -> None:
        attempt = staging.attempt
        attempt.is_asked = True

        def answered(outcome: Outcome | None) -> None:
            if isinstance(outcome, Mapping):
                rows, is_already = outcome["rows"], outcome["already"]
                assert isinstance(rows, int), rows
                self._checker.sinks.commits(attempt, rows=rows, is_already=bool(is_already))
                if self.random.random() >= FORGETS_FRACTION:
                    self.batch = attempt.batch + 1
                if self.random.random() < 0.5:
                    self._wait(attempt.batch)
                    return
            elif isinstance(outcome, StagedUnknownError):
                # Dropped, since it took too long; another attempt will do.
                self._whole.remove(staging)
            elif not is_undone(outcome) and not is_unknown(outcome):
                assert isinstance(outcome, LedgerError)
                raise outcome
            self._go_on()

        stages = [[attempt.name, ranges_of(staging.offsets)]]
        asked = {"sink": self.name, "batch": attempt.batch, "stages": stages, "once": False}
        self.ask("sink_commit", asked, answered)

    def _wait(self, batch: int) -> None:
        def answered(outcome: Outcome | None) -> None:
            if isinstance(outcome, Mapping):
                is_visible = not outcome["done"] or self._checker.sinks.is_visible(batch)
                require(is_visible, "a batch is said to be visible when it is", batch)
            elif not is_undone(outcome) and not is_unknown(outcome):
                assert isinstance(outcome, LedgerError)
                raise outcome
            self._go_on()

        self.ask("sink_wait", {"sink": self.name, "batch": batch, "wait_ms": WAIT_MS}, answered)


def _pack_of(rows: Sequence[Message]) -> bytes:
    records = [encode_message(row) for row in rows]
    runs = [
        SendRun(sum(1 for _ in run), queue_id, TOPIC.encode())
        for queue_id, run in groupby(row.queue_id for row in rows)
    ]
    assert all(0 <= run.queue_id < QUEUES for run in runs), runs
    sizes = array("I", map(len, records)).tobytes()
    return encode_pack(STORE_HOST_SIZE, sizes, runs, b"".join(records))
