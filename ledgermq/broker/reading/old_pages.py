"""Cold reads: old messages read without displacing the page cache.

What the kernel reads from the disk for a consumer that is far behind would push out what all others
need: the newest messages. So the log is looked after in blocks. A block that is mostly not in the
page cache when a reader comes to it is a *cold* one: the kernel is told to fetch it and the block
behind it ahead of time, and to drop it when the reader, or others like it, have gone on. A block
that is in the page cache is left alone, whoever put it there.

``mincore`` tells what is in the page cache. A page is dropped in two steps: it must not be mapped
by us any more (``MADV_DONTNEED``), and then ``POSIX_FADV_DONTNEED`` takes it out of the cache.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ledgermq.store.log_view import LogView

HOT_TAIL_SIZE = 64 * 1024 * 1024
"""Bytes before the end of the log that are never dropped: everybody reads them."""

BLOCK_SIZE = 4 * 1024 * 1024

_COLD_SHARE_DIVISOR = 2
"""Cold is a block of which less than half is in the page cache."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


class _Block(NamedTuple):
    """A part of a file of the log; ``begin`` counts from the position ``start`` of its file."""

    path: Path
    start: int
    begin: int
    size: int


class OldReadPace:
    """Spreads what is read of cold blocks over time.

    Invariant: from any moment on, no more is let through than ``rate`` times the time, and what
    ``BURST_NS`` and one answer are worth.
    """

    BURST_NS = 100_000_000

    def __init__(self, rate: int) -> None:
        """A pace of ``rate`` bytes a second."""
        assert rate > 0, rate
        self._rate = rate
        self._free_ns = 0

    def spend(self, size: int, now_ns: int) -> None:
        """Count bytes that are read now."""
        begin_ns = max(self._free_ns, now_ns - self.BURST_NS)
        self._free_ns = begin_ns + size * 1_000_000_000 // self._rate

    def wait_ms(self, now_ns: int) -> int:
        """How long the next read has to wait; 0 when it may begin."""
        return max(0, -(-(self._free_ns - now_ns) // 1_000_000))


class OldPages:
    """Blocks of the log that were fetched for readers of old messages.

    Invariant: no more than ``cache_size`` bytes of blocks are kept, the latest used ones.

    Attributes:
        fetched_size: bytes of cold blocks since the process began.
    """

    def __init__(self, log: LogView, cache_size: int) -> None:
        self.fetched_size = 0
        self._log = log
        self._blocks_max = max(2, cache_size // BLOCK_SIZE)
        self._cold: OrderedDict[int, _Block] = OrderedDict()
        self._warm: OrderedDict[int, None] = OrderedDict()

    @property
    def kept_size(self) -> int:
        """Bytes of the cold blocks that are kept now."""
        return sum(block.size for block in self._cold.values())

    def touch(self, first: int, end: int) -> bool:
        """A reader is about to read positions ``first`` to ``end``, in one file of the log.

        True when that begins in a cold block.
        """
        for number in range(first // BLOCK_SIZE, (end - 1) // BLOCK_SIZE + 1):
            self._touch(number, first)
        return first // BLOCK_SIZE in self._cold

    def give_back_all(self) -> None:
        """Drop all blocks that were fetched."""
        while self._cold:
            self._drop(next(iter(self._cold)))
        self._warm.clear()

    def _touch(self, number: int, first: int) -> None:
        if number in self._warm:
            return
        if number in self._cold:
            self._cold.move_to_end(number)
        elif not self._look(number, first):
            return
        # The kernel reads the next one while this one is sent. It has to be looked at first: the
        # kernel reads ahead by itself, too, and that is not to pass for having been there.
        following = number + 1
        if following not in self._cold and following not in self._warm:
            self._look(following, following * BLOCK_SIZE)
        while len(self._cold) > self._blocks_max:
            self._drop(next(iter(self._cold)))
        while len(self._warm) > self._blocks_max:
            self._warm.popitem(last=False)

    def _look(self, number: int, position: int) -> bool:
        """Whether a block is cold; if so it is being fetched from now on."""
        file = self._log.file_of(position)
        if file is None:
            return False
        # Blocks are counted by position, pages by the offset in the file.
        begin = max(0, number * BLOCK_SIZE - file.start)
        begin -= begin % mmap.PAGESIZE
        end = min(len(file.view), (number + 1) * BLOCK_SIZE - file.start)
        pages = -(-(end - begin) // mmap.PAGESIZE)
        if resident_pages(file.view[begin:end]) * _COLD_SHARE_DIVISOR >= pages:
            self._warm[number] = None
            return False
        self._cold[number] = _Block(file.path, file.start, begin, end - begin)
        self.fetched_size += end - begin
        self._log.advise(file.start + begin, end - begin, mmap.MADV_WILLNEED)
        return True

    def _drop(self, number: int) -> None:
        path, start, begin, size = self._cold.pop(number)
        self._log.advise(start + begin, size, mmap.MADV_DONTNEED)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            # Deleted since, and its pages with it.
            return
        try:
            os.posix_fadvise(descriptor, begin, size, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def resident_pages(view: memoryview) -> int:
    """How many pages of ``view``, part of a map that begins on a page's border, are in memory.

    A kernel that does not tell says that all are.
    """
    content = np.frombuffer(view, np.uint8)
    pages = -(-len(content) // mmap.PAGESIZE)
    told = np.ones(pages, np.uint8)
    status = _LIBC.mincore(content.ctypes.data, len(content), told.ctypes.data)
    if status != 0:
        return pages
    return int((told & 1).sum())
