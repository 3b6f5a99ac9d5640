"""Runs of a leader: when its writer feeds the other members by itself, and what came of it.

A follower asks for a run when all of its log is the leader's. Once each member that answers has
asked, and its writer has a connection to this node's writer, nothing more is sent until they hold
all that was: a round trip. Then raft says to each of them that its run begins, and lets the writer
go on from there. It takes the run back, with the fence held, when something is to be judged, or
when the writer does not keep the members from elections (docs/decisions/0133).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ledgermq.ipc.counters import RaftCounter
from ledgermq.ipc.cursor_page import CursorPage, LogCursor, Role
from ledgermq.ipc.orders import FollowerStands, LeadRun, LedMember, encode
from ledgermq.ipc.page_slots import LED_MAX, names_cells, names_of
from ledgermq.ipc.run_fence import RunFence
from ledgermq.model.errors import CorruptLogError, StorageError
from ledgermq.model.ids import Index, NodeId, Term
from ledgermq.process.environment import OrderBell
from ledgermq.raft.core import RaftCore
from ledgermq.raft.messages import EntryId
from ledgermq.raft.timing import TICK_NS
from ledgermq.raft_node.followed_runs import PAUSE_NS_MAX, PAUSE_NS_MIN, SHORT_NS
from ledgermq.raft_node.peers.peers import Peers
from ledgermq.wire.run_frames import RunFrame, RunKind, encode_run_frame

logger = logging.getLogger(__name__)

DRAIN_NS = 100_000_000
"""Longest time that entries are held back for a run to begin."""

WINDOWS_MAX = 2
"""What a member may lack of the log when a run begins, in parts of what may be under way to it."""


class LedRuns:
    """Owned by the raft process.

    Attributes:
        is_running: the writer feeds the others, and commits; this process does not.
        fed: members that it feeds.
    """

    def __init__(
        self,
        page: CursorPage,
        fence: RunFence,
        core: RaftCore,
        *,
        writer: OrderBell,
        peers: Peers,
        heartbeat: int,
        window_bytes: int,
        position_behind: Callable[[Index], LogCursor],
        waits_for_sync: bool,
    ) -> None:
        """No run; the page says so already.

        Args:
            writer: takes the orders.
            peers: the other members.
            heartbeat: ticks between two rounds.
            window_bytes: that may be under way to a member.
            position_behind: where an entry of the log ends.
            waits_for_sync: what is durable is held, and not what is written.
        """
        self.is_running = False
        self.fed: frozenset[NodeId] = frozenset()
        self._page = page
        self._fence = fence
        self._core = core
        self._writer = writer
        self._peers = peers
        # Of two rounds one may not be confirmed yet.
        self._unsure_max = heartbeat * 5 // 2
        self._lack_max = WINDOWS_MAX * window_bytes
        self._position_behind = position_behind
        self._waits_for_sync = waits_for_sync
        self._counters = page.counters(Role.RAFT)
        self._wanted: dict[NodeId, int] = {}
        self._standing: dict[NodeId, int] = {}
        self._term = Term(0)
        self._matches: dict[NodeId, int] = {}
        self._number = 0
        self._held_ns: int | None = None
        self._due_ns = 0
        self._pause_ns = 0
        self._begun_ns = 0
        self._sure = 0

    @property
    def holds(self) -> bool:
        """Whether entries are held back until a run begins."""
        return self._held_ns is not None

    def take(self, peer: NodeId, frame: RunFrame) -> bool:
        """What a follower says of its run; whether a run of this node is over by that."""
        if frame.kind is RunKind.OVER:
            if self._wanted.get(peer) == frame.number:
                del self._wanted[peer]
                self._standing.pop(peer, None)
                return self.is_running and peer in self.fed
            return False
        core = self._core
        if frame.term != core.term or not core.granted:
            return False
        if self._term != core.term:
            self.forget()
            self._term = core.term
        if self.is_running:
            # The same word once more; or one that has begun anew, or was silent.
            return self._wanted.get(peer) != frame.number
        self._wanted[peer] = frame.number
        if peer not in self._standing:
            order = self._peers.await_follower(peer)
            if order is not None:
                self._writer.send(encode(order))
        return False

    def stands(self, order: FollowerStands) -> None:
        """The writer says how it is with its connection to a member's writer."""
        peer = next(iter(names_of([order.peer])), NodeId(""))
        if order.port == 0 and peer in self._wanted:
            self._standing[peer] = self._wanted[peer]
        elif order.port > 0 and self._wanted.pop(peer, None) is not None:
            invited = RunFrame(RunKind.INVITED, self._core.term, order.port)
            self._peers.send(peer, (encode_run_frame(invited),))

    def look(self, now_ns: int) -> bool:
        """Let a run begin, if all is level; to be called while none runs.

        Returns:
            whether entries that were held back are to be sent now: no run has come of it.
        """
        core = self._core
        if self._held_ns is None and now_ns < self._due_ns:
            return False
        if not core.leads_level or not self._are_all_there():
            return self._give_up(now_ns)
        if self._held_ns is None:
            self._held_ns = now_ns
            core.hold_sends()
        drained = {
            peer: match for peer, (match, is_drained) in core.matches().items() if is_drained
        }
        if all(peer in drained for peer in self._standing):
            if not self._is_near(min(drained[peer] for peer in self._standing)):
                return self._give_up(now_ns)
            self._begin(now_ns)
            return False
        return now_ns - self._held_ns >= DRAIN_NS and self._give_up(now_ns)

    def learn(self) -> None:
        """Tell the core what the writer has done by now in a run, which goes on."""
        if self.is_running:
            with self._fence:
                self._learn()

    def is_alive(self, now: int) -> bool:
        """Whether a majority has answered the writer lately; behind ``learn``."""
        return now - self._sure <= self._unsure_max

    def given_back(self, number: int) -> bool:
        """Whether the writer means the run that is going on."""
        return self.is_running and number == self._number

    def end(self, now_ns: int) -> None:
        """Let the writer feed nobody any more; on return the core knows all that it has done."""
        assert self.is_running
        with self._fence:
            self._page.publish_run(None)
            self._learn()
        self.is_running = False
        self.forget()
        if now_ns - self._begun_ns >= SHORT_NS:
            self._pause_ns = 0
        self._wait_longer(now_ns)

    def forget(self) -> None:
        """Another term has begun, or members have to ask anew."""
        self._wanted.clear()
        self._standing.clear()

    def _are_all_there(self) -> bool:
        """Whether each member that answers has asked, and they are a majority with this node."""
        core = self._core
        standing = self._standing
        if not standing or len(standing) > LED_MAX:
            return False
        others = core.membership.members - {core.node} - standing.keys()
        if any(core.silent_for(peer) <= self._unsure_max for peer in others):
            return False
        voters = core.membership.voters
        return 2 * len(voters & {core.node, *standing}) > len(voters)

    def _is_near(self, match: Index) -> bool:
        """Whether who holds no more than ``match`` lacks little of the log."""
        end = self._page.read_written()
        if match >= end.index:
            return True
        try:
            lacks = end.position - self._position_behind(match).position
        except (CorruptLogError, StorageError) as error:
            # Raft reads it again to send it, and does then what is to be done.
            logger.warning("no run of the writer: the log cannot be read: %s", error)
            return False
        return lacks <= self._lack_max

    def _begin(self, now_ns: int) -> None:
        core = self._core
        self._number = max(now_ns, self._number + 1)
        self._held_ns = None
        self.is_running, self._begun_ns = True, now_ns
        self._sure = now_ns // TICK_NS
        self.fed = frozenset(self._standing)
        round_, begin = core.round
        matches = core.matches()
        self._matches = {peer: match for peer, (match, _) in matches.items()}
        voters = core.membership.voters
        members = [
            LedMember(
                names_cells([peer])[0],
                matches[peer][0],
                self._standing.get(peer, 0),
                peer in voters,
            )
            for peer in sorted(matches)
        ]
        order = LeadRun(self._number, core.term, core.last.index, round_, begin, members)
        with self._fence:
            self._page.publish_led_run(self._number)
        for peer, number in self._standing.items():
            begins = encode_run_frame(RunFrame(RunKind.BEGINS, core.term, number))
            self._peers.send(peer, (begins,))
        self._writer.send(encode(order))

    def _learn(self) -> None:
        page, core = self._page, self._core
        written = page.read_written()
        if written.index < core.last.index:
            # Another writer, and the disk has lost what the one before it had written.
            return
        led = page.read_led()
        is_told = led.number == self._number
        matches = dict(zip(sorted(self.fed), led.matches, strict=False)) if is_told else {}
        if is_told:
            self._sure = max(self._sure, led.confirmed)
        held = page.read_durable()[0] if self._waits_for_sync else written
        self._counters[RaftCounter.ENTRIES_SENT] += sum(
            max(0, match - self._matches.get(peer, match)) for peer, match in matches.items()
        )
        self._matches |= matches
        self._counters[RaftCounter.COMMITS] += page.read_committed().index > core.commit
        core.led_run_told(
            EntryId(written.term, written.index),
            {peer: Index(match) for peer, match in matches.items()},
            held=held.index,
            commit=page.read_committed().index,
            confirmed=led.confirmed if is_told else 0,
            round_=led.round if is_told else 0,
        )

    def _give_up(self, now_ns: int) -> bool:
        if self._held_ns is None:
            return False
        self._held_ns = None
        self._wait_longer(now_ns)
        return True

    def _wait_longer(self, now_ns: int) -> None:
        self._pause_ns = min(max(2 * self._pause_ns, PAUSE_NS_MIN), PAUSE_NS_MAX)
        self._due_ns = now_ns + self._pause_ns
