"""One member of the group: the real core, and around it a process, a writer and a disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ledgermq.model.ids import Index, NodeId, Term
from ledgermq.raft.core import RaftCore
from ledgermq.raft.effects import Effects
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import Append, EntryId, Message, RaftRole
from ledgermq.raft.roles.node_state import WriterState
from ledgermq.raft.timing import FlowLimits, Timing
from tests.raft_group.checker import Checker
from tests.raft_group.disk import Entry, SimDisk
from tests.simulator.machine.compared_line import LinedCore

Order = tuple[str, Any]


class SimNode:
    """``carry`` takes (source, target, message, entries) to the network."""

    carry: Callable[[NodeId, NodeId, Message, list[Entry]], None]
    trace: Callable[[str], None]

    def __init__(self, name: str, disk: SimDisk, checker: Checker, *, fsync: bool) -> None:
        self.name = NodeId(name)
        self.disk = disk
        self.checker = checker
        self.fsync = fsync
        self.core: RaftCore | None = None
        self.timing = Timing()
        self.flow = FlowLimits()
        self.preferred: tuple[NodeId, ...] = ()
        self.writer_alive = False
        self.connected = False
        self.writer_term: Term | None = None
        self.orders: deque[Order] = deque()
        self.answers: deque[Order] = deque()
        self.unanswered: dict[int, Entry] = {}
        self.reads: dict[int, int | None] = {}
        self.ships: list[tuple[NodeId, EntryId]] = []
        self.sick = False
        self.outdated = False
        self.batch = 5
        self.at_crash_point = False
        self.completeness_checked = -1

    def start(self, now: int, seed: int) -> None:
        disk = self.disk
        self.core = LinedCore(
            self.name,
            disk.membership,
            disk.hard_state,
            commit=Index(disk.commit),
            entries_have_terms=True,
            timing=self.timing,
            flow=self.flow,
            preferred=self.preferred,
            seed=seed,
            now=now,
        )
        self.core.disk_is_sick(self.sick)
        if self.outdated:
            self.core.version_is_outdated()
        self.checker.restarted(self)
        self.start_writer()

    def crash(self, lost: int) -> None:
        """Power fails: entries behind ``lost`` that are not durable are gone."""
        self.core = None
        self.stop_writer()
        self.reads.clear()
        self.ships.clear()
        if self.fsync:
            self.disk.truncate(max(self.disk.durable, min(lost, self.disk.last.index)))
        self.disk.durable = int(self.disk.last.index)

    def holds(self, index: int, entry: Entry) -> bool:
        """Whether it has ``entry`` in the sense in which the group acknowledges."""
        last = self.disk.durable if self.fsync else int(self.disk.last.index)
        if index < self.disk.first:
            return True
        return index <= last and self.disk.entry(index) == entry

    def stop_writer(self) -> None:
        self.writer_alive = False
        self.connected = False
        self.writer_term = None
        self.unanswered.clear()
        self.orders.clear()
        self.answers.clear()

    def start_writer(self) -> None:
        self.writer_alive = True
        self.answers.append(("ready", self.disk.last))

    def tick(self, now: int) -> None:
        assert self.core is not None
        self.carry_out(self.core.tick(now))

    def receive(self, now: int, source: NodeId, message: Message, entries: list[Entry]) -> None:
        assert self.core is not None
        self.carry_out(self.core.receive(now, source, message), message, entries)

    def sync(self) -> None:
        """A disk sync ends."""
        if not self.sick:
            self.disk.durable = int(self.disk.last.index)

    def stamp(self, payload: str | Membership) -> bool:
        """A client's message, or an entry of our own, reaches the writer."""
        if self.writer_term is None:
            return False
        entry = Entry(self.writer_term, payload)
        self.disk.entries.append(entry)
        index = int(self.disk.last.index)
        self.checker.stored(self.disk, index)
        if isinstance(payload, str) and payload:
            self.unanswered[index] = entry
        return True

    def write(self) -> None:
        """The writer carries out one order."""
        kind, value = self.orders.popleft()
        disk = self.disk
        if kind == "revoke":
            self.writer_term = None
            self.unanswered.clear()
            self.answers.append(("revoked", disk.last))
        elif kind == "grant":
            self.answers.append(("granted", (value, disk.last)))
            self.writer_term = value
        elif kind == "truncate":
            self.checker.truncated(self, value.index)
            disk.truncate(value.index)
            assert disk.last == value, (disk.last, value)
            self.answers.append(("truncated", disk.last))
        elif kind == "propose":
            term, payload = value
            if term == self.writer_term:
                self.stamp(payload)
        elif kind == "append":
            first, entries = value
            assert first == disk.last.index + 1, (first, disk.last)
            for entry in entries:
                disk.entries.append(entry)
                self.checker.stored(disk, int(disk.last.index))

    def take_answer(self) -> None:
        """The core hears one answer of the writer."""
        core = self.core
        assert core is not None
        kind, value = self.answers.popleft()
        if kind == "ready":
            self.connected = True
            read = core.status().writer is not WriterState.UNREAD
            self.carry_out(core.log_ready(value, None if read else self.disk.terms()))
            self.tell_memberships()
        elif kind == "revoked":
            self.carry_out(core.writer_revoked(value))
            self.tell_memberships()
        elif kind == "granted":
            self.carry_out(core.writer_granted(*value))
        elif kind == "truncated":
            self.carry_out(core.log_truncated(value))
        self.look()

    def look(self) -> None:
        """The process reads its cursors."""
        core, disk = self.core, self.disk
        if core is None or not self.connected:
            return
        if core.granted:
            self.tell_memberships(leading=True)
            self.carry_out(core.entries_written(disk.last))
        held = disk.durable if self.fsync else disk.last.index
        self.carry_out(core.entries_held(self.name, Index(held)))

    def answer_clients(self) -> None:
        assert self.core is not None
        for index in [at for at in self.unanswered if at <= self.core.commit]:
            self.checker.answered(index, self.unanswered.pop(index))

    def tell_memberships(self, *, leading: bool = False) -> None:
        core = self.core
        assert core is not None
        known = core.status().membership_index
        for index, membership in self.disk.memberships():
            if index > known and (leading or index <= core.last.index):
                self.carry_out(core.membership_appended(Index(index), membership))

    def replace_log(self, leader: SimNode) -> None:
        """Files of the leader have come."""
        core = self.core
        assert core is not None and leader.core is not None
        commit = Index(leader.core.commit)
        self.disk.replace(leader.disk, commit)
        self.disk.commit = max(self.disk.commit, int(commit))
        self.carry_out(core.log_replaced(self.disk.terms(), commit, self.disk.membership))
        self.tell_memberships()

    def carry_out(
        self, effects: Effects, message: Message | None = None, entries: list[Entry] | None = None
    ) -> None:
        """In the order that ``Effects`` demands."""
        core = self.core
        assert core is not None
        if effects.persist is not None:
            self.disk.hard_state = effects.persist
        self._order_writer(effects)
        if effects.append is not None:
            assert isinstance(message, Append) and entries is not None
            new = entries[effects.append.first - message.previous.index - 1 :]
            assert len(new) == effects.append.last - effects.append.first + 1
            self._order("append", (effects.append.first, new))
            for at, entry in enumerate(new):
                if isinstance(entry.payload, Membership):
                    index = Index(effects.append.first + at)
                    self.carry_out(core.membership_appended(index, entry.payload))
        for target, sent in effects.send:
            assert not (isinstance(sent, Append) and sent.runs), "entries go with replicated()"
            self.carry(self.name, target, sent, [])
        self._replicate(effects)
        self.ships.extend((ship.peer, ship.last) for ship in effects.ship_files)
        for read in effects.reads:
            self.reads[read.read] = read.index
        for note in effects.notes:
            self.trace(f"{self.name} {note}")
        if effects.leader is not None and core.role is RaftRole.LEADER:
            self.trace(f"{self.name} leads in term {effects.leader.term}")
        self.checker.looked(self)
        if effects.persist or effects.commit is not None or effects.leader is not None:
            self.at_crash_point = True
        if effects.commit is not None:
            self.trace(f"{self.name} commits {effects.commit}")
            self.answer_clients()

    def _order_writer(self, effects: Effects) -> None:
        if effects.revoke:
            self._order("revoke", None)
        if effects.truncate is not None:
            self.trace(f"{self.name} cuts its log after {effects.truncate}")
            self._order("truncate", effects.truncate)
        if effects.grant is not None:
            self._order("grant", effects.grant)
        if effects.propose is not None:
            self._order("propose", (effects.propose, ""))
        if effects.propose_membership is not None:
            assert self.core is not None
            self._order("propose", (self.core.term, effects.propose_membership))

    def _replicate(self, effects: Effects) -> None:
        core, disk = self.core, self.disk
        assert core is not None
        for request in effects.replicate:
            last = min(request.until, disk.last.index, request.next + self.batch - 1)
            if last < request.next:
                continue
            entries = disk.entries[request.next - disk.first : last - disk.first + 1]
            after = core.replicated(request, Index(last), 100 * len(entries))
            for target, sent in after.send:
                self.carry(self.name, target, sent, entries)
            self._replicate(after)

    def _order(self, kind: str, value: Any) -> None:
        # What is ordered before the core knows of a new writer is not for that one.
        if self.connected:
            self.orders.append((kind, value))
