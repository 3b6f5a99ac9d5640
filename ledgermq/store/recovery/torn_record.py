"""Torn records: those of a power failure that RocketMQ's own checks take for whole.

RocketMQ compares magic numbers, sizes and the CRC of the body. A disk writes sectors: of a record
that was not synced yet, the sectors with its head and its body may be there, and those with the end
of its topic or its properties may be what they were before, zeros. Sizes and body are right then;
topic or properties are zeros from one border of a sector to the next one, or to the record's end.

No client's property fills a part like that: names and values are text. So such a record is torn
where it may be torn at all, behind the end that is known to be durable. Records with CRCs over all
their bytes (``formats/dledger_entry.py``) need none of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ledgermq.formats.arrays import ENTRY_ITEM
from ledgermq.formats.dledger_entry import BODY_SIZE_AT, CHAIN_CRC_AT, HEADER_SIZE
from ledgermq.formats.records.message import TIMESTAMP, WORD, store_fields_at, topic_place

SECTOR_SIZE = 512
"""Disks of today write 4,096 bytes or more at once; no disk has smaller sectors than these."""

_ZEROS = bytes(SECTOR_SIZE)
_BEHIND_HOST = 4 + 8
"""Bytes between the broker's host and the body's size: reconsumptions, prepared offset."""


class RecordWalk(NamedTuple):
    """What was found among records that are whole by RocketMQ's checks.

    Attributes:
        torn_at: offset of the first message record that is torn; None when none is.
        latest: largest store timestamp of those before it, epoch ms; 0 when there is none.
    """

    torn_at: int | None
    latest: int


def plain_records(view: memoryview, at: int, end: int) -> Iterator[tuple[int, int]]:
    """The records of a plain CommitLog from ``at`` to ``end``: where each begins and ends."""
    while at < end:
        size = WORD.unpack_from(view, at)[0]
        yield at, at + size
        at += size


def unprotected_records(
    view: memoryview, items: bytes | bytearray, base: int
) -> Iterator[tuple[int, int]]:
    """The records of the entries that have no CRCs of their own: where each begins and ends.

    Args:
        view: bytes of one file of the log.
        items: index items of entries in it.
        base: position of the file's first byte.
    """
    entries = np.frombuffer(items, ENTRY_ITEM)
    at = entries["position"].astype(np.int64) - base
    octets = np.frombuffer(view, np.uint8)
    sums = octets[at[:, None] + np.arange(CHAIN_CRC_AT, BODY_SIZE_AT)]
    for row in np.flatnonzero(~sums.any(axis=1)).tolist():
        begin = int(at[row])
        yield begin + HEADER_SIZE, begin + int(entries["size"][row])


def walk_records(
    view: memoryview, records: Iterable[tuple[int, int]], tearable_from: int
) -> RecordWalk:
    """Look at ``records``, which ``kernel.verify_span`` has passed.

    Args:
        view: bytes of one file of the log, from its first one on: sectors begin with it.
        records: where each begins and ends in it.
        tearable_from: those before it are known to be durable.
    """
    latest = 0
    for at, end in records:
        if at >= tearable_from and is_torn(view, at, end):
            return RecordWalk(at, latest)
        stored_at = at + store_fields_at(view[at:end])[0]
        latest = max(latest, TIMESTAMP.unpack_from(view, stored_at)[0])
    return RecordWalk(None, latest)


def is_torn(view: memoryview, at: int, end: int) -> bool:
    """Whether the message record at ``at``, which ends at ``end``, lacks a sector's worth.

    Args:
        view: bytes of one file of the log, from its first one on.
    """
    stored_at, behind_host = store_fields_at(view[at:end])
    if not TIMESTAMP.unpack_from(view, at + stored_at)[0]:
        # Nobody stores at 1970: the sector that should have it is not there.
        return True
    body_at = at + behind_host + _BEHIND_HOST
    size_at = body_at + 4 + WORD.unpack_from(view, body_at)[0]
    topic_at, topic_size = topic_place(view, at, size_at)
    properties_at = topic_at + topic_size + 2
    if _lacks_sector(view, topic_at, properties_at - 2):
        return True
    return _lacks_sector(view, properties_at, end)


def _lacks_sector(view: memoryview, at: int, end: int) -> bool:
    """Whether a part of ``at`` to ``end`` that one sector holds is all zeros."""
    while at < end:
        border = min(end, at - at % SECTOR_SIZE + SECTOR_SIZE)
        if view[at:border] == _ZEROS[: border - at]:
            return True
        at = border
    return False
