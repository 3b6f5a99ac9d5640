"""Verified spans: stretches of the log compared with their checksums before they are used.

Who numbers messages, finds one that was sent twice, or passes entries on, must not go by bytes that
a disk has turned: a wrong queue offset would be in the log for ever.
"""

from __future__ import annotations

from collections.abc import Callable

from ledgermq.formats.dledger_entry import (
    EntryHeader,
    check_entry,
    decode_entry_header,
)
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import verify_span
from ledgermq.formats.records.record_fault import RecordFault
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Index, Position
from ledgermq.store.files.file_names import file_name

_WINDOW = 32 << 20
"""Bytes that are compared between two signs of life."""


def check_span(
    view: memoryview,
    at: int,
    end: int,
    *,
    header_size: int,
    base: int,
    first: Index | None = None,
    chain: int | None = None,
    heads_alone: bool = False,
    looked: Callable[[int, int], None] = lambda records, size: None,
) -> None:
    """Compare the records from ``at`` to ``end``, where records begin or a file ends.

    Of a DLedger log the header of the first entry is compared with what follows it: its own
    checksum goes over the entry before. With the ``chain`` of that one it is compared as all
    others are.

    Args:
        view: bytes of one file of the log.
        header_size: of the entries' headers; 0 in a plain CommitLog.
        base: position of the view's first byte.
        first: index that the first entry must have, when that is known.
        chain: chainCrc of the entry before ``first``; None when that is not known.
        heads_alone: leave bodies alone that no entry's checksum covers: it would say nothing of a
            record's other fields.
        looked: called again and again with how many records it has looked at since, and their
            bytes.

    Raises:
        CorruptLogError: a record is not whole; names file, position and field.
    """
    if at == end:
        return
    index, term, before = -1, 0, 0
    if header_size and int.from_bytes(view[at : at + 4], "big") == 1:
        header = check_one(view, at, base=base)
        if first is not None and header.index != first:
            raise _corrupt(base + at, base, RecordFault.ENTRY_INDEX.field)
        if chain is None:
            index, term, before = header.index + 1, header.term, header.chain_crc
            at += header.size
        else:
            index, before = header.index, chain
    window = _WINDOW
    while at < end:
        limit = min(end, at + window)
        reached, count, index, term, before, fault = verify_span(
            view,
            at,
            limit,
            header_size,
            base + at,
            index,
            term,
            before,
            bytearray(),
            crc32,
            heads_alone=heads_alone,
        )
        if fault == RecordFault.BLANK:
            return
        if reached == at:
            if limit == end:
                raise _corrupt(base + at, base, RecordFault(fault).field)
            # A record that is larger; or none, which is found at the end.
            window *= 2
            continue
        looked(count, reached - at)
        at = reached


def check_one(view: memoryview, at: int, *, base: int) -> EntryHeader:
    """The header of the entry at ``at``, when its body is what was written.

    Args:
        view: bytes of one file of the log, or a part of them.
        base: position of the view's first byte.

    Raises:
        CorruptLogError: it is not whole; names file, position and field.
    """
    try:
        header = decode_entry_header(view, at, position=Position(base + at))
        check_entry(view, at, header, previous_chain_crc=None)
    except CorruptLogError as error:
        raise _corrupt(base + at, base, str(error.details.get("field"))) from error
    return header


def _corrupt(position: int, base: int, field: str) -> CorruptLogError:
    return CorruptLogError(
        "record is not what was written", file=file_name(base), position=position, field=field
    )
