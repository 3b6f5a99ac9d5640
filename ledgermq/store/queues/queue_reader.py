"""Reader of one ConsumeQueue: its units, by offset and by time.

The files may be those of a running node. What counts is the caller's ``log_end``: a unit that
points at or beyond it is not there yet. Units of a queue point to ascending positions, a unit of
zeros ends them, and prefill units, (0, 0x7FFFFFFF, 0), may stand before the first one.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path
from struct import Struct

import numpy as np

from ledgermq.formats.arrays import UNIT, Units
from ledgermq.model.errors import CorruptLogError, StorageError
from ledgermq.store.files.mapped_files import MappedFiles, VanishedError
from ledgermq.store.queues.queue_end import CHUNK_UNITS, PREFILL_SIZE

_POSITION_AND_SIZE = Struct(">qi")

StoreTimeOf = Callable[[int, int], int]
"""Store time of the message at a position and of a size, epoch ms; negative if unreadable."""


class QueueReader:
    """The units of the queue in ``directory``, which need not exist yet.

    Invariants: ``0 <= min <= max``; every unit in between is that of a message.
    """

    def __init__(
        self, directory: Path, *, file_size: int | None, unit: np.dtype[np.void] = UNIT
    ) -> None:
        """Look at the queue's files; no unit is read yet.

        Args:
            file_size: what the settings say, None to take the size that the files have.
            unit: what they are arrays of; in a queue of batches all offsets are numbers of units.

        Raises:
            CorruptLogError: a stray file, another size, a gap; names file, size and expected.
        """
        self._unit_type, self._unit_size = unit, unit.itemsize
        # What is given may be what a damaged store seemed to have.
        self.files = MappedFiles(directory, file_size=file_size)
        if self.files.file_size % self._unit_size:
            raise CorruptLogError(
                "queue file does not hold whole units",
                file=str(self.files.path(self.files.first)),
                size=self.files.file_size,
                expected=f"a multiple of {self._unit_size}",
            )
        self._known = False
        self._min = 0
        self._max = 0
        self._log_first = 0
        self._log_end = 0

    def bounds(self, log_end: int, *, log_first: int = 0) -> tuple[int, int]:
        """Queue offsets of the first message and behind the last one; equal when there is none.

        Cheap when called again: it looks on from where it was.

        Args:
            log_end: first position past what may be read of the log.
            log_first: first position that the log still has.
        """
        while True:
            try:
                return self._bounds(log_end, log_first)
            except VanishedError:
                # The oldest files are deleted while we look. What vanished is listed no more.
                if not self.files.refresh():
                    raise

    def _bounds(self, log_end: int, log_first: int) -> tuple[int, int]:
        if not self.files.starts and self._known:
            self.forget()
        if self._known and log_end < self._log_end:
            self.forget()
        if not self._known:
            self._max = self._begin(log_end)
        self._log_end = log_end
        self._look_on(log_end)
        if not self._known or log_first != self._log_first or self._min < self._file_first:
            self._min = self._find_min(log_first)
            self._log_first = log_first
        self._known = self._max > self._min
        return self._min, self._max

    def units(self, first: int, count: int) -> Units:
        """The units from queue offset ``first`` on, ``count`` of them or as many as there are.

        They end where ``bounds`` said last. Within one file they are a view of its map, else a
        copy.

        Raises:
            VanishedError: a file was deleted since ``bounds``.
        """
        assert first >= 0, first
        parts = self._parts(first, min(first + count, self._max))
        if len(parts) == 1:
            return parts[0]
        # Not np.concatenate: it gives them the host's byte order.
        octets = b"".join(part.data for part in parts)
        return np.frombuffer(octets, self._unit_type) if parts else np.empty(0, self._unit_type)

    def next_file(self, offset: int) -> int:
        """First queue offset of the file behind the one of ``offset`` (``rollNextFile``)."""
        return offset + self._per_file - offset % self._per_file

    def refresh(self) -> bool:
        """Look which files were created or deleted; whether any was."""
        return self.files.refresh()

    def forget(self) -> None:
        """Begin anew: the log was cut, and units that were seen may be others now."""
        self._known = False
        self._min = self._max = self._log_first = self._log_end = 0
        self.files.refresh()

    def close(self) -> None:
        """Let go of the maps; units that are held stay valid."""
        self.files.close()

    def offset_by_time(self, timestamp: int, store_time_of: StoreTimeOf, log_first: int) -> int:
        """The queue offset for a time: of a message of exactly that time, or of the nearer one of
        its two neighbours in time, the older one at a tie.

        As ``ConsumeQueue.getOffsetInQueueByTime`` finds it: in the first file that was changed at
        ``timestamp`` or later, else in the last one. Where that one's neighbours show that it is
        the wrong one it is looked for among all messages, which Java does not do: the files of a
        queue that was built again, restored or repaired were all changed just now. A message that
        cannot be read makes it 0, as there. ``bounds`` goes first.

        Args:
            timestamp: epoch ms.
            store_time_of: looks into the log.
            log_first: first position that the log still has; older units count as too old.
        """
        if self._max == self._min:
            return 0

        def time_at(offset: int) -> int | None:
            position, size = self._unit(offset)
            return None if position < log_first else store_time_of(position, size)

        start = self._changed_since(timestamp)
        low, high = max(self._min, start), min(self._max, start + self._per_file) - 1
        found, is_exact = _nearest(timestamp, time_at, low, high)
        if is_exact:
            return found
        before = time_at(low - 1) if low > self._min else None
        after = time_at(high + 1) if high < self._max - 1 else None
        if (before is not None and before >= timestamp) or (
            after is not None and after <= timestamp
        ):
            found, _ = _nearest(timestamp, time_at, self._min, self._max - 1)
        return found

    @property
    def _per_file(self) -> int:
        return self.files.file_size // self._unit_size

    @property
    def _file_first(self) -> int:
        return self.files.first // self._unit_size

    @property
    def _file_end(self) -> int:
        return self.files.end // self._unit_size

    def _unit(self, offset: int) -> tuple[int, int]:
        position, size = _POSITION_AND_SIZE.unpack(
            self.files.view(offset * self._unit_size, _POSITION_AND_SIZE.size)
        )
        return position, size

    def _begin(self, log_end: int) -> int:
        """First queue offset of the last file that begins with a visible unit."""
        for start in reversed(self.files.starts):
            unit = self.files.read(start, _POSITION_AND_SIZE.size)
            position, size = _POSITION_AND_SIZE.unpack(unit)
            if _is_visible(position, size, log_end):
                return start // self._unit_size
        return self._file_first

    def _look_on(self, log_end: int) -> None:
        """Move ``max`` behind the last visible unit."""
        step = mmap.PAGESIZE // self._unit_size
        while True:
            if self._max >= self._file_end and not (
                self.files.refresh() and self._max < self._file_end
            ):
                return
            self._max = max(self._max, self._file_first)
            count = self._mapped_count(self._max)
            if count:
                # Mostly nothing is new, and one unit says so.
                if not _is_visible(*self._unit(self._max), log_end):
                    return
                chunk = self._array(self._max, count)
            else:
                count = min(step, self.files.room(self._max * self._unit_size) // self._unit_size)
                chunk = np.frombuffer(
                    self.files.read(self._max * self._unit_size, count * self._unit_size),
                    self._unit_type,
                )
                step = CHUNK_UNITS
            hidden = (chunk["size"] <= 0) | (chunk["position"] < 0)
            hidden |= chunk["position"] >= log_end
            ends = np.flatnonzero(hidden)
            if len(ends) and not ends[0]:
                return
            self._max += int(ends[0]) if len(ends) else count

    def _mapped_count(self, offset: int) -> int:
        """How many units from ``offset`` on, where the known ones end, the map may be asked for.

        What was never written is a hole, which is read past the map (``MappedFiles.read``): up to
        the end of the page that has the last known unit there is none.
        """
        begin = self.files.file_size - self.files.room(offset * self._unit_size)
        page_end = min(-(-begin // mmap.PAGESIZE) * mmap.PAGESIZE, self.files.file_size)
        return (page_end - begin) // self._unit_size

    def _find_min(self, log_first: int) -> int:
        """First queue offset of a message that the log still has; ``max`` without one."""
        low, high = self._file_first, self._max
        while low < high:
            middle = (low + high) // 2
            position, size = self._unit(middle)
            if size == PREFILL_SIZE or position < log_first:
                low = middle + 1
            else:
                high = middle
        return low

    def _parts(self, first: int, end: int) -> list[Units]:
        parts = []
        while first < end:
            count = min(end - first, self.files.room(first * self._unit_size) // self._unit_size)
            parts.append(self._array(first, count))
            first += count
        return parts

    def _array(self, first: int, count: int) -> Units:
        view = self.files.view(first * self._unit_size, count * self._unit_size)
        return np.frombuffer(view, self._unit_type)

    def _changed_since(self, timestamp: int) -> int:
        """First queue offset of the first file changed at ``timestamp`` or later, else the last."""
        last = (self._max - 1) * self._unit_size
        for start in self.files.starts:
            if start + self.files.file_size > last:
                return start // self._unit_size
            path = self.files.path(start)
            try:
                changed = path.stat().st_mtime_ns // 1_000_000
            except FileNotFoundError:
                # Retention was faster.
                continue
            except OSError as error:
                raise StorageError.of(
                    "queue file not looked at", error, why="", file=path
                ) from error
            if changed >= timestamp:
                return start // self._unit_size
        raise AssertionError("a queue with units has a last file")


def _nearest(
    timestamp: int, time_at: Callable[[int], int | None], low: int, high: int
) -> tuple[int, bool]:
    """The offset from ``low`` to ``high`` for a time, and whether it is of exactly that time.

    Args:
        time_at: store time at an offset: None is older than any, below 0 makes the answer 0.
    """
    left = right = -1
    left_time = right_time = -1
    while low <= high:
        middle = (low + high) // 2
        time = time_at(middle)
        if time is None:
            left, low = middle, middle + 1
            continue
        if time < 0:
            return 0, False
        if time == timestamp:
            return middle, True
        if time > timestamp:
            right, right_time, high = middle, time, middle - 1
        else:
            left, left_time, low = middle, time, middle + 1
    if left_time == -1:
        return max(right, 0), False
    if right_time == -1:
        return left, False
    return (right if timestamp - left_time > right_time - timestamp else left), False


def _is_visible(position: int, size: int, log_end: int) -> bool:
    return size > 0 and 0 <= position < log_end
