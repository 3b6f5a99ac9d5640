"""Sending of entries by a leader: read from the log, checked when in doubt, paced for who lags."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ledgermq.formats.dledger_entry import HEADER_SIZE as ENTRY_HEADER_SIZE
from ledgermq.ipc.counters import RaftCounter
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.members.log_trouble import report
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import NO_INDEX, Index, NodeId, Position
from ledgermq.raft.core import RaftCore
from ledgermq.raft.effects import ReplicateTo
from ledgermq.raft.message_codec import encode_message
from ledgermq.raft_node.entries.entry_exchange import EntryExchange
from ledgermq.store.log.entry_files import EntrySpan
from ledgermq.store.log.verified_span import check_span

logger = logging.getLogger(__name__)

TICKS_PER_S = 1_000
PAUSE_TICKS = 5
"""Two short frames are so far apart: a message that is sent by itself, and hardly ever in the log
without a commit, would wait for each of them otherwise."""

LOOK_TICKS = 100
IDLE_PARTS = 256
"""Producers are idle if the log has grown by less than such a part of a frame within
``LOOK_TICKS``: consumers' offsets and locks are small."""


@dataclass(slots=True)
class LaggingMember:
    """A member that lags.

    Attributes:
        credit: bytes that it may be sent.
        reached: up to where it was sent entries. What has to be sent again takes nothing from its
            credit, or it might never come nearer.
        rested: tick from which on it may have a short frame.
    """

    credit: float = 0.0
    reached: int = 0
    rested: int = 0


class CatchUpPace:
    """Pace of entries to members that lag, beside what producers wait for.

    A member lags when the group commits without it: what was sent to it ends far before what is
    committed. While producers send, it gets

    * as many bytes as the log grows by, and ``raft.catch_up_bytes_per_s`` beside: so fast does it
      come nearer, however busy they are;
    * beside that one short frame every ``PAUSE_TICKS``, when nobody waits for a commit and nothing
      else is under way to it: what the group has left, and less where others work, since its
      answers come later then.

    All others get what the core lets be under way, as do all while producers are idle. Where a
    majority needs who lags, they soon are: nothing is acknowledged, and what they may have under
    way is used up. No clock: time is the core's tick.

    Invariant: while producers send, all that a lagging member gets in one event is as much as the
    log has grown since the last event, its bytes for the time since then, at most ``window_bytes``
    that were left over, and less than one more frame, or entry that is larger.

    Attributes:
        lagging: who lags; while it is empty nothing has to be asked before a send.
    """

    def __init__(
        self, *, window_bytes: int, frame_bytes: int, short_frame_bytes: int, bytes_per_s: int
    ) -> None:
        """Nobody lags.

        Args:
            window_bytes: as many may be under way to a member. Who is nearer is not paced, and no
                more is left over of what a member could not take.
            frame_bytes: of a frame to members that do not lag.
            short_frame_bytes: of one to a member that does, out of what is left over.
            bytes_per_s: by which a lagging member comes nearer, if it takes them.
        """
        self._window_bytes = window_bytes
        self._frame_bytes = frame_bytes
        self._short_frame_bytes = short_frame_bytes
        self._bytes_per_tick = bytes_per_s / TICKS_PER_S
        self._idle_bytes = frame_bytes // IDLE_PARTS
        self.lagging: dict[str, LaggingMember] = {}
        self._end: Position | None = None
        self._now = self._looked = 0
        self._grown = 0
        self._is_busy = False

    def frame_bytes(self, peer: str) -> int:
        """Most bytes of the frame that ``peer`` may be sent now; a larger entry goes alone."""
        lagging = self.lagging.get(peer)
        if lagging is None or not self._is_busy or lagging.credit > 0:
            return self._frame_bytes
        return self._short_frame_bytes

    def note(self, now: int, end: Position) -> None:
        """The log ends at ``end``; to be told first in each event while somebody lags."""
        grown = passed = 0
        if self._end is not None:
            # The first event since somebody lags brings nothing: before it nothing was counted.
            grown, passed = max(0, end - self._end), max(0, now - self._now)
        self._now, self._end = max(self._now, now), end
        earned = grown + self._bytes_per_tick * passed
        for lagging in self.lagging.values():
            lagging.credit = min(lagging.credit, self._window_bytes) + earned
        self._grown += grown
        passed = now - self._looked
        if passed >= LOOK_TICKS:
            # Over all of that time: nobody may have asked meanwhile.
            self._is_busy = self._grown * LOOK_TICKS >= self._idle_bytes * passed
            self._looked, self._grown = now, 0

    def allows(self, peer: str, *, is_awaited: bool, under_way: int) -> bool:
        """Whether ``peer`` may be sent a frame now.

        Args:
            is_awaited: whether the log has entries that are not committed.
            under_way: frames to ``peer`` without an answer.
        """
        lagging = self.lagging.get(peer)
        if lagging is None or not self._is_busy:
            return True
        if lagging.credit > 0:
            return True
        return not (is_awaited or under_way) and self._now >= lagging.rested

    def sent(self, peer: str, *, begin: Position, end: Position, committed: Position) -> None:
        """``peer`` was sent what stands from ``begin`` to ``end``; the log is committed so far.

        A frame is whole, whatever the credit: the next ones wait for what it was too large by.
        """
        if committed - end <= self._window_bytes:
            self.lagging.pop(peer, None)
            return
        if not self.lagging:
            self._end = None
        lagging = self.lagging.setdefault(peer, LaggingMember())
        if lagging.credit <= 0:
            lagging.rested = self._now + PAUSE_TICKS
        fresh = max(0, end - max(begin, lagging.reached))
        lagging.reached = max(lagging.reached, end)
        lagging.credit = max(lagging.credit - fresh, -float(self._frame_bytes))

    def forget(self) -> None:
        """Another term has begun: who lags is known anew by what is sent next."""
        self.lagging.clear()
        self._end = None


