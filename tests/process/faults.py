"""What is done to three nodes under load; each fault ends with a whole group.

Faults that leave a majority also wait until the producers have gone on meanwhile.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.model.errors import StaleGenerationError, StorageError
from tests.process.conftest import is_alive, wait_until
from tests.process.fault_network import LossyNetwork
from tests.process.group_nodes import Group, Member

ROLES = {
    "raft": Role.RAFT,
    "writer": Role.WRITER,
    "dispatcher": Role.DISPATCHER,
    "broker": Role.BROKER,
}


@dataclass(frozen=True)
class Scene:
    """Where a fault happens.

    Attributes:
        lasting_s: how long pauses and cuts last at least.
        goes_on: returns when each producer has been acknowledged something that it sent after the
            call.
    """

    group: Group
    network: LossyNetwork
    lasting_s: float
    goes_on: Callable[[], None]

    def one(self, *, of_leader: bool) -> Member:
        """The leader, or a follower."""
        leader = self.group.leader()
        return leader if of_leader else self.group.others(leader)[0]

    def number(self, member: Member) -> int:
        """By which the network knows it."""
        return self.group.members.index(member)

    @contextmanager
    def lost(self, ways: Iterable[tuple[Member, Member]]) -> Iterator[None]:
        """Let what goes from the first to the second of each pair be lost."""
        for source, target in ways:
            self.network.lose(self.number(source), self.number(target))
        try:
            yield
        finally:
            self.network.heal()


Fault = Callable[[Scene], None]


def kill_node(member: Member) -> None:
    """-9 for the supervisor and all its processes; returns when none of them is left."""
    pids = [pid_of(member, role) for role in ROLES]
    assert member.node.process is not None
    for pid in (member.node.process.pid, *pids):
        # They die with their supervisor, too.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    member.node.wait_end()
    wait_until(lambda: not any(map(is_alive, pids)), "the death of a node")


def pid_of(member: Member, role: str) -> int:
    """The process of a role once it runs, from the cursor page: nobody needs to answer."""

    def running() -> int:
        # A node that has just begun has no page yet, or one that is being made.
        try:
            with CursorPage.attach(member.node.runtime / "cursors") as page:
                pid = page.read_process(ROLES[role]).pid
        except (StorageError, StaleGenerationError):
            return 0
        return pid if pid and is_alive(pid) else 0

    return int(wait_until(running, f"{role} to run"))


@contextmanager
def paused(pids: Sequence[int]) -> Iterator[None]:
    """SIGSTOP, and SIGCONT behind it."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            # One that did not turn its loop for long was killed, and has a successor.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def all_pids(member: Member) -> list[int]:
    """The supervisor's and those of its children."""
    assert member.node.process is not None
    return [member.node.process.pid, *(pid_of(member, role) for role in ROLES)]


def leader_killed(scene: Scene) -> None:
    """The leader dies, another one follows, and the dead one comes back."""
    leader = scene.one(of_leader=True)
    kill_node(leader)
    scene.goes_on()
    leader.start()


def follower_killed(scene: Scene) -> None:
    """A follower dies, and comes back."""
    follower = scene.one(of_leader=False)
    kill_node(follower)
    scene.goes_on()
    follower.start()


def two_killed(scene: Scene) -> None:
    """The leader and a follower die at once, and come back one after the other."""
    dead = [scene.one(of_leader=True), scene.one(of_leader=False)]
    for member in dead:
        kill_node(member)
    for member in reversed(dead):
        member.start()
        scene.goes_on()


def all_killed(scene: Scene) -> None:
    """All die at once, as when the power fails, but for the page cache."""
    for member in scene.group.members:
        kill_node(member)
    for member in scene.group.members:
        member.start()


def rolling_restart(scene: Scene) -> None:
    """Each is stopped in order, and started again; the next one once it has caught up."""
    for member in scene.group.members:
        assert member.node.stop() == 0
        scene.goes_on()
        member.start()
        _wait_caught_up(member, scene.group.leader())


def _wait_caught_up(member: Member, leader: Member) -> None:
    reached = leader.cursors()["committed"]["index"]

    def has_caught_up() -> bool:
        status = member.status()
        return status is not None and int(status["cursors"]["committed"]["index"]) >= reached

    wait_until(has_caught_up, "a member to have caught up")


def role_killed(role: str, *, of_leader: bool) -> Fault:
    """One process dies at the leader, or at a follower; its supervisor starts it again."""

    def fault(scene: Scene) -> None:
        member = scene.one(of_leader=of_leader)
        pid = pid_of(member, role)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: pid_of(member, role) != pid, "the successor")

    return fault


