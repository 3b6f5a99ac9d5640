"""Records of one answer: looked up, checked, and joined into one part in bulk.

Records that lie close to one another in the log are handed out as one view of the map, with what
lies between them; records that are scattered are gathered into a buffer of their own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import match_heads, whole_records
from ledgermq.formats.records.message import (
    MAGICS,
    PHYSICAL_OFFSET_AT,
    POSITION,
    SIZE_AND_MAGIC,
    SIZE_MIN,
)
from ledgermq.model.errors import CorruptLogError, DamagedLogError
from ledgermq.store.log_family import LogSpan
from ledgermq.store.log_view import LogView

SPAN_OVERHEAD_DIVISOR = 4
"""A span may be larger than its records by a quarter: less than what a copy of them costs."""

GAP_MAX = 64
"""Records with no more than this between them are copied together; an entry's header is 48."""

GATHERED_SIZE_MAX = 1024 * 1024
"""Most bytes of a gathered part: these, unlike a map's, are memory of the process."""


Integers = npt.NDArray[np.int64]


class RecordParts(NamedTuple):
    """Part 2 of an answer, and where its records lie in it (host order, 32 bits).

    Attributes:
        size: of all records.
        header_size: so many bytes before each record are its entry's header.
    """

    payload: memoryview | bytes
    starts: npt.NDArray[np.uint32]
    sizes: npt.NDArray[np.uint32]
    size: int
    header_size: int = 0


def take_records(
    log: LogView, positions: Integers, sizes: Integers, *, with_headers: bool = False
) -> RecordParts | None:
    """The records from the first one on that are whole and fit into one part.

    Every byte that is given was compared with the CRC that it was stored with.

    ``None`` when the first one was removed, together with the file that had it.

    Args:
        positions: ascending, in host order, and below the dispatched position.
        sizes: as the queue's units say, in host order.
        with_headers: what stands before each record as its entry's header is given, too.

    Raises:
        DamagedLogError: the first record is not what its unit says, or not what was written; names
            file, offset and ``position``.
        CorruptLogError: there is no such file.
    """
    assert len(positions) == len(sizes) > 0
    first = int(positions[0])
    file = log.file_of(first)
    if file is None:
        if first < log.first_position:
            return None
        raise CorruptLogError("no file of the log has a dispatched message", position=first)
    # What lies in a later file is asked for again: at most one short answer a file.
    starts = _sound_starts(file, positions, sizes)
    sizes = sizes[: len(starts)]
    if not (with_headers and file.header_size):
        return _pack(file, starts, sizes)
    size = file.header_size
    parts = _pack(file, starts - size, sizes + size)
    return RecordParts(
        parts.payload,
        parts.starts + np.uint32(size),
        parts.sizes - np.uint32(size),
        parts.size - size * len(parts.starts),
        size,
    )


def sound_count(file: LogSpan, positions: Integers, sizes: Integers) -> int:
    """Records up to the first one that is not the one of its unit, or not what was written.

    One that is not within the file is neither.

    Raises:
        DamagedLogError: the first record is such a one.
    """
    return len(_sound_starts(file, positions, sizes))


def _sound_starts(file: LogSpan, positions: Integers, sizes: Integers) -> Integers:
    """Where the records of ``sound_count`` begin in their file."""
    starts = np.empty(len(positions), np.int64)
    view, size = file.view, file.header_size
    count = match_heads(view, positions.data, sizes.data, file.start, size, starts.data)
    starts = starts[:count]
    if count:
        count = whole_records(view, starts.data, sizes[:count].data, size, crc32)
    if count == 0:
        raise _corrupt(file, int(positions[0]), _fault(file, int(positions[0]), int(sizes[0])))
    return starts[:count]


def _fault(file: LogSpan, position: int, size: int) -> str:
    """Which field of a record that is not sound shows it."""
    at = position - file.start
    if at + max(size, SIZE_MIN) > len(file.view):
        return "size"
    told, magic = SIZE_AND_MAGIC.unpack_from(file.view, at)
    if told != size:
        return "total_size"
    if magic not in MAGICS:
        return "magic"
    own = POSITION.unpack_from(file.view, at + PHYSICAL_OFFSET_AT)[0]
    return "crc" if own == position and at >= file.header_size else "physical_offset"


def _corrupt(file: LogSpan, position: int, field: str) -> DamagedLogError:
    return DamagedLogError(
        "message is damaged: it is not given out before it is repaired",
        file=str(file.path),
        offset=position - file.start,
        position=position,
        field=field,
    )


def _pack(file: LogSpan, at: Integers, sizes: Integers) -> RecordParts:
    first = int(at[0])
    end = int(at[-1] + sizes[-1])
    wanted = int(np.add.reduce(sizes))
    if end - first <= wanted + wanted // SPAN_OVERHEAD_DIVISOR:
        return RecordParts(
            file.view[first:end], (at - first).astype(np.uint32), sizes.astype(np.uint32), wanted
        )
    fitting = int(np.searchsorted(np.cumsum(sizes), GATHERED_SIZE_MAX, "right"))
    at, sizes = at[: max(1, fitting)], sizes[: max(1, fitting)]
    ends = at + sizes
    # Runs of records that are copied together: they begin where the gap before is large.
    begins = np.concatenate(([0], np.flatnonzero(at[1:] - ends[:-1] > GAP_MAX) + 1))
    run_starts = at[begins]
    run_ends = ends[np.concatenate((begins[1:] - 1, [len(at) - 1]))]
    lengths = run_ends - run_starts
    # What a run moves by when those before it stand directly in front of it.
    shifts = np.cumsum(lengths) - lengths - run_starts
    runs = np.repeat(shifts, np.diff(np.concatenate((begins, [len(at)]))))
    payload = b"".join(
        [
            file.view[start:stop]
            for start, stop in zip(run_starts.tolist(), run_ends.tolist(), strict=True)
        ]
    )
    return RecordParts(
        payload, (at + runs).astype(np.uint32), sizes.astype(np.uint32), int(sizes.sum())
    )
