"""PULL and PULLED: a request for messages of one queue, and its answer as they stand in the log.

The layouts are in docs/formats/client-protocol.md. A PULLED has the version of its PULL: in one of
version 1 there are five statuses, and no node is suggested. A PULL of version 3 has an SQL
expression behind its topic, and before that its size. The tables of a PULLED are handed on as
memoryviews of the frame; its records travel in a part of their own and are not touched here.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from operator import add
from struct import Struct
from typing import NamedTuple

from ledgermq.formats.dledger_entry import HEADER_SIZE as ENTRY_HEADER_SIZE
from ledgermq.model.errors import FilterIllegalError, ProtocolError
from ledgermq.model.limits import QUEUE_ID_MAX, TOPIC_SIZE_MAX
from ledgermq.model.message_filter import EXPRESSION_SIZE_MAX, TAGS_MAX
from ledgermq.wire.header import (
    FLAG_ENTRY_HEADERS,
    HEADER_SIZE,
    VERSION,
    Kind,
    decode_header,
    encode_header,
)

_PULL = Struct("<qiIIIHH")
_PULLED = Struct("<BBBxIqqq")
_EXPRESSION_SIZE = Struct("<H")
PULL_HASHES_AT = HEADER_SIZE + _PULL.size
PULLED_TABLES_AT = HEADER_SIZE + _PULLED.size

assert PULL_HASHES_AT == 44
assert PULLED_TABLES_AT == 48

MESSAGES_MAX = 65_536
"""Most messages of one PULLED."""

BYTES_MAX = 64 * 1024 * 1024
"""Most bytes that one PULL may ask for."""

HOLD_MS_MAX = 600_000
"""Longest hold: a client that asks for more has forgotten that it asked."""

TAG_HASHES_MAX = TAGS_MAX
"""Most tags of one subscription."""

EXPRESSION_VERSION = 3
"""First version whose PULL may have an SQL expression."""

"""Bytes of an entry's header, where the log has entries."""

NODE_SIZE_MAX = 16
"""Most bytes of a member's id."""


class PullStatus(IntEnum):
    """What a PULLED found; names and meaning are those of RocketMQ's ``GetMessageStatus``."""

    FOUND = 0
    OFFSET_OVERFLOW_ONE = 1
    NO_MATCHED_MESSAGE = 2
    OFFSET_TOO_SMALL = 3
    OFFSET_OVERFLOW_BADLY = 4
    NO_MESSAGE_IN_QUEUE = 5
    OFFSET_FOUND_NULL = 6
    MESSAGE_WAS_REMOVING = 7
    NO_MATCHED_LOGIC_QUEUE = 8

    @property
    def corrects_offset(self) -> bool:
        """Whether what was asked for is not in the queue, and ``next_offset`` is elsewhere."""
        return self in _CORRECTIONS


_STATUSES = {int(status): status for status in PullStatus}
_CORRECTIONS = frozenset(
    {
        PullStatus.OFFSET_TOO_SMALL,
        PullStatus.OFFSET_OVERFLOW_BADLY,
        PullStatus.NO_MESSAGE_IN_QUEUE,
        PullStatus.OFFSET_FOUND_NULL,
        PullStatus.NO_MATCHED_LOGIC_QUEUE,
    }
)
_IN_VERSION_1 = {
    PullStatus.NO_MESSAGE_IN_QUEUE: PullStatus.OFFSET_OVERFLOW_ONE,
    PullStatus.OFFSET_FOUND_NULL: PullStatus.NO_MATCHED_MESSAGE,
    PullStatus.MESSAGE_WAS_REMOVING: PullStatus.NO_MATCHED_MESSAGE,
    PullStatus.NO_MATCHED_LOGIC_QUEUE: PullStatus.OFFSET_OVERFLOW_BADLY,
}
"""What a client of version 1 is told; it goes on at the next offset whatever the status."""


