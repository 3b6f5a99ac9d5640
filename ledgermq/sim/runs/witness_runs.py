"""Runs of groups with a witness that holds no bodies; a member is lost for good in most of them."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from ledgermq.model.config.settings import AckMode
from ledgermq.model.features import LEVEL
from ledgermq.model.ids import NodeId
from ledgermq.sim.checks.checker import require
from ledgermq.sim.checks.healing import wait
from ledgermq.sim.machine.events import MS
from ledgermq.sim.runs.runs import FaultRun, Verbs, number_of
from ledgermq.sim.world import address_of

BEGIN_MS = 10_000
"""Two members elect a leader, and take the witness in."""

LOSSES = 0.8
"""Share of the seeds in which a member is lost for good."""

EVEN_MS = 4_000
"""Longest wait until the leader of a group that is complete leans on no witness."""


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
            for node in world.leaders()[-1:]:
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
        """The whole run.

        Raises:
            BrokenPromiseError: a promise was broken.
        """
        super().go()
        taken = sorted(self.world.checker.acknowledged - self.world.checker.messages.keys())
        require(not taken, "what was acknowledged is committed", *taken[:3])
