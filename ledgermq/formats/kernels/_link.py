# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, annotation_typing=False
"""Kernel of the index: links many keys into the slot chains of one Index file.

Plain Python with its C types in ``_link.pxd``, as ``_scan`` is. The rules are those of
``IndexFile.putKey``.
"""

from __future__ import annotations

import cython

if not cython.compiled:

    def _put32(octets: memoryview, at: int, value: int) -> None:
        """Write a number in one copy: readers of a slot find what was there, or this."""
        octets[at : at + 4] = value.to_bytes(4, "big")


_MASK = 0xFFFF_FFFF
_SIGN = 0x8000_0000
_WRAP = 0x1_0000_0000


def link_keys(
    slots: memoryview,
    key_hashes: memoryview,
    key_rows: memoryview,
    first: int,
    last: int,
    positions: memoryview,
    store_times: memoryview,
    index_count: int,
    begin_time: int,
    items: memoryview,
    heads: memoryview,
) -> int:
    """Encode index items for the keys ``first`` to ``last``, without touching the slots.

    Readers follow slots at any time, so the items go to the file before the slots do
    (``set_slots``); until then the head of a slot's chain is kept in ``heads``.

    Args:
        slots: the slots of the index file, big-endian, four octets each.
        positions, store_times: int64 columns of the keys' rows.
        index_count: number of the first item, 1 in an empty file.
        begin_time: ``beginTimestamp`` of the file's header before the first key.
        items: gets 20 octets a key.
        heads: int32 scratch of pairs (slot + 1, item); its length is a power of two, at least four
            times the keys.

    Returns:
        Slots that were not used before.
    """
    slot_count = len(slots) // 4
    mask = len(heads) - 1
    place = 0
    while place < len(heads):
        heads[place] = 0
        place += 1
    fresh = 0
    count = index_count
    key = first
    while key < last:
        key_hash = key_hashes[key]
        slot = key_hash % slot_count
        place = _place_of(heads, slot, mask)
        previous = heads[place + 1]
        if heads[place] == 0:
            heads[place] = slot + 1
            previous = _get32(slots, slot * 4)
            if previous <= 0 or previous > index_count:
                previous = 0
        heads[place + 1] = count
        if previous == 0:
            fresh += 1
        row = key_rows[key]
        store_time = store_times[row]
        seconds = (store_time - begin_time) // 1000 if store_time > begin_time else 0
        if begin_time <= 0:
            seconds = 0
        elif seconds >= _SIGN:
            seconds = _SIGN - 1
        at = (key - first) * 20
        _put32(items, at, key_hash)
        position = positions[row]
        _put32(items, at + 4, position >> 32)
        _put32(items, at + 8, position & _MASK)
        _put32(items, at + 12, seconds)
        _put32(items, at + 16, previous)
        if count <= 1:
            begin_time = store_time
        count += 1
        key += 1
    return fresh


def set_slots(
    slots: memoryview,
    key_hashes: memoryview,
    first: int,
    last: int,
    index_count: int,
) -> None:
    """Let the slots point to the items that ``link_keys`` made of the same keys."""
    slot_count = len(slots) // 4
    key = first
    while key < last:
        slot = key_hashes[key] % slot_count
        _put32(slots, slot * 4, index_count + key - first)
        key += 1


def _place_of(heads: memoryview, slot: int, mask: int) -> int:
    """Where ``heads`` has the slot, or where it may be put."""
    place = (((slot + 1) * 0x27D4EB2F) >> 8) * 2 & mask
    while heads[place] != 0 and heads[place] != slot + 1:
        place = (place + 2) & mask
    return place


def _get32(octets: memoryview, at: int) -> int:
    high = (octets[at] << 8) | octets[at + 1]
    value = (high << 16) | (octets[at + 2] << 8) | octets[at + 3]
    return value - _WRAP if value >= _SIGN else value
