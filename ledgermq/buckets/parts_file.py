"""Parts file: bytes that lie in several places of memory, read as a file that is sent."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate


class PartsFile(io.RawIOBase):
    """Reads parts one after the other, and again after a ``seek``; copies what is read alone."""

    def __init__(self, parts: Iterable[bytes | memoryview]) -> None:
        """The parts stay where they are, and must stay what they are until it is closed."""
        super().__init__()
        self._parts = [memoryview(part) for part in parts if len(part)]
        self._ends = list(accumulate(len(part) for part in self._parts))
        self._at = 0

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return self._ends[-1] if self._ends else 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next byte is read."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Read on elsewhere.

        Raises:
            ValueError: before the beginning.
        """
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        if begin + offset < 0:
            raise ValueError(f"no place before the beginning: {begin + offset}")
        self._at = begin + offset
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill ``buffer`` with what is left, over the borders of parts; the number of bytes, 0 at
        the end.
        """
        target = memoryview(buffer).cast("B")
        number, done = bisect_right(self._ends, self._at), 0
        while done < len(target) and number < len(self._parts):
            part, end = self._parts[number], self._ends[number]
            begin = self._at - (end - len(part))
            taken = part[begin : begin + len(target) - done]
            target[done : done + len(taken)] = taken
            done += len(taken)
            self._at += len(taken)
            number += self._at == end
        return done
