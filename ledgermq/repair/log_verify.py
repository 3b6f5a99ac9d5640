"""Verifying read of a whole stopped log: every byte that a checksum covers is compared.

What vouches for a byte:

* an entry that we wrote: its CRCs, for the whole entry and its place in the log;
* an entry or record that RocketMQ wrote: magic numbers, sizes, positions, index and term, and the
  CRC of the body. The other fields of the message, topic and properties are unprotected. An entry
  of ours that has lost its CRCs is found by the one behind it, whose CRC was begun with them: where
  RocketMQ's begin is not known, for DLedger may go on in the term that it finds;
* DLedger's index items: the entries that they point to;
* blanks, and what lies behind the end: they are zeros but for the blank's 8 bytes. In a plain log
  RocketMQ leaves what was there behind a blank's 8 bytes, so nothing is asked of those.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ledgermq.formats.arrays import ENTRY_ITEM
from ledgermq.formats.dledger_entry import (
    BODY_SIZE_AT,
    CHAIN_CRC_AT,
    MAGIC,
    check_entry,
    decode_entry_header,
)
from ledgermq.formats.dledger_index import ITEM_SIZE
from ledgermq.formats.kernels import _stamp
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.records.record_fault import RecordFault
from ledgermq.formats.store_markers import BLANK_SIZE, is_blank
from ledgermq.model.config.settings import LogKind
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Index, Position, Term
from ledgermq.store.files.file_names import own_names
from ledgermq.store.files.mapped_files import MappedFiles
from ledgermq.store.log.first_entry import ZEROS_STEP
from ledgermq.store.log.log_writer import LogEnd
from ledgermq.store.log_family import LogPart
from ledgermq.store.log_reader import LogReader

_ZEROS = bytes(ZEROS_STEP)

assert ENTRY_ITEM.itemsize == ITEM_SIZE


class VerifiedLog(NamedTuple):
    """What was read: records that are whole, and where the last one ends."""

    records: int
    end: Position


class _Run(NamedTuple):
    """State between files: the log's end so far."""

    end: LogEnd
    records: int


def verify_log(reader: LogReader) -> VerifiedLog:
    """Read the whole log and compare all that can be compared.

    For a store that was stopped cleanly: what a crash leaves behind the end is a fault here. So is
    what a RocketMQ follower leaves there that had to drop entries, since nobody can tell it apart.

    Raises:
        CorruptLogError: the first fault; names file, offset and field.
    """
    for files in (*(part.files for part in reader.parts), reader.index_files):
        if files is not None:
            _check_sizes(files)
    records = 0
    end = reader.first
    for part in reader.parts:
        if not part.files.starts:
            continue
        if records and part.files.first != end:
            raise _corrupt(
                "part of the log does not follow the one before", part.files, end, "position"
            )
        index_files = reader.index_files if part.header_size else None
        run = _verify_part(part, index_files)
        records += run.records
        end = run.end.position
    return VerifiedLog(records, end)


def _check_sizes(files: MappedFiles) -> None:
    """Also a last file of no bytes is one too many now: a writer has it for a moment only."""
    for path in (files.directory / name for name in own_names(files.directory)):
        size = path.stat().st_size
        if size != files.file_size or not size:
            raise CorruptLogError(
                "file of a wrong size", file=str(path), size=size, expected=files.file_size
            )


def _verify_part(part: LogPart, index_files: MappedFiles | None) -> _Run:
    files = part.files
    run = _begin(part, index_files)
    for start in files.starts:
        if start > run.end.position:
            # The log ended in the file before.
            _check_zeros(files, start, start + files.file_size)
            continue
        run, blank = _verify_file(part, start, run, index_files)
        if not blank:
            _check_zeros(files, run.end.position, start + files.file_size)
    if index_files is not None:
        items_end = (run.end.index_ + 1) * ITEM_SIZE
        for start in index_files.starts:
            stop = start + index_files.file_size
            if items_end < stop:
                _check_zeros(index_files, max(start, items_end), stop)
    return run


