# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, annotation_typing=False
# ruff: noqa: PLR1714 - leaves of a kernel: flat, many columns, C comparisons
"""Kernel of dispatch: walks a span of the log, and hashes its tags and keys as Java does.

This file is plain Python; ``_scan.pxd`` beside it gives the C types when Cython compiles it. So
sums that wrap in Java are masked here, and a number above 31 bits is a module constant (Cython
takes such a literal for a Python object). Import it through ``kernel``, which says what was loaded.

A *span* is bytes of the log inside one of its files: offsets are relative to its first byte, which
stands at ``base``. Layouts: message ``CommitLog.MessageExtEncoder``, entry ``DLedgerEntryCoder``,
properties ``MessageDecoder.string2messageProperties``.
"""

from __future__ import annotations

_MASK = 0xFFFF_FFFF
_SIGN = 0x8000_0000
_WRAP = 0x1_0000_0000

_MESSAGE_MAGIC = 0xDAA3_20A7
_MESSAGE_MAGIC_V2 = 0xDAA3_20AB
_BLANK_MAGIC = 0xCBD4_3194
_ENTRY_BLANK = 0xFFFF_FFFF
_MESSAGE_SIZE_MIN = 91

# Why a walk ended; ``kernel.ScanStatus`` gives them their names.
_END = 0
_FULL = 1
_CUT = 2
_BAD_MAGIC = 3
_BAD_SIZE = 4
_BAD_POSITION = 5
_BAD_BODY_SIZE = 6
_BAD_MESSAGE_MAGIC = 7
_BAD_MESSAGE_SIZE = 8
_BAD_BLANK = 9

# Items of the scratch ``fields``: each is a start, followed by its end (0: not there).
_TAGS = 0
_KEYS = 2
_UNIQUE_KEY = 4
_DELAY = 6
_TOPIC = 8

# Instead of a tags code: the message cannot be parsed. No hash and no time is that small.
_UNREADABLE = -(2**62)

# Instead of a group: the message has no queue unit, or cannot be parsed.
_NO_UNIT = -1
_MALFORMED = -2

_REPLACEMENT = 0xFFFD


def _u16(span: memoryview, at: int) -> int:
    return (span[at] << 8) | span[at + 1]


def _u32(span: memoryview, at: int) -> int:
    high = (span[at] << 8) | span[at + 1]
    low = (span[at + 2] << 8) | span[at + 3]
    return (high << 16) | low


def _i32(span: memoryview, at: int) -> int:
    value = _u32(span, at)
    return value - _WRAP if value >= _SIGN else value


def _i64(span: memoryview, at: int) -> int:
    high = _i32(span, at)
    return high * _WRAP + _u32(span, at + 4)


def scan_entries(
    span: memoryview,
    start: int,
    end: int,
    header_size: int,
    base: int,
    starts: memoryview,
    sizes: memoryview,
) -> tuple[int, int, int]:
    """Offsets and sizes of the messages in ``span[start:end]``, in the order of the log.

    Args:
        header_size: 48 for DLedger's entries, 0 for the records of a plain CommitLog.
        base: position of the span's first byte in the log.
        starts, sizes: int64, filled from 0: offset of each message in the span, and its size.

    Returns:
        Messages found; offset of the first byte that was not taken; why the walk ended.
    """
    count = 0
    at = start
    status = _END
    room = len(starts)
    while at < end:
        if end - at < 8:
            status = _CUT
            break
        first = _u32(span, at)
        second = _u32(span, at + 4)
        if header_size == 0:
            blank = second == _BLANK_MAGIC
            size = first
        else:
            blank = first == _ENTRY_BLANK
            size = second
        if blank:
            if size < 8:
                status = _BAD_BLANK
                break
            if size > end - at:
                status = _CUT
                break
            at += size
            continue
        status = _check_entry(span, at, end, header_size, base)
        if status != _END:
            break
        if count == room:
            status = _FULL
            break
        starts[count] = at + header_size
        sizes[count] = size - header_size
        count += 1
        at += size
    return count, at, status


