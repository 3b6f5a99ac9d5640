"""One run: a seed decides on the group, the faults and their times; then the group must heal."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from random import Random
from typing import ClassVar, NamedTuple

from ledgermq.ipc.cursor_page import Role
from ledgermq.model.config.settings import AckMode
from ledgermq.model.features import LEVEL
from ledgermq.model.ids import NodeId
from tests.simulator.checks.checker import require
from tests.simulator.checks.healing import heal, wait
from tests.simulator.machine.events import MS, Events
from tests.simulator.machine.network import Weather
from tests.simulator.node import Node
from tests.simulator.world import Shape, World, address_of

RUN_MS = 6_000
FAULT_EVERY_MS = 250
MEMBERS_MAX = 5
MEMBERS_MIN = 3
"""Fewest members of a group with a bad disk: the others are a majority without it."""

SPOILT_FRACTION = 0.4
"""Share of the seeds in which disks spoil what was synced."""

STORM_FAULT_EVERY_MS = 60

INTERRUPTED_FRACTION = 0.5
"""Share of the seeds in which turns of raft are interrupted."""

FED_FRACTION = 0.5
"""Share of the seeds in which writers feed one another."""

INTERRUPTIONS = 0.1
"""How probable an interruption is there at each point where there could be one."""


Verbs = tuple[tuple[Callable[[], object], int], ...]

BEGIN_MS = 10_000
"""Two members elect a leader, and take the witness in."""

LOSSES = 0.8
"""Share of the seeds in which a member is lost for good."""

EVEN_MS = 4_000
"""Longest wait until the leader of a group that is complete leans on no witness."""

WINDOW = 8_192
"""More than a frame, and less than producers write while one of them is away."""

PRODUCERS = 6
AWAY_MS = (50, 300, 1_200)


class FaultRun:
    """Faults for ``run_ms``, then a quiet phase in which the group must heal.

    Attributes:
        sizes: of groups, one of which the seed chooses.
        fewest: voters that operators leave it.
        feature_level: the one in force.
    """

    sizes: ClassVar[tuple[int, ...]] = (3, 3, 3, 5)
    fewest: ClassVar[int] = 2
    feature_level: ClassVar[int] = 0

    def __init__(
        self,
        seed: int,
        *,
        storm: bool = False,
        spoils: bool | None = None,
        interrupted: bool | None = None,
        fed: bool | None = False,
        run_ms: int = RUN_MS,
    ) -> None:
        self.seed = seed
        chance = Random(f"disk {seed}").random()
        self.spoils = chance < SPOILT_FRACTION if spoils is None else spoils
        chance = Random(f"turns {seed}").random()
        self.is_interrupted = chance < INTERRUPTED_FRACTION if interrupted is None else interrupted
        is_fed = Random(f"fed {seed}").random() < FED_FRACTION if fed is None else fed
        self.run_ms = run_ms
        self.random = random = Random(seed)
        members = random.choice(type(self).sizes)
        self.storm = random.random() < 0.3 or storm
        names = [f"n{number}" for number in range(members)]
        shape = Shape(
            members=members,
            feature_level=type(self).feature_level,
            ack=AckMode.MAJORITY_FSYNC if random.random() < 0.75 else AckMode.MAJORITY_MEMORY,
            file_size=random.choice((16_384, 32_768, 65_536)),
            # Candidates that wake up at the same time.
            election_max_ms=420 if self.storm else 800,
            preferred=tuple(random.sample(names, min(2, members))) if random.random() < 0.3 else (),
            interruptions=INTERRUPTIONS if self.is_interrupted else 0.0,
            is_fed=is_fed,
        )
        self.world = self._world(random.getrandbits(64), shape)
        self.worst = Weather(
            loss=random.choice((0.0, 0.02, 0.2)),
            duplication=random.choice((0.0, 0.1)),
            delay_ns=random.choice((1, 10, 80)) * MS,
            step_ns=random.choice((0, 1, 10)) * MS,
            sync_ns=random.choice((1, 10, 100)) * MS,
        )
        self.crash_points = 0.1 if self.storm else random.choice((0.0, 0.01))
        self._asked_to_change: tuple[object, ...] = ()

    def go(self) -> None:
        """The whole run.

        Raises:
            BrokenPromiseError: a promise was broken.
        """
        with self.world as world:
            self._begin()
            world.set_weather(self.worst)
            world.crash_points = self.crash_points
            every = STORM_FAULT_EVERY_MS if self.storm else FAULT_EVERY_MS
            while world.events.now < self.run_ms * MS:
                world.events.run(self.random.randrange(2 * every) * MS)
                self._fault()
            heal(world, self._settle)

    def _world(self, seed: int, shape: Shape) -> World:
        return World(seed, shape)

    def _begin(self) -> None:
        """The nodes are on."""

    def _settle(self) -> None:
        """The faults are over, and the group takes messages."""

    def _verbs(self) -> Verbs:
        """What may happen, and how probable it is beside the others."""
        return (
            (self._crash_or_start, 6 if self.storm else 3),
            (self._kill_process, 2),
            (self._partition, 4),
            (self.world.network.blocked.clear, 4),
            (self._pause, 1),
            (self._jump, 1),
            (self._transfer, 2),
            # An order of looks that is wrong matters most where what is written says who votes.
            (self._change_members, 6 if self.is_interrupted else 2),
            (self._spoil, 3 if self.spoils else 0),
        )

    def _fault(self) -> None:
        verbs = self._verbs()
        verb = self.random.choices([verb for verb, _ in verbs], [weight for _, weight in verbs])[0]
        verb()

    def _some(self) -> Node:
        """Leaders are hit more often: most trouble begins with them."""
        leaders = self.world.leaders()
        if leaders and self.random.random() < 0.5:
            return self.random.choice(leaders)
        return self.random.choice(list(self.world.nodes.values()))

    def _crash_or_start(self) -> None:
        world = self.world
        down = [name for name, node in world.nodes.items() if not node.is_on]
        if down and self.random.random() < 0.7:
            for name in down if self.random.random() < 0.5 else down[:1]:
                world.start(name)
            return
        power = world.shape.ack is AckMode.MAJORITY_FSYNC and self.random.random() < 0.8
        if self.random.random() < 0.15:
            for name in world.nodes:
                world.kill(name, power=power)
        else:
            world.kill(self._some().name, power=power)

    def _kill_process(self) -> None:
        self.world.trouble(self._some().name, self.random.choice((Role.RAFT, Role.WRITER)))

    def _partition(self) -> None:
        network, names = self.world.network, self.world.names
        network.blocked.clear()
        if self.random.random() < 0.4:
            network.isolate(self._some().name, names)
            return
        for source in names:
            for target in names:
                if self.random.random() < 0.35:
                    network.blocked.add((source, target))
                    if self.random.random() < 0.5:
                        network.blocked.add((target, source))

    def _pause(self) -> None:
        node = self._some()
        until = self.world.events.now + self.random.choice((100, 600, 2_000)) * MS
        for role in self.random.choice(((Role.RAFT,), (Role.WRITER,), (Role.RAFT, Role.WRITER))):
            node.pause(role, until)

    def _jump(self) -> None:
        clock = self._some().clock
        clock.jump(self.random.choice((200, 1_000, 60_000)) * MS)
        clock.epoch_ahead_ns += self.random.choice((-3_600_000, 1, 3_600_000)) * MS

    def _transfer(self) -> None:
        leaders = self.world.leaders()
        if leaders:
            target = self.random.choice(list(self.world.nodes))
            name = self.random.choice(leaders).name
            answer = self.world.ask(name, "transfer", target=target)
            self.world.events.trace(f"{name} asked to hand over to {target}: {answer}")

    def _spoil(self) -> None:
        """A disk does what no disk should, to what was synced long ago.

        One node at a time: two of three bad disks are more than a group of three can bear. And only
        where a majority of the others could elect one of themselves, by a membership that they have
        and not one that the leader alone has written.
        """
        world = self.world
        if self._is_spoilt():
            return
        leaders = world.leaders()
        status = world.ask(leaders[-1].name, "status") if leaders else {}
        if len(_names(status.get("voters"))) < MEMBERS_MIN or status.get("witnesses"):
            return
        if number_of(status, "membership_index") > number_of(status, "commit"):
            return
        if _standing(status) == self._asked_to_change:
            # What it was asked for a moment ago is not in its log yet.
            return
        name = self._some().name
        kind = self.random.choice(("flip", "flip", "page", "power"))
        if kind == "flip":
            world.flip(name)
        elif kind == "page" or world.shape.ack is not AckMode.MAJORITY_FSYNC:
            world.lose_pages(name)
        else:
            world.kill(name, power=True)
            world.lose_pages(name)

    def _is_spoilt(self) -> bool:
        return any(node.spoilt or node.is_marked for node in self.world.nodes.values())

    def _change_members(self) -> None:
        leaders = self.world.leaders()
        if not leaders:
            return
        leader = leaders[-1].name
        status = self.world.ask(leader, "status")
        voters, learners = _names(status.get("voters")), _names(status.get("learners"))
        gone = [name for name in self.world.nodes if name not in {*voters, *learners}]
        if learners and self.random.random() < 0.8:
            verb = "add"
            kinds = ("voter", "voter", "voter" if self._is_spoilt() else "witness")
            asked = {"node": learners[0], "kind": self.random.choice(kinds)}
        elif len(voters) < MEMBERS_MAX and self.random.random() < 0.6:
            name = self.random.choice(gone) if gone else self.world.join()
            verb, asked = "add", {"node": name, "kind": "learner", "address": address_of(name)}
        elif len(voters) > type(self).fewest and not self._is_spoilt():
            verb, asked = "remove", {"node": self.random.choice(voters)}
        else:
            return
        answer = self.world.ask(leader, verb, **asked)
        if "error" not in answer:
            self._asked_to_change = _standing(status)
        self.world.events.trace(f"{leader} asked to {verb} {asked}: {answer}")


def number_of(status: Mapping[str, object], name: str) -> int:
    """What the status of a raft process says under ``name``."""
    value = status[name]
    assert isinstance(value, int), value
    return value


def _standing(status: Mapping[str, object]) -> tuple[object, ...]:
    """Who leads, in which term, and which entry has the membership that it goes by."""
    return (status["leader"], status["term"], status["membership_index"])


def _names(value: object) -> list[NodeId]:
    return [NodeId(str(name)) for name in value] if isinstance(value, list) else []


class Outcome(NamedTuple):
    """How a run ended.

    Attributes:
        failure: what went wrong, in one line; empty when nothing did.
        history: the last lines of what happened.
        committed, acknowledged, leaders: entries, messages of clients, terms that had a leader.
    """

    failure: str
    history: list[str]
    committed: int
    acknowledged: int
    leaders: int


def run_seed(
    seed: int,
    *,
    storm: bool = False,
    spoils: bool | None = None,
    interrupted: bool | None = None,
    fed: bool | None = False,
    run_ms: int = RUN_MS,
    make: type[FaultRun] = FaultRun,
) -> Outcome:
    """Run ``seed``; what the nodes log goes into the history.

    Args:
        make: what kind of run; made from the seed and the other arguments.
        storm: elections follow one another, whatever the seed says.
        spoils: disks turn bits and lose pages of what was settled; None: the seed says.
        interrupted: turns of raft are (``Interruptions``); None: the seed says.
        fed: writers feed one another, as long as raft lets them; None: the seed says.
        run_ms: so long do the faults last.
    """
    run = make(seed, storm=storm, spoils=spoils, interrupted=interrupted, fed=fed, run_ms=run_ms)
    failure = ""
    with _kept(run.world.events):
        try:
            run.go()
        except Exception as error:  # whatever it is, the seed belongs to it
            failure = f"{type(error).__name__}: {error}".replace("\n", " ")
            run.world.events.trace(failure)
    checker, history = run.world.checker, [*run.world.events.history]
    # Workers and what they call know one another: their buffers would pile up.
    del run
    gc.collect()
    return Outcome(
        failure,
        history,
        len(checker.committed),
        len(checker.acknowledged),
        len(checker.leaders),
    )


class _Keeper(logging.Handler):
    """Puts what the workers log into the run's history."""

    def __init__(self, events: Events) -> None:
        super().__init__()
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        self._events.trace(f"   {record.name.rpartition('.')[2]}: {record.getMessage()}")


