"""Run of a follower's writer: it takes by itself what the leader sends, as long as raft lets it.

The leader's writer has a connection to this writer (``writer/led_run.py`` is its side). What comes
there is taken by the straight line (``SteadyLine``) on a state of its own, appended and
answered; this node's raft hears nothing of it before it ends the run, or looks. Whether the run
lasts is looked at with the fence held, and all that raft has to know when it judges is published
within: what is written, when the leader was heard of, what is committed. So a vote forgets nothing
that was answered for (docs/decisions/0133).

What the line leaves is not of the steady state: the run is given back, and the leader says it to
raft again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ledgermq.formats.kernels.kernel import SteadyLine
from ledgermq.ipc.cursor_page import CursorPage, LogCursor
from ledgermq.ipc.loop import Pollable
from ledgermq.ipc.orders import FeedFrom, FollowRun, RunGivenBack, encode
from ledgermq.ipc.page_slots import names_of
from ledgermq.ipc.run_fence import RunFence
from ledgermq.model.errors import ConfigError, DiskFullError, ProtocolError
from ledgermq.model.ids import NO_INDEX, Index, NodeId, Position
from ledgermq.process.environment import OrderBell
from ledgermq.raft.followed_run import followed_state, steady_line
from ledgermq.raft.messages import EntryId
from ledgermq.raft.timing import TICK_NS
from ledgermq.store.log.log_writer import LogEnd
from ledgermq.wire.run_frames import RunKind, decode_run_frame, is_run_frame

logger = logging.getLogger(__name__)

WAITING_MAX = 1_024
"""Messages that are kept until raft lets the run begin; a leader has far fewer under way."""


class LentRun(NamedTuple):
    """What a run goes on with elsewhere; see ``FollowedRun.lend``.

    Attributes:
        marks: ends of appends that are not committed: index and position, oldest first.
        durable_seen: sequence of ``durable``, as far as it was looked at.
    """

    line: SteadyLine
    number: int
    leader: NodeId
    marks: list[tuple[int, int]]
    durable_seen: int


Fed = tuple[NodeId, list[memoryview]]
Append = Callable[[memoryview, Index, Index], LogEnd]
"""Appends entries of the leader, the first one and the last one named, and publishes ``written``.

