"""Shipping of whole log files between members: both sides, for the raft process.

A follower that lacks entries which the leader's log has no more is offered the leader's files
(docs/decisions/0008-shipping-files.md). ``take`` what peers send, ``offer`` what the core asks for,
and ``turn`` with every turn of the loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from ledgermq.members.log_replacement import mark_complete, replaced_folder, staging_folder
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ProtocolError
from ledgermq.model.ids import NO_INDEX, NodeId, Position
from ledgermq.raft.core import RaftCore
from ledgermq.raft.messages import RaftRole
from ledgermq.raft_node.entries.entry_exchange import EntryExchange
from ledgermq.raft_node.peers.peer_admission import agreed_settings
from ledgermq.raft_node.shipping.file_receiver import FileReceiver
from ledgermq.raft_node.shipping.file_shipper import FileShipper
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.queues.queue_ends import ends_path, read_queue_ends
from ledgermq.wire.ship_frames import (
    Ask,
    AskDigest,
    AskEnds,
    Ends,
    Offer,
    Slice,
    decode_ship_frame,
    is_ship_frame,
)

__all__ = ["LogArrivedError", "Shipping", "is_ship_frame"]


class LogArrivedError(Exception):
    """The leader's log is here and is to take the place of ours: every process has to end."""


class Shipping:
    """Owned by the raft process; ``source`` goes into its poll set.

    Attributes:
        is_busy: ``turn`` may have something to do when it is not woken; seldom so.
        is_staged: files of a leader have begun to arrive.
    """

    def __init__(
        self,
        settings: Settings,
        core: RaftCore,
        exchange: EntryExchange,
        send: Callable[[NodeId, Sequence[bytes]], bool],
        *,
        memberships: Callable[[], bytes],
    ) -> None:
        """Delete, in a thread, what a replacement has left behind.

        Args:
            send: hands a message to a peer's socket; false when it takes none now.
            memberships: those of the log, as the file ``members`` has them.
        """
        self._paths = StorePaths.of(settings)
        self._core = core
        self._exchange = exchange
        self._memberships = memberships
        self.source = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._ends_known: tuple[tuple[int, int], int] = ((0, 0), -1)
        self._shipper = FileShipper(
            self._paths.data,
            ends_path(self._paths.root),
            send,
            bytes_per_s=settings.raft.shipping_bytes_per_s,
            wake=self._wake,
        )
        self._receiver = FileReceiver(
            staging_folder(self._paths),
            core,
            send,
            file_size=agreed_settings(settings).log_file_size,
            wake=self._wake,
        )
        self.is_busy = True
        self.is_staged = staging_folder(self._paths).exists()
        if replaced_folder(self._paths).exists():
            self._receiver.delete(replaced_folder(self._paths))

    @property
    def moved_bytes(self) -> tuple[int, int]:
        """Bytes of slices that were sent, and that were received and written."""
        return self._shipper.bytes_sent, self._receiver.bytes_received

    def offer(self, peer: NodeId, now_ns: int) -> None:
        """``peer`` lacks what this log has no more.

        Nothing is offered while no table says how far the queues go that have no message in it.

        Raises:
            CorruptLogError, StorageError: log or table cannot be read.
        """
        if self._core.commit == NO_INDEX or not self._shipper.is_due(peer, now_ns):
            return
        extent = self._exchange.extent(self._core.commit)
        if extent is None:
            return
        has_ends = extent[0] > 0
        if has_ends and self._ends_position() < extent[0]:
            # The dispatcher of a store that has no table yet writes one at once.
            return
        offer = Offer(self._core.term, *extent, self._memberships(), has_ends)
        self.is_busy = True
        self._shipper.offer(peer, offer, now_ns)

    def _ends_position(self) -> int:
        """Position up to which the table of queue ends counts messages; -1 without one."""
        path = ends_path(self._paths.root)
        try:
            found = path.stat()
        except FileNotFoundError:
            return -1
        stamp = (found.st_mtime_ns, found.st_ino)
        if self._ends_known[0] != stamp:
            table = read_queue_ends(path)
            self._ends_known = (stamp, -1 if table is None else table.position)
        return self._ends_known[1]

    def needs_from(self, now_ns: int) -> Position | None:
        """Where the log begins that a member takes files of now; None while none does."""
        return self._shipper.needs_from(now_ns)

    def take(self, now_ns: int, source: NodeId, parts: Sequence[memoryview]) -> None:
        """A message of ``source`` whose first part ``is_ship_frame``.

        Raises:
            ProtocolError: it is none, or says what cannot be.
            StorageError: the disk cannot be looked at.
        """
        frame = decode_ship_frame(parts[0])
        data = parts[1] if len(parts) == 2 else None
        self.is_busy = True
        if len(parts) > 2 or isinstance(frame, Slice | Ends) != (data is not None):
            raise ProtocolError("slice without its bytes, or bytes without one", parts=len(parts))
        match frame:
            case Ask() | AskDigest() | AskEnds():
                self._shipper.take(source, frame)
            case Offer():
                self._receiver.take_offer(now_ns, source, frame)
                self.is_staged = True
            case _:
                self._receiver.take(source, frame, data)

    def turn(self, now_ns: int, *, is_woken: bool = True) -> None:
        """Go on with both sides.

        Args:
            is_woken: whether ``source`` can be read.

        Raises:
            LogArrivedError: the leader's log is here, and nothing may be done with ours any more.
            StorageError: the disk failed.
        """
        if is_woken:
            self._drain()
        if self._core.role is not RaftRole.LEADER and self._shipper.offers_any:
            self._shipper.end_term()
        self._shipper.turn(now_ns)
        self._receiver.turn(now_ns)
        if self._receiver.is_complete:
            mark_complete(self._paths)
            raise LogArrivedError
        self.is_busy = not (self._shipper.is_idle and self._receiver.is_idle)

    def sleep_ms(self, now_ns: int) -> int | None:
        """Milliseconds until ``turn`` has something to do by itself; None while that is never."""
        waits = (self._shipper.sleep_ms(now_ns), self._receiver.sleep_ms(now_ns))
        return min((wait for wait in waits if wait is not None), default=None)

    def entries_appended(self) -> None:
        """The leader sends entries: files that had begun to arrive are not needed."""
        if self.is_staged and not self._receiver.is_receiving:
            self.is_staged = False
            self.is_busy = True
            self._receiver.forget()

    def close(self) -> None:
        """End the threads; what they are at is finished."""
        self._shipper.close()
        self._receiver.close()
        os.close(self.source)

    def _wake(self) -> None:
        os.eventfd_write(self.source, 1)

    def _drain(self) -> None:
        try:
            os.eventfd_read(self.source)
        except BlockingIOError:
            return