class Pull(NamedTuple):
    """What a PULL asks for.

    Attributes:
        queue_offset: of the first message wanted; any whole number gets an answer.
        messages_max: most messages of the answer.
        bytes_max: most bytes of the answer; one message is given whatever its size.
        hold_ms: how long the node may wait for a message when it has none.
        tag_hashes: Java's hashes of the tags wanted; empty = all messages.
        version: of the answer.
        expression: SQL-92 over the properties of the messages wanted; empty = all messages.
        with_headers: each message has its entry's header before it in the answer, if it has one.
    """

    request_id: int
    topic: str
    queue_id: int
    queue_offset: int
    messages_max: int
    bytes_max: int
    hold_ms: int
    tag_hashes: tuple[int, ...] = ()
    version: int = VERSION
    expression: str = ""
    with_headers: bool = False


class Pulled(NamedTuple):
    """The tables of a PULLED; ``starts`` and ``sizes`` are views of the message they came in.

    Attributes:
        next_offset: queue offset to ask for next.
        begin: first queue offset that the queue holds.
        end: queue offset behind its last message.
        starts: unsigned 32-bit offset in part 2 of each message.
        sizes: unsigned 32-bit size of each message.
        suggested: id of the member that had better be asked for what follows; empty = the leader.
        entry_header_size: bytes before each message in part 2 that are its entry's header; 0 where
            there are none, or none were asked for.
    """

    request_id: int
    status: PullStatus
    next_offset: int
    begin: int
    end: int
    starts: memoryview
    sizes: memoryview
    suggested: str = ""
    entry_header_size: int = 0


def encode_pull(pull: Pull) -> bytes:
    """The whole of a PULL.

    Raises:
        FilterIllegalError: it has an SQL expression, and the node is too old for one.
    """
    if pull.expression and pull.version < EXPRESSION_VERSION:
        raise FilterIllegalError(
            "node is too old to filter by properties",
            version=pull.version,
            minimum=EXPRESSION_VERSION,
        )
    topic = pull.topic.encode()
    fixed = _PULL.pack(
        pull.queue_offset,
        pull.queue_id,
        pull.messages_max,
        pull.bytes_max,
        pull.hold_ms,
        len(pull.tag_hashes),
        len(topic),
    )
    hashes = Struct(f"<{len(pull.tag_hashes)}i").pack(*pull.tag_hashes)
    flags = FLAG_ENTRY_HEADERS if pull.with_headers else 0
    header = encode_header(Kind.PULL, pull.request_id, flags, version=pull.version)
    parts = [header, fixed, hashes, topic]
    if pull.version >= EXPRESSION_VERSION:
        expression = pull.expression.encode()
        parts += [_EXPRESSION_SIZE.pack(len(expression)), expression]
    return b"".join(parts)


def decode_pull(message: bytes | memoryview) -> Pull:
    """What a PULL asks for.

    Raises:
        ProtocolError: it is none, its size and its counts differ, or a field passes its limit.
    """
    header = decode_header(message)
    if header.kind is not Kind.PULL:
        raise ProtocolError("not a PULL", kind=header.kind.name)
    if len(message) < PULL_HASHES_AT:
        raise ProtocolError("PULL too short", size=len(message), minimum=PULL_HASHES_AT)
    offset, queue_id, messages, size, hold_ms, hash_count, topic_size = _PULL.unpack_from(
        message, HEADER_SIZE
    )
    _check("queue id", queue_id, 0, QUEUE_ID_MAX)
    _check("most messages", messages, 1, MESSAGES_MAX)
    _check("most bytes", size, 0, BYTES_MAX)
    _check("hold", hold_ms, 0, HOLD_MS_MAX)
    _check("tag hashes", hash_count, 0, TAG_HASHES_MAX)
    _check("topic size", topic_size, 1, TOPIC_SIZE_MAX)
    topic_at = PULL_HASHES_AT + 4 * hash_count
    topic_end = end = topic_at + topic_size
    if header.version >= EXPRESSION_VERSION:
        end += _EXPRESSION_SIZE.size
        if end <= len(message):
            (size_of_expression,) = _EXPRESSION_SIZE.unpack_from(message, topic_end)
            _check("size of the expression", size_of_expression, 0, EXPRESSION_SIZE_MAX)
            end += size_of_expression
    if end != len(message):
        raise ProtocolError("PULL of another size than its counts", size=len(message), expected=end)
    topic = _text("topic", message[topic_at:topic_end])
    expression = _text("expression", message[topic_end + _EXPRESSION_SIZE.size :])
    hashes = Struct(f"<{hash_count}i").unpack_from(message, PULL_HASHES_AT)
    return Pull(
        header.request_id,
        topic,
        queue_id,
        offset,
        messages,
        size,
        hold_ms,
        hashes,
        header.version,
        expression,
        bool(header.flags & FLAG_ENTRY_HEADERS),
    )