@contextmanager
def _kept(events: Events) -> Iterator[None]:
    logger = logging.getLogger("ledgermq")
    before = (logger.level, logger.propagate)
    keeper = _Keeper(events)
    logger.addHandler(keeper)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(keeper)
        logger.setLevel(before[0])
        logger.propagate = before[1]


class LoneRun(FaultRun):
    """A group of one, which becomes one of several and of one again: its writer commits by itself
    as long as nobody else is asked.
    """

    sizes: ClassVar[tuple[int, ...]] = (1,)
    fewest: ClassVar[int] = 1

    def _verbs(self) -> Verbs:
        return (*super()._verbs(), (self._change_members, 2))


class WaitRun(FaultRun):
    """Writers take what they can where they wait, by the compiled kernel, and feed one another."""

    def _world(self, seed: int, shape: Shape) -> World:
        return World(seed, replace(shape, is_fed=True, waits=True))


class RepeatRun(FaultRun):
    """Writers look at less of the log than is written while a client is away; there is no index.

    So what is not found is refused as unknown, unless the client knows that it was sent later.
    """

    def _world(self, seed: int, shape: Shape) -> World:
        return World(seed, replace(shape, window=WINDOW, producers=PRODUCERS))

    def _verbs(self) -> Verbs:
        return (*super()._verbs(), (self._cut_off, 12))

    def _cut_off(self) -> None:
        producer = self.random.choice(self.world.producers)
        producer.cut_off(self.random.choice(AWAY_MS) * MS)


