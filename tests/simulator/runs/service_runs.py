"""Runs with brokers: the services' promises, under the faults of all other runs."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, groupby
from random import Random

from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_reader import QUEUE as STATE_QUEUE
from ledgermq.formats.config_json import APPLIED_KEY
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.formats.records.properties import STAGE, UNIQ_KEY, encode_properties
from ledgermq.ipc.cursor_page import Role
from ledgermq.model.errors import LedgerError, StagedUnknownError
from ledgermq.model.ids import NodeId
from ledgermq.model.limits import STAGED_TOPIC
from ledgermq.model.names.message_types import BY_PRIORITY
from ledgermq.model.names.stages import Stage
from ledgermq.model.offset_ranges import ranges_of
from ledgermq.wire.send_frame import SendRun
from ledgermq.wire.staged_pack import encode_pack
from tests.simulator.checks.checker import CommittedMessage, require
from tests.simulator.checks.healing import sound_members, wait
from tests.simulator.checks.service_checker import SentMessage, ServiceChecker
from tests.simulator.checks.sink_checker import Attempt
from tests.simulator.clients.producer import STORE_HOST_SIZE, plain_messages
from tests.simulator.clients.service_clients import (
    CHANGERS,
    Canceller,
    Committer,
    CutSender,
    Ender,
    Makers,
    Operator,
    Returner,
    ServiceClient,
    TopicChanger,
    TopicSender,
    WindowEnder,
    first_topics,
    is_undone,
    is_unknown,
)
from tests.simulator.clients.share_clients import Sharer, with_keys
from tests.simulator.machine.consumer_port import Outcome
from tests.simulator.machine.events import MS
from tests.simulator.node import QUEUES, TOPIC, Node
from tests.simulator.readers import ROLES
from tests.simulator.runs.runs import FaultRun, Verbs
from tests.simulator.world import Shape, World

PACKS_MAX = 2
ACT_MS = 40
FORGETS_FRACTION = 0.4
"""Share of the acknowledged commits that their driver has not noted when it dies."""

WAIT_MS = 1_000

DELIVERED_MS = 12_000
"""The longest level that is used, a timer as long, and ends that are asked for again."""

IN_ORDER_MS = 60_000
"""The same where messages wait for one another that members forget."""

APPLIED_MS = 4_000

ONE_ENTRY = 300
"""Less than the smallest entry and the next one: a frame of one."""

SINGLE_FRACTION = 0.3
"""Share of the seeds in which groups of records are cut by the death of their leader."""

SINK_EVERY = 3
"""Each so many'th seed has a sink: what others have found stays theirs."""

SHARE_EVERY, SHARE_AT = 7, 5
"""Likewise of share groups: seeds that leave this rest. Every other one has a group that goes by
keys.
"""

PRIORITY_EVERY, PRIORITY_AT = 5, 4
"""Likewise among these seeds: the topic has priorities."""

CUT_EVERY, CUT_AT = 11, 3
"""Likewise of windows that end while who has sent something hears nothing."""

CUT_WAIT_MS = 10_000

SHARERS = 3

OUTSIDE_FRACTION = 0.4
"""Share of the seeds in which tables come from outside, and who has acknowledged something dies."""

LATE_FILES_FRACTION = 0.5
"""Share of the seeds in which files of topics are written a second later, as those of large
tables."""

LAGGING_FRACTION = 0.4

LAGS_MS = (50, 300, 1_000)
"""Brokers that stand still while a topic changes, and for how long."""

HANDED_FRACTION = 0.3

KILLED_FRACTION = 0.05
"""Shares of the changes of topics behind which the leader hands over, or all nodes are killed."""

LATE_MS = (0, 0, 300, 1_500, 3_000)
"""When the last member of such a group is first started."""

EARLY_ANSWERS = 10
"""Most that is lost was acknowledged before files were written for the first time."""

STAGED_MS = 2_500
"""Milliseconds for which staged rows are kept that nobody commits: less than a run takes."""

JUMPS_MS = (-3_000, -200, 200, 3_000)
"""Steps of a clock's time of day: further ones would make all timers due, or none."""


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


