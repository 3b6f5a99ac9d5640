"""Run of a leader's writer: it feeds the other members and counts what they hold, by itself.

The writers of the followers have a connection to this writer each. What this one has written goes
there at once, and what they answer is counted here, by the straight line (``SteadyLine``) on a
state of its own; so a message needs no raft process before it is answered. Rounds of heartbeats are
this writer's, too. Raft ends the run with the fence held, and each commit is published within it:
raft knows on return all that was published, and which rounds were begun (docs/decisions/0133).

What the line leaves is not of the steady state: the run is given back, and raft says all again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ledgermq.formats.kernels.kernel import SteadyLine
from ledgermq.ipc.cursor_page import CursorPage, LogCursor
from ledgermq.ipc.loop import Pollable
from ledgermq.ipc.orders import AwaitFollower, LeadRun, RunGivenBack, encode
from ledgermq.ipc.page_slots import Led, led_run, names_of
from ledgermq.ipc.run_fence import RunFence
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import CorruptLogError, StorageError
from ledgermq.model.ids import Index, NodeId, Position, Term
from ledgermq.process.environment import OrderBell
from ledgermq.raft.followed_run import steady_line
from ledgermq.raft.led_run import LedPeer, begin_round, confirmed_tick, leading_state
from ledgermq.raft.timing import NEVER, TICK_NS, FlowLimits, Timing
from ledgermq.store.log.entry_files import EntryFiles
from ledgermq.store.log.log_writer import LogEnd
from ledgermq.wire.run_frames import RunFrame, RunKind, encode_run_frame

logger = logging.getLogger(__name__)

WINDOWS_MAX = 4
"""A member that lacks as many times what may be under way to it is raft's to feed: it paces those
that are far behind, and this writer would wait for the disk."""

Answers = list[tuple[NodeId, list[memoryview]]]


class JustWritten(Protocol):
    """Entries that were just written, without a read; see ``LogWriter.fresh``."""

    def __call__(
        self, first: Index, last: Index, *, size_max: int
    ) -> tuple[Position, bytes] | None: ...


class FollowerFeed(Protocol):
    """Connections of the other members' writers to this writer, while it leads.

    Messages may be lost, repeated and reordered on the way.
    """

    @property
    def sources(self) -> list[Pollable]:
        """What wakes the process."""

    def await_follower(self, peer: NodeId, order: AwaitFollower) -> int:
        """Be there for the writer of ``peer``: 0 where it has a connection, the port at which it is
        awaited, or -1 where that cannot be.
        """

    def take(self) -> Answers:
        """What has come, in its order. Never blocks."""

    def send(self, peer: NodeId, first: bytes, second: bytes | None = None) -> bool:
        """Hand over a message of one part or of two; false when none is taken now, or there is no
        connection.
        """

    def look(self) -> None:
        """End what takes too long; now and then."""

    def close(self) -> None:
        """End all connections."""


class LentLead(NamedTuple):
    """What a leader's run goes on with elsewhere; see ``LedRun.lend``.

    Attributes:
        marks: ends of what was written and is not committed, oldest first; the run's own.
        sent: where what was sent to a member last begins; the run's own.
        durable_seen: sequence of ``durable``, as far as it was looked at.
        frame_bytes: bound of one append.
    """

    line: SteadyLine
    marks: deque[LogCursor]
    sent: dict[NodeId, Position]
    durable_seen: int
    frame_bytes: int


class _Span(NamedTuple):
    """Whole entries up to ``last``, one behind the other in one file from ``position`` on."""

    last: Index
    position: Position
    data: bytes


class LedLimits(NamedTuple):
    """Bounds of a run.

    Attributes:
        flow: what may be under way to a member.
        frame_bytes: of one append.
        heartbeat: ticks between two rounds.
        lease: ticks from a round's beginning; see ``Timing.lease``.
        silent_max: ticks without an answer of a member that is fed.
    """

    flow: FlowLimits
    frame_bytes: int
    heartbeat: int
    lease: int
    silent_max: int

    @classmethod
    def of(cls, settings: Settings) -> LedLimits:
        """The bounds that the settings have; a tick is a millisecond."""
        raft = settings.raft
        return cls(
            FlowLimits(
                inflight_count_max=raft.in_flight_frames, inflight_bytes_max=raft.in_flight_bytes
            ),
            raft.frame_bytes,
            raft.heartbeat_ms,
            Timing(
                heartbeat=raft.heartbeat_ms,
                election_min=raft.election_timeout_min_ms,
                election_max=raft.election_timeout_max_ms,
            ).lease,
            raft.heartbeat_ms * 5 // 2,
        )


class LedRun:
    """Owned by the writer process; all is called from its main thread.

    Attributes:
        line_of: the straight line that works on a state.
        cell: what the cell of runs says while the run lasts; 0: there is none.
        awaits_round: a round was begun that no majority has answered.

    Invariant: ``_line`` is that of run ``_number``, which raft may have ended since.
    """

    def __init__(
        self,
        node: NodeId,
        page: CursorPage,
        fence: RunFence,
        *,
        raft: OrderBell,
        dispatcher: OrderBell,
        feed: FollowerFeed,
        files: EntryFiles,
        fresh: JustWritten,
        limits: LedLimits,
        monotonic_ns: Callable[[], int],
        waits_for_sync: bool,
    ) -> None:
        """No run.

        Args:
            raft: is told of what is given back.
            dispatcher: rung with each commit.
            files: the log, to read what is sent and is not ``fresh``.
            monotonic_ns: the time now, of the clock that raft has.
            waits_for_sync: what is durable is held, and not what is written.
        """
        self.line_of = steady_line
        self.cell = 0
        self._node = node
        self._page = page
        self._fence = fence
        self._raft = raft
        self._dispatcher = dispatcher
        self._feed = feed
        self._files = files
        self._fresh = fresh
        self._limits = limits
        self._monotonic_ns = monotonic_ns
        self._waits_for_sync = waits_for_sync
        self._run = page.run_cell()
        self._written_cell, self._durable_cell, *_ = page.cursor_cells()
        self._written_seen = self._durable_seen = -1
        self._line: SteadyLine | None = None
        self._number = 0
        self._members: Sequence[NodeId] = ()
        self._marks: deque[LogCursor] = deque()
        self._round_due = 0
        self.awaits_round = False
        self._confirmed = 0
        self._span: _Span | None = None
        self._wanted = (-1, -1)
        self._file = -1
        self._sent: dict[NodeId, Position] = {}

    @property
    def sources(self) -> list[Pollable]:
        """What wakes the process for ``turn``."""
        return self._feed.sources

    @property
    def has_news(self) -> bool:
        """Whether more is written or durable than was looked at, in a run that lasts."""
        return (
            self._line is not None
            and self._run[0] == self.cell
            and (
                self._written_cell[0] != self._written_seen
                or (self._waits_for_sync and self._durable_cell[0] != self._durable_seen)
            )
        )

    def sleep_ms(self, now_ns: int) -> int:
        """Milliseconds until the next round."""
        left = NEVER if self._line is None else self._round_due - now_ns // TICK_NS
        return left if left > 0 else 0

    def await_follower(self, order: AwaitFollower) -> int:
        """Be there for the writer of a member; see ``FollowerFeed``."""
        return self._feed.await_follower(next(iter(names_of([order.peer])), NodeId("")), order)

    def begin(self, order: LeadRun, end: LogEnd, term: Term | None) -> None:
        """Raft lets run ``order.number`` begin; the log ends with ``end``, and this writer stamps
        in ``term``.
        """
        if order.number <= self._number:
            return
        self._number, self.cell, self._line = order.number, led_run(order.number), None
        if self._run[0] != self.cell:
            return
        if term != order.term or end.index_ < order.last_index:
            self.give_back(f"the log ends with {end.term}/{end.index_}, stamped in {term}")
            return
        named = [(next(iter(names_of([one.name])), NodeId("")), one) for one in order.members]
        for peer, one in named:
            begins = encode_run_frame(RunFrame(RunKind.BEGINS, order.term, one.run))
            if one.run and not self._feed.send(peer, begins):
                self.give_back(f"no connection to the writer of {peer}")
                return
        page = self._page
        # The cells first: what is behind them is as new, or newer, and is looked at again.
        self._written_seen = self._durable_seen = -1
        state = leading_state(
            self._node,
            order.term,
            order.last_index,
            {peer: LedPeer(Index(one.match), one.run > 0, one.votes > 0) for peer, one in named},
            held=page.read_durable()[0].index if self._waits_for_sync else order.last_index,
            commit=page.read_committed().index,
            begin=order.begin,
            round_=order.round,
            flow=self._limits.flow,
            now=self._monotonic_ns() // TICK_NS,
        )
        self._members = sorted(peer for peer, one in named if one.run)
        self._line = self.line_of(state)
        self._marks.clear()
        self._span = None
        self._sent.clear()
        self._round_due = self._confirmed = 0
        self.awaits_round = False
        self._files.forget()

    def drop(self) -> None:
        """Raft says otherwise what this writer does: whatever ran is over."""
        self._line = None

    def turn(self, *, is_heard: bool) -> None:
        """Take answers, send what was written, and commit what a majority holds.

        Args:
            is_heard: one of ``sources`` can be read.
        """
        answers = self._feed.take() if is_heard else []
        line = self._line
        if line is None:
            return
        if self._run[0] != self.cell:
            self._line = None
            return
        now = self._monotonic_ns() // TICK_NS
        commit = -1
        try:
            for peer, parts in answers:
                if parts[1:] or not line.receive(now, peer, parts[0], False):
                    self.give_back(f"an answer of {peer} is for raft to judge")
                    return
                commit = max(commit, line.commit)
                self._send(line)
                if self._line is None:
                    return
            if answers and self.awaits_round:
                self._look_at_round(line)
            commit = max(commit, self._look_at_log(line))
            if commit >= 0 and self._line is not None:
                self._publish_commit(commit)
            if now >= self._round_due and self._line is not None:
                self._begin_round(line, now)
        except (CorruptLogError, StorageError) as error:
            self.give_back(str(error))

    def lend(self) -> LentLead | None:
        """The run, for who does what ``turn`` does with answers and with what was written; None
        where there is none, or something waits.
        """
        if self._line is None or self._run[0] != self.cell or self.has_news:
            return None
        return LentLead(
            self._line, self._marks, self._sent, self._durable_seen, self._limits.frame_bytes
        )

    @property
    def lasts(self) -> bool:
        """Whether there is a run, as far as is known here."""
        return self._line is not None

    def note_written(self, sequence: int, written: LogCursor) -> None:
        """The line was told of what was written.

        Args:
            sequence: that of ``written`` in the page.
        """
        self._written_seen = sequence
        self._marks.append(written)

    def note_durable(self, sequence: int) -> None:
        """The line was told of what is durable; ``sequence`` is that of ``durable`` in the page."""
        self._durable_seen = sequence

    def send_wanted(self) -> None:
        """Send what the line wants sent."""
        if self._line is not None:
            try:
                self._send(self._line)
            except (CorruptLogError, StorageError) as error:
                self.give_back(str(error))

    def look_at_round(self) -> None:
        """A round of heartbeats may be answered by a majority."""
        if self._line is not None:
            self._look_at_round(self._line)

    def look(self) -> None:
        """End connections that take too long; now and then."""
        self._feed.look()

    def close(self) -> None:
        """End all connections."""
        self._feed.close()
        self._files.forget()

    def _look_at_log(self, line: SteadyLine) -> int:
        """Send what was written since the last look, and count what this node holds; the commit
        index, where that has changed it, else -1.
        """
        page = self._page
        if self._written_cell[0] != self._written_seen:
            # The cell first: what is read behind it is as new, or newer, and then seen again.
            self._written_seen = self._written_cell[0]
            written = page.read_written()
            if not line.written(written.index):
                self.give_back("what was written is for raft to judge")
                return -1
            self._marks.append(written)
            self._send(line)
            if not self._waits_for_sync:
                return self._hold(line, written.index)
        if self._waits_for_sync and self._durable_cell[0] != self._durable_seen:
            self._durable_seen = self._durable_cell[0]
            return self._hold(line, page.read_durable()[0].index)
        return -1

    def _hold(self, line: SteadyLine, index: Index) -> int:
        if self._line is None:
            return -1
        state = line.state
        if not line.held(min(index, state.log.last_index)):
            self.give_back("what is held is for raft to judge")
            return -1
        return line.commit

    def _send(self, line: SteadyLine) -> None:
        """Send what the line wants sent."""
        for peer, first, until in line.wants:
            following = first
            while self._line is not None:
                span = self._read(Index(following), Index(until))
                head = line.replicated(peer, following, span.last, len(span.data))
                if head is None or not self._feed.send(NodeId(peer), head, span.data):
                    self.give_back(f"{peer} takes no entries")
                    return
                self._sent[NodeId(peer)] = span.position
                if not line.more:
                    break
                following = span.last + 1

    def _read(self, first: Index, until: Index) -> _Span:
        """Entries from ``first`` on: the same bytes for all members that are equally far."""
        span = self._span
        if span is not None and self._wanted == (first, until):
            return span
        size_max = self._limits.frame_bytes
        fresh = self._fresh(first, until, size_max=size_max)
        if fresh is not None:
            span = _Span(until, *fresh)
        else:
            read = self._files.span(first, until, size_max=size_max)
            span = _Span(read.last, read.position, read.data)
        self._span, self._wanted = span, (first, until)
        file = span.position // self._files.file_size
        if file != self._file:
            # A file that is open keeps its blocks, also when it is deleted.
            self._file = file
            self._files.forget()
        return span

    def _publish_commit(self, commit: int) -> None:
        """Publish what is committed, up to where something that was written at once ends."""
        marks = self._marks
        cursor: LogCursor | None = None
        while marks and marks[0].index <= commit:
            cursor = marks.popleft()
        if cursor is None:
            return
        with self._fence:
            if self._run[0] != self.cell:
                self._line = None
                return
            if cursor.position > self._page.read_committed_position():
                self._page.publish_committed(cursor)
        self._dispatcher.ring()

    def _look_at_round(self, line: SteadyLine) -> None:
        """Once a majority has answered a round nobody else is elected for a while: say so."""
        state = line.state
        confirmed = confirmed_tick(state)
        if confirmed <= self._confirmed:
            return
        self._confirmed = confirmed
        lead = state.leadership
        assert lead is not None
        self.awaits_round = confirmed < lead.begun[-1][1]
        with self._fence:
            if self._run[0] != self.cell:
                self._line = None
                return
            self._page.publish_alone((confirmed + self._limits.lease) * TICK_NS)
            self._publish_led(line, lead.round)

    def _publish_led(self, line: SteadyLine, round_: int) -> None:
        lead = line.state.leadership
        assert lead is not None
        matches = tuple(lead.progress[peer].match for peer in self._members)
        self._page.publish_led(Led(self._number, round_, confirmed_tick(line.state), matches))

    def _begin_round(self, line: SteadyLine, now: int) -> None:
        state = line.state
        lead = state.leadership
        assert lead is not None
        end = self._page.read_written().position
        far = end - WINDOWS_MAX * self._limits.flow.inflight_bytes_max
        left = [
            peer
            for peer in self._members
            if state.now - lead.progress[peer].heard > self._limits.silent_max
            or (
                lead.progress[peer].next <= state.log.last_index and self._sent.get(peer, end) < far
            )
        ]
        if left:
            # Raft tells the silent that there is a leader, and paces those that are far behind.
            self.give_back(f"silent, or far behind: {', '.join(left)}")
            return
        with self._fence:
            if self._run[0] != self.cell:
                self._line = None
                return
            # Before anybody hears of it: raft's next round has a later number.
            self._publish_led(line, lead.round + 1)
        self.awaits_round = True
        self._round_due = now + self._limits.heartbeat
        for peer, heartbeat in begin_round(state, now):
            if not self._feed.send(peer, heartbeat):
                self.give_back(f"{peer} takes no heartbeats")
                return

    def give_back(self, reason: str) -> None:
        """End the run: raft feeds the members from here on."""
        self._line = None
        logger.debug("leader's run given back: number=%d reason=%s", self._number, reason)
        self._raft.send(encode(RunGivenBack(self._number)))