It raises ``ProtocolError`` or ``ConfigError`` where they are wrong, and ``DiskFullError`` where
there is no room; nothing has changed then.
"""


class MemberFeed(Protocol):
    """Connections of the other members' writers to this writer, which follows.

    Messages may be lost, repeated and reordered on the way.
    """

    @property
    def sources(self) -> list[Pollable]:
        """What wakes the process."""

    def dial(self, order: FeedFrom) -> None:
        """Connect to a member, in the place of an older connection to it."""

    def take(self) -> list[Fed]:
        """What has come, in its order. Never blocks."""

    def send(self, peer: NodeId, reply: bytes) -> None:
        """Answer ``peer``; the answer is lost where the connection takes none."""

    def close(self) -> None:
        """End all connections."""


class FollowedRun:
    """Owned by the writer process; all is called from its main thread.

    Attributes:
        line_of: the straight line that works on a state.

    Invariant: ``_line`` is that of run ``_number``, which raft may have ended since; its log ends
    where the writer's does, as long as the run lasts.
    """

    def __init__(
        self,
        node: NodeId,
        page: CursorPage,
        fence: RunFence,
        *,
        raft: OrderBell,
        dispatcher: OrderBell,
        feed: MemberFeed,
        append: Append,
        is_full: Callable[[], bool],
        monotonic_ns: Callable[[], int],
        waits_for_sync: bool,
    ) -> None:
        """No run.

        Args:
            monotonic_ns: the time now, of the clock that raft has.
            raft: is told of what is given back.
            dispatcher: rung with each commit.
            is_full: whether the disk has no room for a leader.
            waits_for_sync: what is durable is answered for, and not what is written.
        """
        self.line_of = steady_line
        self._node = node
        self._page = page
        self._fence = fence
        self._raft = raft
        self._dispatcher = dispatcher
        self._feed = feed
        self._append = append
        self._is_full = is_full
        self._monotonic_ns = monotonic_ns
        self._waits_for_sync = waits_for_sync
        self._run = page.run_cell()
        _, self._durable_cell, *_ = page.cursor_cells()
        self._durable_seen = -1
        self._line: SteadyLine | None = None
        self._number = 0
        self._leader = NodeId("")
        self._marks: deque[LogCursor] = deque()
        self._begun: dict[NodeId, int] = {}
        self._waiting: deque[Fed] = deque()

    @property
    def sources(self) -> list[Pollable]:
        """What wakes the process for ``turn``."""
        return self._feed.sources

    @property
    def has_news(self) -> bool:
        """Whether more is durable than was answered for."""
        return (
            self._waits_for_sync
            and self._line is not None
            and self._run[0] == -self._number
            and self._durable_cell[0] != self._durable_seen
        )

    def dial(self, order: FeedFrom) -> None:
        """Connect to a member, which may come to lead."""
        self._feed.dial(order)

    def begin(self, order: FollowRun, end: LogEnd) -> None:
        """Raft lets run ``order.number`` begin behind ``end``, where the log ends."""
        if order.number <= self._number:
            return
        self._number, self._line = order.number, None
        if (end.index_, end.term) != (order.last_index, order.term):
            self.give_back(f"the log ends with {end.term}/{end.index_}")
            return
        page = self._page
        self._leader = next(iter(names_of([order.leader])), NodeId(""))
        written = LogCursor(end.position, end.index_, end.term)
        held = page.read_durable()[0] if self._waits_for_sync else written
        commit = page.read_committed().index if page.has_committed() else NO_INDEX
        state = followed_state(
            self._node,
            self._leader,
            EntryId(end.term, end.index_),
            held=held.index,
            commit=commit,
            round_=order.round,
            now=self._monotonic_ns() // TICK_NS,
        )
        self._line = self.line_of(state)
        # What others have begun that was not let begin would be waited for.
        self._waiting = deque(one for one in self._waiting if one[0] == self._leader)
        self._marks.clear()
        self._marks.append(written)
        self._durable_seen = -1

    def drop(self) -> None:
        """Raft says otherwise what this writer does: whatever ran is over."""
        self._line = None

    def turn(self, *, is_heard: bool) -> None:
        """Take what the leader has sent, and answer for what is durable.

        Args:
            is_heard: one of ``sources`` can be read.
        """
        if is_heard:
            for peer, parts in self._feed.take():
                self._note(peer, parts)
        if self._line is not None and self._run[0] != -self._number:
            self._line = None
        if self._waiting:
            # Behind the arrival of all that waits: a leader goes by when its round began, and this
            # node must not have heard of it before that.
            self._take_waiting(self._monotonic_ns() // TICK_NS)
        if self.has_news:
            self._answer_for_durable()

    def lend(self) -> LentRun | None:
        """The run, for who takes the leader's messages by the same rules, and then calls
        ``take_back``; None where there is none, or something waits.
        """
        line = self._line
        if line is None or self._run[0] != -self._number or self._waiting:
            return None
        if self._begun.get(self._leader) != self._number:
            return None
        line.state.full = self._is_full()
        marks = [(int(mark.index), int(mark.position)) for mark in self._marks]
        return LentRun(line, self._number, self._leader, marks, self._durable_seen)

    def take_back(self, marks: list[tuple[int, int]], durable_seen: int) -> None:
        """Go on with the run as it is now; see ``LentRun``."""
        self._durable_seen = durable_seen
        line = self._line
        self._marks.clear()
        if line is not None:
            term = line.state.term
            self._marks += [
                LogCursor(Position(position), Index(index), term) for index, position in marks
            ]

    def close(self) -> None:
        """End all connections."""
        self._feed.close()

    def _note(self, peer: NodeId, parts: list[memoryview]) -> None:
        """Keep what has come, behind the word by which its run begins."""
        if not is_run_frame(parts[0]):
            self._waiting.append((peer, parts))
            if len(self._waiting) > WAITING_MAX:
                # It comes again, by raft's connection.
                self._waiting.clear()
                self._begun.clear()
            return
        try:
            frame = decode_run_frame(parts[0])
        except ProtocolError as error:
            logger.warning("message of a member refused: peer=%s error=%s", peer, error)
            return
        if frame.kind is RunKind.BEGINS:
            self._begun[peer] = frame.number
            self._waiting = deque(one for one in self._waiting if one[0] != peer)

    def _take_waiting(self, now: int) -> None:
        waiting, begun = self._waiting, self._begun
        while waiting:
            peer, parts = waiting[0]
            number = begun.get(peer, 0)
            if number > self._number:
                # Raft lets it begin when it has taken what was sent to it before.
                return
            waiting.popleft()
            if self._line is not None and peer == self._leader and number == self._number:
                self._take(self._line, now, parts)

    def _take(self, line: SteadyLine, now: int, parts: list[memoryview]) -> None:
        """Take one message: what raft has to know of it is published before it is answered."""
        head, *rest = parts
        fault = ""
        with self._fence:
            if self._run[0] != -self._number:
                self._line = None
                return
            line.state.full = self._is_full()
            if rest[1:] or not line.receive(now, self._leader, head, bool(rest)):
                fault = "it is for raft to judge"
            else:
                reply, commit = line.reply, line.commit
                try:
                    if line.first >= 0:
                        self._append_entries(line, rest[0])
                        reply = line.reply or reply
                        commit = max(commit, line.commit)
                except (DiskFullError, ProtocolError, ConfigError) as error:
                    fault = str(error)
                else:
                    following = line.state.following
                    self._page.publish_heard(
                        self._number, now, following.round, following.round_began
                    )
                    self._publish_commit(commit)
        if fault:
            self.give_back(fault)
        elif reply is not None:
            self._feed.send(self._leader, reply)

    def _append_entries(self, line: SteadyLine, entries: memoryview) -> None:
        end = self._append(entries, Index(line.first), Index(line.last))
        self._marks.append(LogCursor(end.position, end.index_, end.term))
        if not self._waits_for_sync:
            taken = line.held(end.index_)
            assert taken

    def _answer_for_durable(self) -> None:
        line = self._line
        assert line is not None
        # The cell first: what is read behind it is as new, or newer, and then answered for again.
        self._durable_seen = self._durable_cell[0]
        durable = self._page.read_durable()[0]
        with self._fence:
            if self._run[0] != -self._number:
                self._line = None
                return
            taken = line.held(durable.index)
            assert taken
            self._publish_commit(line.commit)
        if line.reply is not None:
            self._feed.send(self._leader, line.reply)

    def _publish_commit(self, commit: int) -> None:
        """Publish what is committed, up to an entry whose end is known: one that came last in its
        message; the others follow with the next one. With the fence held.
        """
        marks = self._marks
        cursor: LogCursor | None = None
        while marks and marks[0].index <= commit:
            cursor = marks.popleft()
        if cursor is not None and cursor.position > self._page.read_committed_position():
            self._page.publish_committed(cursor)
            self._dispatcher.ring()

    def give_back(self, reason: str) -> None:
        """End the run: raft takes what the leader says from here on."""
        self._line = None
        logger.debug("run given back: number=%d reason=%s", self._number, reason)
        self._raft.send(encode(RunGivenBack(self._number)))