class ServiceRun(FaultRun):
    """A run in which dispatchers and brokers are driven, and their services used.

    No disk spoils what it has synced: that is the log's, and other runs look at it.
    """

    def _world(self, seed: int, shape: Shape) -> World:
        self.spoils = False
        self.checker = ServiceChecker()
        if Random(f"frames {self.seed}").random() < SINGLE_FRACTION:
            # One entry a frame, one frame under way: a command and its records come one by one.
            shape = replace(shape, frame_bytes=ONE_ENTRY, frames_in_flight=1)
        if self._has_sink:
            shape = replace(shape, staged_ms=STAGED_MS)
        changers = CHANGERS + self._has_cuts
        topics = tuple(name for one in range(changers) for name in first_topics(one))
        shape = replace(shape, topics=topics)
        if self._has_priorities:
            shape = replace(shape, message_type=BY_PRIORITY)
        self._lags = Random(f"lags {self.seed}")
        if self._lags.random() < LATE_FILES_FRACTION:
            shape = replace(shape, rows_at_once_max=0)
        self._deaths = Random(f"outside {self.seed}")
        self._is_from_outside = self._deaths.random() < OUTSIDE_FRACTION
        if self._is_from_outside:
            shape = replace(shape, is_from_outside=True, late_ms=self._deaths.choice(LATE_MS))
        return World(seed, replace(shape, has_readers=True, producers=1), self.checker)

    @property
    def _has_sink(self) -> bool:
        return self.seed % SINK_EVERY == SINK_EVERY - 1

    @property
    def _has_shares(self) -> bool:
        return self.seed % SHARE_EVERY == SHARE_AT

    @property
    def _has_priorities(self) -> bool:
        return self._has_shares and self.seed // SHARE_EVERY % PRIORITY_EVERY == PRIORITY_AT

    @property
    def _has_cuts(self) -> bool:
        return self.seed % CUT_EVERY == CUT_AT

    def _begin(self) -> None:
        world, checker = self.world, self.checker
        self._latest_ms = 0
        self._doubtful: set[NodeId] = set()
        self._snapshots: dict[NodeId, int] = {}
        self._led: dict[NodeId, int] = {}
        self._compared: dict[NodeId, int] = {}
        world.read = self._read
        world.is_inside_group = checker.is_inside_group
        checker.topics.now = lambda: world.events.now
        checker.latest_ms = checker.shares.latest_ms = self._look_at_clocks
        makers = Makers(world, checker)
        canceller = Canceller(world, "canceller", checker)
        ender = Ender(world, "ender", checker)
        self.operator = Operator(world, "made")
        self.committers = [Committer(world, f"group{queue}", queue) for queue in range(QUEUES)]
        self.clients: list[ServiceClient] = [
            canceller,
            ender,
            self.operator,
            Returner(world, "returner", checker),
            *self.committers,
        ]
        self._produce("delay", makers.delayed)
        self._produce("timer", makers.timers, canceller.take)
        self._produce("half", makers.halves, ender.take)
        if self._has_sink:
            sink = SinkWriter(world, "sink", checker)
            producer = world.add_producer("stager")
            producer.think_ns = 20 * MS
            producer.make, producer.sent = sink.make, sink.take
            self.clients.append(sink)
        if self._has_shares:
            checker.shares.is_ordered = self.seed % (2 * SHARE_EVERY) != SHARE_AT
            checker.shares.has_priorities = self._has_priorities
            if checker.shares.is_ordered:
                make = world.producers[0].make
                world.producers[0].make = lambda number: with_keys(make(number))
            self.clients += [Sharer(world, f"sharer{at}", checker.shares) for at in range(SHARERS)]
        changers = [TopicChanger(world, one, checker.topics) for one in range(CHANGERS)]
        for number, changer in enumerate(changers):
            changer.about, changer.changed = self._stand_still, self._change_leader
            sender = world.add_producer(f"sender{number}")
            TopicSender(world, sender, checker.topics, changers)
        self.clients += changers
        if self._has_cuts:
            window_ender = WindowEnder(world, CHANGERS, checker.topics)
            producer = world.add_producer("cut")
            self._cut_sender = CutSender(world, producer, checker.topics, window_ender)
            self.clients.append(window_ender)
        self._answers = 0
        for client in self.clients:
            if self._is_from_outside:
                client.told = self._told
            client.begin()

    def _produce(
        self,
        name: str,
        make: Callable[[str, int], Sequence[Message]],
        take: Callable[[Sequence[CommittedMessage]], None] = lambda stored: None,
    ) -> None:
        producer = self.world.add_producer(name)
        producer.think_ns = 150 * MS
        producer.make = lambda number: make(name, number)
        producer.sent = lambda number, stored: take(stored)

    def _stand_still(self) -> None:
        """A topic is about to change: brokers of followers, and what their writers know, lag."""
        world = self.world
        for node in world.nodes.values():
            if node not in world.leaders() and self._lags.random() < LAGGING_FRACTION:
                until = world.events.now + self._lags.choice(LAGS_MS) * MS
                node.pause(Role.BROKER, until)

    def _change_leader(self) -> None:
        """A topic has changed, and its operator knows: another node leads, or all begin anew."""
        world, leaders = self.world, self.world.leaders()
        chance = self._lags.random()
        if world.events.now >= self.run_ms * MS or not leaders:
            return
        if chance < HANDED_FRACTION:
            lagging = [name for name, node in world.nodes.items() if _stands_still(node)]
            target = self._lags.choice(lagging or list(world.nodes))
            world.ask(leaders[-1].name, "transfer", target=target)
        elif chance < HANDED_FRACTION + KILLED_FRACTION:
            for name in list(world.nodes):
                world.kill(name, power=False)
                world.events.after(5 * MS, partial(world.start, name))

    def _told(self) -> None:
        """A client was told that something is done: who told it dies, at once or a bit later."""
        self._answers += 1
        chance = 0.15 if self._answers <= EARLY_ANSWERS else 0.01
        if self.world.events.now >= self.run_ms * MS or self._deaths.random() >= chance:
            return
        wait = self._deaths.choice((0, 10, 300, 1_000)) * MS
        self.world.events.after(wait, self._die)

    def _die(self) -> None:
        world = self.world
        nodes = list(world.nodes) if self._deaths.random() < 0.5 else [self._some().name]
        back = self._deaths.choice((5, 100, 1_000)) * MS
        for name in nodes:
            world.kill(name, power=False)
            world.events.after(back, partial(world.start, name))

    def _verbs(self) -> Verbs:
        return (*super()._verbs(), (self._kill_reader, 3))

    def _kill_reader(self) -> None:
        self.world.trouble(self._some().name, self.random.choice(ROLES))

    def _jump(self) -> None:
        self._look_at_clocks()
        clock = self._some().clock
        clock.jump(self.random.choice((200, 1_000, 60_000)) * MS)
        clock.epoch_ahead_ns = self.random.choice(JUMPS_MS) * MS

    def _settle(self) -> None:
        world = self.world
        # What a clock has shown until now counts: a timer that fired by it may be stored later.
        self._look_at_clocks()
        for node in world.nodes.values():
            node.clock.epoch_ahead_ns = 0
        if self._has_cuts:
            self._cut_once_more()
        for client in self.clients:
            client.is_stopped = True
        wait(
            world,
            IN_ORDER_MS if self.checker.shares.is_ordered else DELIVERED_MS,
            "what is due is delivered",
            lambda: not self._missing(),
        )
        wait(world, APPLIED_MS, "all brokers know the same", self._is_even)
        for node in sound_members(world):
            self._check_answers(node)

    def _cut_once_more(self) -> None:
        """What faults leave no time for most times: a window ends before its sender hears."""
        sender = self._cut_sender
        ended = sender.ended
        sender.go_on()
        wait(self.world, CUT_WAIT_MS, "who was cut off is answered", lambda: sender.ended > ended)
        sender.stop()

    def _missing(self) -> list[str]:
        found = self.checker.missing(self._now_ms())
        if self._has_shares and not found:
            ends = {queue: self.checker.next_offset(TOPIC, queue) for queue in range(QUEUES)}
            found = self.checker.shares.missing(ends)
        return found

    def _is_even(self) -> bool:
        """Whether the brokers of all members have applied what is committed."""
        end = self.checker.next_offset(STATE_QUEUE.topic, STATE_QUEUE.queue_id)
        return all(_applied(node) == end for node in sound_members(self.world))

    def _check_answers(self, node: Node) -> None:
        """What clients were told is so, on a node that has applied everything."""
        tables = _tables(node)
        for name, there in self.operator.topics.items():
            if there is not None:
                found = tables.topics.get(name) is not None
                require(found == there, "topics are as their operator was told", node.name, name)
        self._check_offsets(node)

    def _check_offsets(self, node: Node) -> None:
        for committer in self.committers:
            known = _tables(node).offsets.offsets(committer.name, TOPIC).get(committer.queue_id, 0)
            told = committer.acknowledged
            require(
                known >= told, "acknowledged offsets stay", node.name, committer.name, known, told
            )

    def _read(self, node: Node, role: Role) -> None:
        """Look, after each turn of a broker, whether its tables are those of all."""
        readers = node.readers
        if role is not Role.BROKER or readers is None or readers.log is None:
            return
        state, log, name = _tables(node).state, readers.log, node.name
        # It would spread what it lacks with its snapshot.
        require(not (log.leads and state.needs_snapshot), "a leader's tables lack nothing", name)
        if self._snapshots.get(name) != state.snapshots:
            self._doubtful.discard(name)
        self._snapshots[name] = state.snapshots
        if log.term and not log.tables_term:
            # A leader's own additions are those of all once its first snapshot is applied.
            self._doubtful.add(name)
        elif log.tables_term and self._led.get(name) != log.tables_term:
            self._led[name] = log.tables_term
            if log.tables_term == max(self.checker.leaders):
                self._check_offsets(node)
        if name not in self._doubtful and self._compared.get(name) != state.applied:
            self._compared[name] = state.applied
            for file, document in state.documents().items():
                place = document[APPLIED_KEY]
                assert isinstance(place, int)
                self.checker.same_tables(name, file, place, document)

    def _now_ms(self) -> int:
        node = next(iter(self.world.nodes.values()))
        return node.clock.epoch_ns() // MS

    def _look_at_clocks(self) -> int:
        """The latest time of day that any node's clock has shown."""
        shown = [node.clock.epoch_ns() // MS for node in self.world.nodes.values()]
        self._latest_ms = max(self._latest_ms, *shown)
        return self._latest_ms


def _stands_still(node: Node) -> bool:
    broker = node.living(Role.BROKER)
    return broker is not None and broker.paused_until > node.events.now


def _tables(node: Node) -> BrokerTables:
    assert node.readers is not None
    assert node.readers.tables is not None
    return node.readers.tables


def _applied(node: Node) -> int:
    readers = node.readers
    is_there = readers is not None and readers.tables is not None
    return _tables(node).state.applied if is_there else -1
