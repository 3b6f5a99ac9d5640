# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, annotation_typing=False
"""Kernel of de-duplication: unique ids of many messages, and hash tables of the stored ones.

Plain Python with its C types in ``_ids.pxd``, as ``_scan`` is. Hashes have 63 bits and are never 0,
which stands for none. A message that waits elsewhere (delayed, or a half message) counts as one of
the topic that it is for, its *real topic*.
"""

from __future__ import annotations

import cython

if not cython.compiled:

    def _u32(span: memoryview, at: int) -> int:
        """The number at ``at``, from one copy of its bytes: somebody else may write there."""
        return int.from_bytes(span[at : at + 4], "big")


_MASK = 0xFFFF_FFFF_FFFF_FFFF
_MASK_63 = 0x7FFF_FFFF_FFFF_FFFF
# FNV-1a of 64 bits; its low bits are mixed with the high ones afterwards.
_BASIS = 0xCBF2_9CE4_8422_2325
_PRIME = 0x0000_0100_0000_01B3
_MIX = 0xFF51_AFD7_ED55_8CCD

_SIGN = 0x8000_0000
_WRAP = 0x1_0000_0000

_UNIQUE_KEY = 0
_REAL_TOPIC = 2
_LAST_OF_MAGIC_V2 = 0xAB


def text_hash(span: memoryview, start: int, end: int) -> int:
    """Hash of some bytes: of a topic as ``scan_ids`` gives it."""
    return _mixed(_hash(span, start, end, _BASIS))


def scan_ids(
    span: memoryview,
    starts: memoryview,
    ends: memoryview,
    waiting: memoryview,
    topics: memoryview,
    ids: memoryview,
    id_starts: memoryview,
    id_ends: memoryview,
    topic_starts: memoryview,
    topic_ends: memoryview,
    fields: memoryview,
) -> None:
    """Hash the unique id and the real topic of whole messages; all columns are int64.

    Args:
        starts, ends: where the messages lie in ``span``, entry headers not included.
        waiting: ``text_hash`` of the topics whose messages are for another topic.
        topics: gets the hash of the real topic, 0 of a message that names none.
        ids: gets the hash of real topic and unique id, 0 of a message that has none.
        id_starts, id_ends, topic_starts, topic_ends: get where both lie in ``span``.
        fields: scratch of four items.
    """
    row = 0
    while row < len(starts):
        topics[row] = 0
        ids[row] = 0
        at = starts[row]
        end = ends[row]
        flag = span[at + 39]
        body = at + 84 + (12 if flag & 16 else 0) + (12 if flag & 32 else 0)
        topic = body + 5 + _u32(span, body)
        if span[at + 7] == _LAST_OF_MAGIC_V2:
            # Two octets say the topic's size, the higher one of which is zero.
            topic += 1
        if topic + 2 <= end:
            topic_end = topic + span[topic - 1]
            if topic_end + 2 <= end:
                _find_properties(span, topic_end + 2, end, fields)
                value = _hash(span, topic, topic_end, _BASIS)
                if _is_among(waiting, _mixed(value)):
                    topic = fields[_REAL_TOPIC]
                    topic_end = fields[_REAL_TOPIC + 1]
                    value = _hash(span, topic, topic_end, _BASIS)
                topic_starts[row] = topic
                topic_ends[row] = topic_end
                id_starts[row] = fields[_UNIQUE_KEY]
                id_ends[row] = fields[_UNIQUE_KEY + 1]
                if topic_end > topic:
                    topics[row] = _mixed(value)
                    if id_ends[row] > id_starts[row]:
                        value = ((value ^ 35) * _PRIME) & _MASK
                        ids[row] = _mixed(_hash(span, id_starts[row], id_ends[row], value))
        row += 1


def compare_ids(
    payload: memoryview,
    payload_columns: memoryview,
    span: memoryview,
    span_columns: memoryview,
    queue_ids: memoryview,
    queue_offsets: memoryview,
    store_times: memoryview,
    sameness: memoryview,
) -> None:
    """Which messages of the log are the ones of a frame beside them.

    Args:
        payload_columns: int64, six items a row: start and end of the message in ``payload``, of its
            unique id, and of its real topic.
        span_columns: the same of the message of the log, in ``span``.
        queue_ids, queue_offsets, store_times: int64, get what the messages of the log say.
        sameness: int64, gets 0 for another message, 1 for one of that id, and 2 for the very same
            record, except for what a writer stamps.
    """
    row = 0
    while row < len(sameness):
        one = row * 6
        at = span_columns[one]
        start = payload_columns[one]
        queue_ids[row] = _i32(span, at + 12)
        queue_offsets[row] = _i64(span, at + 20)
        store_times[row] = _i64(span, at + (68 if span[at + 39] & 16 else 56))
        sameness[row] = 0
        if _are_same(
            payload, payload_columns[one + 2], payload_columns[one + 3],
            span, span_columns[one + 2], span_columns[one + 3],
        ) and _are_same(
            payload, payload_columns[one + 4], payload_columns[one + 5],
            span, span_columns[one + 4], span_columns[one + 5],
        ):  # fmt: skip
            sameness[row] = 1
            # Size, CRC of the body, queue and flag; system flag and time of birth.
            if _are_same(payload, start, start + 20, span, at, at + 20) and _are_same(
                payload, start + 36, start + 48, span, at + 36, at + 48
            ):
                sameness[row] = 2
        row += 1