def _check_entry(span: memoryview, at: int, end: int, header_size: int, base: int) -> int:
    """Whether an entry or record begins at ``at`` and ends by ``end``; ``_END`` when it does."""
    message = at + header_size
    if header_size == 0:
        if not _is_message_magic(_u32(span, at + 4)):
            return _BAD_MESSAGE_MAGIC
        size = _u32(span, at)
        if size < _MESSAGE_SIZE_MIN or size >= _SIGN:
            return _BAD_SIZE
        return _CUT if size > end - at else _END
    if _u32(span, at) != 1:
        return _BAD_MAGIC
    size = _u32(span, at + 4)
    if size < header_size + _MESSAGE_SIZE_MIN or size >= _SIGN:
        return _BAD_SIZE
    if size > end - at:
        return _CUT
    if _i64(span, at + 24) != base + at:
        return _BAD_POSITION
    if _u32(span, at + 44) + header_size != size:
        return _BAD_BODY_SIZE
    if not _is_message_magic(_u32(span, message + 4)):
        return _BAD_MESSAGE_MAGIC
    if _u32(span, message) + header_size != size:
        return _BAD_MESSAGE_SIZE
    return _END


def _is_message_magic(magic: int) -> bool:
    return magic in (_MESSAGE_MAGIC, _MESSAGE_MAGIC_V2)


def java_hash(span: memoryview, start: int, end: int, seed: int) -> int:
    """Java's ``String.hashCode`` of UTF-8 bytes, unsigned; ``seed`` is the hash of what precedes.

    The hash is over UTF-16 units, so a character beyond the basic plane counts as two. What is not
    UTF-8 counts as U+FFFD, once for each sequence that Java's decoder replaces by one.
    """
    value = seed
    at = start
    # Four at once: a multiplication waits for the one before it.
    while at + 4 <= end:
        first = span[at]
        second = span[at + 1]
        third = span[at + 2]
        octet = span[at + 3]
        if (first | second | third | octet) >= 128:
            break
        four = first * 29791 + second * 961 + third * 31 + octet
        value = (value * 923521 + four) & _MASK
        at += 4
    while at < end:
        octet = span[at]
        if octet >= 128:
            return _hash_decoded(span, at, end, value)
        value = (value * 31 + octet) & _MASK
        at += 1
    return value


def _hash_decoded(span: memoryview, start: int, end: int, seed: int) -> int:
    value = seed
    at = start
    while at < end:
        first = span[at]
        length = _sequence_length(span, at, end)
        unit = _REPLACEMENT
        if length == 1:
            unit = first
        elif length == 2:
            unit = ((first & 0x1F) << 6) | (span[at + 1] & 0x3F)
        elif length == 3:
            unit = ((first & 0x0F) << 12) | ((span[at + 1] & 0x3F) << 6) | (span[at + 2] & 0x3F)
            if 0xD800 <= unit <= 0xDFFF:
                unit = _REPLACEMENT
        elif length == 4:
            point = ((first & 0x07) << 18) | ((span[at + 1] & 0x3F) << 12)
            point |= ((span[at + 2] & 0x3F) << 6) | (span[at + 3] & 0x3F)
            value = (value * 31 + 0xD7C0 + (point >> 10)) & _MASK
            unit = 0xDC00 | (point & 0x3FF)
        else:
            length = -length
        value = (value * 31 + unit) & _MASK
        at += length
    return value


def _sequence_length(span: memoryview, at: int, end: int) -> int:
    """Octets of the character at ``at``; negative: so many that Java replaces by one U+FFFD."""
    first = span[at]
    if first < 0x80:
        return 1
    if first < 0xC2 or first > 0xF4:
        return -1
    wanted = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    low = 0x90 if first == 0xF0 else 0xA0 if first == 0xE0 else 0x80
    high = 0x8F if first == 0xF4 else 0xBF
    if at + 1 >= end or span[at + 1] < low or span[at + 1] > high:
        return -1
    length = 2
    while length < wanted:
        if at + length >= end or (span[at + length] & 0xC0) != 0x80:
            return -length
        length += 1
    return wanted


