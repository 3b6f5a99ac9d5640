"""Verification of consecutive entries, also without the entry before the first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ledgermq.formats.dledger_entry import HEADER_SIZE, check_entry, decode_entry_header
from ledgermq.formats.dledger_index import DLedgerIndexItem, encode_index_item
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import verify_span
from ledgermq.formats.records.record_fault import RecordFault
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Index, Position, Term


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """A place between two entries, and what is known of the one before it.

    Attributes:
        position: where the next entry begins.
        index: that of the next entry.
        term: the next entry's is not below it.
        chain: chainCrc stored in the entry before; None when that is not there, or not whole.
    """

    position: Position
    index: Index
    term: Term
    chain: int | None


class CheckedEntries(NamedTuple):
    """How far entries are whole.

    Attributes:
        size: bytes of whole entries.
        point: the place behind them.
        fault: of the entry there; ``END`` when the bytes end there.
        items: index items of the whole entries.
    """

    size: int
    point: EntryPoint
    fault: RecordFault
    items: bytearray


def check_entries(data: memoryview, point: EntryPoint) -> CheckedEntries:
    """How far ``data``, which begins at ``point``, consists of the entries that must be there.

    With an unknown ``chain`` the first header is compared only with its place, not with its CRC.
    """
    items = bytearray()
    at = 0
    if point.chain is None:
        header = whole_entry(data, point)
        if header is None:
            return CheckedEntries(0, point, RecordFault.NONE, items)
        items += encode_index_item(header)
        at = header.size
        chain = int.from_bytes(data[36:40], "big")
        point = EntryPoint(
            Position(point.position + at), Index(point.index + 1), header.term, chain
        )
    assert point.chain is not None
    reached, _, index, term, chain, fault = verify_span(
        data,
        at,
        len(data),
        HEADER_SIZE,
        point.position,
        point.index,
        point.term,
        point.chain,
        items,
        crc32,
    )
    behind = EntryPoint(Position(point.position + reached - at), Index(index), Term(term), chain)
    return CheckedEntries(reached, behind, RecordFault(fault), items)


def whole_entry(data: memoryview, point: EntryPoint) -> DLedgerIndexItem | None:
    """The index item of the entry at the beginning of ``data``; None when it is not whole.

    Its place in the chain is not looked at.
    """
    try:
        header = decode_entry_header(data, position=point.position)
        check_entry(data, 0, header, previous_chain_crc=None)
    except CorruptLogError:
        return None
    if header.index != point.index or header.term < point.term:
        return None
    if not header.is_protected:
        checked = verify_span(
            data,
            0,
            header.size,
            HEADER_SIZE,
            point.position,
            point.index,
            point.term,
            0,
            bytearray(),
            crc32,
        )
        if checked[1] != 1:
            return None
    return DLedgerIndexItem(header.position, header.size, header.index, header.term)
