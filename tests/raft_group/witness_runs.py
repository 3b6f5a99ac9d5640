"""Runs of groups with a witness that holds no bodies; one of the others is lost for good."""

from __future__ import annotations

from dataclasses import replace

from ledgermq.model.ids import NodeId
from ledgermq.raft.membership import Membership
from tests.raft_group.checker import require
from tests.raft_group.runs import Run
from tests.raft_group.witness import SimWitness

FAULT_EVERY = 150
STORM_FAULT_EVERY = 50

EARLY_LOSS = 0.05
"""How probable a loss is at a fault of the first half of a run; later it comes when it may."""


class WitnessRun(Run):
    """A group of which one voter, or two, hold no bodies.

    Attributes:
        lost: the member whose disk is gone for good: what was acknowledged must be with others.
    """

    def __init__(self, seed: int, *, storm: bool = False, ticks: int = 4_000) -> None:
        super().__init__(seed, storm=storm, ticks=ticks)
        # What leaves a group of three alone is more for one that waits for both others.
        self.fault_every = STORM_FAULT_EVERY if self.storm else FAULT_EVERY
        self.worst = replace(self.worst, crash_points=min(self.worst.crash_points, 0.1))
        self.lost: str | None = None
        self.loses = self.random.random() < 0.8
        for name in sorted(self.group.first.bodiless):
            self._add_witness(name)

    def first_membership(self) -> Membership:
        full, bodiless = self.random.choice(((2, 1), (2, 1), (2, 1), (3, 1), (4, 1), (3, 2)))
        names = [NodeId(f"n{number}") for number in range(full)]
        witnesses = frozenset(NodeId(f"w{number}") for number in range(bodiless))
        return Membership(witnesses.union(names), witnesses=witnesses, bodiless=witnesses)

    def fault(self) -> None:
        self.lose_one()
        if self.random.random() < 0.2:
            self.crash_or_start_witness()
        else:
            super().fault()

    def storm_fault(self) -> None:
        self.lose_one()
        if self.random.random() < 0.2:
            self.crash_or_start_witness()
        super().storm_fault()

    def crash_or_start(self) -> None:
        """Who is down is back sooner than others crash: two of three are needed for anything."""
        down = [name for name, node in self.group.nodes.items() if node.core is None]
        if not down:
            super().crash_or_start()
        for name in down:
            if self.random.random() < 0.8:
                self.group.start(name)

    def crash_or_start_witness(self) -> None:
        name = self.random.choice([*self.group.witnesses])
        if self.group.witnesses[name].core is None:
            self.group.start(name)
        elif self.random.random() < 0.2:
            self.group.paused[name] = self.group.now + self.random.choice((20, 150, 500))
        else:
            self.group.crash(name)

    def lose_one(self) -> None:
        """A full member, while the leader says that the others have what is committed, too."""
        group, leader = self.group, self.group.leader()
        if not self.loses or self.lost is not None or leader is None or leader.core is None:
            return
        now, membership = leader.core.status(), leader.core.membership
        is_late = group.now > self.ticks // 2
        if len(membership.voters) < 3 or not (is_late or self.random.random() < EARLY_LOSS):
            return
        knows_all = now.commit == len(group.checker.committed) - 1 >= 0
        is_settled = now.membership_index <= now.commit and not membership.learners
        if now.leans or not knows_all or not is_settled or now.copies is None:
            return
        if now.copies < (len(membership.voters) + 1) // 2:
            return
        others = sorted(membership.full - {leader.name})
        name = leader.name if self.random.random() < 0.6 else self.random.choice(others)
        group.crash(name)
        group.lost[name] = group.nodes.pop(name)
        self.lost = name
        group.trace(f"{name} is lost for good")

    def change_members(self) -> None:
        """Also of witnesses: one goes, one comes; who was lost goes and never comes back."""
        leader = self.group.leader()
        if leader is None or leader.core is None:
            return
        old = leader.core.membership
        if self.random.random() < 0.5:
            self._change_witness(leader.name, old)
        elif self.lost is None:
            super().change_members()
        elif self.lost in old.full:
            new = replace(old, voters=old.voters - {NodeId(self.lost)})
            self.group.ask(leader.name, "propose_membership", new)

    def _change_witness(self, leader: NodeId, old: Membership) -> None:
        if old.bodiless and self.random.random() < 0.3:
            if self.lost in old.full:
                # Those who are left may be too few without it.
                return
            gone = frozenset({self.random.choice(sorted(old.bodiless))})
            new = replace(
                old,
                voters=old.voters - gone,
                witnesses=old.witnesses - gone,
                bodiless=old.bodiless - gone,
            )
        elif len(old.full) > len(old.voters) // 2 + 1:
            known = [name for name in self.group.witnesses if name not in old.members]
            name = NodeId(known[0] if known else f"w{len(self.group.witnesses)}")
            added = frozenset({name})
            new = replace(
                old,
                voters=old.voters | added,
                witnesses=old.witnesses | added,
                bodiless=old.bodiless | added,
            )
            if not known:
                self._add_witness(name)
        else:
            return
        refusal = self.group.ask(leader, "propose_membership", new)
        self.group.trace(f"{leader} {new.describe()} {refusal}")

    def heal(self) -> None:
        """Where nobody is lost all have everything, and the leader leans on no witness."""
        for name, witness in self.group.witnesses.items():
            if witness.core is None:
                self.group.start(name)
        super().heal()
        self.be_without_one()
        leader = self.group.leader()
        assert leader is not None and leader.core is not None
        now, membership = leader.core.status(), leader.core.membership
        if membership.bodiless and self.lost not in membership.full:
            require(not now.leans, "a leader that needs no witness leans on none", leader.name)
            require(now.copies == len(membership.full), "all hold the bodies", now.copies)
        for name in membership.bodiless:
            last = self.group.witnesses[name].kept.last
            require(last == now.last, "a witness is told of all in the end", name, last, now.last)

    def be_without_one(self) -> None:
        """In a quiet group so many are away that it has to lean on a witness, and come back."""
        group, leader = self.group, self.group.leader()
        assert leader is not None and leader.core is not None
        membership = leader.core.membership
        is_odd = len(membership.voters) % 2 == 1
        if not (membership.bodiless and is_odd) or self.lost in membership.full:
            return
        away = sorted(membership.full - {leader.name})[: len(membership.full) - 1]
        # So many that those who are left are one less than a majority.
        away = away[: len(membership.full) - len(membership.voters) // 2]
        for name in away:
            group.crash(name)
        group.run(400)
        require(group.propose(leader.name, "without one"), "it takes messages", leader.name)
        index = leader.disk.last.index
        group.run(200)
        assert leader.core is not None
        require(leader.core.status().leans, "a leader leans on a witness that it needs", away)
        require(leader.core.commit >= index, "and commits with it", leader.core.commit, index)
        for name in away:
            group.start(name)
        group.run(500)

    def _add_witness(self, name: str) -> SimWitness:
        witness = self.group.add_witness(name)
        self.group.clocks[name] = (self.random.randint(900, 1_100), self.random.randint(0, 1_000))
        return witness


def failure(seed: int, *, storm: bool = False) -> str | None:
    """What went wrong with ``seed``, with the trace; None when nothing did."""
    run = WitnessRun(seed, storm=storm)
    try:
        run.go()
    except Exception as error:  # whatever it is, the seed belongs to it
        trace = "\n".join([*run.group.history][-120:])
        return f"seed {seed}: {type(error).__name__}: {error}\n{trace}"
    return None
