"""Index files of a rebuild: from the keys of all parts of the log, one task a file.

A key's number in the log says into which file it goes, and the last key before a file is all that
its header takes over from the file before it. So each file is built without the others.
"""

from __future__ import annotations

import shutil
import uuid
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ledgermq.formats.index_file import IndexHeader, IndexLayout
from ledgermq.pipeline.jobs.derived_pieces import KEY, Piece, keys_path
from ledgermq.store.files.disk_space import storage_error
from ledgermq.store.index.index_files import IndexFiles, NewKeys, index_file_name

KEYS_AT_ONCE = 1 << 20

KeyRows = npt.NDArray[np.void]


@dataclass(frozen=True)
class IndexFileTask:
    """One file of the index.

    Attributes:
        slices: parts of the log with numbers of their keys, half-open, in order.
        follows: last key's store time and position before the file; None for the first file.
        trailing: position of a message behind all keys, for the file that only it opens.
    """

    staging: Path
    name: str
    layout: IndexLayout
    slices: tuple[tuple[int, int, int], ...]
    follows: tuple[int, int] | None
    trailing: int


def index_tasks(
    pieces: Sequence[Piece], staging: Path, layout: IndexLayout, *, now_ms: int
) -> list[IndexFileTask]:
    """The files into which the keys of ``pieces`` go, named for ``now_ms``."""
    room = layout.items - 1
    begins = list(accumulate((piece.keys for piece in pieces), initial=0))
    keys = begins[-1]
    last = max((piece.last for piece in pieces), default=-1)
    last_key = max((piece.last_key for piece in pieces), default=(-1, 0))
    # A full file is followed by an empty one as soon as a message follows.
    opens = keys % room == 0 and last > last_key[0]
    first_name = int(index_file_name(now_ms))
    tasks: list[IndexFileTask] = []
    for number in range(-(-keys // room) + opens):
        first = number * room
        tasks.append(
            IndexFileTask(
                staging,
                f"{first_name + number:017d}",
                layout,
                tuple(_slices(pieces, begins, first, min(first + room, keys))),
                _key_at(staging, pieces, begins, first - 1) if number else None,
                last,
            )
        )
    return tasks


def build_index_file(task: IndexFileTask) -> int:
    """Build one file; how many keys it has.

    Raises:
        StorageError: the operating system refused.
    """
    private = task.staging / f"index-{uuid.uuid4().hex}"
    follows = None
    if task.follows is not None:
        time, position = task.follows
        follows = IndexHeader(0, time, 0, position, 0, task.layout.items)
    files = IndexFiles(private, task.layout, aside=private, clock_ms=lambda: 0, follows=follows)
    count = 0
    try:
        for rows in _chunks(task):
            numbers = np.arange(len(rows), dtype=np.int32)
            columns = (rows["hash"].astype(np.int32), numbers)
            places = (rows["position"].astype(np.int64), rows["time"].astype(np.int64))
            count += files.put(NewKeys(*columns, *places), range(len(rows)))
        if not count:
            nothing = np.empty(0, np.int32)
            at = np.array([task.trailing], np.int64)
            files.put(NewKeys(nothing, nothing, at, at), range(1))
        (name,) = files.file_names
    finally:
        files.close()
    try:
        (task.staging / "index").mkdir(exist_ok=True)
        (private / name).replace(task.staging / "index" / task.name)
        shutil.rmtree(private)
    except OSError as error:
        raise storage_error("index file not put in place", error, file=task.name) from error
    return count


def _chunks(task: IndexFileTask) -> Iterator[KeyRows]:
    """The file's keys, some at once; keys of one message come together."""
    for number, first, end in task.slices:
        rows = np.memmap(keys_path(task.staging, number), KEY, "r")[first:end]
        at = 0
        while at < len(rows):
            until = min(at + KEYS_AT_ONCE, len(rows))
            position = rows["position"][until - 1]
            until = at + int(np.searchsorted(rows["position"][at:], position, side="right"))
            yield np.array(rows[at:until])
            at = until


def _slices(
    pieces: Sequence[Piece], begins: Sequence[int], first: int, end: int
) -> Iterator[tuple[int, int, int]]:
    """Where the keys ``[first, end)`` are; ``begins`` has each piece's first one, and the end."""
    at = bisect_right(begins, first) - 1
    while at < len(pieces) and begins[at] < end:
        low, high = max(first, begins[at]) - begins[at], min(end, begins[at + 1]) - begins[at]
        if low < high:
            yield pieces[at].number, low, high
        at += 1


def _key_at(
    staging: Path, pieces: Sequence[Piece], begins: Sequence[int], number: int
) -> tuple[int, int]:
    """Store time and position of the key with this number."""
    ((part, at, _),) = _slices(pieces, begins, number, number + 1)
    row = np.memmap(keys_path(staging, part), KEY, "r")[at]
    return int(row["time"]), int(row["position"])
