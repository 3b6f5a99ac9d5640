"""Replicated log: entries out and in, whole files, repairs, memberships.

What the raft process does with its log beside consensus is either this, for a DLedger log, or
``alone.Alone``, for a plain one. ``RaftWorker`` makes one of them, and does not ask again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from ledgermq.formats.dledger_entry import HEADER_SIZE as ENTRY_HEADER_SIZE
from ledgermq.ipc.counters import RaftCounter
from ledgermq.ipc.cursor_page import CursorPage, LogCursor, Role
from ledgermq.ipc.loop import Pollable
from ledgermq.ipc.orders import Damaged, Repaired
from ledgermq.ipc.page_slots import HeldBy
from ledgermq.members.log_trouble import report
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import CorruptLogError, ProtocolError
from ledgermq.model.ids import NO_INDEX, Index, NodeId, Position
from ledgermq.process.environment import Environment
from ledgermq.raft.core import RaftCore
from ledgermq.raft.effects import AppendEntries, Effects, ReplicateTo
from ledgermq.raft.entry_terms import EntryTerms
from ledgermq.raft.message_codec import encode_message
from ledgermq.raft.messages import EntryId
from ledgermq.raft_node.entries.entry_exchange import EntryExchange
from ledgermq.raft_node.entries.membership_log import MembershipLog, Told
from ledgermq.raft_node.peers.peers import Peers
from ledgermq.raft_node.repair.scrub import Scrub, committed_end
from ledgermq.raft_node.shipping.shipping import Shipping, is_ship_frame
from ledgermq.raft_node.writer_link import WriterLink
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.log.entry_files import EntrySpan
from ledgermq.store.log.verified_span import check_span
from ledgermq.wire.repair_frames import is_repair_frame

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


logger = logging.getLogger(__name__)

Send = Callable[[NodeId, Sequence[bytes]], bool]

SCRUB_LOOK_NS = 100_000_000
"""Nanoseconds between two looks at what is done beside consensus, unless something rings: messages
wait for the turns between."""


class Replicated:
    """Owned by the raft process.

    Attributes:
        memberships: those of the log.
        wants_turn: ``turn`` has something to do now, or may have with every turn of the process.
        due_ns: from then on it may have something to do, when the process wakes.
    """

    def __init__(
        self,
        environment: Environment,
        core: RaftCore,
        peers: Peers,
        writer: WriterLink,
        *,
        send: Send,
    ) -> None:
        """Nothing is read before ``open_at``.

        Args:
            send: hands entries to a member, to its raft process or to its writer.

        Raises:
            CorruptLogError, StorageError: what the store remembers of memberships cannot be read.
        """
        settings = environment.settings
        paths = StorePaths.of(settings)
        self._page = environment.page
        self._clock = environment.clock
        self._counters = environment.page.counters(Role.RAFT)
        # By lives of this process before: they count since the node was started.
        self._counted_before = tuple(self._counters)
        self._core = core
        self._writer = writer
        self._exchange = EntryExchange(paths, settings.store.mapped_file_size_commit_log)
        self.memberships = MembershipLog(paths.members, self._exchange, settings)
        self._shipping = Shipping(
            settings, core, self._exchange, peers.send, memberships=self.memberships.content
        )
        self._scrub = Scrub.of(environment, core, peers.send, writer.repair)
        self.due_ns = 0
        self.wants_turn = True
        self._sender = EntrySender(
            settings,
            core,
            environment.page,
            self._exchange,
            send=send,
            suspect=self._suspect,
        )

    @property
    def sources(self) -> list[Pollable]:
        """What wakes the process for ``turn``."""
        return [self._shipping.source, self._scrub.source]

    @property
    def end(self) -> EntryId:
        """The last entry of the log, with those that the writer was handed."""
        end = self._exchange.end
        return EntryId(end.term, end.index_)

    def sleep_ms(self, now_ns: int) -> int | None:
        """Milliseconds until ``turn`` has something to do by itself; None while that is never."""
        shipping = self._shipping.sleep_ms(now_ns) if self._shipping.is_busy else None
        scrub = self._scrub.sleep_ms(now_ns)
        if shipping is None or scrub is None:
            return scrub if shipping is None else shipping
        return min(shipping, scrub)

    def turn(self, ready: Container[Pollable], now_ns: int) -> None:
        """Go on with what is done beside consensus: files for members, and damaged bytes.

        Raises:
            LogArrivedError: the leader's log is here, and nothing may be done with ours any more.
            StorageError: the log cannot be read.
        """
        is_woken = self._shipping.source in ready
        if is_woken or self._shipping.is_busy:
            self._shipping.turn(now_ns, is_woken=is_woken)
            sent, received = self._shipping.moved_bytes
            self._count(RaftCounter.SHIPPED_BYTES_SENT, sent)
            self._count(RaftCounter.SHIPPED_BYTES_RECEIVED, received)
        if now_ns >= self.due_ns or self._scrub.source in ready:
            self.due_ns = now_ns + SCRUB_LOOK_NS
            self._scrub.turn(now_ns, committed_end(self._page) if self._writer.is_settled else None)
            counts = self._scrub.counts
            self._count(RaftCounter.SCRUBBED_BYTES, counts.scrubbed_bytes)
            self._counters[RaftCounter.DAMAGED_ENTRIES] = counts.damaged_entries
            self._count(RaftCounter.REPAIRED_ENTRIES, counts.repaired_entries)
            self._count(RaftCounter.REPAIRED_BYTES, counts.repaired_bytes)
        self.wants_turn = self._shipping.is_busy

    def _count(self, counter: RaftCounter, counted: int) -> None:
        """Tell what was ``counted`` since this process was started."""
        self._counters[counter] = self._counted_before[counter] + counted

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again: those of the scrub count from now on."""
        self.wants_turn = True
        self._scrub.change(settings.scrub, self._clock.monotonic_ns())

    def close(self) -> None:
        """End threads, close files."""
        self._shipping.close()
        self._scrub.close()
        self._exchange.close()

    def take_order(self, order: Damaged | Repaired) -> None:
        """A reader found damage, or the writer has written a repair."""
        self.wants_turn = True
        self._scrub.take_order(order, self._clock.monotonic_ns())

    def take(self, source: NodeId, parts: list[memoryview]) -> bool:
        """Take a message of a member, unless it is one of the consensus: false then.

        Raises:
            ProtocolError: it is none, or says what cannot be.
            StorageError: the log cannot be read.
        """
        # Kinds of repair frames are above those of ship frames, and both above the consensus's.
        if not is_ship_frame(parts[0]):
            return False
        self.wants_turn = True
        now_ns = self._clock.monotonic_ns()
        if is_repair_frame(parts[0]):
            self._scrub.take(source, parts, now_ns)
        else:
            self._shipping.take(now_ns, source, parts)
        return True

    def open_at(self, last: Index, position: Position) -> None:
        """A handshake with the writer is over: the log ends with ``last``, at ``position``.

        Raises:
            CorruptLogError, StorageError: it cannot be read.
        """
        self._exchange.open_at(last, position)
        self._scrub.open(self._exchange.places)

    def grown_to(self, last: Index, position: Position) -> None:
        """The writer has appended entries by itself, and ends with ``last``, at ``position``.

        Raises:
            CorruptLogError, StorageError: it cannot be read.
        """
        self._exchange.grown_to(last, position)

    def terms(self, last: EntryId) -> EntryTerms | None:
        """The terms of all entries up to ``last``; None where they have none.

        Raises:
            CorruptLogError, StorageError: the log cannot be read.
        """
        return self._exchange.terms(last)

    def granted(self, last: Index) -> None:
        """The writer stamps behind ``last`` from now on."""
        self._sender.granted(last)

    def replicate(self, effects: Effects) -> None:
        """Give members what they lack: entries, or whole files.

        Raises:
            CorruptLogError: entries are wrong, and no member has others.
        """
        self._sender.replicate_all(effects.replicate)
        for shipment in effects.ship_files:
            self.wants_turn = True
            self._shipping.offer(shipment.peer, self._clock.monotonic_ns())

    def feed(self, wants: Sequence[tuple[str, int, int]]) -> None:
        """Send entries to members that the straight line says lack them (``SteadyLine.wants``).

        Raises:
            CorruptLogError: entries are wrong, and no member has others.
        """
        self._sender.feed(wants)

    def append(
        self, accepted: AppendEntries, entries: memoryview, memberships: Sequence[Index]
    ) -> Told | None:
        """Verify entries of a leader, and hand them to the writer.

        Args:
            memberships: which of them are such, as the leader says.

        Returns:
            The memberships among them; None when the writer got none of the entries.

        Raises:
            StorageError: what they say could not be made durable.
        """
        try:
            verified = self._exchange.verify(entries, accepted.first, accepted.last)
            # Before the writer has them: after a crash nobody would look for them.
            told = self.memberships.received(verified, memberships) if memberships else []
        except ProtocolError as error:
            self._counters[RaftCounter.MESSAGES_REFUSED] += 1
            logger.error("entries of a peer refused: error=%s", error)
            return None
        if not self._writer.append(verified.entries, verified.items, verified.end):
            self.memberships.dropped(self._exchange.end.index_)
            return None
        self._exchange.end = verified.end
        self._counters[RaftCounter.ENTRIES_RECEIVED] += accepted.last - accepted.first + 1
        if self._shipping.is_staged:
            self._shipping.entries_appended()
            self.wants_turn = True
        self._writer.ring()
        return told

    def _suspect(self, index: Index) -> None:
        self._scrub.suspect_entry(index)
        self.wants_turn = True

    def cursor_at(self, index: Index) -> LogCursor:
        """Where entry ``index`` ends.

        Raises:
            CorruptLogError, StorageError: the log cannot be read.
        """
        position, term = self._exchange.position_behind(index)
        return LogCursor(position, index, term)

    def needed_before(self, wanted: Position, within: int, now_ns: int) -> tuple[Position, HeldBy]:
        """Where the file begins that this leader's members need first, if before ``wanted``.

        Args:
            within: who lacks what stands before this position gets files.
        """
        needed, held_by = wanted, HeldBy.NOBODY
        status = self._core.status()
        for peer in status.peers:
            # What is behind the commit index is never let go: such a member lacks no file. Nor does
            # one that holds no bodies.
            if peer.match >= status.commit or peer.peer in status.membership.bodiless:
                continue
            # One of which nothing is known yet may lack as much as the limit allows.
            lacks = within if peer.match < 0 else self._exchange.position_after(peer.match)
            if within <= lacks < needed:
                needed, held_by = Position(lacks), HeldBy.MEMBER
        shipped = self._shipping.needs_from(now_ns)
        if shipped is not None and shipped < needed:
            return shipped, HeldBy.SHIPPING
        return needed, held_by

    def forget_before(self, position: Position) -> Index:
        """Read nothing before the file of ``position`` any more; the log's first entry then."""
        return self._exchange.forget_before(position)
