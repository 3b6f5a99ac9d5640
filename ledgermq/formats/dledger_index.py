"""DLedger index item codec: where the entry of one Raft index lies in the data files.

Layout, big-endian (``DLedgerEntryCoder``, ``DLedgerMmapFileStore.INDEX_UNIT_SIZE``):

    offset  size  field     unit
    0       4     magic     1, as the entry's
    4       8     position  bytes from the start of the log
    12      4     size      bytes of the whole entry
    16      8     index
    24      8     term

The item of an index lies at ``index * ITEM_SIZE`` of the index files, which have no blanks. The
order of the fields is not that of the entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.model.errors import corrupt
from ledgermq.model.ids import Index, Position, Term

_ITEM = Struct(">iqiqq")

ITEM_SIZE = _ITEM.size
ITEMS_PER_FILE = 5 * 1024 * 1024
FILE_SIZE = ITEMS_PER_FILE * ITEM_SIZE
MAGIC = 1

assert ITEM_SIZE == 32  # the on-disk format; changing it is a format version


@dataclass(frozen=True, slots=True)
class DLedgerIndexItem:
    """Where one entry lies; ``size`` is in bytes, with the entry's header."""

    position: Position
    size: int
    index: Index
    term: Term


def encode_index_item(item: DLedgerIndexItem) -> bytes:
    """The 32 bytes of ``item``."""
    assert item.size >= HEADER_SIZE, item
    assert min(item.position, item.index, item.term) >= 0, item
    return _ITEM.pack(MAGIC, item.position, item.size, item.index, item.term)


def decode_index_item(
    view: memoryview, at: int = 0, *, index: Index | None = None, file: str = ""
) -> DLedgerIndexItem | None:
    """The item at ``at``; ``None`` when nothing was written there yet.

    Args:
        index: the index that the item must have, from its place; ``None`` takes any.
        file: named in the error.

    Raises:
        CorruptLogError: cut off, or no item of that place.
    """
    if at + ITEM_SIZE > len(view):
        raise corrupt("index item is cut off", file, at, "magic", len(view) - at)
    magic, position, size, found, term = _ITEM.unpack_from(view, at)
    if not (magic or position or size or found or term):
        return None
    if magic != MAGIC:
        raise corrupt("not an index item", file, at, "magic", magic)
    if position < 0:
        raise corrupt("position is negative", file, at + 4, "position", position)
    if size < HEADER_SIZE:
        raise corrupt("size is impossible", file, at + 12, "size", size)
    if found < 0 or index not in (None, found):
        raise corrupt("item of another index", file, at + 16, "index", found)
    if term < 0:
        raise corrupt("term is negative", file, at + 24, "term", term)
    return DLedgerIndexItem(Position(position), size, Index(found), Term(term))