def _property_of(span: memoryview, start: int, end: int) -> int:
    """Item of ``fields`` for the property of this name, -1 for all others."""
    size = end - start
    if size == 4:
        name = _u32(span, start)
        if name == 0x54414753:
            return _TAGS
        return _KEYS if name == 0x4B455953 else -1
    if size == 5:
        return _DELAY if _u32(span, start) == 0x44454C41 and span[start + 4] == 0x59 else -1
    if size == 8 and _u32(span, start) == 0x554E4951 and _u32(span, start + 4) == 0x5F4B4559:
        return _UNIQUE_KEY
    return -1


def _read_message(
    span: memoryview, at: int, end: int, base: int, delays: memoryview, fields: memoryview
) -> int:
    """The tags code of the message's unit, or ``_UNREADABLE``; ``fields`` gets what is hashed."""
    sys_flag = _u32(span, at + 36)
    body = at + 84 + (12 if sys_flag & 16 else 0) + (12 if sys_flag & 32 else 0)
    # In version 2 the topic's size has two octets. The higher one is zero: a longer name could not
    # be that of a folder.
    wide = 1 if _u32(span, at + 4) == _MESSAGE_MAGIC_V2 else 0
    if body + 7 + wide > end or _i64(span, at + 28) != base + at:
        return _UNREADABLE
    body_size = _i32(span, body)
    topic = body + 5 + wide + (body_size if body_size > 0 else 0)
    if topic + 2 > end:
        return _UNREADABLE
    if span[topic - 2] != 0 if wide else span[topic - 1] > 127:
        return _UNREADABLE
    topic_end = topic + span[topic - 1]
    if topic_end + 2 > end:
        return _UNREADABLE
    size = _u16(span, topic_end)
    # As in Java, a negative length stands for no properties.
    if topic_end + 2 + (0 if size > 32767 else size) != end:
        return _UNREADABLE
    fields[_TOPIC] = topic
    fields[_TOPIC + 1] = topic_end
    _find_properties(span, topic_end + 2, end, fields)
    if fields[_DELAY + 1] > 0 and _is_schedule_topic(span, topic, topic_end - topic):
        level = _parse_int(span, fields[_DELAY], fields[_DELAY + 1])
        if level == _WRAP:
            return _UNREADABLE
        if level >= len(delays):
            level = len(delays) - 1
        if level > 0:
            return _i64(span, body - 28 - (12 if sys_flag & 32 else 0)) + delays[level]
    code = java_hash(span, fields[_TAGS], fields[_TAGS + 1], 0)
    return code - _WRAP if code >= _SIGN else code


def _find_properties(span: memoryview, start: int, end: int, fields: memoryview) -> None:
    """Where the values are that dispatch reads; the last one of a name counts."""
    item = 0
    while item < _TOPIC:
        fields[item] = 0
        item += 1
    at = start
    while at < end:
        name_end = at
        while name_end < end and span[name_end] != 1 and span[name_end] != 2:
            name_end += 1
        if name_end >= end or span[name_end] == 2:
            # A segment without a separator: it is dropped.
            at = name_end + 1
            continue
        segment_end = name_end
        while segment_end < end and span[segment_end] != 2:
            segment_end += 1
        if name_end > at and segment_end > name_end + 1:
            item = _property_of(span, at, name_end)
            if item >= 0:
                fields[item] = name_end + 1
                fields[item + 1] = segment_end
        at = segment_end + 1


