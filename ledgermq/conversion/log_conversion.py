"""Conversion of entries of a DLedger log into records of a plain CommitLog, in bulk.

A record is an entry's body, with another physical offset: entries lose their headers of 48 bytes,
our own entries on the system topic are left out, and what does not fit into a file goes to the
next. Queue offsets and all else that a message says of itself stay, but for one thing: a message
that ends a transaction names the position of its half message, which is translated.

Nothing here costs a Python object a record: columns are gathered and patched by numpy.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ledgermq.formats.arrays import ENTRY_ITEM, I64
from ledgermq.formats.dledger_entry import HEADER_SIZE as ENTRY_HEADER_SIZE
from ledgermq.formats.records.host_address import HOST_V4_SIZE, HOST_V6_SIZE
from ledgermq.formats.records.message import (
    BODY_SIZE_AT,
    BORN_HOST_V6,
    PHYSICAL_OFFSET_AT,
    STORE_HOST_V6,
    SYS_FLAG_AT,
)
from ledgermq.formats.store_markers import BLANK_SIZE, encode_blank
from ledgermq.model.config.settings import LogKind
from ledgermq.model.errors import CorruptLogError, refused_as
from ledgermq.model.ids import Position
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.store.files.append_files import AppendFiles

CHUNK_SIZE = 1024 * 1024
"""Bytes of the log that are converted at once: what is worked on stays in the cache."""

_PREPARED_AT = 76

_HEADER = np.arange(ENTRY_HEADER_SIZE, 0, -1)
_TOPIC = np.frombuffer(SYSTEM_TOPIC.encode(), np.uint8)

Bytes = npt.NDArray[np.uint8]


class Converted(NamedTuple):
    """What was done so far: records written, entries left out, and bytes of records."""

    records: int
    left_out: int
    bytes: int


class _Columns(NamedTuple):
    """Records of one chunk: offset in the file's bytes, and size; those that are kept."""

    at: I64
    sizes: I64


class PositionTable:
    """Where each message was, and where it is now: two files of numbers that only grow.

    Invariant: both columns ascend.
    """

    def __init__(self, folder: Path) -> None:
        """Make the files in ``folder``; they are needed until the last chunk is converted."""
        self._paths = (folder / "positions-before", folder / "positions-now")
        self._count = 0
        for path in self._paths:
            path.write_bytes(b"")

    def add(self, before: I64, now: I64) -> None:
        """Note the next messages.

        Raises:
            StorageError: the operating system refused.
        """
        for path, column in zip(self._paths, (before, now), strict=True):
            with refused_as("positions not noted", file=path), path.open("ab", buffering=0) as file:
                view = memoryview(column.tobytes())
                while view:
                    view = view[file.write(view) or 0 :]
        self._count += len(before)

    def translate(self, positions: I64) -> I64:
        """Where the messages are now that were at ``positions``; unchanged if none was there."""
        if not self._count:
            return positions
        before, now = self._columns()
        rows = np.minimum(np.searchsorted(before, positions), self._count - 1)
        return np.where(before[rows] == positions, now[rows], positions)

    def following(self, position: int) -> int | None:
        """Where the first message is now that was at ``position`` or behind it, if there is one."""
        if not self._count:
            return None
        before, now = self._columns()
        row = int(np.searchsorted(before, position))
        return int(now[row]) if row < self._count else None

    def delete(self) -> None:
        """Delete the files."""
        for path in self._paths:
            path.unlink()

    def _columns(self) -> tuple[I64, I64]:
        before, now = (np.memmap(path, np.int64, "r", shape=self._count) for path in self._paths)
        return before, now


