"""The append ring: entries on their way from raft to the writer, without a copy through a socket.

A mapped file in the runtime directory, one producer (raft), one consumer (writer), little-endian:

    offset  size  field           writer
    0       8     magic           raft
    8       8     size of the data area
    16      8     head: bytes put since creation, paddings included    raft
    24      8     tail: bytes released since creation                  writer
    64      …     data area

An entry lies in one piece: where it would cross the end of the area, the rest is skipped. The order
that announces it (``orders.PROPOSE``) carries its offset, its size and the head behind it; the
writer releases up to that head. Invariant: ``tail <= head <= tail + size``.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import NamedTuple, Self

from ledgermq.model.errors import ProtocolError, StaleGenerationError, StorageError

_MAGIC = 0x474E49525F514D4C
_DATA = 64
RING_SIZE = 8 * 1024 * 1024


class RingEntry(NamedTuple):
    """Where an entry lies in the ring, and the head behind it."""

    offset: int
    size: int
    head: int


class AppendRing:
    """One end of the ring; raft creates it, the writer attaches to it."""

    def __init__(self, map_: mmap.mmap) -> None:
        self._map = map_
        self._cells = memoryview(map_)[:_DATA].cast("q")
        self._data = memoryview(map_)[_DATA:]
        self.size = len(self._data)

    @classmethod
    def create(cls, path: Path, size: int = RING_SIZE) -> Self:
        """An empty ring at ``path``; one that was there before is replaced, not changed."""
        fresh = path.with_name(path.name + ".new")
        try:
            fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError("append ring not made", errno=error.errno, path=str(path)) from error
        try:
            os.ftruncate(fd, _DATA + size)
            ring = cls(mmap.mmap(fd, _DATA + size))
        finally:
            os.close(fd)
        ring._cells[1] = size
        ring._cells[0] = _MAGIC
        fresh.rename(path)
        return ring

    @classmethod
    def attach(cls, path: Path) -> Self:
        """The ring that raft made.

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

    def put(self, entry: bytes | memoryview) -> RingEntry | None:
        """Copy ``entry`` in; None when there is no room until the writer has released some."""
        size = len(entry)
        assert 0 < size <= self.size, size
        head, tail = self._cells[2], self._cells[3]
        offset = head % self.size
        skipped = self.size - offset if offset + size > self.size else 0
        if head + skipped + size > tail + self.size:
            return None
        if skipped:
            offset = 0
        self._data[offset : offset + size] = entry
        self._cells[2] = head + skipped + size
        return RingEntry(offset, size, head + skipped + size)

    def take(self, entry: RingEntry) -> memoryview:
        """The bytes of ``entry``, valid until it is released.

        Raises:
            ProtocolError: it lies outside the ring.
        """
        if not (entry.offset >= 0 and 0 < entry.size <= self.size - entry.offset):
            raise ProtocolError("entry outside the append ring", entry=entry, size=self.size)
        return self._data[entry.offset : entry.offset + entry.size]

    def release(self, entry: RingEntry) -> None:
        """Give the room of ``entry``, and of all before it, back to raft."""
        self._cells[3] = max(self._cells[3], entry.head)

    def close(self) -> None:
        """Unmap; views that were taken must be gone."""
        self._cells.release()
        self._data.release()
        self._map.close()
