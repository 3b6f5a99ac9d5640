"""Entries that a leader has sent, verified before they follow the log of who has got them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ledgermq.formats.dledger_entry import HEADER_SIZE as ENTRY_HEADER_SIZE
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import verify_span
from ledgermq.formats.records.record_fault import RecordFault
from ledgermq.model.errors import ConfigError, ProtocolError
from ledgermq.model.ids import NO_INDEX, Index
from ledgermq.store.log.log_writer import LogEnd

# What a named tuple's own way to be made calls.
_new_tuple = tuple.__new__


class Verified(NamedTuple):
    """Entries that follow the log, their index items, and the log's end behind them."""

    entries: memoryview
    items: bytearray
    end: LogEnd


def verify_following(
    data: memoryview, first: Index, last: Index, *, end: LogEnd, size: int
) -> Verified:
    """The entries ``first`` to ``last`` of ``data``, which must follow ``end``.

    Args:
        end: where the log ends.
        size: of the log's files.

    Raises:
        ProtocolError: they do not, or a field or a checksum of one is wrong.
        ConfigError: they are the group's first ones, and begin elsewhere than this member's log:
            members were not upgraded from the same old log.
    """
    # Mostly nothing is known already of what has come.
    at = 0 if int.from_bytes(data[8:16], "big") == first else _offset_of(data, first)
    position = int.from_bytes(data[at + 24 : at + 32], "big")
    # Or where the next file begins: the leader has closed this one with a blank, and the writer
    # here does so when it has them.
    if position != end.position and (position % size or not 0 < position - end.position < size):
        if end.index_ == NO_INDEX and first == 0:
            _refuse_other_beginning(data, at, position, end.position)
        raise ProtocolError(
            "entry of a peer does not follow the log", position=position, expected=end.position
        )
    items = bytearray()
    reached, count, index, term, chain, fault = verify_span(
        data,
        at,
        len(data),
        ENTRY_HEADER_SIZE,
        position,
        end.index_ + 1,
        end.term,
        end.chain,
        items,
        crc32,
    )
    if fault != RecordFault.END or reached != len(data) or index - 1 != last:
        raise ProtocolError(
            f"entry of a peer refused because of its {RecordFault(fault).field}",
            index=end.index_ + 1 + count,
            expected_last=last,
        )
    after = _new_tuple(LogEnd, (position + reached - at, index - 1, term, chain))
    return _new_tuple(Verified, (data[at:] if at else data, items, after))


def _refuse_other_beginning(data: memoryview, at: int, position: int, expected: int) -> None:
    """Say what is wrong when the group's log does not begin where this member's does.

    Raises:
        ConfigError: it is so, by entries whose checksums are right.
    """
    end = min(len(data), at + int.from_bytes(data[at + 4 : at + 8], "big"))
    _, count, *_ = verify_span(
        data, at, end, ENTRY_HEADER_SIZE, position, 0, 0, 0, bytearray(), crc32
    )
    if count == 0:
        return
    who = "this member lacks" if position > expected else "the leader lacks"
    raise ConfigError(
        f"the members' logs do not begin at the same position: {who} the old log that the other"
        " one was upgraded from. Stop both; on the one that lacks it delete the folder dledger-*,"
        " copy the other one's commitlog/ there, and run ledgermq store upgrade with --compare"
        " (docs/operating/upgrade.md)",
        begins=expected,
        leader_begins=position,
    )


def _offset_of(data: memoryview, index: Index) -> int:
    """Where the entry of ``index`` begins; those before it are known already."""
    for at in _offsets(data):
        if int.from_bytes(data[at + 8 : at + 16], "big") == index:
            return at
    raise ProtocolError("entries of a peer lack one", index=index, size=len(data))


def _offsets(data: memoryview) -> Iterator[int]:
    at = 0
    while at + ENTRY_HEADER_SIZE <= len(data):
        yield at
        size = int.from_bytes(data[at + 4 : at + 8], "big")
        if size < ENTRY_HEADER_SIZE:
            raise ProtocolError("entry of a peer is too small", size=size)
        at += size