def _begin(part: LogPart, index_files: MappedFiles | None) -> _Run:
    """Where the first file begins; behind its first entry, if those before were deleted.

    Of such an entry the header cannot be compared with its CRC, which the deleted one began.
    """
    files = part.files
    first = Position(files.first)
    if index_files is None:
        return _Run(LogEnd(first, Index(first), Term(0), 0), 0)
    view = files.view(first, files.file_size)
    index = int.from_bytes(view[8:16], "big", signed=True)
    if index <= 0 or view[:4] != MAGIC.to_bytes(4, "big"):
        return _Run(LogEnd(first, Index(-1), Term(0), 0), 0)
    file = str(files.path(first))
    header = decode_entry_header(view, position=first, file=file)
    check_entry(view, 0, header, previous_chain_crc=None, file=file)
    item = bytes(view[:4]) + bytes(view[24:32]) + bytes(view[4:8]) + bytes(view[8:24])
    if not _has_item(index_files, index, item):
        raise _corrupt("index of the first entry is not in the index", files, first + 8, "index")
    end = LogEnd(Position(first + header.size), header.index, header.term, header.chain_crc)
    return _Run(end, 1)


def _verify_file(
    part: LogPart, start: int, run: _Run, index_files: MappedFiles | None
) -> tuple[_Run, bool]:
    """Go on in the file at ``start``; where it came to, and whether a blank ends the file there."""
    files = part.files
    view = files.view(start, files.file_size)
    at = run.end.position - start
    items = bytearray()
    reached, count, index, term, chain, number = _stamp.verify_span(
        view,
        at,
        len(view),
        part.header_size,
        run.end.position,
        run.end.index_ + 1 if part.header_size else -1,
        run.end.term,
        run.end.chain,
        items,
        crc32,
        sums_bodies=True,
    )
    fault = RecordFault(number)
    position = Position(start + reached)
    if index_files is not None:
        _compare_items(index_files, run.end.index_ + 1, items)
    file = str(files.path(start))
    kind = LogKind.DLEDGER if part.header_size else LogKind.COMMITLOG
    blank = is_blank(view, reached, log=kind, file=file)
    if not blank and fault is not RecordFault.END and any(view[reached : reached + BODY_SIZE_AT]):
        raise CorruptLogError("record is not whole", file=file, offset=reached, field=fault.field)
    if blank:
        if part.header_size:
            _check_zeros(files, position + BLANK_SIZE, start + files.file_size)
        position = Position(start + files.file_size)
    end = LogEnd(
        position, Index(index - 1) if part.header_size else Index(position), Term(term), chain
    )
    return _Run(end, run.records + count), blank


def entry_protection(
    view: memoryview, start: int, entries: npt.NDArray[np.void]
) -> npt.NDArray[np.bool_]:
    """Which entries carry CRCs of ours.

    Args:
        view: the log file that begins at position ``start``.
        entries: their index items.
    """
    octets = np.frombuffer(view, np.uint8)
    at = (entries["position"].astype(np.int64) - start)[:, None]
    found: npt.NDArray[np.bool_] = octets[at + np.arange(CHAIN_CRC_AT, BODY_SIZE_AT)].any(axis=1)
    return found


def _has_item(files: MappedFiles, index: int, item: bytes) -> bool:
    position = index * ITEM_SIZE
    if not files.first <= position < files.end:
        return False
    return files.view(position, ITEM_SIZE) == item


def _compare_items(files: MappedFiles, index: int, items: bytes | bytearray) -> None:
    """Compare the index items from ``index`` on with those that the entries make."""
    wanted = memoryview(items)
    position = index * ITEM_SIZE
    while wanted:
        if not files.first <= position < files.end:
            raise _corrupt("no index item of an entry", files, position, "index")
        size = min(len(wanted), files.room(position), ZEROS_STEP)
        found = files.view(position, size)
        if found != wanted[:size]:
            at = next(at for at in range(size) if found[at] != wanted[at])
            field = _item_field((position + at) % ITEM_SIZE)
            raise _corrupt("index item is not that of the entry", files, position + at, field)
        wanted = wanted[size:]
        position += size


def _item_field(at: int) -> str:
    starts = {"magic": 0, "position": 4, "size": 12, "index": 16, "term": 24}
    return [name for name, start in starts.items() if start <= at][-1]


def _check_zeros(files: MappedFiles, position: int, end: int) -> None:
    """What no record uses is zero."""
    while position < end:
        size = min(end - position, ZEROS_STEP)
        found = files.view(position, size)
        if found != _ZEROS[:size]:
            at = len(found) - len(bytes(found).lstrip(b"\0"))
            raise _corrupt("bytes behind the end", files, position + at, "end")
        position += size


def _corrupt(text: str, files: MappedFiles, position: int, field: str) -> CorruptLogError:
    file = files.path(position)
    return CorruptLogError(text, file=str(file), offset=position - int(file.name), field=field)
