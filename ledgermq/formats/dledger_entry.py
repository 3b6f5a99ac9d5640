"""DLedger entry codec: a 48-byte header and a body, which for us is one message.

Layout, big-endian (``DLedgerEntryCoder``):

    offset  size  field      unit
    0       4     magic      1
    4       4     size       bytes of the whole entry, 48 + body_size
    8       8     index      0 for the first entry
    16      8     term       of the leader that appended it
    24      8     position   bytes from the start of the log to this entry
    32      4     channel    0
    36      4     chain_crc  CRC-32 of the header, below
    40      4     body_crc   CRC-32 of the body as stored
    44      4     body_size  bytes
    48      n     body

DLedger writes zero in both CRCs and looks at neither. We fill them: ``chain_crc`` is the CRC-32 of
the header with ``chain_crc`` zero and ``body_crc`` as stored, begun with the stored ``chain_crc``
of the entry before (0 for the first one), so that no entry can change its content or its place
unseen. Both zero marks an entry that DLedger wrote: unprotected.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from zlib import crc32

from ledgermq.model.errors import corrupt
from ledgermq.model.ids import Index, Position, Term

_HEADER = Struct(">iiqqqiIIi")

HEADER_SIZE = _HEADER.size
MAGIC = 1
SIZE_AT = 4
INDEX_AT = 8
TERM_AT = 16
POSITION_AT = 24
CHANNEL_AT = 32
CHAIN_CRC_AT = 36
BODY_CRC_AT = 40
BODY_SIZE_AT = 44

assert HEADER_SIZE == 48  # the on-disk format; changing it is a format version


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """Header of one entry; ``size`` is in bytes, with the header, both CRCs are unsigned."""

    size: int
    index: Index
    term: Term
    position: Position
    chain_crc: int
    body_crc: int

    @property
    def body_size(self) -> int:
        """Bytes of the body."""
        return self.size - HEADER_SIZE

    @property
    def is_protected(self) -> bool:
        """Whether we wrote it: DLedger leaves both CRCs zero."""
        return bool(self.chain_crc or self.body_crc)


def chain_checksum(header: bytes | memoryview, previous_chain_crc: int) -> int:
    """``chain_crc`` of the 48 bytes ``header``, whatever stands there in its place."""
    zeroed = bytearray(header)
    assert len(zeroed) == HEADER_SIZE, len(zeroed)
    zeroed[CHAIN_CRC_AT:BODY_CRC_AT] = bytes(4)
    return crc32(zeroed, previous_chain_crc)


def decode_entry_header(
    view: memoryview,
    at: int = 0,
    *,
    end: int | None = None,
    position: Position | None = None,
    file: str = "",
) -> EntryHeader:
    """The header at ``at`` of an entry that lies wholly before ``end``; no CRC is looked at.

    Args:
        end: where what may be read of ``view`` ends, its own end when left out.
        position: the position that the entry must have, from its place; ``None`` takes any.
        file: named in the error.

    Raises:
        CorruptLogError: there is no whole, well-formed entry; names file, offset and field.
    """
    if end is None:
        end = len(view)
    assert 0 <= at <= end <= len(view), (at, end, len(view))
    if at + HEADER_SIZE > end:
        raise corrupt("entry is cut off", file, at, "magic", end - at)
    magic, size, index, term, found, channel, chain_crc, body_crc, body_size = _HEADER.unpack_from(
        view, at
    )
    if magic != MAGIC:
        raise corrupt("not an entry", file, at, "magic", magic)
    if size < HEADER_SIZE or at + size > end:
        raise corrupt("size is impossible", file, at + SIZE_AT, "size", size)
    if body_size != size - HEADER_SIZE:
        raise corrupt("sizes disagree", file, at + BODY_SIZE_AT, "body_size", body_size)
    if index < 0:
        raise corrupt("index is negative", file, at + INDEX_AT, "index", index)
    if term < 0:
        raise corrupt("term is negative", file, at + TERM_AT, "term", term)
    if found < 0 or position not in (None, found):
        raise corrupt("entry of another place", file, at + POSITION_AT, "position", found)
    if channel:
        raise corrupt("channel is not 0", file, at + CHANNEL_AT, "channel", channel)
    return EntryHeader(size, Index(index), Term(term), Position(found), chain_crc, body_crc)


def check_entry(
    view: memoryview,
    at: int,
    header: EntryHeader,
    *,
    previous_chain_crc: int | None,
    file: str = "",
) -> None:
    """Compare a protected entry, whose decoded ``header`` lies at ``at``, with its CRCs.

    An unprotected one passes: its message has a CRC of the body.

    Args:
        previous_chain_crc: as stored in the entry before, 0 if this is the first; ``None``, if
            that one is not known, leaves the header unchecked.
        file: named in the error.

    Raises:
        CorruptLogError: the bytes are not what was written there.
    """
    if not header.is_protected:
        return
    body_at = at + HEADER_SIZE
    if crc32(view[body_at : at + header.size]) != header.body_crc:
        raise corrupt(
            "body is not what was written", file, at + BODY_CRC_AT, "body_crc", header.body_crc
        )
    if previous_chain_crc is None:
        return
    if chain_checksum(view[at:body_at], previous_chain_crc) != header.chain_crc:
        raise corrupt(
            "header is not what was written here",
            file,
            at + CHAIN_CRC_AT,
            "chain_crc",
            header.chain_crc,
        )