def find_ids(table: memoryview, places: memoryview, wanted: memoryview, found: memoryview) -> None:
    """Look hashes up in one table of ``put_ids``.

    Args:
        wanted: int64 hashes; 0 is not looked for.
        found: int64 positions; those that are below 0 are set where the table has the hash.
    """
    mask = len(table) - 1
    row = 0
    while row < len(wanted):
        value = wanted[row]
        if value != 0 and found[row] < 0:
            slot = value & mask
            while table[slot] != 0 and table[slot] != value:
                slot = (slot + 1) & mask
            if table[slot] == value:
                found[row] = places[slot]
        row += 1


def put_ids(
    table: memoryview, places: memoryview, hashes: memoryview, positions: memoryview
) -> int:
    """Note where the newest message of each hash stands; how many hashes are new.

    Args:
        table: int64 hashes, 0 where there is none; its length is a power of two, and more than all
            hashes that are ever put.
        places: int64 position of each.
        hashes: int64; 0 is passed.
        positions: int64, ascending.
    """
    mask = len(table) - 1
    fresh = 0
    row = 0
    while row < len(hashes):
        value = hashes[row]
        if value != 0:
            slot = value & mask
            while table[slot] != 0 and table[slot] != value:
                slot = (slot + 1) & mask
            if table[slot] == 0:
                table[slot] = value
                fresh += 1
            places[slot] = positions[row]
        row += 1
    return fresh


def find_keys(
    file: memoryview,
    slot_count: int,
    item_count: int,
    begin_time: int,
    hashes: memoryview,
    since: memoryview,
    first: int,
    rows: memoryview,
    positions: memoryview,
    steps_max: int,
    found_max: int,
) -> tuple[int, int]:
    """Which items of one Index file may be of the keys from ``first`` on.

    A chain that leads to a newer item ends there, as it does at one that is older than is wanted.

    Args:
        file: the whole file.
        begin_time: of its header, epoch ms.
        hashes: int64, those of ``hash_keys``; below 0: not looked for.
        since: int64, oldest store time that is wanted of each; items know it by the second.
        rows, positions: int64, get the numbers of the keys, and where the messages stand, of each
            key the newest first; more than ``found_max`` long. Behind them stands -1 where there
            may be more of the key: a bound was reached, or the chain leads nowhere.
        steps_max: no more items of a chain are looked at.
        found_max: no more are found of a key.

    Returns:
        How many were found, and the first key that found no room.
    """
    items = 40 + 4 * slot_count
    found = 0
    row = first
    while row < len(hashes):
        wanted = hashes[row]
        begun = found
        number = 0
        if wanted >= 0:
            # The slot before the header: its writer counts an item before a slot names it.
            number = _i32(file, 40 + 4 * (wanted % slot_count))
        newest = _i32(file, 36)
        if newest >= item_count:
            newest = item_count - 1
        steps = 0
        while number != 0:
            is_cut = number < 0 or number > newest or steps == steps_max
            is_cut = is_cut or found - begun == found_max
            at = items
            if not is_cut:
                at += 20 * number
                seconds = _i32(file, at + 12)
                is_cut = seconds < 0
                if not is_cut and begin_time + (seconds + 1) * 1000 <= since[row]:
                    break
            if is_cut or _i32(file, at) == wanted:
                if found == len(rows):
                    return begun, row
                rows[found] = row
                positions[found] = -1 if is_cut else _i64(file, at + 4)
                found += 1
            if is_cut:
                break
            newest = number - 1
            number = _i32(file, at + 16)
            steps += 1
        row += 1
    return found, row


def _hash(span: memoryview, start: int, end: int, seed: int) -> int:
    value = seed
    at = start
    while at < end:
        value = ((value ^ span[at]) * _PRIME) & _MASK
        at += 1
    return value


def _mixed(value: int) -> int:
    mixed = value ^ (value >> 32)
    mixed = (mixed * _MIX) & _MASK
    mixed = (mixed ^ (mixed >> 29)) & _MASK_63
    return mixed if mixed != 0 else 1


def _is_among(waiting: memoryview, value: int) -> bool:
    item = 0
    while item < len(waiting):
        if waiting[item] == value:
            return True
        item += 1
    return False


def _are_same(
    one: memoryview, start: int, end: int, other: memoryview, other_start: int, other_end: int
) -> bool:
    if end - start != other_end - other_start:
        return False
    at = 0
    while at < end - start:
        if one[start + at] != other[other_start + at]:
            return False
        at += 1
    return True


def _find_properties(span: memoryview, start: int, end: int, fields: memoryview) -> None:
    """Where UNIQ_KEY and REAL_TOPIC are; the last one of a name counts."""
    fields[0] = 0
    fields[1] = 0
    fields[2] = 0
    fields[3] = 0
    at = start
    while at < end:
        name_end = at
        while name_end < end and span[name_end] != 1 and span[name_end] != 2:
            name_end += 1
        segment_end = name_end
        while segment_end < end and span[segment_end] != 2:
            segment_end += 1
        item = -1
        if name_end < end and span[name_end] == 1:
            if name_end - at == 8 and _u32(span, at) == 0x554E4951:
                item = _UNIQUE_KEY if _u32(span, at + 4) == 0x5F4B4559 else -1
            elif (
                name_end - at == 10
                and _u32(span, at) == 0x5245414C
                and _u32(span, at + 4) == 0x5F544F50
                and _u32(span, at + 6) == 0x4F504943
            ):
                item = _REAL_TOPIC
        if item >= 0 and segment_end > name_end + 1:
            fields[item] = name_end + 1
            fields[item + 1] = segment_end
        at = segment_end + 1


def _i32(span: memoryview, at: int) -> int:
    value = _u32(span, at)
    return value - _WRAP if value >= _SIGN else value


def _i64(span: memoryview, at: int) -> int:
    high = _i32(span, at)
    return high * _WRAP + _u32(span, at + 4)
