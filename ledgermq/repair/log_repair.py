"""Acceptance of repaired entries: whether those that a member sent are those damaged here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ledgermq.formats.arrays import ENTRY_ITEM
from ledgermq.formats.records.record_fault import RecordFault
from ledgermq.model.errors import ProtocolError
from ledgermq.model.ids import Index, Position, Term
from ledgermq.repair.log_scrub import Damage
from ledgermq.store.log.entry_check import check_entries


class Repair(NamedTuple):
    """Bytes that belong at ``position`` of the data files, up to entry ``last``.

    Attributes:
        chain: chainCrc stored in the last entry; the one behind it begins with it.
        ends_damage: nothing of the damage is left behind them.
    """

    position: Position
    data: memoryview
    last: Index
    chain: int
    ends_damage: bool


def accept_entries(
    damage: Damage,
    data: memoryview,
    *,
    file_size: int,
    term_of: Callable[[Index], Term | None],
) -> Repair:
    """What to write of ``data``, whole entries from the first damaged one on.

    They must have the indexes and the terms that the log has there, follow the entry before, and
    fill the place exactly where it is known how much that is. Raft sees to it that entries of the
    same index and term are the same.

    Raises:
        ProtocolError: they are not what is missing.
    """
    point = damage.point
    position = int.from_bytes(data[24:32], "big") if len(data) >= 32 else -1
    following = point.position - point.position % file_size + file_size
    if position not in (point.position, following):
        raise ProtocolError(
            "entries of a peer are not of this place", position=position, expected=point.position
        )
    checked = check_entries(data, replace(point, position=Position(position)))
    if checked.fault is not RecordFault.END or checked.size != len(data):
        raise ProtocolError(
            f"entry of a peer refused because of its {checked.fault.field}",
            index=checked.point.index,
        )
    behind = checked.point
    last = Index(behind.index - 1)
    if last > damage.last:
        raise ProtocolError(
            "entries of a peer are more than what is damaged", last=last, expected=damage.last
        )
    wrong = check_item_terms(checked.items, point.index, term_of)
    if wrong is not None:
        raise ProtocolError(
            "entry of a peer has another term", index=wrong, expected=term_of(wrong)
        )
    ends = last == damage.last
    end = damage.end
    if end is not None and (behind.position > end or (ends and behind.position != end)):
        raise ProtocolError(
            "entries of a peer do not fill the place", position=behind.position, expected=end
        )
    if position // file_size != (behind.position - 1) // file_size:
        raise ProtocolError("entries of a peer are not of one file", position=behind.position)
    assert behind.chain is not None
    return Repair(Position(position), data, last, behind.chain, ends)


def check_item_terms(
    items: bytes | bytearray, first: Index, term_of: Callable[[Index], Term | None]
) -> Index | None:
    """The first of the index items, from that of ``first`` on, whose term is not the log's."""
    for number, term in enumerate(np.frombuffer(items, ENTRY_ITEM)["term"].tolist(), first):
        if term != term_of(Index(number)):
            return Index(number)
    return None