Send = Callable[[NodeId, Sequence[bytes]], bool]


SHORT_FRAMES = 4
"""Number of short frames that have the length of a full one. While producers send, a lagging member
that has used up its credit gets short ones: others wait while a frame is read and encrypted."""

FRAMES_AHEAD = 4
"""Frames to a lagging member that are read from the disk before they are needed."""


class EntrySender:
    """Carries out what the core wants replicated.

    Attributes:
        granted_after: the log's last entry when its writer was granted the term: what is behind
            it was made here.
    """

    def __init__(
        self,
        settings: Settings,
        core: RaftCore,
        page: CursorPage,
        exchange: EntryExchange,
        *,
        send: Send,
        suspect: Callable[[Index], None],
    ) -> None:
        """Nothing is sent yet.

        Args:
            send: message and entries to a member; false when it takes none now.
            suspect: an entry that is committed was read, and is not whole.
        """
        self.granted_after = NO_INDEX
        self._settings = settings
        self._frame_bytes = settings.raft.frame_bytes
        self._window_bytes = settings.raft.in_flight_bytes
        self._pace = CatchUpPace(
            window_bytes=self._window_bytes,
            frame_bytes=self._frame_bytes,
            short_frame_bytes=max(1, self._frame_bytes // SHORT_FRAMES),
            bytes_per_s=settings.raft.catch_up_bytes_per_s,
        )
        # Looked into with each message: mostly it is empty.
        self._lagging = self._pace.lagging
        self._core = core
        self._page = page
        self._counters = page.counters(Role.RAFT)
        self._exchange = exchange
        self._send = send
        self._suspect = suspect
        self._sent_to: dict[str, Index] = {}
        self._ahead_bytes = FRAMES_AHEAD * self._frame_bytes
        self._asked_for: dict[str, Position] = {}

    def feed(self, wants: Sequence[tuple[str, int, int]]) -> None:
        """Send what the straight line wants sent: a peer, its first entry, the last one there is.

        Raises:
            LogDamagedError: entries that are not committed are wrong here, which was noted.
            CorruptLogError: they are wrong, and no member has others.
        """
        line, lagging = self._core.line, self._lagging
        end, commit = self._page.read_written(), self._core.commit
        written = end.index
        if lagging:
            self._pace.note(self._core.now, end.position)
            # Those first for whom producers wait.
            wants = sorted(wants, key=lambda want: want[0] in lagging)
        for peer, begin, last in wants:
            first = begin
            until = last if last < written else written
            while until >= first:
                if lagging and not self._may_send(peer, written):
                    break
                span = self._read(peer, Index(first), Index(until), commit)
                if span is None:
                    break
                head = line.replicated(peer, first, span.last, len(span.data))
                if head is None:
                    # There is something about it: the core is asked what to send.
                    self.replicate(self._core.request(NodeId(peer), Index(first), Index(last)))
                    break
                self._give(peer, head, span)
                if span.last < until or peer in lagging:
                    self._note_lag(peer, span)
                if not line.more:
                    break
                first = span.last + 1

    def replicate_all(self, requests: Sequence[ReplicateTo]) -> None:
        """Carry out what the core has asked for in one event; errors are those of ``replicate``."""
        if self._lagging:
            requests = sorted(requests, key=lambda request: request.peer in self._lagging)
        for request in requests:
            self.replicate(request)

    def replicate(self, request: ReplicateTo) -> None:
        """Read what a peer lacks, and send as much as one frame holds.

        Raises:
            LogDamagedError: entries that are not committed are wrong here, which was noted.
            CorruptLogError: they are wrong, and no member has others.
        """
        end = self._page.read_written()
        # A leader that was just elected may know entries that its writer has not written yet.
        until = Index(min(request.until, end.index))
        if until < request.next:
            return
        if self._lagging:
            self._pace.note(self._core.now, end.position)
            if not self._may_send(request.peer, end.index):
                # The core asks again with the next entries, and with the member's next reply.
                return
        span = self._read(request.peer, request.next, until, self._core.commit)
        if span is None:
            return
        effects = self._core.replicated(request, span.last, len(span.data))
        for peer, message in effects.send:
            self._give(peer, encode_message(message), span)
            if span.last < until or peer in self._lagging:
                self._note_lag(peer, span)
        for following in effects.replicate:
            self.replicate(following)

    def granted(self, last: Index) -> None:
        """The writer stamps behind ``last`` from now on, in a new term."""
        self.granted_after = last
        self._pace.forget()

    def _may_send(self, peer: str, written: Index) -> bool:
        """Whether ``peer`` may be sent a frame, as far as producers are concerned."""
        core, peer_id = self._core, NodeId(peer)
        return self._pace.allows(
            peer, is_awaited=core.commit < written, under_way=core.under_way(peer_id)
        ) or core.hands_over_to(peer_id)

    def _note_lag(self, peer: str, span: EntrySpan) -> None:
        end = Position(span.position + len(span.data))
        committed = self._page.read_committed().position
        self._pace.sent(peer, begin=span.position, end=end, committed=committed)
        if peer in self._lagging:
            # What was written a while ago may be on the disk alone, and a turn that waits for the
            # disk keeps all others waiting.
            begin = Position(max(end, self._asked_for.get(peer, end)))
            if begin > end + self._ahead_bytes + self._window_bytes:
                # It was sent that much once, and has lost more than what may be under way.
                begin = end
            until = Position(min(committed, end + self._ahead_bytes))
            if begin < until:
                self._asked_for[peer] = until
                self._exchange.will_need(begin, until)

    def _read(self, peer: str, first: Index, until: Index, commit: Index) -> EntrySpan | None:
        """The entries as far as one frame holds them; None where they are damaged.

        Raises:
            LogDamagedError, CorruptLogError: as ``replicate``.
        """
        try:
            size = self._pace.frame_bytes(peer) if self._lagging else self._frame_bytes
            span = self._exchange.read(first, until, size_max=size, committed=commit)
        except CorruptLogError as error:
            # Asked for again with the peer's next word: by then it may be repaired.
            if first > commit:
                raise
            logger.warning("entry not sent: index=%d error=%s", first, error)
            self._suspect(first)
            return None
        sent = self._sent_to.get(peer, 0)
        if commit < first and (first <= sent or first <= self.granted_after):
            # Written by others, or refused by the peer: perhaps not what it was any more.
            self._check(span)
        self._sent_to[peer] = span.last
        return span

    def _give(self, peer: str, head: bytes, span: EntrySpan) -> None:
        sent = self._send(NodeId(peer), (head, span.data))
        self._counters[RaftCounter.MESSAGES_SENT if sent else RaftCounter.MESSAGES_UNSENT] += 1
        self._counters[RaftCounter.ENTRIES_SENT] += len(span.items)

    def _check(self, span: EntrySpan) -> None:
        """Compare entries with their checksums before they are sent.

        The first one's place in the chain, too: whoever refuses that is sent the same bytes again.
        """
        view = memoryview(span.data)
        try:
            check_span(
                view,
                0,
                len(view),
                header_size=ENTRY_HEADER_SIZE,
                base=span.position,
                first=span.first,
                chain=self._exchange.chain_before(span.first),
            )
        except CorruptLogError as error:
            written = self._page.read_written()
            last = (written.position, written.index, written.term)
            raise report(self._settings, error, last=last) from error
