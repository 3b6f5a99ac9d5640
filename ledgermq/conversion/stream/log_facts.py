"""Facts of a stretch of the log: which records it holds, checked, and when they were stored."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

import numpy as np

from ledgermq.formats.arrays import I64
from ledgermq.formats.dledger_entry import decode_entry_header
from ledgermq.formats.kernels.kernel import SCAN_ROWS, ScanStatus, scan_entries
from ledgermq.formats.records.host_address import HOST_V4_SIZE, HOST_V6_SIZE
from ledgermq.formats.records.message import BORN_HOST_AT, BORN_HOST_V6, SYS_FLAG_AT
from ledgermq.model.errors import CorruptLogError
from ledgermq.store.log.verified_span import check_span


@dataclass(frozen=True, slots=True, kw_only=True)
class StretchFacts:
    """What a stretch of one file of the log holds; without a record the numbers are -1 (a blank).

    Attributes:
        first_index, last_index: of its entries; of a plain log, where its first and last record
            end.
        last_term: 0 in a plain log.
        first_ms, max_ms: store time of the first record, and the newest one, epoch ms.
        first_at: position of the first record's message.
        last_at, last_size, last_crc: place, bytes and CRC-32 of the last record's message, by which
            another log of the same name is told from this one.
    """

    records: int = 0
    first_index: int = -1
    last_index: int = -1
    last_term: int = -1
    first_ms: int = -1
    max_ms: int = -1
    first_at: int = -1
    last_at: int = -1
    last_size: int = -1
    last_crc: int = -1


def facts_of(
    view: memoryview, begin: int, end: int, *, header_size: int, base: int
) -> StretchFacts:
    """Check all records from ``begin`` to ``end``, where records begin or the file ends.

    Args:
        view: bytes of one file of the log.
        header_size: of the entries' headers; 0 in a plain log.
        base: position of the view's first byte.

    Raises:
        CorruptLogError: a record is not whole; names file, position and field.
    """
    check_span(view, begin, end, header_size=header_size, base=base)
    records, first, last, last_size, first_ms, max_ms = 0, -1, -1, -1, -1, -1
    for starts, sizes in records_in(view, begin, end, header_size=header_size, base=base):
        if not records:
            first = int(starts[0])
        last, last_size = int(starts[-1]), int(sizes[-1])
        times = store_times(view, starts)
        first_ms = first_ms if records else int(times[0])
        max_ms = max(max_ms, int(times.max()))
        records += len(starts)
    if not records:
        return StretchFacts()
    return StretchFacts(
        records=records,
        first_index=index_at(view, first, header_size=header_size, base=base)[0],
        last_index=index_at(view, last, header_size=header_size, base=base)[0],
        last_term=index_at(view, last, header_size=header_size, base=base)[1],
        first_ms=first_ms,
        max_ms=max_ms,
        first_at=base + first,
        last_at=base + last,
        last_size=last_size,
        last_crc=crc32(view[last : last + last_size]),
    )


def records_in(
    view: memoryview, begin: int, end: int, *, header_size: int, base: int
) -> list[tuple[I64, I64]]:
    """Offsets in ``view`` and sizes of the messages from ``begin`` to ``end``, in lots.

    Raises:
        CorruptLogError: what stands there are no records.
    """
    lots: list[tuple[I64, I64]] = []
    status = ScanStatus.FULL
    while status is ScanStatus.FULL:
        starts, sizes = np.empty(SCAN_ROWS, np.int64), np.empty(SCAN_ROWS, np.int64)
        count, begin, number = scan_entries(
            view, begin, end, header_size, base, starts.data, sizes.data
        )
        status = ScanStatus(number)
        if count:
            lots.append((starts[:count], sizes[:count]))
    if status.corrupt:
        raise CorruptLogError("record is not whole", position=base + begin, field=status.name)
    return lots


def store_times(view: memoryview, starts: I64) -> I64:
    """Store times of the messages that begin at ``starts``, epoch ms."""
    content = np.frombuffer(view, np.uint8)
    is_v6 = (content[starts + SYS_FLAG_AT + 3] & BORN_HOST_V6) != 0
    at = starts + BORN_HOST_AT + np.where(is_v6, HOST_V6_SIZE, HOST_V4_SIZE)
    times: I64 = content[at[:, None] + np.arange(8)].view(">i8")[:, 0].astype(np.int64)
    return times


def index_at(view: memoryview, start: int, *, header_size: int, base: int) -> tuple[int, int]:
    """Index and term of the message at offset ``start``; of a plain log where it ends, and 0."""
    if not header_size:
        return base + start + int.from_bytes(view[start : start + 4], "big"), 0
    header = decode_entry_header(view, start - header_size)
    return header.index, header.term
