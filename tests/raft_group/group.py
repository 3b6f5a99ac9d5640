"""A group of nodes, a network that does what networks do, and one seed for all of it.

Global time is an integer; each node has its own clock, which drifts. Events that are due at the
same time happen in the order in which they were scheduled, so one seed is one run.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Any

from ledgermq.model.errors import LedgerError
from ledgermq.model.ids import NodeId
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import Message, RaftRole
from ledgermq.raft.roles.node_state import WriterState
from ledgermq.raft.roles.witness import WitnessState
from ledgermq.raft.timing import FlowLimits, Timing
from tests.raft_group.checker import Checker, require
from tests.raft_group.disk import Entry, SimDisk
from tests.raft_group.node import SimNode
from tests.raft_group.witness import SimWitness

TIMING = Timing(
    heartbeat=30, election_min=100, election_max=200, transfer_max=300, preferred_wait=600,
    witness_wait=120,
)  # fmt: skip
FLOW = FlowLimits(inflight_count_max=4, inflight_bytes_max=1_500, lag_max=20)


@dataclass
class Weather:
    """How bad things are: probabilities, and delays in ticks."""

    loss: float = 0.0
    duplication: float = 0.0
    delay_max: int = 0
    step_max: int = 0
    crash_points: float = 0.0


class RaftGroup:
    """All that a run consists of; ``history`` keeps the last lines for a failure."""

    def __init__(self, seed: int, membership: Membership, *, fsync: bool = True) -> None:
        self.random = Random(seed)
        self.now = 0
        self.fsync = fsync
        self.checker = Checker()
        self.weather = Weather()
        self.nodes: dict[str, SimNode] = {}
        self.witnesses: dict[str, SimWitness] = {}
        # Of those that are lost for good what they held when they counted still counts.
        self.lost: dict[str, SimNode] = {}
        self.blocked: set[tuple[str, str]] = set()
        self.clocks: dict[str, tuple[int, int]] = {}
        self.paused: dict[str, int] = {}
        self.history: deque[str] = deque(maxlen=400)
        self.sent: list[tuple[str, str, Message]] | None = None
        self.preferred: tuple[NodeId, ...] = ()
        self.batch = 5
        self.timing = TIMING
        self.first = membership
        self._read_floors: dict[tuple[str, int], int] = {}
        self._reads = 0
        self._started: dict[str, int] = {}
        self._offsets: dict[str, int] = {}
        self.looks_alone = 0
        self.tells_ends = False
        self._queue: list[tuple[int, int, str, str, Any]] = []
        self._sequence = 0
        self._wakes: dict[str, int] = {}
        self.checker.told = self._memberships
        self.checker.counted = self._counted

    def add(self, name: str) -> SimNode:
        node = SimNode(name, SimDisk(self.first), self.checker, fsync=self.fsync)
        node.timing, node.flow, node.preferred = self.timing, FLOW, self.preferred
        node.batch = self.batch
        node.carry = self._carry
        node.trace = self.trace
        self.nodes[name] = node
        self.clocks[name] = (1_000, 0)
        self.start(name)
        return node

    def add_witness(self, name: str) -> SimWitness:
        """One without bodies."""
        witness = SimWitness(name, self.checker)
        witness.timing = self.timing
        witness.carry = self._carry
        witness.trace = self.trace
        witness.learnt = lambda kept: self._learnt(name, kept)
        self.witnesses[name] = witness
        self.clocks[name] = (1_000, 0)
        self.start(name)
        return witness

    @property
    def names(self) -> list[str]:
        """Those of all nodes, witnesses last."""
        return [*self.nodes, *self.witnesses]

    def start(self, name: str) -> None:
        self.trace(f"{name} starts")
        self._started[name] = self.now
        if name in self.witnesses:
            self.witnesses[name].start(self._clock(name))
            return
        self.nodes[name].start(self._clock(name), self.random.getrandbits(64))
        self._after(name)

    def crash(self, name: str) -> None:
        if name in self.witnesses:
            witness = self.witnesses[name]
            witness.crash()
            self.trace(f"{name} crashes, knows of {witness.kept.last}")
            return
        node = self.nodes[name]
        if node.core is None:
            return
        # A later start knows an older commit index, or none.
        node.disk.commit = self.random.randint(node.disk.commit, node.core.commit)
        lost = self.random.randint(node.disk.durable, max(node.disk.durable, node.disk.last.index))
        node.crash(lost)
        self.end_connections(name)
        self.trace(f"{name} crashes, log ends with {node.disk.last}")

    def run(self, ticks: int) -> None:
        end = self.now + ticks
        while self._queue and self._queue[0][0] <= end:
            self.now, _, kind, name, data = heapq.heappop(self._queue)
            self._happen(kind, name, data)
        self.now = end

    def schedule(self, wait: int, kind: str, name: str, data: Any = None) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (self.now + wait, self._sequence, kind, name, data))

    def trace(self, text: str) -> None:
        self.history.append(f"{self.now:6} {text}")

    def propose(self, name: str, payload: str) -> bool:
        node = self.nodes[name]
        if node.core is None or not node.stamp(payload):
            return False
        node.look()
        self._after(name)
        return True

    def ask(self, name: str, verb: str, *arguments: Any) -> str:
        """Call a method of the core; the text of its refusal, or nothing."""
        node = self.nodes[name]
        if node.core is None:
            return "down"
        try:
            effects = getattr(node.core, verb)(*arguments)
        except LedgerError as error:
            return str(error)
        node.carry_out(effects)
        self._after(name)
        return ""

    def read(self, name: str) -> int:
        """Ask for a read index; the checker knows what it must at least be."""
        self._reads += 1
        self._read_floors[(name, self._reads)] = max(self.checker.acknowledged, default=-1)
        self.ask(name, "read_index", self._reads)
        return self._reads

    def leaders(self) -> list[SimNode]:
        return [
            node
            for node in self.nodes.values()
            if node.core is not None and node.core.role is RaftRole.LEADER
        ]

    def leader(self) -> SimNode | None:
        """The one with the highest term."""
        leaders = self.leaders()
        return max(leaders, key=lambda node: node.core.term if node.core else -1, default=None)

    def isolate(self, name: str) -> None:
        """Nothing gets there or away; where something refuses connections, both sides see it."""
        if self.tells_ends and self._chance(0.5):
            self.end_connections(name)
        for other in self.names:
            self.blocked |= {(name, other), (other, name)}

    def end_connections(self, name: str) -> None:
        """Others hear that their connection to ``name`` has ended, as ``tells_ends`` wants it: some
        soon, and some never.
        """
        if not self.tells_ends:
            return
        for other in self.nodes:
            if other != name and (name, other) not in self.blocked and self._chance(0.8):
                self.schedule(self.random.randint(1, 20), "gone", other, name)

    def heal(self) -> None:
        self.blocked.clear()

    def _carry(
        self, source: NodeId, target: NodeId, message: Message, entries: list[Entry]
    ) -> None:
        weather = self.weather
        if self.sent is not None:
            self.sent.append((source, target, message))
        for _ in range(2 if self._chance(weather.duplication) else 1):
            if self._chance(weather.loss):
                continue
            wait = 1 + (self.random.randint(0, weather.delay_max) if weather.delay_max else 0)
            self.schedule(wait, "message", target, (source, message, entries))

    def _chance(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability

    def _happen(self, kind: str, name: str, data: Any) -> None:
        if name in self.witnesses:
            self._happen_to_witness(self.witnesses[name], kind, data)
            return
        node = self.nodes.get(name)
        if node is None:
            return
        if node.core is None:
            if kind == "start":
                self.start(name)
            return
        if self.paused.get(name, 0) > self.now:
            self.schedule(self.paused[name] - self.now, kind, name, data)
            return
        getattr(self, f"_on_{kind}")(node, data)
        if node.at_crash_point:
            # Between what a node has promised and what follows from it lies most trouble.
            node.at_crash_point = False
            if self._chance(self.weather.crash_points):
                self.crash(name)
                self.schedule(self.random.choice((1, 1, 5, 50, 300)), "start", name)
        self._after(name)

    def _happen_to_witness(self, witness: SimWitness, kind: str, data: Any) -> None:
        name = witness.name
        if witness.core is None:
            if kind == "start":
                self.start(name)
            return
        if self.paused.get(name, 0) > self.now:
            self.schedule(self.paused[name] - self.now, kind, name, data)
            return
        if kind == "message":
            source, message, _ = data
            if (source, name) not in self.blocked:
                witness.waiting.append((source, message))
                if not witness.is_turning:
                    witness.is_turning = True
                    step = self.weather.step_max
                    self.schedule(self.random.randint(0, step) if step else 0, "turn", name)
        elif kind == "turn" and witness.is_turning:
            witness.turn(self._clock(name))
        if witness.at_crash_point:
            witness.at_crash_point = False
            if self._chance(self.weather.crash_points):
                self.crash(name)
                self.schedule(self.random.choice((1, 1, 5, 50, 300)), "start", name)

    def _learnt(self, name: str, kept: WitnessState) -> None:
        """What a witness without bodies knows of is held by enough others (decision 0085)."""
        last = kept.last
        if last.index < 0:
            return
        known = self.checker.stamped.get((int(last.index), last.term))
        require(known is not None, "a witness knows of what there is", name, last)
        assert known is not None
        entry = known[0]
        nodes = [*self.nodes.values(), *self.lost.values()]
        holders = {node.name for node in nodes if node.holds(int(last.index), entry)}
        self.checker.learnt(name, int(last.index), entry, holders | {name})

    def _counted(self, node: SimNode, index: int, entry: Entry) -> None:
        """Bodies are where the group promises them, while a witness holds none (decision 0085)."""
        assert node.core is not None
        membership, voters = node.core.membership, len(node.core.membership.voters)
        if not membership.bodiless or node.core.role is not RaftRole.LEADER:
            return
        known = {**self.nodes, **self.lost}
        holders = {name for name in membership.full if known[name].holds(index, entry)}
        needed = voters // 2 if node.core.status().leans else (voters + 1) // 2
        require(len(holders) >= needed, "bodies are where they should", index, entry, holders)

    def _memberships(self) -> list[Membership]:
        cores = [node.core for node in self.nodes.values() if node.core is not None]
        return [self.first, *(core.membership for core in cores)]

    def _after(self, name: str) -> None:
        """Schedule what the node is to do next."""
        node = self.nodes[name]
        if node.core is None:
            return
        step = self.weather.step_max
        wait = self.random.randint(0, step) if step else 0
        if node.orders:
            self.schedule(wait, "write", name)
        if node.answers:
            self.schedule(wait, "answer", name)
        if node.disk.durable < node.disk.last.index and not node.sick:
            self.schedule(1 + 2 * wait, "sync", name)
        for peer, _ in node.ships:
            self.schedule(20, "ship", peer, name)
        node.ships.clear()
        for read, index in node.reads.items():
            floor = self._read_floors.pop((name, read), -1)
            require(index is None or index >= floor, "reads see what was acknowledged", name, index)
        self._check_alone(node)
        rate, offset = self.clocks[name]
        due = max(self.now + 1, -((offset - node.core.deadline) * 1_000 // rate))
        known = self._wakes.get(name)
        if known is None or due < known or known < self.now:
            self._wakes[name] = due
            self.schedule(due - self.now, "wake", name)

    def _check_alone(self, node: SimNode) -> None:
        """While a leader is sure to be the only one there is no later one.

        What it does not count with: members that were begun anew and forgot what they had heard,
        and clocks that jump, as no monotonic one does. These run up to a tenth faster and slower.
        """
        assert node.core is not None
        offsets = {name: offset for name, (_, offset) in self.clocks.items()}
        if offsets != self._offsets:
            self._offsets, self._started["a clock"] = offsets, self.now
        until = node.core.alone_until()
        if until is None or until <= self._clock(node.name):
            return
        if any(self.now - at <= 2 * self.timing.election_max for at in self._started.values()):
            return
        self.looks_alone += 1
        later = [one.name for one in self.leaders() if one.core and one.core.term > node.core.term]
        require(not later, "nobody leads beside who is sure to lead alone", node.name, later)

    def _on_start(self, node: SimNode, data: Any) -> None:
        """It runs already."""

    def _on_message(self, node: SimNode, data: Any) -> None:
        source, message, entries = data
        if (source, node.name) not in self.blocked:
            node.receive(self._clock(node.name), source, message, entries)

    def _on_gone(self, node: SimNode, source: str) -> None:
        assert node.core is not None
        node.core.peer_gone(self._clock(node.name), NodeId(source))

    def _on_wake(self, node: SimNode, data: Any) -> None:
        if self._wakes.get(node.name) == self.now:
            del self._wakes[node.name]
        if node.core is not None and self._clock(node.name) >= node.core.deadline:
            node.tick(self._clock(node.name))

    def _on_write(self, node: SimNode, data: Any) -> None:
        if node.orders:
            node.write()
            node.look()

    def _on_answer(self, node: SimNode, data: Any) -> None:
        if node.answers:
            node.take_answer()

    def _on_sync(self, node: SimNode, data: Any) -> None:
        node.sync()
        node.look()

    def _on_writer(self, node: SimNode, data: Any) -> None:
        if not node.writer_alive:
            node.start_writer()

    def _on_ship(self, node: SimNode, source: str) -> None:
        leader = self.nodes[source]
        if leader.core is None or leader.core.role is not RaftRole.LEADER or node.core is None:
            return
        if (source, node.name) in self.blocked or node.orders or not node.connected:
            return
        status = node.core.status()
        if status.leader != source or status.writer is not WriterState.IDLE:
            return
        if node.core.commit < leader.disk.first - 1:
            self.trace(f"{node.name} gets the files of {source}")
            node.replace_log(leader)

    def _clock(self, name: str) -> int:
        rate, offset = self.clocks[name]
        return self.now * rate // 1_000 + offset