def _put_keys_of(
    span: memoryview,
    fields: memoryview,
    seed: int,
    row: int,
    key_hashes: memoryview,
    key_rows: memoryview,
    first: int,
    with_tags: bool,
) -> int:
    """How many keys of the message were put from ``first`` on; -1 when there is no room."""
    room = len(key_hashes)
    key = first
    if fields[_UNIQUE_KEY + 1] > 0:
        if key == room:
            return -1
        key_hashes[key] = _absolute(
            java_hash(span, fields[_UNIQUE_KEY], fields[_UNIQUE_KEY + 1], seed)
        )
        key_rows[key] = row
        key += 1
    at = fields[_KEYS]
    end = fields[_KEYS + 1]
    while at < end:
        piece_end = at
        while piece_end < end and span[piece_end] != 32:
            piece_end += 1
        if piece_end > at:
            if key == room:
                return -1
            key_hashes[key] = _absolute(java_hash(span, at, piece_end, seed))
            key_rows[key] = row
            key += 1
        at = piece_end + 1
    if with_tags and fields[_TAGS + 1] > fields[_TAGS]:
        if key == room:
            return -1
        # Behind the topic's ``#`` stands ``T#``.
        key_hashes[key] = _absolute(
            java_hash(span, fields[_TAGS], fields[_TAGS + 1], (seed * 961 + 2639) & _MASK)
        )
        key_rows[key] = row
        key += 1
    return key - first


def hash_keys(
    span: memoryview, starts: memoryview, ends: memoryview, seed: int, hashes: memoryview
) -> None:
    """The hashes that index items have, of many keys of one topic.

    Args:
        starts, ends: int64; where the keys lie in ``span``.
        seed: Java's hash, unsigned, of the topic and the ``#`` behind it.
        hashes: int64, gets the non-negative ``keyHash`` of each.
    """
    row = 0
    while row < len(starts):
        hashes[row] = _absolute(java_hash(span, starts[row], ends[row], seed))
        row += 1


def _absolute(value: int) -> int:
    """Java's ``Math.abs`` of an unsigned hash, with 0 for the one that has no absolute value."""
    if value < _SIGN:
        return value
    return 0 if value == _SIGN else _WRAP - value


def _is_schedule_topic(span: memoryview, start: int, size: int) -> bool:
    """Whether the topic is SCHEDULE_TOPIC_XXXX, whose units carry the time of delivery."""
    return (
        size == 19
        and _u32(span, start) == 0x53434845
        and _u32(span, start + 4) == 0x44554C45
        and _u32(span, start + 8) == 0x5F544F50
        and _u32(span, start + 12) == 0x49435F58
        and _u16(span, start + 16) == 0x5858
        and span[start + 18] == 0x58
    )


def _parse_int(span: memoryview, start: int, end: int) -> int:
    """Java's ``Integer.parseInt`` of ASCII digits; ``_WRAP`` when it would throw."""
    at = start
    negative = False
    if at < end and (span[at] == 45 or span[at] == 43):
        negative = span[at] == 45
        at += 1
    if at >= end or end - at > 18:
        return _WRAP
    value = 0
    while at < end:
        if span[at] < 48 or span[at] > 57:
            return _WRAP
        value = value * 10 + (span[at] - 48)
        at += 1
    if negative:
        value = -value
    return _WRAP if value >= _SIGN or value < -_SIGN else value


def _intern(
    span: memoryview,
    topic: int,
    queue_id: int,
    topic_hash: int,
    group_topics: memoryview,
    group_queues: memoryview,
    count: int,
    table: memoryview,
) -> int:
    """Number of the group of this topic and queue, ``count`` when it is a new one (then added).

    Topics are compared by their bytes, so two queues never share a group.
    """
    mask = len(table) - 1
    size = span[topic - 1]
    slot = topic_hash ^ ((queue_id * 0x5BD1E995) & _MASK)
    slot = (slot * 0x27D4EB2F) & _MASK
    slot = (slot ^ (slot >> 15)) & mask
    while True:
        group = table[slot]
        if group < 0:
            table[slot] = count
            group_topics[count] = topic
            group_queues[count] = queue_id
            return count
        other = group_topics[group]
        if group_queues[group] == queue_id and span[other - 1] == size:
            at = 0
            while at < size and span[other + at] == span[topic + at]:
                at += 1
            if at == size:
                return group
        slot = (slot + 1) & mask


