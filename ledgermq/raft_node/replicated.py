"""Replicated log: entries out and in, whole files, repairs, memberships.

What the raft process does with its log beside consensus is either this, for a DLedger log, or
``alone.Alone``, for a plain one. ``RaftWorker`` makes one of them, and does not ask again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Sequence

from ledgermq.ipc.counters import RaftCounter
from ledgermq.ipc.cursor_page import LogCursor, Role
from ledgermq.ipc.loop import Pollable
from ledgermq.ipc.orders import Damaged, Repaired
from ledgermq.ipc.page_slots import HeldBy
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ProtocolError
from ledgermq.model.ids import Index, NodeId, Position
from ledgermq.process.environment import Environment
from ledgermq.raft.core import RaftCore
from ledgermq.raft.effects import AppendEntries, Effects
from ledgermq.raft.entry_terms import EntryTerms
from ledgermq.raft.messages import EntryId
from ledgermq.raft_node.entries.entry_exchange import EntryExchange
from ledgermq.raft_node.entries.entry_sender import EntrySender
from ledgermq.raft_node.entries.membership_log import MembershipLog, Told
from ledgermq.raft_node.peers.peers import Peers
from ledgermq.raft_node.repair.scrub import Scrub, committed_end
from ledgermq.raft_node.shipping.shipping import Shipping, is_ship_frame
from ledgermq.raft_node.writer_link import WriterLink
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.wire.repair_frames import is_repair_frame

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