class LogConversion:
    """The plain log that grows from the entries of a DLedger log.

    Owns ``target``, which is written and synced but not closed.
    """

    def __init__(self, target: AppendFiles, positions: PositionTable) -> None:
        """Go on at ``target.position``."""
        self._target = target
        self._positions = positions
        self._done = Converted(0, 0, 0)

    @property
    def done(self) -> Converted:
        """What was converted so far."""
        return self._done

    def convert(self, view: memoryview, start: Position, items: bytes | bytearray) -> None:
        """Append the records of the entries that ``items`` name.

        Args:
            view: a whole file of the DLedger log, which begins at ``start``.
            items: index items of verified entries in it, in their order.

        Raises:
            CorruptLogError: a record cannot be in a file of this size.
            StorageError: the operating system refused.
        """
        octets = np.frombuffer(view, np.uint8)
        for columns in _chunks(items, start):
            kept = _without_system_topic(octets, columns)
            self._append(octets, kept, start)
            done = self._done
            self._done = Converted(
                done.records + len(kept.at),
                done.left_out + len(columns.at) - len(kept.at),
                done.bytes + int(kept.sizes.sum()),
            )

    def _append(self, octets: Bytes, columns: _Columns, start: Position) -> None:
        if not len(columns.at):
            return
        packed, places = _packed(octets, columns)
        now, runs = self._placed(columns.sizes)
        _put_i64(packed, places + PHYSICAL_OFFSET_AT, now)
        self._positions.add(columns.at + start, now)
        self._translate_prepared(packed, places)
        data = packed.data
        for begin, end in runs:
            if begin == end:
                self._roll()
            else:
                self._target.append(data[begin:end])

    def _placed(self, sizes: I64) -> tuple[I64, list[tuple[int, int]]]:
        """The records' new positions, and the runs of bytes to write; an empty one ends a file."""
        target = self._target
        file_size = target.file_size
        ends = np.cumsum(sizes)
        now = np.empty(len(sizes), np.int64)
        runs: list[tuple[int, int]] = []
        first, begun = 0, 0
        position, room = target.position, target.room
        while first < len(sizes):
            last = int(np.searchsorted(ends, begun + room - BLANK_SIZE, side="right"))
            if last > first:
                now[first:last] = position + ends[first:last] - sizes[first:last] - begun
                end = int(ends[last - 1])
                runs.append((begun, end))
                position, room = position + end - begun, room - (end - begun)
                first, begun = last, end
            elif room == file_size:
                raise CorruptLogError(
                    "record does not fit into a log file",
                    size=int(sizes[first]),
                    file_size=file_size,
                )
            else:
                runs.append((begun, begun))
                position, room = position + room, file_size
        return now, runs

    def _roll(self) -> None:
        target = self._target
        target.append(encode_blank(LogKind.COMMITLOG, target.room))
        target.roll()
        # A file at a time: what is not yet on the disk stays bounded.
        target.sync()

    def _translate_prepared(self, packed: Bytes, places: I64) -> None:
        at = places + _PREPARED_AT + _hosts_beyond_v4(packed, places)
        prepared = _get_i64(packed, at)
        rows = np.flatnonzero(prepared)
        if len(rows):
            _put_i64(packed, at[rows], self._positions.translate(prepared[rows]))


def _chunks(items: bytes | bytearray, start: Position) -> Iterator[_Columns]:
    """The messages of ``items``, about ``CHUNK_SIZE`` bytes at a time."""
    entries = np.frombuffer(items, ENTRY_ITEM)
    at = entries["position"].astype(np.int64) - start + ENTRY_HEADER_SIZE
    sizes = entries["size"].astype(np.int64) - ENTRY_HEADER_SIZE
    first = 0
    while first < len(at):
        last = max(first + 1, int(np.searchsorted(at, at[first] + CHUNK_SIZE)))
        yield _Columns(at[first:last], sizes[first:last])
        first = last


def _without_system_topic(octets: Bytes, columns: _Columns) -> _Columns:
    at = columns.at
    beyond = _hosts_beyond_v4(octets, at)
    body_size_at = at + BODY_SIZE_AT + beyond
    topic_at = body_size_at + 4 + _get_u32(octets, body_size_at)
    room = at + columns.sizes - topic_at
    if (room < 1).any():
        raise CorruptLogError(
            "body reaches beyond its record", offset=int(at[np.argmax(room < 1)]), field="body size"
        )
    named = np.flatnonzero((octets[topic_at] == len(_TOPIC)) & (room > len(_TOPIC)))
    if not len(named):
        return columns
    topics = octets[topic_at[named][:, None] + 1 + np.arange(len(_TOPIC))]
    kept = np.ones(len(at), np.bool_)
    kept[named[(topics == _TOPIC).all(axis=1)]] = False
    return _Columns(at[kept], columns.sizes[kept])


def _packed(octets: Bytes, columns: _Columns) -> tuple[Bytes, I64]:
    """The records one right behind the other, in a copy, and where each begins in it."""
    first = int(columns.at[0])
    end = int(columns.at[-1] + columns.sizes[-1])
    # Between two records is the second one's header, and what is left out.
    begins, gaps = columns.at[1:] - first, columns.at[1:] - (columns.at + columns.sizes)[:-1]
    mask = np.ones(end - first, np.bool_)
    mask[begins[:, None] - _HEADER] = False
    for row in np.flatnonzero(gaps > ENTRY_HEADER_SIZE).tolist():
        mask[begins[row] - gaps[row] : begins[row]] = False
    packed = octets[first:end][mask]
    places = np.cumsum(columns.sizes) - columns.sizes
    return packed, places


def _hosts_beyond_v4(octets: Bytes, at: I64) -> I64:
    """Bytes that the hosts of the records at ``at`` take beyond those of two IPv4 hosts."""
    flags = _get_u32(octets, at + SYS_FLAG_AT)
    longer = HOST_V6_SIZE - HOST_V4_SIZE
    hosts = ((flags & BORN_HOST_V6) != 0).astype(np.int64) + ((flags & STORE_HOST_V6) != 0)
    beyond: I64 = hosts * longer
    return beyond


def _get_u32(octets: Bytes, at: I64) -> I64:
    words: I64 = octets[at[:, None] + np.arange(4)].view(">u4")[:, 0].astype(np.int64)
    return words


def _get_i64(octets: Bytes, at: I64) -> I64:
    words: I64 = octets[at[:, None] + np.arange(8)].view(">i8")[:, 0].astype(np.int64)
    return words


def _put_i64(octets: Bytes, at: I64, values: I64) -> None:
    octets[at[:, None] + np.arange(8)] = values.astype(">i8")[:, None].view(np.uint8).reshape(-1, 8)
