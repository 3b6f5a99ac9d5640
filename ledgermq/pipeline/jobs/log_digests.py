"""Digests of stretches of several replicas' logs, and the stretches that differ.

All replicas of a group have the same bytes at the same positions. The log is divided at a grid, at
the edges of files, and where a replica's log begins and ends, so that a stretch is whole on a
replica or not there at all. Digests are CRC-32: they find accidents.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.model.errors import StorageError
from ledgermq.store.log_family import LogFile
from ledgermq.store.store_directory import log_in, names_in

GRID_MIN = 1 << 20
CELLS_MAX = 1 << 16
FINE_GRID = 4_096


class StretchState(StrEnum):
    """What a replica has at a stretch of the log.

    DELETED: nothing any more, by its retention.
    MISSING: nothing, and others have something.
    DIVERGENT: other bytes than most, or than one that is whole.
    """

    GOOD = "good"
    DELETED = "deleted"
    MISSING = "missing"
    DIVERGENT = "divergent"


class LogRange(NamedTuple):
    """Positions ``[first, end)``, and what a replica has there."""

    first: int
    end: int
    state: StretchState


@dataclass(frozen=True)
class ReplicaLog:
    """A replica's log files, and the positions of its records, half-open."""

    files: tuple[LogFile, ...]
    first: int
    end: int


@dataclass(frozen=True)
class DigestTask:
    """Stretches of one replica's log, ascending; none goes beyond the end of a file."""

    replica: int
    files: tuple[LogFile, ...]
    cells: tuple[tuple[int, int], ...]


def log_files(root: Path, *, self_id: str | None) -> tuple[LogFile, ...]:
    """The files of the log in ``root``, plain ones first.

    Raises:
        ConfigError: several DLedger logs.
        StorageError: they cannot be listed.
    """
    return tuple(sorted(log_in(root, names_in(root), self_id).files()))


def grid_size(first: int, end: int) -> int:
    """Bytes of a stretch: a power of two, so large that there are not too many."""
    grid = GRID_MIN
    while (end - first) // grid > CELLS_MAX:
        grid *= 2
    return grid


def cells_between(
    logs: Sequence[ReplicaLog], first: int, end: int, *, grid: int
) -> list[tuple[int, int]]:
    """``[first, end)`` divided."""
    edges = {first, end, *range(first - first % grid + grid, end, grid)}
    for log in logs:
        edges |= {log.first, log.end}
        edges |= {edge for file in log.files for edge in (file.start, file.start + file.size)}
    return list(pairwise(sorted(edge for edge in edges if first <= edge <= end)))


def digest_tasks(
    logs: Sequence[ReplicaLog], cells: Sequence[tuple[int, int]], *, split_bytes: int
) -> list[DigestTask]:
    """What of ``cells`` each replica has, in tasks of about ``split_bytes``."""
    tasks: list[DigestTask] = []
    for number, log in enumerate(logs):
        chosen: list[tuple[int, int]] = []
        size = 0
        for cell in [cell for cell in cells if log.first <= cell[0] and cell[1] <= log.end]:
            chosen.append(cell)
            size += cell[1] - cell[0]
            if size >= split_bytes:
                tasks.append(_digest_task(number, log, chosen))
                chosen, size = [], 0
        if chosen:
            tasks.append(_digest_task(number, log, chosen))
    return tasks


def _digest_task(number: int, log: ReplicaLog, cells: list[tuple[int, int]]) -> DigestTask:
    """A task takes no more along than the files of its cells: a log may have 100,000 of them."""
    first = max(0, bisect_right(log.files, cells[0][0], key=_start) - 1)
    end = bisect_right(log.files, cells[-1][0], key=_start)
    return DigestTask(number, log.files[first:end], tuple(cells))


def _start(file: LogFile) -> int:
    return file.start


def digests_of(task: DigestTask) -> list[int | None]:
    """The digest of each stretch; None where the file is not there, or is too short.

    Raises:
        StorageError: a file cannot be read.
    """
    found: list[int | None] = []
    opened: LogFile | None = None
    view = memoryview(b"")
    for first, end in task.cells:
        if opened is None or not opened.start <= first < opened.start + opened.size:
            opened = _file_at(task.files, first)
            view = memoryview(b"") if opened is None else _mapped(opened)
        if opened is None or end - opened.start > len(view):
            found.append(None)
            continue
        found.append(crc32(view[first - opened.start : end - opened.start], 0))
    return found


def compare(
    logs: Sequence[ReplicaLog],
    cells: Sequence[tuple[int, int]],
    tasks: Sequence[DigestTask],
    digests: Sequence[Sequence[int | None]],
    suspects: Sequence[frozenset[int]],
) -> list[list[StretchState]]:
    """What each replica has at each of ``cells``.

    Where most agree, the others are divergent. Where they do not, those are that have damage of
    their own there; where nobody has, all are.

    Args:
        suspects: positions at which each replica has found damage of its own.
    """
    known: list[dict[tuple[int, int], int | None]] = [{} for _ in logs]
    for task, found in zip(tasks, digests, strict=True):
        known[task.replica].update(zip(task.cells, found, strict=True))
    states: list[list[StretchState]] = [[] for _ in logs]
    for cell in cells:
        values = {
            number: value
            for number, replica in enumerate(known)
            if (value := replica.get(cell)) is not None
        }
        wrong = _divergent(values, cell, suspects)
        for number, log in enumerate(logs):
            if number in values:
                state = StretchState.DIVERGENT if number in wrong else StretchState.GOOD
            else:
                state = StretchState.DELETED if cell[1] <= log.first else StretchState.MISSING
            states[number].append(state)
    return states


def joined(cells: Sequence[tuple[int, int]], states: Iterable[StretchState]) -> list[LogRange]:
    """Neighbours of one state as one range."""
    ranges: list[LogRange] = []
    for (first, end), state in zip(cells, states, strict=True):
        if ranges and ranges[-1].state is state and ranges[-1].end == first:
            ranges[-1] = ranges[-1]._replace(end=end)
        else:
            ranges.append(LogRange(first, end, state))
    return ranges


def _divergent(
    values: dict[int, int], cell: tuple[int, int], suspects: Sequence[frozenset[int]]
) -> set[int]:
    counts = Counter(values.values()).most_common()
    if len(counts) < 2:
        return set()
    if 2 * counts[0][1] > len(values):
        return {number for number, value in values.items() if value != counts[0][0]}
    damaged = {
        number for number in values if any(cell[0] <= at < cell[1] for at in suspects[number])
    }
    left = {value for number, value in values.items() if number not in damaged}
    return damaged if damaged and len(left) == 1 else set(values)


def _file_at(files: Sequence[LogFile], position: int) -> LogFile | None:
    for file in files:
        if file.start <= position < file.start + file.size:
            return file
    return None


def _mapped(file: LogFile) -> memoryview:
    try:
        fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        # Deleted since, for its age.
        return memoryview(b"")
    except OSError as error:
        raise StorageError.of("log file not read", error, why="", file=file.path) from error
    try:
        return memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        raise StorageError("log file not mapped", file=str(file.path), reason=str(error)) from error
    finally:
        os.close(fd)
