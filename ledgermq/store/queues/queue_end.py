"""End of one ConsumeQueue: found in its files at a start, and cut back when the log was.

The files of a queue are named by the byte at which they begin (20 digits), stand side by side
without a gap, and are arrays of 20-byte units; a unit of zeros ends the queue. A queue whose first
message is not number 0 begins with prefill units (0, 0x7FFFFFFF, 0).

Queues of batches are the same with units of 46 bytes, each of which has a number of messages: what
is counted here are units.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from ledgermq.formats.arrays import BATCH_UNIT, UNIT, Units
from ledgermq.model.errors import CorruptLogError, StorageError
from ledgermq.store.files.file_names import is_position_name

PREFILL_SIZE = 0x7FFF_FFFF
CHUNK_UNITS = 3_276
"""Units read at once when the end is looked for: most queues end within the first 64 KiB."""

RECOVERED_FILES = 3
"""Files from the end of which Java expects damage (``ConsumeQueue.recover``)."""


@dataclass(slots=True)
class QueueEnd:
    """End of one queue.

    Invariants: ``first <= end``; ``log_end`` is -1 exactly when the queue has no unit of a message,
    and then ``first == end == 0`` and there is no file.

    Attributes:
        first: number of the first slot of the first file.
        end: number behind that of the last unit; the queue offset, but in queues of batches.
        log_end: position behind the message of the last unit.
        unit: what the files are arrays of.
        file_size: bytes of a file.
        numbers_end: of a queue of batches, the queue offset behind the last message.
    """

    directory: str
    first: int = 0
    end: int = 0
    log_end: int = -1
    unit: np.dtype[np.void] = field(default=UNIT, repr=False)
    file_size: int = field(default=0, repr=False, compare=False)
    numbers_end: int = 0
    _path: str = field(default="", repr=False, compare=False)
    _path_start: int = field(default=-1, repr=False, compare=False)

    @property
    def empty(self) -> bool:
        """Whether no message was ever put."""
        return self.log_end < 0

    @property
    def units_per_file(self) -> int:
        """How many units a file has."""
        return self.file_size // self.unit.itemsize

    @property
    def is_of_batches(self) -> bool:
        """Whether a unit has several messages."""
        return self.unit is BATCH_UNIT

    @property
    def next_offset(self) -> int:
        """Queue offset of the next message."""
        return self.numbers_end if self.is_of_batches else self.end

    def end_with(self, end: int, units: Units) -> None:
        """Let it end behind the last one of ``units``, whose number is the one before ``end``."""
        self.end = end
        self.log_end = int(units["position"][-1]) + int(units["size"][-1])
        if self.is_of_batches:
            self.numbers_end = int(units["base"][-1]) + int(units["count"][-1])

    def clear(self) -> None:
        """Let it have no unit."""
        self.first = self.end = self.numbers_end = 0
        self.log_end = -1

    def path_of(self, start: int) -> str:
        """Path of the file that begins at byte ``start`` of the queue."""
        if start != self._path_start:
            # Kept: one object is the key of open and of dirty files, message by message.
            self._path, self._path_start = f"{self.directory}/{start:020d}", start
        return self._path


def file_starts(directory: Path, file_size: int, *, foreign: list[Path] | None = None) -> list[int]:
    """First bytes of the queue's files, ascending.

    A file that was created and not yet extended is extended, as it would have been.

    Args:
        foreign: gets the paths of what is no file of a queue.

    Raises:
        CorruptLogError: a file of another size, or a gap between files.
    """
    starts: list[int] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if not is_position_name(entry.name):
                if foreign is not None:
                    foreign.append(Path(entry.path))
                continue
            size = entry.stat().st_size
            if size == 0:
                os.truncate(entry.path, file_size)
            elif size != file_size:
                raise CorruptLogError(
                    "queue file of another size than mapped_file_size_consume_queue",
                    file=entry.path,
                    size=size,
                    expected=file_size,
                )
            starts.append(int(entry.name))
    starts.sort()
    for before, after in pairwise(starts):
        if after - before != file_size:
            raise CorruptLogError(
                "gap between queue files", directory=str(directory), before=before, after=after
            )
    return starts


def find_end(
    directory: Path,
    file_size: int,
    *,
    whole_below: int | None,
    foreign: list[Path] | None = None,
    unit: np.dtype[np.void] = UNIT,
) -> QueueEnd:
    """The end of the queue in ``directory``, by its units.

    Args:
        whole_below: after a power failure, which may have left holes: units of messages below this
            position are known to be on disk, so the search begins at the last file that starts with
            such a unit, else three files from the end. None where there can be no hole: then the
            end is found by bisection.
        foreign: see ``file_starts``.
        unit: what the files are arrays of.

    Raises:
        CorruptLogError: a file of another size, or a gap between files.
        StorageError: a file cannot be read.
    """
    queue = QueueEnd(str(directory), unit=unit, file_size=file_size)
    starts = file_starts(directory, file_size, foreign=foreign)
    if not starts:
        return queue
    units_per_file = file_size // unit.itemsize
    if whole_below is None:
        return _bisected(queue, starts, units_per_file)
    # In a file before the first scanned one all units are there.
    scanned = max(0, len(starts) - RECOVERED_FILES)
    for number in range(len(starts) - 1, scanned, -1):
        head = read_units(queue.path_of(starts[number]), 0, 1, unit)
        if head["size"][0] > 0 and head["position"][0] < whole_below:
            scanned = number
            break
    end = starts[scanned] // unit.itemsize
    last: Units | None = None
    for start in starts[scanned:]:
        used, tail = _used_units(queue.path_of(start), units_per_file, unit)
        last = tail if used else last
        end = start // unit.itemsize + used
        if used < units_per_file:
            break
    if last is None and scanned > 0:
        last = read_units(queue.path_of(starts[scanned - 1]), units_per_file - 1, 1, unit)
    if last is None or last["size"][0] == PREFILL_SIZE:
        return queue
    queue.first = starts[0] // unit.itemsize
    queue.end_with(end, last)
    return queue


def _bisected(queue: QueueEnd, starts: list[int], units_per_file: int) -> QueueEnd:
    """The end that ``find_end`` finds, where there can be no hole: single units are read, not
    files.
    """
    for start in reversed(starts):
        used, last = _used_by_bisection(queue.path_of(start), units_per_file, queue.unit)
        if last is None:
            continue
        if last["size"][0] != PREFILL_SIZE:
            queue.first = starts[0] // queue.unit.itemsize
            queue.end_with(start // queue.unit.itemsize + used, last)
        break
    return queue


def _used_by_bisection(
    path: str, units_per_file: int, kind: np.dtype[np.void]
) -> tuple[int, Units | None]:
    """How many units of a file are used, and the last of them; none stands behind an unused one."""
    used, unused = 0, units_per_file
    last: Units | None = None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Each read is far from the one before, and the rest of a block is of no use.
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
            while used < unused:
                middle = (used + unused) // 2
                unit = np.frombuffer(os.pread(fd, kind.itemsize, middle * kind.itemsize), kind)
                if unit["size"][0] > 0 and unit["position"][0] >= 0:
                    used, last = middle + 1, unit
                else:
                    unused = middle
        finally:
            os.close(fd)
    except OSError as error:
        raise StorageError.of("queue file not read", error, why="", file=path) from error
    return used, last


def count_below(path: str, used: int, position: int, unit: np.dtype[np.void] = UNIT) -> int:
    """How many of the first ``used`` units of a file are of messages below ``position``."""
    low, high = 0, used
    while low < high:
        middle = (low + high) // 2
        if int(read_units(path, middle, 1, unit)["position"][0]) < position:
            low = middle + 1
        else:
            high = middle
    return low


def end_below(directory: Path, file_size: int, log_end: int, unit: np.dtype[np.void] = UNIT) -> int:
    """Queue offset behind the last message before ``log_end``; 0 without a queue.

    Raises:
        CorruptLogError: a file of another size or name, or a gap between files.
        StorageError: a file cannot be read.
    """
    if not directory.is_dir():
        return 0
    end = find_end(directory, file_size, whole_below=None, unit=unit)
    if end.log_end <= log_end:
        return end.next_offset
    for start in reversed(file_starts(directory, file_size)):
        used = min(end.end - start // unit.itemsize, file_size // unit.itemsize)
        if used <= 0:
            continue
        kept = count_below(end.path_of(start), used, log_end, unit)
        if kept:
            last = read_units(end.path_of(start), kept - 1, 1, unit)
            end.end_with(start // unit.itemsize + kept, last)
            return end.next_offset
    return 0


def read_units(path: str, first: int, count: int, unit: np.dtype[np.void] = UNIT) -> Units:
    """Up to ``count`` units of a file, a copy.

    Raises:
        StorageError: the file cannot be read.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            data = os.pread(file.fileno(), count * unit.itemsize, first * unit.itemsize)
    except OSError as error:
        raise StorageError.of("queue file not read", error, why="", file=path) from error
    return np.frombuffer(data, unit)


def _used_units(
    path: str, units_per_file: int, unit: np.dtype[np.void]
) -> tuple[int, Units | None]:
    """Units before the first invalid one, and the last of them."""
    used = 0
    last: Units | None = None
    while used < units_per_file:
        chunk = read_units(path, used, min(CHUNK_UNITS, units_per_file - used), unit)
        invalid = np.flatnonzero((chunk["size"] <= 0) | (chunk["position"] < 0))
        count = int(invalid[0]) if len(invalid) else len(chunk)
        if count:
            last = chunk[count - 1 : count]
        used += count
        if len(invalid):
            break
    return used, last
