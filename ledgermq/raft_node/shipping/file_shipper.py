"""The leader's side of shipping: log files offered, read and digested in threads.

The log is read, and digests are computed, in threads of their own: the raft process's loop neither
waits for a disk nor for a gigabyte to be read. Bounds: a receiver has at most ``ASKS_MAX`` asks
here, one slice is read at a time, and all receivers together get ``raft.shipping_bytes_per_s``.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from ledgermq.model.errors import StorageError
from ledgermq.model.ids import NodeId, Position
from ledgermq.store.files.file_names import file_name
from ledgermq.store.files.small_file import read_file
from ledgermq.store.recovery.staged_log import file_digest, slice_digest
from ledgermq.wire.ship_frames import (
    Ask,
    AskDigest,
    AskEnds,
    Digest,
    Ends,
    Gone,
    Offer,
    Slice,
    encode_ship_frame,
)

logger = logging.getLogger(__name__)

SLICE_SIZE_MAX = 512 * 1024
ASKS_MAX = 8
OFFER_NS = 300_000_000
"""A receiver is told again how far the log reaches after this long."""

QUIET_NS = 10_000_000_000
"""Who has not asked for so long takes no files now."""

Send = Callable[[NodeId, Sequence[bytes]], bool]


def one_thread(name: str) -> Executor:
    """A thread of that name, begun with the first work."""
    return ThreadPoolExecutor(1, thread_name_prefix=name)


class _Asked(NamedTuple):
    """A question of ``peer``."""

    peer: NodeId
    ask: Ask | AskDigest | AskEnds


class SliceContent(NamedTuple):
    """Bytes that were read; digest and size of them, or of the file that they are a part of."""

    data: bytes
    digest: bytes
    size: int


class _Read(NamedTuple):
    """A slice that a thread reads."""

    asked: _Asked
    future: Future[SliceContent]


class FileShipper:
    """Owned by the raft process of a leader. Nothing here blocks.

    Invariant: only bytes of an offer that its peer was made are read, and only whole files and
    committed entries are offered.
    """

    def __init__(
        self,
        data: Path,
        ends: Path,
        send: Send,
        *,
        bytes_per_s: int,
        wake: Callable[[], None],
        make_thread: Callable[[str], Executor] = one_thread,
    ) -> None:
        """Nothing is opened yet.

        Args:
            data: folder of the log's files.
            ends: file of the table of queue ends.
            send: hands a message to a peer's socket; false when it takes none now.
            bytes_per_s: of slices, to all receivers together.
            wake: called in a thread when there is something to do for ``turn``.
            make_thread: what works beside the loop, by its name.
        """
        self._data = data
        self._make_thread = make_thread
        self._ends = ends
        self._send = send
        self._bytes_per_s = bytes_per_s
        self._wake = wake
        self._offers: dict[NodeId, tuple[Offer, int]] = {}
        self._asked: deque[_Asked] = deque()
        self._asked_ns: dict[NodeId, int] = {}
        self._now_ns = 0
        self._read: _Read | None = None
        self._free_at_ns = 0
        self._digests: dict[tuple[int, int], Future[bytes]] = {}
        self._waiting: list[_Asked] = []
        self._reader: Executor | None = None
        self._digester: Executor | None = None
        self.bytes_sent = 0

    def is_due(self, peer: NodeId, now_ns: int) -> bool:
        """Whether ``peer`` is to be made an offer again."""
        known = self._offers.get(peer)
        return known is None or now_ns - known[1] >= OFFER_NS

    def offer(self, peer: NodeId, offer: Offer, now_ns: int) -> None:
        """Offer the log's files to ``peer``."""
        known = self._offers.get(peer)
        if known is None or known[0].term != offer.term:
            logger.info(
                "files offered: peer=%s first_index=%d bytes=%d",
                peer,
                offer.first,
                offer.end - offer.begin,
            )
        self._offers[peer] = (offer, now_ns)
        self._send(peer, [encode_ship_frame(offer)])

    def needs_from(self, now_ns: int) -> Position | None:
        """Where the oldest offer begins that its receiver has asked for lately; None without."""
        begins = [
            self._offers[peer][0].begin
            for peer, asked_ns in self._asked_ns.items()
            if peer in self._offers and now_ns - asked_ns < QUIET_NS
        ]
        return min(begins, default=None)

    def take(self, peer: NodeId, ask: Ask | AskDigest | AskEnds) -> None:
        """Answer ``ask`` later; one too many is dropped, and comes again."""
        self._asked_ns[peer] = self._now_ns
        known = self._offers.get(peer)
        if isinstance(ask, AskEnds):
            has_offer = known is not None and known[0].term == ask.term
            if has_offer and sum(one.peer == peer for one in self._asked) < ASKS_MAX:
                self._asked.append(_Asked(peer, ask))
            return
        if known is None or not is_offered(ask, known[0]):
            self._send(peer, [encode_ship_frame(Gone(ask.term, ask.position))])
            return
        asked = _Asked(peer, ask)
        if isinstance(ask, AskDigest):
            if asked not in self._waiting and len(self._waiting) < 4 * ASKS_MAX:
                self._waiting.append(asked)
        elif sum(one.peer == peer for one in self._asked) < ASKS_MAX:
            self._asked.append(asked)

    def turn(self, now_ns: int) -> None:
        """Send what was read, read the next, answer what digests are ready."""
        self._now_ns = now_ns
        if self._read is not None and self._read.future.done():
            self._finish_read(self._read, now_ns)
            self._read = None
        if self._read is None and self._asked and now_ns >= self._free_at_ns:
            self._begin_read(self._asked.popleft())
        if self._waiting:
            self._answer_digests()

    def sleep_ms(self, now_ns: int) -> int | None:
        """Milliseconds until the next slice may be read; None while nothing waits for the time
        alone.
        """
        if self._read is not None or not self._asked:
            return None
        return max(0, -(-(self._free_at_ns - now_ns) // 1_000_000))

    def end_term(self) -> None:
        """This node leads no more: what it offered is void."""
        self._offers.clear()
        self._asked_ns.clear()
        self._asked.clear()
        self._waiting.clear()
        self._digests.clear()

    @property
    def is_idle(self) -> bool:
        """Whether ``turn`` would do nothing, whatever the time."""
        return not (self._offers or self._asked or self._waiting) and self._read is None

    @property
    def offers_any(self) -> bool:
        """Whether somebody was made an offer that is not void."""
        return bool(self._offers)

    def close(self) -> None:
        """End the threads."""
        for pool in (self._reader, self._digester):
            if pool is not None:
                pool.shutdown(cancel_futures=True)

    def _begin_read(self, asked: _Asked) -> None:
        if self._reader is None:
            self._reader = self._make_thread("ship-read")
        ask = asked.ask
        if isinstance(ask, AskEnds):
            future = self._reader.submit(read_ends, self._ends, ask.offset)
        else:
            start = ask.position - ask.position % self._offers[asked.peer][0].file_size
            path = self._data / file_name(start)
            future = self._reader.submit(read_slice, path, ask.position - start, ask.size)
        self._read = _Read(asked, future)
        future.add_done_callback(lambda _: self._wake())

    def _finish_read(self, read: _Read, now_ns: int) -> None:
        peer, ask = read.asked
        try:
            data, digest, size = read.future.result()
        except StorageError as error:
            self._give_up(read.asked, error)
            return
        self._free_at_ns = now_ns + len(data) * 1_000_000_000 // self._bytes_per_s
        if peer in self._offers:
            head: Slice | Ends
            if isinstance(ask, AskEnds):
                head = Ends(ask.term, ask.offset, size, digest)
            else:
                head = Slice(ask.term, ask.position, digest)
            if self._send(peer, [encode_ship_frame(head), data]):
                self.bytes_sent += len(data)

    def _answer_digests(self) -> None:
        left = [one for one in self._waiting if not self._answer_digest(one)]
        for _, ask in set(self._waiting).difference(left):
            assert isinstance(ask, AskDigest)
            # Who asks again has refused the file, or not heard: it may have been repaired since,
            # and the digest of its damage would be refused for ever.
            self._digests.pop((ask.position, ask.size), None)
        self._waiting = left

    def _answer_digest(self, asked: _Asked) -> bool:
        """Whether nothing is left to do for ``asked``."""
        peer, ask = asked
        assert isinstance(ask, AskDigest)
        key = (ask.position, ask.size)
        future = self._digests.get(key)
        if future is None:
            future = self._begin_digest(ask)
        if not future.done():
            return False
        try:
            digest = future.result()
        except StorageError as error:
            self._give_up(asked, error)
            return True
        self._send(peer, [encode_ship_frame(Digest(ask.term, ask.position, ask.size, digest))])
        return True

    def _begin_digest(self, ask: AskDigest) -> Future[bytes]:
        if self._digester is None:
            self._digester = self._make_thread("ship-digest")
        path = self._data / file_name(ask.position)
        future = self._digester.submit(file_digest, path, ask.size)
        self._digests[ask.position, ask.size] = future
        future.add_done_callback(lambda _: self._wake())
        return future

    def _give_up(self, asked: _Asked, error: StorageError) -> None:
        """Retention was faster, and another offer will say so; anything else is our disk's fault.

        Raises:
            StorageError: ``error`` was not that a file is gone.
        """
        if error.errno != errno.ENOENT:
            raise error
        logger.info("file is gone that was asked for: peer=%s error=%s", asked.peer, error)
        if not isinstance(asked.ask, AskEnds):
            self._send(asked.peer, [encode_ship_frame(Gone(asked.ask.term, asked.ask.position))])


def is_offered(ask: Ask | AskDigest, offer: Offer) -> bool:
    """Whether ``ask`` is about bytes of one file of ``offer``."""
    if ask.term != offer.term or ask.size <= 0:
        return False
    at = ask.position % offer.file_size
    if isinstance(ask, AskDigest) and at != 0:
        return False
    if isinstance(ask, Ask) and ask.size > SLICE_SIZE_MAX:
        return False
    end = ask.position + ask.size
    return offer.begin <= ask.position and end <= offer.end and at + ask.size <= offer.file_size


def read_slice(path: Path, offset: int, size: int) -> SliceContent:
    """Bytes of a file, and their digest; what follows is asked of the disk already."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(fd, size, offset)
            os.posix_fadvise(fd, offset + size, 4 * SLICE_SIZE_MAX, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(fd)
    except OSError as error:
        raise StorageError(
            "log not read", errno=error.errno, file=str(path), reason=error.strerror
        ) from error
    if len(data) != size:
        raise StorageError("log file ends too early", file=str(path), offset=offset, size=size)
    return SliceContent(data, slice_digest(data), size)


def read_ends(path: Path, offset: int) -> SliceContent:
    """The table of queue ends from a byte on; digest and size are the whole one's."""
    content = read_file(path)
    if content is None or offset >= len(content):
        raise StorageError("no table of queue ends", errno=errno.ENOENT, file=str(path))
    part = content[offset : offset + SLICE_SIZE_MAX]
    return SliceContent(part, slice_digest(content), len(content))
