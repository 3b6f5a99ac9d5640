"""The follower's side of shipping: log files asked for, verified, and kept when whole.

One file after the other: slices are asked for ahead, at most ``WINDOW_SLICES`` of them; each must
have its digest. When a file is there, the leader's digest of it is compared, and then every entry
verified (``store/recovery/staged_log.py``). All that reads or writes is done in a thread of its
own, one job after the other. After a restart what is verified stays, and the file that was
arriving goes on when the leader's digest of its first part is ours.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Protocol

from ledgermq.formats.dledger_index import ITEM_SIZE
from ledgermq.members.log_replacement import free_bytes
from ledgermq.model.errors import CorruptLogError, ProtocolError, StorageError
from ledgermq.model.ids import Index, NodeId, Position, Term
from ledgermq.raft_node.shipping.file_shipper import SLICE_SIZE_MAX, one_thread
from ledgermq.store.files.folders import delete_folder
from ledgermq.store.files.properties_file import DLedgerCheckpoint, encode_dledger_checkpoint
from ledgermq.store.files.small_file import replace_file
from ledgermq.store.queues.queue_ends import NAME as ENDS_NAME
from ledgermq.store.queues.queue_ends import decode_queue_ends
from ledgermq.store.recovery.staged_log import StagedLog, slice_digest
from ledgermq.wire.ship_frames import (
    Ask,
    AskDigest,
    AskEnds,
    Digest,
    Ends,
    Gone,
    Offer,
    ShipFrame,
    Slice,
    encode_ship_frame,
)

logger = logging.getLogger(__name__)

WINDOW_SLICES = 4
RETRY_NS = 2_000_000_000
"""What was asked for and did not come is asked for again after this long."""

PAUSE_NS = 500_000_000
"""After something was refused or failed, nothing is asked for so long."""

DISK_PAUSE_NS = 5_000_000_000
OFFER_AGE_MAX_NS = 5_000_000_000
"""An offer that was not repeated for so long counts no more."""

TELL_AGAIN_NS = 60_000_000_000
"""A reason to refuse an offer is told once in this time: offers come three times a second."""

ENDS_SIZE_MAX = 256 * 1024 * 1024
"""A queue takes some 15 bytes of the table, and a folder of its own on every member."""

SPARE_BYTES = 64 * 1024 * 1024
_ENTRY_SIZE_MIN = 48 + 91

Send = Callable[[NodeId, Sequence[bytes]], bool]


class Consensus(Protocol):
    """What the receiver asks of ``RaftCore``."""

    def lacks_before(self, source: NodeId, term: Term, first: Index) -> bool:
        """Whether this node follows ``source`` in ``term``, whose log begins with entry ``first``,
        and lacks what was before it: then whole files may take the place of its log.
        """


class FileReceiver:
    """Owned by the raft process. Nothing here blocks, and no thread but its own writes the folder.

    Invariants: ``kept ≤ arrived ≤ asked`` in the file that is arriving; a job is under way while
    ``_job`` is set, and slices are written in the order in which they arrive.
    """

    def __init__(
        self,
        folder: Path,
        core: Consensus,
        send: Send,
        *,
        file_size: int,
        wake: Callable[[], None],
        make_thread: Callable[[str], Executor] = one_thread,
    ) -> None:
        """Nothing is touched before an offer comes.

        Args:
            folder: where the shipped log is put together.
            send: hands a message to a peer's socket; false when it takes none now.
            file_size: bytes of a file of the log, which the members agree about.
            wake: called in the thread when there is something to do for ``turn``.
            make_thread: what works beside the loop, by its name.
        """
        self._make_thread = make_thread
        self._folder = folder
        self._core = core
        self._send = send
        self._file_size = file_size
        self._wake = wake
        self._thread: Executor | None = None
        self._staged: StagedLog | None = None
        self._offer: Offer | None = None
        self._source = NodeId("")
        self._offered_ns = self._moved_ns = self._paused_until_ns = 0
        self._job: Future[Callable[[], None]] | None = None
        self._writes: deque[tuple[int, Future[Callable[[], None]]]] = deque()
        self._goal = 0
        self._is_opened = self._is_ready = False
        self._digest_of = 0
        self._kept = self._arrived = self._asked = 0
        self._refused, self._told_again_ns = "", 0
        self._ends: bytes | None = None
        self._ends_part, self._ends_digest, self._ends_asked = b"", b"", False
        self.bytes_received = 0
        self.is_complete = False

    def take_offer(self, now_ns: int, source: NodeId, offer: Offer) -> None:
        """The leader's log begins behind the end of ours, and these are its files.

        Raises:
            ProtocolError: the offer cannot be taken; says why, once a minute.
            StorageError: the disk cannot be looked at.
        """
        if not self._core.lacks_before(source, offer.term, offer.first):
            return
        try:
            self._check(offer)
        except ProtocolError as error:
            if error.message == self._refused and now_ns < self._told_again_ns:
                return
            self._refused, self._told_again_ns = error.message, now_ns + TELL_AGAIN_NS
            raise
        before = self._offer
        self._offered_ns = now_ns
        if before is not None and (before.term, self._source) == (offer.term, source):
            # The end stays where it was, or this would run after a leader under load for ever: what
            # the log has gained since comes entry by entry.
            self._offer = before._replace(members=offer.members)
            return
        logger.info(
            "files are taken: leader=%s first_index=%d bytes=%d",
            source,
            offer.first,
            offer.end - offer.begin,
        )
        self._offer, self._source, self._moved_ns = offer, source, now_ns
        self._is_ready = False
        self._rewind()

    def take(
        self, source: NodeId, frame: Slice | Digest | Gone | Ends, data: memoryview | None
    ) -> None:
        """An answer of the leader; what was not asked for, or comes twice, is passed.

        Raises:
            ProtocolError: bytes were changed on their way; they are asked for again.
        """
        offer = self._offer
        if offer is None or source != self._source or frame.term != offer.term:
            return
        match frame:
            case Slice():
                assert data is not None
                self._take_slice(frame, data)
            case Digest():
                self._take_digest(frame)
            case Ends():
                assert data is not None
                self._take_ends(offer, frame, data)
            case Gone():
                end = self._staged.end if self._staged is not None else None
                if end is not None and 0 <= frame.position - end.position < self._goal:
                    # The next offer says what there is.
                    self._offer = None

    def turn(self, now_ns: int) -> None:
        """Go on with what can be done; ``is_complete`` once nothing is left to do.

        Raises:
            StorageError: the disk failed in another way than by being full.
        """
        self._settle(now_ns)
        offer = self._offer
        if self._job is not None or offer is None or now_ns < self._paused_until_ns:
            return
        if now_ns - self._offered_ns > OFFER_AGE_MAX_NS or not self._core.lacks_before(
            self._source, offer.term, offer.first
        ):
            self._offer = None
            return
        if self._staged is None or not self._is_ready:
            self._submit(lambda: self._prepare(offer))
            return
        staged = self._staged
        end = staged.end
        assert end is not None
        if staged.is_final or end.position >= offer.end:
            if offer.has_ends and self._ends is None:
                self._ask_ends(offer, now_ns)
            else:
                ends = self._ends
                self._submit(lambda: self._seal(offer, ends))
            return
        self._go_on(offer, end.position, now_ns)

    @property
    def is_idle(self) -> bool:
        """Whether ``turn`` would do nothing, whatever the time."""
        if self._offer is not None or self._job is not None or self.is_complete:
            return False
        return not self._writes

    @property
    def is_receiving(self) -> bool:
        """Whether there is an offer that counts."""
        return self._offer is not None

    def forget(self) -> None:
        """Nothing of what has arrived is needed any more."""
        self._staged, self._is_ready = None, False
        self._rewind()
        self.delete(self._folder)

    def delete(self, folder: Path) -> None:
        """Delete ``folder`` some time later, before what is begun after this."""
        self._start(lambda: _delete(folder))

    def sleep_ms(self, now_ns: int) -> int | None:
        """Milliseconds until something is asked for again; None while nothing is being received."""
        if self._offer is None or self._job is not None:
            return None
        is_paused = now_ns < self._paused_until_ns
        due = self._paused_until_ns if is_paused else self._moved_ns + RETRY_NS
        return max(1, -(-(due - now_ns) // 1_000_000))

    def close(self) -> None:
        """End the thread; what it is at is finished."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    def _check(self, offer: Offer) -> None:
        size = self._file_size
        if offer.file_size != size:
            raise ProtocolError(
                "files of another size offered",
                size=offer.file_size,
                expected=size,
                setting="store.mapped_file_size_commit_log",
            )
        is_whole = offer.begin % size == 0 and offer.begin < offer.end
        if not is_whole or offer.first > offer.last or offer.first == 0:
            raise ProtocolError("offer of files that cannot be a log's", offer=offer[:6])
        if offer.end - offer.begin < (offer.last - offer.first) * _ENTRY_SIZE_MIN:
            raise ProtocolError("offer has more entries than its files hold", offer=offer[:6])
        end = self._staged.end if self._staged is not None else None
        if end is None:
            needed = offer.end - offer.begin + (offer.last - offer.first) * ITEM_SIZE + SPARE_BYTES
            free = free_bytes(self._folder.parent)
            if free < needed and not self._folder.exists():
                raise ProtocolError(
                    "no room for the leader's log beside the own one", needed=needed, free=free
                )

    def _go_on(self, offer: Offer, start: Position, now_ns: int) -> None:
        """Ask for what the arriving file still lacks."""
        self._goal = min(self._file_size, offer.end - start)
        if not self._is_opened:
            self._open_part(offer, start, now_ns)
        if not self._is_opened or self._job is not None:
            return
        if now_ns - self._moved_ns >= RETRY_NS:
            self._moved_ns = now_ns
            # What was lost, or dropped at a full socket, nobody else misses.
            self._asked, self._digest_of = self._arrived, 0
        while (
            self._asked < self._goal and self._asked - self._kept < WINDOW_SLICES * SLICE_SIZE_MAX
        ):
            size = min(SLICE_SIZE_MAX, self._goal - self._asked)
            if not self._ask(Ask(offer.term, Position(start + self._asked), size)):
                return
            self._asked += size
        if self._kept >= self._goal:
            self._ask_digest(offer, start, self._goal)

    def _open_part(self, offer: Offer, start: Position, now_ns: int) -> None:
        """What an earlier process has left of the file counts if it is what the leader has."""
        assert self._staged is not None
        if now_ns - self._moved_ns >= RETRY_NS:
            self._moved_ns = now_ns
            self._digest_of = 0
        size = self._staged.part_size()
        if size == 0 or size > self._goal:
            self._is_opened = True
            if size:
                self._submit(self._discard)
            return
        self._ask_digest(offer, start, size)

    def _ask_digest(self, offer: Offer, start: Position, size: int) -> None:
        if self._digest_of != size and self._ask(AskDigest(offer.term, start, size)):
            self._digest_of = size

    def _ask(self, frame: ShipFrame) -> bool:
        return self._send(self._source, [encode_ship_frame(frame)])

    def _take_slice(self, frame: Slice, data: memoryview) -> None:
        staged = self._staged
        if staged is None or not self._is_opened or staged.end is None or self._job is not None:
            return
        offset = frame.position - staged.end.position
        expected = min(SLICE_SIZE_MAX, self._goal - self._arrived)
        if offset != self._arrived or offset >= self._asked:
            return
        if len(data) != expected:
            raise ProtocolError("slice of another size", size=len(data), expected=expected)
        self._arrived += expected
        self._writes.append(
            (expected, self._start(lambda: self._write(offset, data, frame.digest)))
        )

    def _take_digest(self, frame: Digest) -> None:
        staged = self._staged
        if staged is None or staged.end is None or self._job is not None:
            return
        if frame.position != staged.end.position or frame.size != self._digest_of:
            return
        self._digest_of = 0
        if not self._is_opened:
            self._submit(lambda: self._compare_part(frame.size, frame.digest))
        elif self._kept >= self._goal == frame.size:
            self._submit(lambda: self._finish(frame.size, frame.digest))

    def _ask_ends(self, offer: Offer, now_ns: int) -> None:
        if now_ns - self._moved_ns >= RETRY_NS:
            self._moved_ns = now_ns
            self._ends_asked = False
        if not self._ends_asked:
            self._ends_asked = self._ask(AskEnds(offer.term, len(self._ends_part)))

    def _take_ends(self, offer: Offer, frame: Ends, data: memoryview) -> None:
        """A part of the table of queue ends; the leader may have written another one meanwhile."""
        if not self._ends_asked or frame.offset != len(self._ends_part):
            return
        self._ends_asked = False
        part, self._ends_part = self._ends_part, b""
        if len(part) + len(data) > min(frame.size, ENDS_SIZE_MAX) or not data:
            raise ProtocolError("table of queue ends of a wrong size", size=frame.size)
        if part and frame.digest != self._ends_digest:
            return
        self._ends_part, self._ends_digest = part + bytes(data), frame.digest
        if len(self._ends_part) < frame.size:
            return
        content, self._ends_part = self._ends_part, b""
        if slice_digest(content) != frame.digest:
            raise ProtocolError("table of queue ends is not what was sent", size=frame.size)
        try:
            table = decode_queue_ends(content, file="queue ends of the leader")
        except CorruptLogError as error:
            raise ProtocolError("leader's table of queue ends is none", reason=str(error)) from None
        if table.position < offer.begin:
            raise ProtocolError(
                "table of queue ends is older than the log offered",
                position=table.position,
                begin=offer.begin,
            )
        self._ends = content

    def _settle(self, now_ns: int) -> None:
        """Take what the thread has done; failures are told, and tried again after a pause."""
        while self._writes and self._writes[0][1].done():
            size, future = self._writes.popleft()
            if self._outcome(future, now_ns):
                self._kept += size
                self.bytes_received += size
                self._moved_ns = now_ns
            else:
                # What was to be written behind it comes again.
                self._writes.clear()
                self._arrived = self._asked = self._kept
        if self._job is not None and self._job.done():
            job, self._job = self._job, None
            if not self._outcome(job, now_ns):
                self._rewind()
            self._moved_ns = now_ns

    def _outcome(self, future: Future[Callable[[], None]], now_ns: int) -> bool:
        try:
            future.result()()
        except StorageError as error:
            logger.error("shipped files cannot be kept now: %s", error)
            self._paused_until_ns = now_ns + DISK_PAUSE_NS
            self._is_ready = False
            return False
        except (ProtocolError, CorruptLogError) as error:
            logger.error("shipped bytes refused: leader=%s error=%s", self._source, error)
            self._paused_until_ns = now_ns + PAUSE_NS
            return False
        return True

    def _rewind(self) -> None:
        """Look at the arriving file anew, and ask for the table of ends again."""
        self._ends = None
        self._ends_part, self._ends_asked = b"", False
        self._goal = self._digest_of = 0
        self._kept = self._arrived = self._asked = 0
        self._is_opened = False
        self._writes.clear()

    # These run in the thread; what they return is called by the loop then.

    def _prepare(self, offer: Offer) -> Callable[[], None]:
        """Go on with what is there, if the offer follows it or covers it; else begin anew."""
        staged = StagedLog(self._folder, file_size=self._file_size)
        end = staged.end
        if end is None or end.position < offer.begin or end.index_ < offer.first - 1:
            staged.restart(offer.begin, offer.first)
        elif end.position > offer.begin:
            logger.info("files that are here already: bytes=%d", end.position - offer.begin)

        def then() -> None:
            self._staged = staged
            self._is_ready = True
            self._rewind()

        return then

    def _write(self, offset: int, data: memoryview, digest: bytes) -> Callable[[], None]:
        assert self._staged is not None
        if slice_digest(data) != digest:
            raise ProtocolError("slice is not what was sent", offset=offset, size=len(data))
        self._staged.write(offset, data)
        return _nothing

    def _discard(self) -> Callable[[], None]:
        assert self._staged is not None
        self._staged.discard_part()
        return _nothing

    def _compare_part(self, size: int, digest: bytes) -> Callable[[], None]:
        assert self._staged is not None
        is_same = self._staged.digest(size) == digest
        if not is_same:
            self._staged.discard_part()

        def then() -> None:
            self._is_opened = True
            if is_same:
                self._kept = self._arrived = self._asked = size

        return then

    def _finish(self, size: int, digest: bytes) -> Callable[[], None]:
        """The file is there: is it what the leader has, and are its entries whole?"""
        staged = self._staged
        assert staged is not None and staged.end is not None
        try:
            if staged.digest(size) != digest:
                raise ProtocolError("file is not what the leader has", position=staged.end.position)
            staged.finish_file(size)
        except (ProtocolError, CorruptLogError):
            staged.discard_part()
            raise
        return self._rewind

    def _seal(self, offer: Offer, ends: bytes | None) -> Callable[[], None]:
        """All is there: put beside it what goes into place with it."""
        staged = self._staged
        assert staged is not None and staged.end is not None
        last = staged.end.index_
        # Nothing is offered but what is committed: the last entry is the last committed one, too.
        checkpoint = encode_dledger_checkpoint(DLedgerCheckpoint(last, last))
        replace_file(self._folder / "checkpoint", checkpoint)
        if offer.members:
            replace_file(self._folder / "members", offer.members)
        if ends is not None:
            replace_file(self._folder / ENDS_NAME, ends)

        def then() -> None:
            # Between the last look and now the leader may have changed.
            self.is_complete = self._core.lacks_before(self._source, offer.term, offer.first)

        return then

    def _submit(self, job: Callable[[], Callable[[], None]]) -> None:
        assert self._job is None
        self._job = self._start(job)

    def _start(self, job: Callable[[], Callable[[], None]]) -> Future[Callable[[], None]]:
        if self._thread is None:
            self._thread = self._make_thread("ship-keep")
        future = self._thread.submit(job)
        future.add_done_callback(lambda _: self._wake())
        return future


def _nothing() -> None:
    return


def _delete(folder: Path) -> Callable[[], None]:
    try:
        delete_folder(folder)
    except StorageError as error:
        # It takes room and nothing else; the next start tries again.
        logger.error("what is not needed any more is still there: %s", error)
    return _nothing
