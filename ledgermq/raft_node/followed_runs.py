"""Runs of a follower: when its writer takes by itself what the leader sends, and what came of it.

A run begins in three steps. The follower asks; the leader says, over raft's connection and its
writer's, that what is of the steady state goes to the writer from there on; and once this writer
has all that came before, raft lets it. It ends when something is to be judged: with the fence held,
so that raft knows on return of all that the writer has answered for (docs/decisions/0133).
"""

from __future__ import annotations

from ledgermq.ipc.counters import RaftCounter
from ledgermq.ipc.cursor_page import CursorPage, LogCursor, Role
from ledgermq.ipc.orders import FollowRun, encode
from ledgermq.ipc.page_slots import names_cells
from ledgermq.ipc.run_fence import RunFence
from ledgermq.model.ids import NodeId, Term
from ledgermq.process.environment import OrderBell
from ledgermq.raft.core import RaftCore
from ledgermq.raft.messages import EntryId
from ledgermq.raft_node.peers.peers import Peers
from ledgermq.wire.run_frames import RunFrame, RunKind, encode_run_frame

PAUSE_NS_MIN, PAUSE_NS_MAX = 20_000_000, 5_000_000_000
"""Between the end of a run and the next one that is asked for: what ends one may come again. Twice
as long each time that none has come of it, as where no connection to the writer can be made.
"""

SHORT_NS = 100_000_000
"""A run that was over sooner was no use."""

ANSWER_NS = 1_000_000_000
"""After so long a leader is asked once more: it may not have got the question."""


class FollowedRuns:
    """Owned by the raft process.

    Attributes:
        is_running: the writer takes what the leader sends; this process is not told.
    """

    def __init__(
        self,
        page: CursorPage,
        fence: RunFence,
        core: RaftCore,
        *,
        writer: OrderBell,
        peers: Peers,
        waits_for_sync: bool,
    ) -> None:
        """No run; the page says so already.

        Args:
            writer: takes the orders.
            peers: the other members.
            waits_for_sync: what is durable is held, and not what is written.
        """
        self.is_running = False
        self._page = page
        self._counters = page.counters(Role.RAFT)
        self._fence = fence
        self._core = core
        self._writer = writer
        self._peers = peers
        self._waits_for_sync = waits_for_sync
        self._number = 0
        self._asked: NodeId | None = None
        self._term = Term(0)
        self._has_begun = False
        self._asked_ns = 0
        self._due_ns = 0
        self._pause_ns = 0
        self._begun_ns = 0

    def look(self, now_ns: int) -> None:
        """Ask for a run, or let one begin, if all is level; to be called while none runs."""
        core = self._core
        if self._asked is None:
            leader = core.leader
            if now_ns >= self._due_ns and leader is not None and core.follows_level:
                self._ask(leader, now_ns)
            return
        if (core.leader, core.term) != (self._asked, self._term):
            self._give_up(now_ns)
        elif not self._has_begun:
            if now_ns - self._asked_ns >= ANSWER_NS:
                self._want(self._asked, now_ns)
        elif core.follows_level and self._page.read_written().index == core.last.index:
            self._begin(self._asked, now_ns)
        elif now_ns - self._asked_ns >= ANSWER_NS:
            self._give_up(now_ns)

    def begins(self, leader: NodeId, number: int) -> None:
        """The leader feeds the writer in run ``number`` from now on."""
        if self._asked == leader and number == self._number:
            self._has_begun = True
        else:
            self._say_over(leader, number)

    def invited(self, leader: NodeId, port: int, now_ns: int) -> None:
        """The leader was asked, and awaits this node's writer at ``port``: it is asked again."""
        if self._asked != leader or self._has_begun:
            return
        order = self._peers.feed_from(leader, port)
        if order is not None:
            self._writer.send(encode(order))
        self._asked = None
        self._wait_longer(now_ns)

    def given_back(self, number: int) -> bool:
        """Whether the writer means the run that is going on."""
        return self.is_running and number == self._number

    def learn(self) -> None:
        """Tell the core what the writer has done by now in a run, which goes on."""
        if self.is_running:
            with self._fence:
                self._learn()

    def end(self, now_ns: int) -> LogCursor | None:
        """Let the writer take nothing any more; on return the core knows all that it has taken.

        Returns:
            where the log ends; None where another writer has less of it, which is about to say so.
        """
        assert self.is_running and self._asked is not None
        with self._fence:
            self._page.publish_run(None)
            written = self._learn()
        self._say_over(self._asked, self._number)
        self.is_running = False
        self._asked = None
        if now_ns - self._begun_ns >= SHORT_NS:
            self._pause_ns = 0
        self._wait_longer(now_ns)
        return written

    def _learn(self) -> LogCursor | None:
        page, core = self._page, self._core
        written = page.read_written()
        if written.index < core.last.index:
            # Another one, and the disk has lost what the one before it had written.
            return None
        number, heard, round_, round_began = page.read_heard()
        if number != self._number:
            # Nothing was heard in this run.
            heard = round_ = 0
        held = page.read_durable()[0] if self._waits_for_sync else written
        self._counters[RaftCounter.ENTRIES_RECEIVED] += written.index - core.last.index
        core.run_told(
            EntryId(written.term, written.index),
            held=held.index,
            commit=page.read_committed().index if page.has_committed() else core.commit,
            heard=heard,
            round_=round_,
            round_began=round_began,
        )
        return written

    def _ask(self, leader: NodeId, now_ns: int) -> None:
        if not self._peers.may_feed(leader):
            self._due_ns = now_ns + ANSWER_NS
            return
        # The clock makes it one that no other life of this process has used.
        self._number = max(now_ns, self._number + 1)
        self._term, self._asked = self._core.term, leader
        self._has_begun = False
        self._want(leader, now_ns)

    def _want(self, leader: NodeId, now_ns: int) -> None:
        self._asked_ns = now_ns
        frame = RunFrame(RunKind.WANTED, self._term, self._number)
        self._peers.send(leader, (encode_run_frame(frame),))

    def _begin(self, leader: NodeId, now_ns: int) -> None:
        core, number = self._core, self._number
        core.run_begins()
        self.is_running, self._begun_ns = True, now_ns
        with self._fence:
            self._page.publish_follow_run(number)
        (name,) = names_cells([leader])[:1]
        order = FollowRun(number, core.term, core.last.index, core.heard_round, name)
        if not self._writer.send(encode(order)):
            # It is down, or does not get to its orders.
            self.end(now_ns)

    def _give_up(self, now_ns: int) -> None:
        assert self._asked is not None
        self._say_over(self._asked, self._number)
        self._asked = None
        self._wait_longer(now_ns)

    def _wait_longer(self, now_ns: int) -> None:
        self._pause_ns = min(max(2 * self._pause_ns, PAUSE_NS_MIN), PAUSE_NS_MAX)
        self._due_ns = now_ns + self._pause_ns

    def _say_over(self, leader: NodeId, number: int) -> None:
        self._peers.send(leader, (encode_run_frame(RunFrame(RunKind.OVER, self._term, number)),))
