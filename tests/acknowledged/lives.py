"""Lives of stores: verbs are called, everything dies, and what was acknowledged is asked for."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from ledgermq.client import Consumer
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.model.errors import LedgerError, TopicUnknownError
from ledgermq.store.store_view import StoreView
from tests.acknowledged.message_rows import DEDUPLICATION_MS, ONCE, TOPICS, message_rows
from tests.acknowledged.nodes import GroupOfThree, Nodes, SingleNode
from tests.acknowledged.port_rows import port_rows
from tests.acknowledged.rows import (
    WORLD,
    WORLD_MESSAGES,
    WORLD_QUEUES,
    ForgottenError,
    Note,
    Row,
    Stored,
)
from tests.acknowledged.share_rows import share_rows
from tests.acknowledged.steps import (
    Connections,
    Errand,
    Errands,
    Pause,
)
from tests.acknowledged.stores import Golden, Kind
from tests.acknowledged.table_rows import table_rows
from tests.process.conftest import Node
from tests.suite.patience import PATIENCE_S

PAUSE_MS_MAX = 2_000
ACTS = 2
"""Calls of each verb before a death."""

PREPARED = 0.75
"""In so many deaths what the first calls need is there when the time begins; else it takes its
part of it, and the later ones of these calls are not made."""

OPTIONS = ConsumerOptions(hold_ms=0, timeout_s=PATIENCE_S)
LOOK_S = 0.1

ROWS: tuple[Row, ...] = (*table_rows(), *message_rows(), *share_rows(), *port_rows())


@dataclass
class Tally:
    """What came of many deaths.

    Attributes:
        kills: of each verb and kind of store: deaths with a call of it before.
        findings: what was forgotten, or is there twice, or went wrong in another way.
    """

    rounds: int = 0
    kills: Counter[tuple[str, str]] = field(default_factory=Counter)
    acknowledged: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def count(self, notes: Iterable[Note], kind: str) -> None:
        """A death, and the calls before it."""
        self.rounds += 1
        begun = [note for note in notes if note.is_begun]
        self.kills.update({(note.row.verb, kind) for note in begun})
        for note in begun:
            (self.acknowledged if note.is_acknowledged else self.unknown)[note.row.verb] += 1

    def report(self) -> str:
        """Lines of a table: kills, acknowledged and unknown calls by verb; kills by kind."""
        by_verb: Counter[str] = Counter()
        by_kind: dict[str, list[int]] = {}
        for (verb, kind), count in self.kills.items():
            by_verb[verb] += count
            by_kind.setdefault(kind, []).append(count)
        lines = [f"{self.rounds} deaths, {len(self.findings)} findings"]
        lines += [
            f"  {verb:36} kills {by_verb[verb]:5}  acknowledged {self.acknowledged[verb]:6}"
            f"  unknown {self.unknown[verb]:5}"
            for verb in sorted(by_verb)
        ]
        lines += [
            f"  {kind:36} kills of a verb {max(counts):5}"
            for kind, counts in sorted(by_kind.items())
        ]
        return "\n".join([*lines, *self.findings])


class Life:
    """A store from its beginning: as many deaths as wanted, and what is in it in the end."""

    def __init__(
        self,
        kind: Kind,
        nodes: Nodes,
        chance: random.Random,
        tally: Tally,
        rows: Sequence[Row] = ROWS,
    ) -> None:
        self.kind = kind
        self._nodes = nodes
        self._chance = chance
        self._tally = tally
        self._rows = rows
        self._notes: list[Note] = []
        self._last: list[Note] = []
        self._numbers: Counter[str] = Counter()
        self._deaths = 0
        self._where = ""

    def run(self, deaths: int, change: Callable[[Path], None] | None = None) -> None:
        """Die so often, and end in order.

        Args:
            change: what happens to the files at the first death, besides what the kind wants.
        """
        self._nodes.start()
        self._nodes.wait_ready()
        for death in range(deaths):
            is_first = death == 0
            with closing(self._connect()) as to:
                self._look_after_death(to)
                self._nodes.start()
                self._nodes.wait_ready()
                self._act(to)
            changes = [one for one in (self.kind.change, change) if one and is_first]
            if is_first and self.kind.ends_in_order:
                with closing(self._connect()) as to:
                    # What is on its way when a node ends is in its log, and not in its files yet.
                    self._settle(to)
                for root in self._nodes.stop():
                    for one in changes:
                        one(root)
            else:
                self._nodes.kill(_in_turn(changes))
            self._tally.count(self._last, self.kind.name)
            if len(self._nodes.addresses) == 1:
                self._nodes.start()
                if self._chance.random() < 0.5:
                    self._nodes.wait_ready()
        with closing(self._connect()) as to:
            self._look_after_death(to)
            self._read_all(to)
            self._settle(to)
        for root in self._nodes.stop():
            self._audit(root)

    def _connect(self) -> Connections:
        return Connections(self._nodes.addresses, self._nodes.port, self._chance)

    def _act(self, to: Connections) -> None:
        errands = Errands(to)
        if not self._deaths:
            errands.begin(_prepare(to))
            errands.run()
        self._deaths += 1
        first = self._notes_of(to)
        if self._chance.random() < PREPARED:
            for note in first:
                errands.begin(self._guarded(note, "before the call", _prepared(note, to)))
            errands.run()
        longest_ms = PAUSE_MS_MAX
        if self._deaths == 1 and self._chance.random() < 0.5:
            # Files are written a second after the first change, for the first time.
            longest_ms = PAUSE_MS_MAX // 4
        pause_s = self._chance.uniform(0, longest_ms) / 1_000
        self._where = f"{self.kind.name}, death {self._deaths} after {1_000 * pause_s:.0f} ms"
        until = time.monotonic() + pause_s
        self._last = first
        for note in first:
            errands.begin(self._called(note, to))
        for _ in range(1, ACTS):
            later = self._notes_of(to)
            self._last += later
            for note in later:
                errands.begin(self._called(note, to, after_s=self._chance.uniform(0, pause_s)))
        errands.run(until)
        errands.abandon()
        self._notes += self._last

    def _notes_of(self, to: Connections) -> list[Note]:
        """Of a call of each verb."""
        return [self._note_of(row) for row in self._rows if row.is_for(to)]

    def _note_of(self, row: Row) -> Note:
        number = self._numbers[row.verb]
        self._numbers[row.verb] += 1
        return Note(row, f"{self._rows.index(row)}-{self._deaths}-{number}", number)

    def _called(self, note: Note, to: Connections, after_s: float = 0.0) -> Errand:
        if after_s:
            yield Pause(after_s)
        yield from self._guarded(note, "call", _prepared_and_called(note, to))

    def _look_after_death(self, to: Connections) -> None:
        """Each of the last calls: asked again, and read, at once and in any order."""
        errands = Errands(to)
        for note in self._last:
            if note.is_begun:
                errands.begin(self._asked_again(note, to))
        errands.run()

    def _asked_again(self, note: Note, to: Connections) -> Errand:
        if note.is_acknowledged and self._chance.random() < 0.5:
            yield from self._guarded(note, "read", note.row.read(note, to))
        yield from self._guarded(note, "again", note.row.again(note, to))
        yield from self._guarded(note, "read after that", note.row.read(note, to))

    def _read_all(self, to: Connections) -> None:
        errands = Errands(to)
        for note in self._notes:
            if note.is_begun and note.row.lasts:
                errands.begin(self._guarded(note, "read in the end", note.row.read(note, to)))
        errands.run()

    def _guarded(self, note: Note, what: str, errand: Errand) -> Errand:
        try:
            yield from errand
        except (ForgottenError, LedgerError) as error:
            self._tally.findings.append(
                f"{note.row.verb} ({note.outcome}), {what}, {note.name}; {self._where}: {error!r}"
            )

    def _expected(self) -> list[tuple[Note, Stored]]:
        begun = [note for note in self._notes if note.is_begun]
        return [(note, one) for note in begun for one in note.row.stored(note)]

    def _settle(self, to: Connections) -> None:
        """Until what waits has come, as far as it does; what has not is found in the store."""
        wanted = [stored for _, stored in self._expected() if stored.least]
        errands = Errands(to)
        dues = [note.facts["due"] for note in self._notes if "due" in note.facts]
        errands.begin(_until(to, self._nodes.addresses, wanted, max(dues, default=0.0)))
        errands.run()

    def _audit(self, root: Path) -> None:
        """Count the messages of the store, each once."""
        expected = self._expected()
        bodies: dict[str, Counter[bytes]] = {}
        view = StoreView(root)
        try:
            for topic in {stored.topic for _, stored in expected}:
                try:
                    found = [bytes(one.message.body) for one in view.messages(topic)]
                except TopicUnknownError:
                    found = []
                bodies[topic] = Counter(found)
        finally:
            view.close()
        for note, stored in expected:
            of = bodies[stored.topic]
            count = of.total() if stored.body is None else of[stored.body]
            if not stored.least <= count <= stored.most:
                self._tally.findings.append(
                    f"{note.row.verb} ({note.outcome}), {note.name}; {self._where}: {count} times "
                    f"in {stored.topic}, expected {stored.least} to {stored.most}; {note.facts}"
                )


def _in_turn(changes: Sequence[Callable[[Path], None]]) -> Callable[[Path], None] | None:
    def all_of_them(root: Path) -> None:
        for change in changes:
            change(root)

    return all_of_them if changes else None


def _prepared(note: Note, to: Connections) -> Errand:
    yield from note.row.prepare(note, to)
    note.is_prepared = True


def _prepared_and_called(note: Note, to: Connections) -> Errand:
    if not note.is_prepared:
        yield from _prepared(note, to)
    yield from note.row.act(note, to)


def _prepare(to: Connections) -> Errand:
    """Topics, and messages whose offsets are committed."""
    yield to.ask("topic_create", topic=WORLD, queues=WORLD_QUEUES)
    for topic, queues in TOPICS.items():
        window = {"deduplication_window_ms": DEDUPLICATION_MS} if topic == ONCE else {}
        yield to.ask("topic_create", topic=topic, queues=queues, **window)
    for queue_id in range(WORLD_QUEUES):
        bodies = [f"{queue_id} {number}".encode() for number in range(WORLD_MESSAGES)]
        # Those of a queue are one group's: ordered share groups get one of each at a time.
        group = f"of {queue_id}"
        yield to.producer.send_batch(WORLD, bodies, queue_id=queue_id, message_group=group)


def _until(
    to: Connections, addresses: Sequence[str], wanted: Sequence[Stored], due: float
) -> Errand:
    while time.monotonic() < due:
        yield Pause(LOOK_S)
    limit = time.monotonic() + PATIENCE_S
    for topic in {stored.topic for stored in wanted}:
        of_topic = [stored for stored in wanted if stored.topic == topic]
        bodies = {stored.body for stored in of_topic if stored.body is not None}
        count = sum(stored.least for stored in of_topic)
        while time.monotonic() < limit:
            if bodies:
                # A count tells nothing: others come, too, of calls that had no answer.
                has_come = bodies <= _bodies_in(addresses, topic)
            else:
                shown = yield to.ask("topic_show", topic=topic)
                has_come = sum(row["max"] for row in shown["queues"]) >= count
            if has_come:
                break
            yield Pause(LOOK_S)


def _bodies_in(addresses: Sequence[str], topic: str) -> set[bytes]:
    """What a consumer reads of the topic now."""
    found: set[bytes] = set()
    places = list(addresses) if len(addresses) > 1 else addresses[0]
    with (
        connect_broker(places, name="settle", timeout_s=PATIENCE_S) as broker,
        Consumer(places, topic=topic, start="first", options=OPTIONS) as consumer,
    ):
        for queue in consumer.offsets():
            offset, end = broker.queue(topic, queue)
            while offset < end:
                batch = consumer.pull(queue, offset, messages_max=2_000)
                found |= {bytes(message.body) for message in batch}
                offset = batch.next_offset
    return found


def live(
    kind: Kind,
    make_node: Callable[[], Node],
    golden: Golden,
    *,
    deaths: int,
    is_group: bool,
    chance: random.Random,
    tally: Tally,
    change: Callable[[Path], None] | None = None,
) -> None:
    """One life of a store of that kind, on one node or in a group."""
    nodes: Nodes
    if is_group:
        nodes = GroupOfThree(make_node, kind, golden, chance)
        kind = kind._replace(name=f"{kind.name}, group")
    else:
        nodes = SingleNode(make_node(), kind, golden, chance)
    Life(kind, nodes, chance, tally).run(deaths, change)
