"""One run of a group: a seed decides on the group, the faults and their times."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from ledgermq.model.ids import Index, NodeId
from ledgermq.raft.membership import Membership
from ledgermq.raft.roles.node_state import WriterState
from tests.raft_group.checker import require
from tests.raft_group.group import TIMING, RaftGroup, Weather
from tests.raft_group.node import SimNode

FAULT_EVERY = 60
STORM_FAULT_EVERY = 16
QUIET_TICKS = 3_000


class Run:
    """Faults for ``ticks``, then a quiet phase in which the group must heal."""

    def __init__(
        self, seed: int, *, storm: bool = False, outdated: bool = False, ticks: int = 2_500
    ) -> None:
        """A run; with ``outdated`` some of its members meet what they are too old for."""
        self.seed = seed
        self.outdated = outdated
        self.ticks = ticks
        self.random = Random(seed)
        membership = self.first_membership()
        names = sorted(membership.full)
        fsync = self.random.random() < 0.7
        self.group = RaftGroup(self.random.getrandbits(64), membership, fsync=fsync)
        if self.random.random() < 0.4:
            self.group.preferred = tuple(self.random.sample(names, 2))
        self.group.tells_ends = True
        self.group.batch = self.random.choice((1, 2, 5))
        self.storm = self.random.random() < 0.3 or storm
        if self.storm:
            # Candidates that wake up at the same time.
            self.group.timing = replace(TIMING, election_max=TIMING.election_min + 10)
        for name in names:
            self.group.add(name)
            drift = self.random.randint(900, 1_100)
            self.group.clocks[name] = (drift, self.random.randint(0, 1_000))
        self.sent = 0
        self.fault_every = STORM_FAULT_EVERY if self.storm else FAULT_EVERY
        self.worst = Weather(
            loss=self.random.choice((0.0, 0.02, 0.2)),
            duplication=self.random.choice((0.0, 0.1)),
            delay_max=self.random.choice((5, 40) if self.storm else (0, 5, 40)),
            step_max=self.random.choice((0, 3, 15)),
            crash_points=0.5 if self.storm else self.random.choice((0.0, 0.05)),
        )

    def first_membership(self) -> Membership:
        """The one that the group begins with."""
        count = self.random.choice((3, 3, 3, 4, 5))
        names = [NodeId(f"n{number}") for number in range(count)]
        witness = frozenset(names[-1:]) if self.random.random() < 0.15 else frozenset()
        return Membership(frozenset(names), witnesses=witness)

    def go(self) -> None:
        """The whole run.

        Raises:
            BrokenPromiseError: a promise was broken.
        """
        group = self.group
        group.weather = self.worst
        while group.now < self.ticks:
            for _ in range(self.random.randint(1, 4)):
                self.client()
                group.run(self.random.randint(1, self.fault_every // 2))
            if self.storm:
                self.storm_fault()
            else:
                self.fault()
        self.heal()

    def client(self) -> None:
        group = self.group
        leaders = group.leaders()
        if leaders:
            node = self.random.choice(leaders)
            for _ in range(self.random.choice((1, 1, 3, 12))):
                self.sent += 1
                group.propose(node.name, f"m{self.sent}")
        if self.random.random() < 0.2:
            group.read(self.random.choice(list(group.nodes)))

    def fault(self) -> None:
        if self.outdated and self.random.random() < 0.1:
            self.outdate()
            return
        verbs = (
            (self.crash_or_start, 4),
            (self.kill_writer, 2),
            (self.partition, 4),
            (self.end_connections, 2),
            (self.group.heal, 3),
            (self.pause, 2),
            (self.sicken, 1),
            (self.jump, 1),
            (self.transfer, 2),
            (self.change_members, 2),
            (self.compact, 1),
        )
        verb = self.random.choices([verb for verb, _ in verbs], [weight for _, weight in verbs])[0]
        verb()

    def storm_fault(self) -> None:
        """Elections and nothing else: leaders are cut off or die, and are back soon."""
        group = self.group
        verb = self.random.choice((self.crash_or_start, self.partition, group.heal, self.wake_all))
        verb()
        for node in group.leaders():
            if self.random.random() < 0.2:
                group.isolate(node.name)

    def wake_all(self) -> None:
        for name, node in self.group.nodes.items():
            if node.core is None:
                self.group.start(name)

    def some(self) -> SimNode:
        """Leaders are hit more often: most trouble begins with them."""
        leaders = self.group.leaders()
        if leaders and self.random.random() < 0.5:
            return self.random.choice(leaders)
        return self.random.choice(list(self.group.nodes.values()))

    def crash_or_start(self) -> None:
        group = self.group
        down = [name for name, node in group.nodes.items() if node.core is None]
        if down and self.random.random() < 0.6:
            group.start(self.random.choice(down))
        elif self.random.random() < 0.1:
            for name in group.nodes:
                group.crash(name)
        else:
            group.crash(self.some().name)

    def kill_writer(self) -> None:
        node = self.some()
        if node.core is not None and node.writer_alive:
            self.group.trace(f"{node.name} loses its writer")
            node.stop_writer()
            self.group.schedule(self.random.randint(1, 100), "writer", node.name)

    def partition(self) -> None:
        group = self.group
        group.heal()
        if self.random.random() < 0.4:
            group.isolate(self.some().name)
            return
        for source in group.names:
            for target in group.names:
                if self.random.random() < 0.35:
                    group.blocked.add((source, target))
                    if self.random.random() < 0.5:
                        group.blocked.add((target, source))

    def end_connections(self) -> None:
        """Of who lives: what is sent afterwards goes over others."""
        self.group.end_connections(self.some().name)

    def pause(self) -> None:
        name = self.some().name
        self.group.paused[name] = self.group.now + self.random.choice((20, 150, 500))

    def sicken(self) -> None:
        node = self.some()
        node.sick = not node.sick
        self.group.trace(f"{node.name} sick: {node.sick}")
        self.group.ask(node.name, "disk_is_sick", node.sick)

    def outdate(self) -> None:
        node = self.some()
        if node.core is not None:
            node.outdated = True
            self.group.trace(f"{node.name} outdated")
            self.group.ask(node.name, "version_is_outdated")

    def jump(self) -> None:
        name = self.some().name
        rate, offset = self.group.clocks[name]
        self.group.clocks[name] = (rate, offset + self.random.choice((-300, 300, 5_000)))

    def transfer(self) -> None:
        leaders = self.group.leaders()
        if leaders:
            target = NodeId(self.random.choice(list(self.group.nodes)))
            self.group.ask(self.random.choice(leaders).name, "transfer_leadership", target)

    def change_members(self) -> None:
        leader = self.group.leader()
        if leader is None or leader.core is None:
            return
        old = leader.core.membership
        if old.learners:
            new = replace(old, voters=old.voters | old.learners, learners=frozenset())
        elif len(old.voters) < 5 and self.random.random() < 0.5:
            gone = [known for known in self.group.nodes if known not in old.members]
            name = NodeId(gone[0] if gone else f"n{len(self.group.nodes)}")
            new = replace(old, learners=frozenset({name}))
        elif len(old.voters) > 2:
            leaving = frozenset({self.random.choice(sorted(old.voters))})
            new = replace(
                old,
                voters=old.voters - leaving,
                witnesses=old.witnesses - leaving,
                bodiless=old.bodiless - leaving,
            )
        else:
            return
        refusal = self.group.ask(leader.name, "propose_membership", new)
        self.group.trace(f"{leader.name} {sorted(new.voters)} {sorted(new.learners)} {refusal}")
        if not refusal:
            for name in sorted(new.members - {*self.group.names}):
                self.group.add(name)

    def compact(self) -> None:
        node = self.some()
        if node.core is None or node.orders or not node.connected:
            return
        if node.core.status().writer in (WriterState.IDLE, WriterState.GRANTED):
            limit = min(node.core.commit, node.disk.durable)
            first = self.random.randint(node.disk.first, max(node.disk.first, limit))
            node.disk.commit = max(node.disk.commit, first - 1)
            node.disk.compact(first)
            self.group.ask(node.name, "log_compacted", Index(first))

    def heal(self) -> None:
        """Faults end: a leader emerges, everything is committed, all logs are the same."""
        group = self.group
        group.heal()
        group.weather = Weather()
        group.paused.clear()
        group.trace("quiet")
        for name, node in group.nodes.items():
            node.sick = False
            if node.outdated:
                # It gets a newer version.
                node.outdated = False
                group.crash(name)
            if node.core is None:
                group.start(name)
            elif not node.writer_alive:
                node.start_writer()
            group.ask(name, "disk_is_sick", False)
        group.run(QUIET_TICKS)
        leader = group.leader()
        assert leader is not None and leader.core is not None, "a quiet group has no leader"
        require(group.propose(leader.name, "last"), "a quiet leader takes messages", leader.name)
        group.run(500)
        last = leader.disk.last
        members = leader.core.membership.members - leader.core.membership.bodiless
        for name in sorted(members & group.nodes.keys()):
            node = group.nodes[name]
            assert node.core is not None
            require(node.disk.last == last, "a quiet member has all", name, node.disk.last, last)
            require(node.core.commit == last.index, "a quiet member commits all", name)
            require(node.core.last == last, "the core knows the log", name, node.core.last, last)
        for index, entry in group.checker.acknowledged.items():
            if index >= leader.disk.first:
                held = leader.disk.entry(index)
                require(held == entry, "acknowledged entries survive", index, held, entry)


class RefusedRun(Run):
    """Leaders that live are cut off by something that refuses all connections, again and again."""

    def go(self) -> None:
        group = self.group
        for _ in range(8):
            group.run(2_000)
            for node in group.leaders():
                group.end_connections(node.name)
                group.isolate(node.name)
            group.run(600)
            group.heal()


def failure(
    seed: int, *, storm: bool = False, outdated: bool = False, make: type[Run] = Run
) -> str | None:
    """What went wrong with ``seed``, with the trace; None when nothing did."""
    run = make(seed, storm=storm, outdated=outdated)
    try:
        run.go()
    except Exception as error:  # whatever it is, the seed belongs to it
        trace = "\n".join([*run.group.history][-120:])
        return f"seed {seed}: {type(error).__name__}: {error}\n{trace}"
    return None