class WitnessRun(FaultRun):
    """Two members or four with bodies, and a witness without, which joins as an operator has it."""

    sizes: ClassVar[tuple[int, ...]] = (2, 2, 2, 4)
    feature_level: ClassVar[int] = LEVEL

    def _begin(self) -> None:
        self.loses = self.random.random() < LOSSES
        self._witness = NodeId("w90")
        self.world.join_witness(self._witness)
        wait(self.world, BEGIN_MS, "a witness is taken in", self._is_taken_in)
        self.run_ms += self.world.events.now // MS

    def _settle(self) -> None:
        """Where nobody is lost the leader leans on no witness, and all have the bodies."""
        wait(self.world, EVEN_MS, "who has all members leans on no witness", self._is_whole)

    def _verbs(self) -> Verbs:
        is_late = self.world.events.now > self.run_ms * MS // 2
        lose = 8 if is_late else 0
        return (*super()._verbs(), (self._trouble_witness, 4), (self._swap, 3), (self._lose, lose))

    def _is_taken_in(self) -> bool:
        leaders = self.world.leaders()
        if not leaders:
            return False
        status = self.world.ask(leaders[-1].name, "status")
        if status.get("bodiless") == [self._witness]:
            return number_of(status, "membership_index") <= number_of(status, "commit")
        self.world.ask(
            leaders[-1].name,
            "add",
            node=self._witness,
            kind="bodiless",
            address=address_of(self._witness),
        )
        return False

    def _is_whole(self) -> bool:
        leaders = self.world.leaders()
        if not leaders:
            return False
        status = self.world.ask(leaders[-1].name, "status")
        voters, bodiless = status.get("voters"), status.get("bodiless")
        if not isinstance(voters, list) or not bodiless or self.world.lost & {*voters}:
            return bool(voters)
        return not status["leans_on_witness"]

    def _change_members(self) -> None:
        """Not while one is lost: the others may be too few without one more."""
        if not self.world.lost:
            super()._change_members()

    def _trouble_witness(self) -> None:
        world, name = self.world, self._witness
        if not world.witnesses[name].is_on:
            world.start(name)
        elif self.random.random() < 0.3:
            pause = self.random.choice((100, 600, 2_000)) * MS
            world.witnesses[name].pause(world.events.now + pause)
        else:
            world.kill_witness(name)
            wait_ms = self.random.choice((5, 20, 100, 1_000))
            world.events.after(wait_ms * MS, lambda: world.start(name))

    def _swap(self) -> None:
        """One is away until the leader leans, and comes back when that one dies: it lacks much."""
        world, power = self.world, self.world.shape.ack is AckMode.MAJORITY_FSYNC
        leaders = world.leaders()
        names = [name for name, node in world.nodes.items() if node.is_on]
        others = [name for name in names if name != leaders[-1].name] if leaders else []
        if not others:
            return
        away = self.random.choice(others)
        world.kill(away, power=power)

        def turn() -> None:
            # Once faults are over nobody dies any more.
            leaders = world.leaders()[-1:] if world.events.now < self.run_ms * MS else []
            for node in leaders:
                world.kill(node.name, power=power)
                later = self.random.randint(500, 2_500) * MS
                world.events.after(later, partial(world.start, node.name))
            world.start(away)

        world.events.after(self.random.randint(1_000, 3_500) * MS, turn)

    def _lose(self) -> None:
        """A member with bodies, while the leader says that enough others have all of them, too."""
        world, leaders = self.world, self.world.leaders()
        if not self.loses or world.lost or not leaders:
            return
        leader = leaders[-1].name
        status = world.ask(leader, "status")
        voters, bodiless, copies = (status.get(key) for key in ("voters", "bodiless", "copies"))
        if not isinstance(voters, list) or not isinstance(bodiless, list):
            return
        if not isinstance(copies, int) or status["leans_on_witness"] or status["learners"]:
            return
        commit = number_of(status, "commit")
        is_settled = number_of(status, "membership_index") <= commit
        knows_all = commit == len(world.checker.committed) - 1
        if not (is_settled and knows_all) or copies < (len(voters) + 1) // 2 or len(voters) < 3:
            return
        others = sorted(NodeId(str(name)) for name in voters if name not in {leader, *bodiless})
        world.lose(leader if self.random.random() < 0.6 else self.random.choice(others))

    def go(self) -> None:
        super().go()
        taken = sorted(self.world.checker.acknowledged - self.world.checker.messages.keys())
        require(not taken, "what was acknowledged is committed", *taken[:3])