def dispatch_span(
    span: memoryview,
    base: int,
    starts: memoryview,
    sizes: memoryview,
    first: int,
    last: int,
    delays: memoryview,
    with_keys: bool,
    with_tags: bool,
    queue_offsets: memoryview,
    store_times: memoryview,
    tags_codes: memoryview,
    groups: memoryview,
    key_hashes: memoryview,
    key_rows: memoryview,
    group_topics: memoryview,
    group_queues: memoryview,
    table: memoryview,
    fields: memoryview,
) -> tuple[int, int, int, int]:
    """What ConsumeQueue and Index need of the messages ``first`` to ``last`` of a scanned span.

    A *row* is a message's number in ``starts``; the columns are filled at the row. ``groups`` gets
    a number for each topic and queue, dense from 0, or -1 for a message without a unit (prepared or
    rolled back; or several in one record, as RocketMQ 5 has them in batch queues), or -2 for one
    that cannot be parsed: Java skips such a message, and so do we.

    Args:
        delays: int64, milliseconds by delay level; item 0 is not used.
        with_keys: whether keys are hashed.
        with_tags: whether the tag is one more of them, ``T#TAG``, as RocketMQ 5 has it.
        queue_offsets, store_times, tags_codes: int64 columns.
        groups: int32 column.
        key_hashes, key_rows: int32, one item a key, in Java's order; the hash is the item's
            non-negative ``keyHash``. At least as long as one message can have keys.
        group_topics, group_queues: int64, one item a group: offset of its topic in the span (its
            length is the octet before), and its queue.
        fields: int64 scratch of ten items.
        table: int32 scratch; its length is a power of two, at least twice the rows.

    Returns:
        First row that was not taken (``last``, unless its keys found no room), keys, groups, and
        messages that cannot be parsed.
    """
    slot = 0
    while slot < len(table):
        table[slot] = -1
        slot += 1
    keys = 0
    group_count = 0
    malformed = 0
    row = first
    while row < last:
        at = starts[row]
        end = at + sizes[row]
        sys_flag = _u32(span, at + 36)
        queue_offsets[row] = _i64(span, at + 20)
        store_times[row] = _i64(span, at + (68 if sys_flag & 16 else 56))
        tags_codes[row] = 0
        code = _read_message(span, at, end, base, delays, fields)
        if code == _UNREADABLE:
            groups[row] = _MALFORMED
            malformed += 1
            row += 1
            continue
        topic = fields[_TOPIC]
        topic_hash = java_hash(span, topic, fields[_TOPIC + 1], 0)
        transaction = sys_flag & 12
        if with_keys and transaction != 12:
            added = _put_keys_of(
                span,
                fields,
                (topic_hash * 31 + 35) & _MASK,
                row,
                key_hashes,
                key_rows,
                keys,
                with_tags,
            )
            if added < 0:
                break
            keys += added
        tags_codes[row] = code
        # 128: several messages in one record, which RocketMQ 5 has in queues of their own kind.
        if transaction == 4 or transaction == 12 or sys_flag & 128:
            groups[row] = _NO_UNIT
        else:
            group = _intern(
                span,
                topic,
                _i32(span, at + 12),
                topic_hash,
                group_topics,
                group_queues,
                group_count,
                table,
            )
            if group == group_count:
                group_count += 1
            groups[row] = group
        row += 1
    return row, keys, group_count, malformed


def first_delayed(
    payload: memoryview, at: int, sizes: memoryview, first: int, count: int, header_size: int
) -> int:
    """Number of the first of ``count`` records that has the property DELAY; -1 when none has.

    Args:
        payload: a client's frame that ``check_run`` has passed; the records begin at ``at``.
        sizes: of the frame's records, entry headers included; unsigned 32-bit numbers.
        first: number of the first record in ``sizes``.
    """
    number = first
    while number < first + count:
        start = at + header_size
        at += sizes[number]
        sys_flag = _u32(payload, start + 36)
        place = start + 84 + (12 if sys_flag & 16 else 0) + (12 if sys_flag & 32 else 0)
        place += 4 + _i32(payload, place)
        place += 1 + payload[place] + 2
        while place < at:
            if (
                at - place > 5
                and payload[place + 5] == 1
                and _property_of(payload, place, place + 5) == _DELAY
            ):
                return number
            while place < at and payload[place] != 2:
                place += 1
            place += 1
        number += 1
    return -1
