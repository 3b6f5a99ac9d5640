"""The append ring: shared memory by which raft hands entries to the writer, without a socket.

A mapped file in the runtime directory, one producer (raft), one consumer (writer), little-endian:

    offset  size  field           writer
    0       8     magic           raft
    8       8     size of the data area
    16      8     head: bytes put since creation, paddings included    raft
    24      8     tail: bytes released since creation                  writer
    64      …     data area

Records begin at multiples of 64 in the data area and lie in one piece; where one would cross the
end of the area, or an empty ring begins anew, a padding up to the end goes before it:

    0       4     kind: 0 padding, else ``RingKind``
    4       4     size of the content
    8       48    six signed numbers: the fields of ``ProposedRecord``, ``LeaderEntries`` or
                  ``RepairedBytes``, the others 0
    64      …     content

Each handshake of raft with the writer (GRANT, FOLLOW) begins with a fresh ring: what an older one
held is of no more use. Invariant: ``tail <= head <= tail + size``.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from struct import Struct
from typing import NamedTuple, Self

from ledgermq.model.errors import ProtocolError, StaleGenerationError, StorageError, refused_as
from ledgermq.model.ids import Index, Position, Term

_MAGIC = 0x324E49525F514D4C
_DATA = 64
_ALIGN = 64
_HEADER = Struct("<IIqqqqqq")
_ZEROS = (0,) * 6
RING_SIZE = 24 * 1024 * 1024
WARM_SIZE = 2 * 1024 * 1024
"""An empty ring begins anew behind so much: what was just used is in the processor's cache, and the
rest of the ring is not."""


class RingKind(IntEnum):
    """What a record is; numbers are never reused."""

    PROPOSE = 1
    APPEND = 2
    REPAIR = 3


class ProposedRecord(NamedTuple):
    """PROPOSE: the content is a record to be stamped, if the writer still stamps in this term."""

    term: Term


class LeaderEntries(NamedTuple):
    """APPEND: the content is ``items_size`` bytes of index items, then verified entries.

    The other fields are where the log ends behind them.
    """

    position: Position
    last_index: Index
    last_term: Term
    chain: int
    items_size: int


class RepairedBytes(NamedTuple):
    """REPAIR: the content is to be written over committed bytes; ``number`` comes back when it is.

    Attributes:
        family: 0 for the data files, 1 for the index files.
        position: in these files.
    """

    number: int
    family: int
    position: Position


RingContent = ProposedRecord | LeaderEntries | RepairedBytes

_KINDS: Mapping[type[RingContent], RingKind] = {
    ProposedRecord: RingKind.PROPOSE,
    LeaderEntries: RingKind.APPEND,
    RepairedBytes: RingKind.REPAIR,
}
_TYPES: Mapping[int, type[RingContent]] = {kind: content for content, kind in _KINDS.items()}


class RingRecord(NamedTuple):
    """One record: what its ``data`` are, which are valid until it is released."""

    content: RingContent
    data: memoryview
    head: int


class AppendRing:
    """One end of the ring; raft creates it, the writer attaches to it.

    Attributes:
        head: the cell of the end of what was put.
        taken: the end of what this side has taken; everything, where it is that of ``head``.
    """

    def __init__(self, map_: mmap.mmap) -> None:
        self._map = map_
        self._cells = memoryview(map_)[:_DATA].cast("q")
        self._data = memoryview(map_)[_DATA:]
        self.head = self._cells[2:3]
        self.taken = self._cells[3]
        self.size = len(self._data)

    @classmethod
    def create(cls, path: Path, size: int = RING_SIZE) -> Self:
        """An empty ring at ``path``; one that was there before is replaced, not changed."""
        assert size % _ALIGN == 0, size
        fresh = path.with_name(path.name + ".new")
        with refused_as("append ring not made", why="", path=path):
            fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            # With its blocks: a write to a map without them is a SIGBUS when the disk is full.
            os.posix_fallocate(fd, 0, _DATA + size)
            ring = cls(mmap.mmap(fd, _DATA + size))
        except OSError as error:
            fresh.unlink()
            raise StorageError(
                f"append ring not made: {error.strerror}",
                errno=error.errno,
                path=str(path),
                size=_DATA + size,
                setting="listen.runtime_dir",
            ) from error
        finally:
            os.close(fd)
        ring._cells[1] = size
        ring._cells[0] = _MAGIC
        fresh.rename(path)
        return ring

    @classmethod
    def attach(cls, path: Path) -> Self:
        """The ring that raft made; the next record is the first that was not released.

        Raises:
            StaleGenerationError: there is none.
        """
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise StaleGenerationError("no append ring", path=str(path)) from error
        try:
            ring = cls(mmap.mmap(fd, 0))
        finally:
            os.close(fd)
        if ring._cells[0] != _MAGIC or ring._cells[1] != ring.size:
            raise StaleGenerationError("not an append ring of this version", path=str(path))
        return ring

    def put(self, content: RingContent, *parts: bytes | bytearray | memoryview) -> bool:
        """Copy a record in; false when there is no room until the writer has released some.

        Args:
            parts: its data.
        """
        size = 0
        for part in parts:
            size += len(part)
        whole = _whole(size)
        assert whole <= self.size, size
        head, tail = self._cells[2], self._cells[3]
        offset = head % self.size
        is_warm = offset < min(WARM_SIZE, self.size // 4)
        starts_over = head == tail and not is_warm and whole <= offset
        skipped = self.size - offset if starts_over or offset + whole > self.size else 0
        if head + skipped + whole > tail + self.size:
            return False
        if skipped:
            _HEADER.pack_into(self._data, offset, 0, 0, 0, 0, 0, 0, 0, 0)
            offset = 0
        zeros = _ZEROS[len(content) :]
        _HEADER.pack_into(self._data, offset, _KINDS[type(content)], size, *content, *zeros)
        at = offset + _ALIGN
        for part in parts:
            self._data[at : at + len(part)] = part
            at += len(part)
        # Behind the bytes: from now on the writer may take them.
        self._cells[2] = head + skipped + whole
        return True

    def take(self) -> RingRecord | None:
        """The next record, None when all were taken.

        Raises:
            ProtocolError: what stands in the ring is no record.
        """
        while self.taken != self._cells[2]:
            offset = self.taken % self.size
            kind, size, *numbers = _HEADER.unpack_from(self._data, offset)
            if kind == 0:
                self.taken += self.size - offset
                continue
            whole = _whole(size)
            if offset + whole > self.size:
                raise ProtocolError("record outside the append ring", offset=offset, size=size)
            content = _TYPES.get(kind)
            if content is None:
                raise ProtocolError("unknown record in the append ring", offset=offset, kind=kind)
            self.taken += whole
            at = offset + _ALIGN
            fields = content(*numbers[: len(content._fields)])
            return RingRecord(fields, self._data[at : at + size], self.taken)
        return None

    def release(self, record: RingRecord) -> None:
        """Give the room of ``record``, and of all before it, back to raft."""
        record.data.release()
        self._cells[3] = record.head

    def close(self) -> None:
        """Unmap; records that were taken must have been released."""
        self.head.release()
        self._cells.release()
        self._data.release()
        self._map.close()


def _whole(size: int) -> int:
    """Bytes of a record with ``size`` bytes of content."""
    return _ALIGN + -(-size // _ALIGN) * _ALIGN
