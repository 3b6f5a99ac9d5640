"""Records of several messages, as RocketMQ 5 has them in topics with queues of batches.

Such a record has the flag ``INNER_BATCH``. Its body is what a client sent as a batch
(``message.ITEM_SIZE_MIN`` describes an item), its own properties are those of the request, and
``INNER_NUM`` and ``INNER_BASE`` say which queue offsets its messages have. RocketMQ's clients of
version 5 take it apart as ``messages_in`` does (``MessageDecoder.decodeMessage``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from struct import Struct
from typing import NamedTuple

from ledgermq.formats.batch_unit import BASE_END, Numbers, batch_numbers
from ledgermq.formats.records.body_compression import plain_body
from ledgermq.formats.records.message import (
    COMPRESSED,
    COMPRESSION_MASK,
    INNER_BATCH,
    ITEM_SIZE_MIN,
    NEED_UNWRAP,
    POSITION,
    PROPERTIES_SIZE,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
    WORD,
    Message,
    decode_message,
    encode_message,
    properties_in,
    queue_of,
)
from ledgermq.formats.records.properties import decode_properties
from ledgermq.model.errors import BodyUnreadableError, MessageIllegalError

BATCH_PLAIN_MAX = 4 * 1024 * 1024
"""Bytes that the body of such a record may become. RocketMQ's clients compress no batch, and its
brokers take none that is larger."""

PACKED_MAX = 4
"""Records that are inflated for one answer: some 50 ms of a processor."""

_ITEM = Struct(">iiiii")
_OF_THE_WHOLE = INNER_BATCH | NEED_UNWRAP | COMPRESSED | COMPRESSION_MASK


class BatchRecord(NamedTuple):
    """Where the messages of a record belong."""

    topic: bytes
    queue_id: int
    numbers: Numbers


def batch_in(record: memoryview) -> BatchRecord | None:
    """What a whole, well-formed record says of the messages in it; None of a single message."""
    if not is_batch(record):
        return None
    (offset,) = POSITION.unpack_from(record, QUEUE_OFFSET_AT)
    numbers = batch_numbers(decode_properties(properties_in(record)), offset)
    return BatchRecord(*queue_of(record), numbers)


def is_batch(record: memoryview) -> bool:
    """Whether a record has several messages."""
    return bool(flags_in(record) & INNER_BATCH)


def is_packed(sys_flag: int) -> bool:
    """Whether a record with these flags has several messages, and has to be inflated for them."""
    return bool(sys_flag & INNER_BATCH and sys_flag & COMPRESSED)


def flags_in(record: memoryview) -> int:
    """The flags of a whole record."""
    flags: int = WORD.unpack_from(record, SYS_FLAG_AT)[0]
    return flags


def messages_in(message: Message) -> list[Message]:
    """The messages of a record of several, each with its own queue offset; otherwise itself.

    They are as many as it says that there are, whatever its body has behind them. One whose body is
    no batch, or becomes more than ``BATCH_PLAIN_MAX``, is itself: nobody can take it apart.
    """
    if not message.sys_flag & INNER_BATCH:
        return [message]
    most = numbers_of(message).messages
    try:
        body = plain_body(message.body, message.sys_flag, size_max=BATCH_PLAIN_MAX)
        items = _items(memoryview(body), most)
    except (BodyUnreadableError, struct.error, ValueError):
        return [message]
    if not items:
        return [message]
    flags = message.sys_flag & ~_OF_THE_WHOLE
    return [
        replace(
            message,
            body=body,
            properties=properties,
            flag=flag,
            sys_flag=flags,
            queue_offset=message.queue_offset + number,
        )
        for number, (flag, body, properties) in enumerate(items)
    ]


def message_at(message: Message, queue_offset: int) -> Message:
    """The message at ``queue_offset`` of the record ``message``, which has it; where the record
    cannot be taken apart, the record as a message with that offset.
    """
    return one_of(messages_in(message), queue_offset)


def one_of(messages: Sequence[Message], queue_offset: int) -> Message:
    """The same, of what ``messages_in`` has found."""
    number = queue_offset - messages[0].queue_offset
    if 0 <= number < len(messages) and not messages[0].sys_flag & INNER_BATCH:
        return messages[number]
    flags = messages[0].sys_flag & ~(INNER_BATCH | NEED_UNWRAP)
    return replace(messages[0], queue_offset=queue_offset, sys_flag=flags)


def record_of_one(
    messages: Sequence[Message], record: memoryview, queue_offset: int
) -> bytes | bytearray:
    """The same as a record of its own.

    Args:
        messages: what ``messages_in`` has found in ``record``.
    """
    try:
        return encode_message(one_of(messages, queue_offset))
    except MessageIllegalError:
        # No broker wrote it; whoever reads it gets it as it is, and what is behind it, too.
        whole = bytearray(record)
        (flags,) = WORD.unpack_from(whole, SYS_FLAG_AT)
        WORD.pack_into(whole, SYS_FLAG_AT, flags & ~(INNER_BATCH | NEED_UNWRAP))
        POSITION.pack_into(whole, QUEUE_OFFSET_AT, queue_offset)
        return whole


def single_records(
    record: memoryview, first: int = 0, end: int = BASE_END
) -> Iterator[tuple[int, bytes | bytearray]]:
    """The messages of a whole, well-formed record with these queue offsets, each with its offset
    and as a record of its own; one is made when it is asked for.
    """
    numbers = numbers_in(record)
    if not is_batch(record):
        if first <= numbers.base < end:
            yield numbers.base, bytes(record)
        return
    messages = messages_in(decode_message(record, check_crc=False))
    for offset in range(max(first, numbers.base), min(end, numbers.base + numbers.messages)):
        yield offset, record_of_one(messages, record, offset)


def numbers_in(record: memoryview) -> Numbers:
    """Queue offsets of the messages in a whole, well-formed record."""
    batch = batch_in(record)
    if batch is not None:
        return batch.numbers
    return Numbers(POSITION.unpack_from(record, QUEUE_OFFSET_AT)[0], 1)


def numbers_of(message: Message) -> Numbers:
    """The same of a decoded record."""
    if not message.sys_flag & INNER_BATCH:
        return Numbers(message.queue_offset, 1)
    return batch_numbers(message.parsed_properties(), message.queue_offset)


def _items(body: memoryview, most: int) -> list[tuple[int, bytes, bytes]]:
    """Flag, body and properties of each item, of ``most`` at the most.

    Raises:
        struct.error, ValueError: the body is not one item behind the other.
    """
    found: list[tuple[int, bytes, bytes]] = []
    at = 0
    while at < len(body) and len(found) < most:
        size, _, _, flag, body_size = _ITEM.unpack_from(body, at)
        end, properties_at = at + size, at + _ITEM.size + body_size
        if size < ITEM_SIZE_MIN or body_size < 0 or properties_at + 2 > end or end > len(body):
            raise ValueError("item does not fit")
        (properties_size,) = PROPERTIES_SIZE.unpack_from(body, properties_at)
        if properties_at + 2 + properties_size != end:
            raise ValueError("properties do not end the item")
        content = bytes(body[at + _ITEM.size : properties_at])
        found.append((flag, content, bytes(body[properties_at + 2 : end])))
        at = end
    return found
