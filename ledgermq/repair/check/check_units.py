"""Check of queue units against the messages of one log file, each at its place."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ledgermq.formats.arrays import UNIT, Units
from ledgermq.formats.java_hash import HASH_MIN
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.store.queues.dispatch_tables import QueueBlock

UNITS_HELD_MAX = 200_000
"""Units collected before they are compared: few large reads are better than many small ones."""


QueueKey = tuple[bytes, int]
Offsets = npt.NDArray[np.int64]


class WrongUnits(NamedTuple):
    """Units side by side that are not those of their messages.

    Attributes:
        offset: queue offset of the first one.
        units: how many.
        missing: whether nothing was put there at all.
        expected, found: position, size and tags code of the first one.
    """

    key: QueueKey
    offset: int
    units: int
    missing: bool
    expected: tuple[int, int, int]
    found: tuple[int, int, int]


class ComparedUnits(NamedTuple):
    """What one file's comparison came to.

    Attributes:
        matched: queue offsets whose units are right, by queue, as half-open ranges.
        wrong: those that are not.
    """

    matched: dict[QueueKey, list[tuple[int, int]]]
    wrong: list[WrongUnits]


class UnitComparison:
    """Compares the blocks that it is given with the queue files below ``root``."""

    def __init__(
        self, root: Path, *, file_size: int, required_end: int, has_extensions: bool
    ) -> None:
        """Nothing is read yet.

        Args:
            root: the folder ``consumequeue``.
            file_size: bytes of a queue file; 0 where there is none.
            required_end: messages from this position on need not have a unit yet.
            has_extensions: whether there is a ``consumequeue_ext``.
        """
        self._root = root
        self._file_size = file_size
        self._required_end = required_end
        self._has_extensions = has_extensions
        self._held: dict[QueueKey, list[tuple[Offsets, Units]]] = {}
        self._held_count = 0
        self._matched: dict[QueueKey, list[tuple[int, int]]] = {}
        self._wrong: list[WrongUnits] = []

    def add(self, block: QueueBlock) -> None:
        """Take the units that some messages of one queue must have."""
        key = (block.topic, block.queue_id)
        self._held.setdefault(key, []).append((block.queue_offsets.copy(), block.units))
        self._held_count += len(block.units)
        if self._held_count >= UNITS_HELD_MAX:
            self._compare_held()

    def finish(self) -> ComparedUnits:
        """Compare what is left; the outcome of all."""
        self._compare_held()
        return ComparedUnits(self._matched, self._wrong)

    def _compare_held(self) -> None:
        for key, blocks in self._held.items():
            offsets = np.concatenate([offsets for offsets, _ in blocks])
            # Numpy joins records field by field, and would give them the machine's byte order.
            units = np.frombuffer(b"".join(units.tobytes() for _, units in blocks), UNIT)
            starts = [0, *(np.flatnonzero(np.diff(offsets) != 1) + 1).tolist(), len(offsets)]
            for first, last in pairwise(starts):
                self._compare(key, int(offsets[first]), units[first:last])
        self._held = {}
        self._held_count = 0

    def _compare(self, key: QueueKey, first: int, units: Units) -> None:
        content = self._read(key, first, len(units))
        if content == units.tobytes():
            self._match(key, first, first + len(units))
            return
        found = np.frombuffer(content, UNIT)
        same = (found["position"] == units["position"]) & (found["size"] == units["size"])
        # Below all hashes are addresses of units in consumequeue_ext.
        is_address = (found["tags"] < HASH_MIN) & self._has_extensions
        same &= (found["tags"] == units["tags"]) | is_address
        missing = (found["position"] == 0) & (found["size"] == 0) & (found["tags"] == 0)
        due = units["position"] < self._required_end
        # 0: right, 1: missing, 2: wrong, 3: missing and not due
        kinds = np.where(same, 0, np.where(missing, np.where(due, 1, 3), 2))
        starts = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(kinds)]
        for begin, end in pairwise(starts):
            kind = int(kinds[begin])
            if kind == 0:
                self._match(key, first + begin, first + end)
            elif kind != 3:
                self._wrong.append(
                    WrongUnits(
                        key,
                        first + begin,
                        end - begin,
                        kind == 1,
                        units[begin].item(),
                        found[begin].item(),
                    )
                )

    def _match(self, key: QueueKey, first: int, end: int) -> None:
        ranges = self._matched.setdefault(key, [])
        if ranges and ranges[-1][1] == first:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((first, end))

    def _read(self, key: QueueKey, first: int, count: int) -> bytes:
        """``count`` units from ``first`` on, zeros where there is no file."""
        if not self._file_size or first < 0:
            return bytes(count * UNIT_SIZE)
        parts = []
        at, end = first * UNIT_SIZE, (first + count) * UNIT_SIZE
        folder = f"{self._root}/{os.fsdecode(key[0])}/{key[1]}"
        while at < end:
            start = at - at % self._file_size
            size = min(end, start + self._file_size) - at
            parts.append(_read_part(f"{folder}/{start:020d}", at - start, size))
            at += size
        return b"".join(parts)


def _read_part(path: str, at: int, size: int) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return bytes(size)
    try:
        return os.pread(fd, size, at).ljust(size, b"\0")
    finally:
        os.close(fd)
