"""What can be done to a group: each fault is a context, within which it is there.

Several may be there at a time; of those that are done to a node's processes, one a node.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from ledgermq.model.errors import LedgerError
from ledgermq.process import control
from ledgermq.process.runtime_paths import RuntimePaths
from tests.process.conftest import wait_until
from tests.process.group_nodes import Member
from tests.random_faults.bed import ASK_S, Bed, node_of
from tests.random_faults.carrier import Way
from tests.random_faults.clients.senders import FLOOD
from tests.random_faults.network import Pair, between, both
from tests.suite.patience import PATIENCE_S

ROLES = ("raft", "storage-writer", "dispatcher", "broker")
CUT = Way(is_cut=True)
LEADER_SHARE = 0.6
"""So often what happens to one member happens to the leader."""

FILLED_LEAVING_MAX = 2 << 20


@dataclass
class Scene:
    """Where faults happen.

    Attributes:
        taken: members to whose processes something is being done, and disks that are full.
    """

    bed: Bed
    chance: random.Random
    taken: set[str] = field(default_factory=set)
    _troubles: int = 0

    def one(self) -> Member:
        """A drawn member, the leader more often than others."""
        leader = self.bed.leader_now()
        if leader is not None and self.chance.random() < LEADER_SHARE:
            return leader
        return self.chance.choice(self.bed.members)

    def number(self, member: Member) -> int:
        """By which the network knows it."""
        return self.bed.members.index(member)

    @contextmanager
    def laid(self, name: str, ways: Mapping[Pair, Way]) -> Iterator[None]:
        """A trouble of the network."""
        self._troubles += 1
        name = f"{name} {self._troubles}"
        self.bed.network.lay(name, ways)
        try:
            yield
        finally:
            self.bed.network.lift(name)

    @contextmanager
    def take(self, members: Sequence[Member]) -> Iterator[None]:
        """Have the processes of these for one fault alone.

        Raises:
            NotNowError: something is done to them, or they do not run.
        """
        if any(node_of(one).has_ended() for one in members):
            raise NotNowError
        with self.take_names({one.name for one in members}):
            yield

    @contextmanager
    def take_names(self, names: set[str]) -> Iterator[None]:
        """Have what is named so for one fault alone.

        Raises:
            NotNowError: another one has it.
        """
        if names & self.taken:
            raise NotNowError
        self.taken |= names
        try:
            yield
        finally:
            self.taken -= names


class NotNowError(Exception):
    """The fault cannot be had at this moment; another one is drawn."""


Fault = Callable[[Scene], AbstractContextManager[str]]
"""Gives what was done, in words, and ends it."""


class Kind(NamedTuple):
    """A fault, how often it is drawn beside others, and how many seconds it lasts at most."""

    name: str
    fault: Fault
    weight: float
    lasting_s: float


@contextmanager
def role_killed(scene: Scene) -> Iterator[str]:
    """-9 for one process; its supervisor starts it again."""
    member, role = scene.one(), scene.chance.choice(ROLES)
    pids = node_of(member).roles()
    if role not in pids:
        raise NotNowError
    node_of(member).signal_all(signal.SIGKILL, [pids[role]])
    yield f"{role} of {member.name}"


@contextmanager
def nodes_killed(scene: Scene) -> Iterator[str]:
    """-9 for all processes of a node; it is started again when the fault ends."""
    with _down(scene, [scene.one()]) as told:
        yield told


@contextmanager
def all_killed(scene: Scene) -> Iterator[str]:
    """The same of all nodes at once."""
    with _down(scene, scene.bed.members) as told:
        yield told


@contextmanager
def minority_killed(scene: Scene) -> Iterator[str]:
    """The same of as many as the group can do without."""
    members = scene.bed.members
    with _down(scene, scene.chance.sample(members, (len(members) - 1) // 2)) as told:
        yield told


@contextmanager
def _down(scene: Scene, members: Sequence[Member]) -> Iterator[str]:
    with scene.take(members):
        for member in members:
            node_of(member).is_wanted = False
            node_of(member).signal_all(signal.SIGKILL)
        for member in members:
            node_of(member).end()
        try:
            yield _names(members)
        finally:
            for member in members:
                member.start()


@contextmanager
def node_terminated(scene: Scene) -> Iterator[str]:
    """SIGTERM; it is started again once it has ended."""
    member = scene.one()
    node = node_of(member)
    if not (node.runtime / "control.sock").exists():
        # One that has only just begun dies of it, whatever it runs.
        raise NotNowError
    with scene.take([member]):
        node.is_wanted = False
        assert node.process is not None
        node.process.terminate()
        try:
            yield member.name
        finally:
            # Beside other faults it may take long to stop in order; systemd would not wait either.
            with suppress(AssertionError):
                wait_until(node.has_ended, f"{member.name} to end", PATIENCE_S)
            node.end()
            member.start()


@contextmanager
def role_stopped(scene: Scene) -> Iterator[str]:
    """One process stands still; when that is long, its supervisor kills it."""
    member, role = scene.one(), scene.chance.choice(ROLES)
    with scene.take([member]):
        pids = node_of(member).roles()
        if role not in pids:
            raise NotNowError
        with _stopped(member, [pids[role]]):
            yield f"{role} of {member.name}"


@contextmanager
def node_stopped(scene: Scene) -> Iterator[str]:
    """All processes of a node stand still, as when a virtual machine is moved."""
    member = scene.one()
    with scene.take([member]), _stopped(member, node_of(member).session()):
        yield member.name


@contextmanager
def _stopped(member: Member, pids: Sequence[int]) -> Iterator[None]:
    node = node_of(member)
    node.signal_all(signal.SIGSTOP, pids)
    try:
        yield
    finally:
        node.signal_all(signal.SIGCONT, pids)


@contextmanager
def transferred(scene: Scene) -> Iterator[str]:
    """The leader is asked to hand over to a drawn member."""
    leader = scene.bed.leader_now()
    if leader is None:
        raise NotNowError
    target = scene.chance.choice(scene.bed.group.others(leader))
    told = f"{leader.name} to {target.name}"
    try:
        path = RuntimePaths(leader.node.runtime).raft_control
        control.ask(path, "transfer", timeout_s=ASK_S, target=target.name)
    except (LedgerError, OSError) as error:
        told += f", refused: {type(error).__name__}"
    yield told


@contextmanager
def member_apart(scene: Scene) -> Iterator[str]:
    """A member is cut off, is not heard, or hears nobody, of members alone or of clients, too."""
    member, how = scene.one(), scene.chance.choice(("cut off", "not heard", "deaf"))
    number, network = scene.number(member), scene.bed.network
    others = [*network.members, *(network.clients if scene.chance.random() < 0.5 else ())]
    forth, back = between([number], others, CUT), between(others, [number], CUT)
    ways = {"cut off": {**forth, **back}, "not heard": forth, "deaf": back}[how]
    with scene.laid("member apart", ways):
        yield f"{member.name} {how} by {len(others) - 1} hosts"


@contextmanager
def pair_apart(scene: Scene) -> Iterator[str]:
    """Two members are cut off from one another, one way or both; others reach both."""
    one, other = scene.chance.sample(list(scene.bed.network.members), 2)
    ways = between([one], [other], CUT)
    is_both = scene.chance.random() < 0.5
    with scene.laid("pair apart", both(ways) if is_both else ways):
        yield f"n{one} {'and' if is_both else 'to'} n{other}"


@contextmanager
def bridged(scene: Scene) -> Iterator[str]:
    """Two halves hear only one member in common."""
    members = list(scene.bed.network.members)
    scene.chance.shuffle(members)
    bridge, rest = members[0], members[1:]
    left, right = rest[: len(rest) // 2], rest[len(rest) // 2 :]
    with scene.laid("bridged", both(between(left, right, CUT))):
        yield f"{left} and {right} over n{bridge}"


@contextmanager
def halved(scene: Scene) -> Iterator[str]:
    """A minority is cut off from the others; clients reach both."""
    members = list(scene.bed.network.members)
    scene.chance.shuffle(members)
    few, many = members[: (len(members) - 1) // 2], members[(len(members) - 1) // 2 :]
    with scene.laid("halved", both(between(few, many, CUT))):
        yield f"{few} and {many}"


@contextmanager
def everybody_apart(scene: Scene) -> Iterator[str]:
    """No member reaches another one."""
    members = scene.bed.network.members
    with scene.laid("everybody apart", between(members, members, CUT)):
        yield "all members"


@contextmanager
def clients_apart(scene: Scene) -> Iterator[str]:
    """Clients of one host lose what members say, or are not heard, or both."""
    network = scene.bed.network
    host = scene.chance.choice(list(network.clients))
    how = scene.chance.choice(("cut off", "not heard", "deaf"))
    forth = between([host], network.members, CUT)
    back = between(network.members, [host], CUT)
    ways = {"cut off": {**forth, **back}, "not heard": forth, "deaf": back}[how]
    with scene.laid("clients apart", ways):
        yield f"host {host} {how}"


@contextmanager
def flooded(scene: Scene) -> Iterator[str]:
    """Clients of one host lose all answers, while others send very much."""
    network = scene.bed.network
    host = scene.chance.choice(list(network.clients))
    flood = scene.bed.folder / FLOOD
    with (
        scene.take_names({FLOOD}),
        scene.laid("flooded", between(network.members, [host], CUT)),
    ):
        flood.touch()
        try:
            yield f"host {host} deaf"
        finally:
            flood.unlink()


@contextmanager
def noise(scene: Scene) -> Iterator[str]:
    """Packets are late and overtake one another, are lost, come twice, or are changed."""
    network, chance = scene.bed.network, scene.chance
    way = Way(
        loss=chance.choice((0.0, 0.02, 0.2)),
        delay_s=chance.choice((0.0, 0.005, 0.05)),
        jitter_s=chance.choice((0.0, 0.02, 0.4)),
        duplicates=chance.choice((0.0, 0.1)),
        corrupt=chance.choice((0.0, 0.05)),
    )
    everybody = [*network.members, *network.clients]
    hosts = everybody if chance.random() < 0.5 else list(network.members)
    with scene.laid("noise", between(hosts, hosts, way)):
        yield f"{len(hosts)} hosts, {way}"


@contextmanager
def disk_full(scene: Scene) -> Iterator[str]:
    """A member's disk is full but for at most two MiB, and has room again later."""
    member = scene.one()
    node, leave = node_of(member), scene.chance.choice((0, 65_536, FILLED_LEAVING_MAX))
    with scene.take_names({f"disk of {member.name}"}):
        node.fill(leave)
        try:
            yield f"of {member.name}, but for {leave} bytes"
        finally:
            node.free()


KINDS = (
    Kind("process killed", role_killed, 3, 0),
    Kind("node killed", nodes_killed, 3, 6),
    Kind("minority killed", minority_killed, 1, 6),
    Kind("all killed", all_killed, 2, 3),
    Kind("node terminated", node_terminated, 2, 3),
    Kind("process stopped", role_stopped, 3, 15),
    Kind("node stopped", node_stopped, 2, 15),
    Kind("leadership handed over", transferred, 3, 0),
    Kind("member apart", member_apart, 4, 12),
    Kind("pair apart", pair_apart, 2, 12),
    Kind("bridged", bridged, 2, 12),
    Kind("halved", halved, 2, 12),
    Kind("everybody apart", everybody_apart, 1, 6),
    Kind("clients apart", clients_apart, 4, 12),
    Kind("flooded", flooded, 2, 14),
    Kind("noise", noise, 4, 12),
    Kind("disk full", disk_full, 2, 10),
)


def _names(members: Sequence[Member]) -> str:
    return ", ".join(one.name for one in members)
