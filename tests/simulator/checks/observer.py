"""Observer of one node after each turn: its page and files, against what they may say."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from ledgermq.ipc.cursor_page import CursorPage, PublishedRole
from ledgermq.members.system_entries import MEMBERSHIP_TAG
from ledgermq.model.config.settings import AckMode
from ledgermq.model.ids import Index, NodeId
from ledgermq.raft.membership import Membership
from ledgermq.raft.quorum import has_majority
from ledgermq.raft_node.entries.membership_log import parse_membership
from ledgermq.store.log.entry_files import EntryFiles
from tests.simulator.checks.checker import Checker, NodeEntry, require
from tests.simulator.machine.events import MS
from tests.simulator.node import Node
from tests.simulator.witness_node import WitnessNode

ALL_BYTES = 1 << 30


class NodeStanding(NamedTuple):
    """What the page of a node says of consensus."""

    term: int
    role: PublishedRole
    commit: int


class Holder(Protocol):
    """Who may count for a commit: a node with a log, or a witness."""

    @property
    def name(self) -> NodeId:
        """That of its node."""
        ...

    def holds(self, entry: NodeEntry) -> bool:
        """Whether it counts for ``entry``."""
        ...


class Observer:
    """What is known of a node.

    Attributes:
        log: its entries, as they stood in its files last.
        durable: so many of them survive a power failure.
        promised: what it had durable before its log was damaged, until it has as much again: it
            votes as if it had that, so that what was counted on stays so.
        find: gives the observers of all nodes.
    """

    def __init__(
        self,
        node: Node,
        checker: Checker,
        *,
        first: Membership,
        file_size: int,
        index_file_size: int,
        find: Callable[[], Iterable[Holder]],
    ) -> None:
        """Nothing is known yet.

        Args:
            first: the membership that the group began with.
        """
        assert node.store.index is not None
        self.node = node
        self.checker = checker
        self.log: list[NodeEntry] = []
        self.durable = 0
        self.promised: list[NodeEntry] = []
        self.term = 0
        self.commit = -1
        self._waits_for_sync = node.settings.ack.mode is AckMode.MAJORITY_FSYNC
        self.role = PublishedRole.FOLLOWER
        self._granted_in = -1
        self._leant = False
        self._led_since = 0
        self._alone_since: int | None = None
        self._heard: dict[NodeId, int] = {}
        self._memberships = [(-1, first)]
        self._find = find
        self._file_size = file_size
        self._files = EntryFiles(
            node.store.data,
            node.store.index,
            file_size=file_size,
            index_file_size=index_file_size,
        )

    @property
    def name(self) -> NodeId:
        """That of its node."""
        return self.node.name

    @property
    def standing(self) -> NodeStanding:
        """What the page said last."""
        return NodeStanding(self.term, self.role, self.commit)

    def recovered(self, page: CursorPage) -> None:
        """A writer has opened the log: is it one that a crash could leave (I12)?"""
        before, durable = self.log, self.durable
        self._files.forget()
        self.log = []
        del self._memberships[1:]
        self.look_at_log(page)
        spoilt = self.node.spoilt
        if spoilt and min(spoilt) < durable:
            # More of them may be promised than were there at an earlier start; and what is written
            # is promised already where no sync is waited for.
            promised = before[:durable] if self._waits_for_sync else before
            self.promised = max(self.promised, promised, key=len)
            durable = min(spoilt)
        require(
            self.log[:durable] == before[:durable],
            "what was durable is there after a crash",
            self.node.name,
            durable,
            len(self.log),
        )
        spoilt.difference_update(range(len(self.log), max(spoilt, default=0) + 1))

    def look_at_log(self, page: CursorPage) -> None:
        """Look, after a turn of the writer, at cuts and new entries."""
        written = page.read_written()
        log = self.log
        self._forget_cut(written.index)
        if written.index >= len(log):
            for entry in self._read(len(log), written.index):
                before = log[-1].term if log else 0
                if entry.number not in self.node.spoilt:
                    self.checker.stored(self.node.name, entry, before)
                self._append(entry)
        self.durable = page.read_durable()[0].index + 1
        require(self.durable <= len(log), "what is durable is written", self.node.name, written)
        if self.promised and not self.node.is_marked:
            self.promised = []

    def look_at_raft(self, page: CursorPage) -> None:
        """Look, after a turn of the raft process, at term, role and commit index."""
        name, checker = self.node.name, self.checker
        grant = page.read_grant()
        require(grant.term >= self.term, "terms never go back", name, self.term, grant.term)
        led = self.role is PublishedRole.LEADER and grant.term == self.term
        if grant.role is PublishedRole.LEADER:
            if not led:
                self._led_since = self.node.clock.now_ns()
            checker.leads(name, grant.term)
            self._check_lease()
            if grant.granted and self._granted_in != grant.term:
                self._granted_in = grant.term
                checker.granted(name, grant.term, self.log, spoilt=self.node.spoilt)
        self.term = grant.term
        self.role = grant.role
        self._look_at_commit(page, leads=led and grant.role is PublishedRole.LEADER)

    def look_at_run(self, page: CursorPage) -> None:
        """Look, after a turn of the writer, at what it has committed by itself."""
        run = page.run_cell()[0]
        if run:
            self._look_at_commit(page, leads=run > 0)

    def _look_at_commit(self, page: CursorPage, *, leads: bool) -> None:
        if not page.has_committed():
            return
        name, checker = self.node.name, self.checker
        committed = page.read_committed()
        require(committed.index >= self.commit, "commit never goes back", name, committed)
        if committed.index == self.commit:
            self._look_whether_it_leans()
            return
        require(committed.index < len(self.log), "commit is within the log", name, committed)
        if self._waits_for_sync:
            held = page.read_durable()[0].index
            require(committed.index <= held, "committed is durable", name, committed, held)
        for entry in self.log[self.commit + 1 : committed.index + 1]:
            if entry.number == len(checker.committed):
                self._check_majority(entry)
            if entry.number not in self.node.spoilt or checker.is_stamped(entry):
                checker.commits(name, entry, self.term)
        known = max(at for at, _ in self._memberships if at <= committed.index)
        if known > self.commit:
            followed = self.node.membership_index
            require(followed >= known, "a member knows who is one", name, known, followed)
        last = self.log[committed.index]
        if leads:
            # What it knew before it led was committed by others.
            require(last.term == self.term, "only own terms are counted", name, last, self.term)
        ends = (last.end, -(-last.end // self._file_size) * self._file_size)
        require(
            # The rest of a file may have been closed with a blank since.
            committed.position in ends and committed.term == last.term,
            "the commit cursor says where its entry ends",
            name,
            committed,
            last,
        )
        self.commit = int(committed.index)
        self._look_whether_it_leans()

    def _look_whether_it_leans(self) -> None:
        if self._memberships[-1][1].bodiless:
            self._leant = self.node.leans

    def heard(self, peer: NodeId) -> None:
        """The raft process has taken a message of ``peer``."""
        self._heard[peer] = self.node.clock.now_ns()

    def holds(self, entry: NodeEntry) -> bool:
        """Whether the node has ``entry`` in the sense of the acknowledgement mode."""
        count = len(self.log)
        if self._waits_for_sync:
            page = self.node.page
            count = self.durable if page is None else page.read_durable()[0].index + 1
        if entry.number < len(self.promised) and self.promised[entry.number] == entry:
            return True
        return entry.number < count and (
            self.log[entry.number] == entry or entry.number in self.node.spoilt
        )

    def started(self) -> None:
        """The node has a new page: it may know less to be committed than before."""
        self.commit = -1
        self._granted_in = -1
        self.role = PublishedRole.FOLLOWER

    @property
    def membership(self) -> tuple[int, Membership]:
        """The last one that stands in the log, and the number of its entry; -1: the first one."""
        return self._memberships[-1]

    def close(self) -> None:
        """Close the files."""
        self._files.forget()

    def _forget_cut(self, last: Index) -> None:
        """Entries that the files have no more, or others in their place."""
        log = self.log
        while log and (log[-1].number > last or not self._is_last_there()):
            self._files.forget()
            cut = log.pop()
            if self._memberships[-1][0] == cut.number:
                self._memberships.pop()
            self.checker.cut(self.node.name, cut)

    def _append(self, entry: NodeEntry) -> None:
        self.log.append(entry)
        if MEMBERSHIP_TAG.encode() in entry.data:
            roster = parse_membership(memoryview(entry.data))
            if roster is not None:
                self._memberships.append((entry.number, roster.membership))

    def _check_majority(self, entry: NodeEntry) -> None:
        """Who commits first has counted: a majority of voters holds it, and no learner counts."""
        voters = self.voters(entry.number)
        holders = {holder.name for holder in self._find() if holder.holds(entry)}
        require(
            any(has_majority(some, holders) for some in voters),
            "a majority holds what is committed",
            self.node.name,
            entry,
            [sorted(some) for some in voters],
            sorted(holders),
        )
        groups = self._in_force(entry.number)
        if all(one.bodiless for one in groups):
            self._check_bodies(entry, groups, holders)

    def _check_bodies(
        self, entry: NodeEntry, groups: list[Membership], holders: set[NodeId]
    ) -> None:
        """Bodies are where the group promises them, while a witness holds none (decision 0085)."""
        leans = self.node.leans or self._leant
        require(
            any(
                len(one.full & holders) >= (len(one.voters) + (0 if leans else 1)) // 2
                for one in groups
            ),
            "bodies are where they should be",
            self.node.name,
            entry,
            f"leans={leans}",
            sorted(holders),
        )

    def _check_lease(self) -> None:
        """No one leads on who has not heard of a majority for as long as a lease lasts.

        A leader looks every heartbeat; its clock may jump in between.
        """
        raft, now = self.node.settings.raft, self.node.events.now
        horizon = self.node.clock.now_ns() - raft.election_timeout_max_ms * MS
        voters = self.voters(self.commit)
        heard = {peer for peer, at in self._heard.items() if at >= horizon} | {self.node.name}
        if self._led_since > horizon or any(has_majority(some, heard) for some in voters):
            self._alone_since = None
            return
        self._alone_since = now if self._alone_since is None else self._alone_since
        require(
            now - self._alone_since <= 3 * raft.heartbeat_ms * MS,
            "a leader without a majority steps down",
            self.node.name,
            [sorted(some) for some in voters],
            sorted(heard),
        )

    def voters(self, number: int) -> list[frozenset[NodeId]]:
        """Voters of the memberships that may be in force once entry ``number`` is committed (I7).

        Raft may not have been told yet of one that its writer has just written.
        """
        return [one.voters for one in self._in_force(number)]

    def _in_force(self, number: int) -> list[Membership]:
        later = [one for at, one in self._memberships if at > number]
        return [[one for at, one in self._memberships if at <= number][-1], *later]

    def _is_last_there(self) -> bool:
        last = self.log[-1]
        item = self._files.items(Index(last.number), Index(last.number))[0]
        return int(item["term"]) == last.term

    def _read(self, first: int, last: int) -> list[NodeEntry]:
        entries: list[NodeEntry] = []
        while first <= last:
            span = self._files.span(Index(first), Index(last), size_max=ALL_BYTES)
            for item in span.items:
                at = int(item["position"]) - span.position
                data = span.data[at : at + int(item["size"])]
                entries.append(
                    NodeEntry(int(item["term"]), int(item["index"]), int(item["position"]), data)
                )
            first = span.last + 1
        return entries


class WitnessObserver:
    """What is known of a witness (docs/decisions/0085)."""

    def __init__(
        self, node: WitnessNode, checker: Checker, find: Callable[[], Iterable[Observer]]
    ) -> None:
        """``find`` gives the observers of the nodes that hold bodies."""
        self.node = node
        self._checker = checker
        self._find = find

    @property
    def name(self) -> NodeId:
        """That of its node."""
        return self.node.name

    def look(self, node: WitnessNode) -> None:
        """Look, after a turn and at a start, that what was durable is there, and what is new is
        committed.
        """
        before, now = node.kept, node.present
        told, known = now.hard_state, before.hard_state
        require(told.term >= known.term, "terms never go back", self.name, known, told)
        if told.term == known.term:
            require(known.vote in (None, told.vote), "votes never change", self.name, known, told)
        require(
            (now.last.term, now.last.index) >= (before.last.term, before.last.index),
            "a witness forgets nothing",
            self.name,
            before,
            now,
        )
        node.kept = now
        if now.last != before.last:
            self._look_at_last()

    def holds(self, entry: NodeEntry) -> bool:
        """Whether it votes for nobody who lacks ``entry``."""
        last = self.node.kept.last
        return (entry.term, entry.number) <= (last.term, last.index)

    def _look_at_last(self) -> None:
        """It is held by so many others that with the witness they are a majority: committed."""
        last, checker = self.node.kept.last, self._checker
        entry = checker.stamped(int(last.term), int(last.index))
        require(entry is not None, "a witness knows of what there is", self.name, last)
        assert entry is not None
        if entry.number < len(checker.committed):
            known = checker.committed[entry.number].entry
            require(known == entry, "a witness knows of what is committed", self.name, last, known)
            return
        observers = list(self._find())
        holders = {one.name for one in observers if one.holds(entry)} | {self.name}
        groups = [voters for one in observers for voters in one.voters(entry.number)]
        require(
            any(has_majority(voters, holders) for voters in groups),
            "a witness is told of what a majority holds",
            self.name,
            last,
            sorted(holders),
        )