def encode_pulled(
    request_id: int,
    status: PullStatus,
    *,
    next_offset: int,
    begin: int,
    end: int,
    starts: bytes | memoryview = b"",
    sizes: bytes | memoryview = b"",
    suggested: str = "",
    version: int = VERSION,
    entry_header_size: int = 0,
) -> bytes:
    """Part 1 of a PULLED.

    Args:
        suggested: id of the member that had better be asked next.
        version: that of the PULL.
        entry_header_size: so many bytes before each message in part 2 are its entry's header.
        starts: where each message begins in part 2, as little-endian 32-bit words.
        sizes: size of each message, likewise.
    """
    starts, sizes = memoryview(starts).cast("B"), memoryview(sizes).cast("B")
    assert len(starts) == len(sizes) and len(starts) % 4 == 0, (len(starts), len(sizes))
    if version == 1:
        status, suggested = _IN_VERSION_1.get(status, status), ""
    node = suggested.encode()
    numbers = (len(starts) // 4, next_offset, begin, end)
    fixed = _PULLED.pack(status, len(node), entry_header_size, *numbers)
    header = encode_header(Kind.PULLED, request_id, version=version)
    return b"".join((header, fixed, starts, sizes, node))


def decode_pulled(message: bytes | memoryview, *, records_size: int) -> Pulled:
    """The tables of a PULLED, from its part 1.

    Args:
        records_size: bytes of part 2; every message is known to lie in it afterwards.

    Raises:
        ProtocolError: it is none, or its tables do not fit its size or part 2.
    """
    header = decode_header(message)
    if header.kind is not Kind.PULLED:
        raise ProtocolError("not a PULLED", kind=header.kind.name)
    if len(message) < PULLED_TABLES_AT:
        raise ProtocolError("PULLED too short", size=len(message), minimum=PULLED_TABLES_AT)
    number, node_size, entry_header_size, count, *offsets = _PULLED.unpack_from(
        message, HEADER_SIZE
    )
    next_offset, begin, end = offsets
    status = _STATUSES.get(number)
    if status is None:
        raise ProtocolError("unknown status of a pull", status=number, limit=max(_STATUSES))
    _check("message count", count, 0, MESSAGES_MAX)
    _check("size of the suggested node", node_size, 0, NODE_SIZE_MAX)
    _check("size of an entry's header", entry_header_size, 0, ENTRY_HEADER_SIZE)
    sizes_at = PULLED_TABLES_AT + 4 * count
    node_at = sizes_at + 4 * count
    if len(message) != node_at + node_size:
        raise ProtocolError(
            "PULLED of another size than its tables",
            size=len(message),
            expected=node_at + node_size,
        )
    if count == 0 and status is PullStatus.FOUND:
        raise ProtocolError("PULLED found no message", count=count, minimum=1)
    _check("next queue offset", next_offset, 0, 2**63 - 1)
    _check("first queue offset", begin, 0, 2**63 - 1)
    _check("end of the queue", end, begin, 2**63 - 1)
    view = memoryview(message)
    starts = view[PULLED_TABLES_AT:sizes_at].cast("I")
    sizes = view[sizes_at:node_at].cast("I")
    if count:
        _check_records(starts, sizes, records_size)
        _check("begin of a message", min(starts), entry_header_size, records_size)
    suggested = str(view[node_at:], "ascii", "replace")
    return Pulled(
        header.request_id,
        status,
        next_offset,
        begin,
        end,
        starts,
        sizes,
        suggested,
        entry_header_size,
    )


def _text(name: str, data: bytes | memoryview) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"{name} is not UTF-8", value=bytes(data)) from error


def _check_records(starts: Sequence[int], sizes: Sequence[int], records_size: int) -> None:
    reached = max(map(add, starts, sizes))
    if reached > records_size:
        raise ProtocolError("message behind its part", end=reached, limit=records_size)


def _check(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ProtocolError(f"{name} out of range", value=value, minimum=low, limit=high)