def writer_of_leader_paused(scene: Scene) -> None:
    """The leader's writer stands still; when that is long, its supervisor kills it."""
    with paused([pid_of(scene.one(of_leader=True), "writer")]):
        time.sleep(scene.lasting_s)


def raft_paused(*, of_leader: bool) -> Fault:
    """One raft process stands still: the other two go on."""

    def fault(scene: Scene) -> None:
        with paused([pid_of(scene.one(of_leader=of_leader), "raft")]):
            time.sleep(scene.lasting_s)
            scene.goes_on()

    return fault


def node_paused(*, of_leader: bool) -> Fault:
    """All processes of a node stand still, as when a virtual machine is moved."""

    def fault(scene: Scene) -> None:
        with paused(all_pids(scene.one(of_leader=of_leader))):
            time.sleep(scene.lasting_s)
            scene.goes_on()

    return fault


def lost_ways(*, of_leader: bool, to_it: bool, from_it: bool) -> Fault:
    """What the member sends to the others is lost, or what they send to it, or both."""

    def fault(scene: Scene) -> None:
        one = scene.one(of_leader=of_leader)
        others = scene.group.others(one)
        there = [(one, other) for other in others if from_it]
        back = [(other, one) for other in others if to_it]
        with scene.lost([*there, *back]):
            time.sleep(scene.lasting_s)
            scene.goes_on()

    return fault


def lost_between(*, one_way: bool) -> Fault:
    """The leader and a follower are cut off from one another; the third member reaches both.

    One way: the follower hears nothing of the leader, and is heard.
    """

    def fault(scene: Scene) -> None:
        leader, follower = scene.one(of_leader=True), scene.one(of_leader=False)
        with scene.lost([(leader, follower), *([] if one_way else [(follower, leader)])]):
            time.sleep(scene.lasting_s)
            scene.goes_on()

    return fault


def everybody_alone(scene: Scene) -> None:
    """Nobody reaches anybody."""
    members = scene.group.members
    with scene.lost([(one, other) for one in members for other in members if one is not other]):
        time.sleep(scene.lasting_s)


def storm(scene: Scene, chance: random.Random, steps: int) -> None:
    """Several things at once, without waiting for anything to be well again in between."""
    for _ in range(steps):
        one = chance.choice(scene.group.members)
        kind = chance.choice(("node", "node paused", "role", "role paused", "restart", "nothing"))
        role = chance.choice(list(ROLES))
        if chance.random() < 0.6:
            for source in range(len(scene.group.members)):
                for target in range(len(scene.group.members)):
                    if source != target and chance.random() < 0.4:
                        scene.network.lose(source, target)
        print(f"storm: {kind} {role} {one.name}")
        with ExitStack() as until_then:
            if kind == "node":
                kill_node(one)
                until_then.callback(one.start)
            elif kind == "node paused":
                until_then.enter_context(paused(all_pids(one)))
            elif kind == "role":
                os.kill(pid_of(one, role), signal.SIGKILL)
            elif kind == "role paused":
                until_then.enter_context(paused([pid_of(one, role)]))
            elif kind == "restart":
                # An interpreter that has only just begun dies of SIGTERM, whatever it runs.
                all_pids(one)
                assert one.node.stop() == 0
                until_then.callback(one.start)
            time.sleep(chance.uniform(0.05, scene.lasting_s))
        if chance.random() < 0.6:
            scene.network.heal()
            time.sleep(chance.uniform(0.05, scene.lasting_s))
    scene.network.heal()


PROCESS_FAULTS: dict[str, Fault] = {
    "leader killed": leader_killed,
    "follower killed": follower_killed,
    "two killed": two_killed,
    "all killed": all_killed,
    "rolling restart": rolling_restart,
    **{
        f"{role} of the {'leader' if of_leader else 'follower'} killed": role_killed(
            role, of_leader=of_leader
        )
        for of_leader in (True, False)
        for role in ROLES
    },
    "raft of the leader paused": raft_paused(of_leader=True),
    "writer of the leader paused": writer_of_leader_paused,
    "leader paused": node_paused(of_leader=True),
    "follower paused": node_paused(of_leader=False),
}

NETWORK_FAULTS: dict[str, Fault] = {
    "leader cut off": lost_ways(of_leader=True, to_it=True, from_it=True),
    "follower cut off": lost_ways(of_leader=False, to_it=True, from_it=True),
    "leader not heard": lost_ways(of_leader=True, to_it=False, from_it=True),
    "leader hears nobody": lost_ways(of_leader=True, to_it=True, from_it=False),
    "follower hears nobody": lost_ways(of_leader=False, to_it=True, from_it=False),
    "follower hears not the leader": lost_between(one_way=True),
    "leader and a follower apart": lost_between(one_way=False),
    "everybody alone": everybody_alone,
}
