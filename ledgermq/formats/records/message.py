"""Message codec: one record of the commit log, and the body of one DLedger entry.

Layout, big-endian (RocketMQ ``CommitLog.MessageExtEncoder``); B and S are the sizes of the two
hosts, 8 (IPv4) or 20 (IPv6):

    offset       size  field                        unit
    0            4     total_size                   bytes, this field included
    4            4     magic                        0xDAA320A7; 0xDAA320AB in version 2
    8            4     body_crc                     CRC-32 of the body, without its highest bit
    12           4     queue_id
    16           4     flag                         the application's
    20           8     queue_offset                 messages from the start of the queue
    28           8     physical_offset              position of this record in the log
    36           4     sys_flag                     bits, below
    40           8     born_timestamp               epoch ms, the client's clock
    48           B     born_host                    ip, port (``host_address``)
    48+B         8     store_timestamp              epoch ms, the broker's clock
    56+B         S     store_host                   ip, port
    56+B+S       4     reconsume_times
    60+B+S       8     prepared_transaction_offset  position of the half message, else 0
    68+B+S       4+n   body                         size, bytes as stored (perhaps compressed)
                 1+n   topic                        size (signed byte), UTF-8; in version 2 the size
                                                    has two bytes
                 2+n   properties                   size (signed), ``properties``

RocketMQ 5 writes version 2 by itself, for topics of more than 127 bytes: retry topics of groups
that consume by POP. It is read here, and never written. As a topic is the name of a folder, none
has more than 255 bytes.

The format protects the body alone. In an entry that we wrote, DLedger's header protects all of it
(``dledger_entry``).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from struct import Struct
from zlib import crc32

from ledgermq.formats.records.host_address import (
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    NO_HOST,
    Host,
    decode_host,
    encode_host,
    is_v6,
)
from ledgermq.formats.records.properties import KEYS, TAGS, UNIQ_KEY, decode_properties
from ledgermq.model.errors import CorruptLogError, MessageIllegalError, corrupt
from ledgermq.model.limits import (
    BODY_SIZE_MAX,
    PROPERTIES_SIZE_MAX,
    STORED_TOPIC_SIZE_MAX,
    TOPIC_SIZE_MAX,
)

MAGIC = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGICS = frozenset((MAGIC, MAGIC_V2))

TOTAL_SIZE_AT = 0
MAGIC_AT = 4
BODY_CRC_AT = 8
QUEUE_ID_AT = 12
FLAG_AT = 16
QUEUE_OFFSET_AT = 20
PHYSICAL_OFFSET_AT = 28
SYS_FLAG_AT = 36
BORN_TIMESTAMP_AT = 40
BORN_HOST_AT = 48

_LAST_OF_MAGIC_AT = MAGIC_AT + 3

BODY_SIZE_AT = 84
"""Where both hosts are IPv4; each IPv6 host adds 12 bytes."""

HEAD_SIZE = BODY_SIZE_AT + 4
"""Bytes up to and with the body's size, where both hosts are IPv4."""

SIZE_MIN = 91
"""Bytes of a message with IPv4 hosts and without body, topic and properties."""

CRC_MASK = 0x7FFF_FFFF
"""The bits of a CRC that are stored."""

WORD = Struct(">I")
SIZE_AND_MAGIC = Struct(">iI")
POSITION = Struct(">q")
TIMESTAMP = Struct(">q")
PROPERTIES_SIZE = Struct(">h")

ITEM_SIZE_MIN = 20 + PROPERTIES_SIZE.size
"""Bytes of the smallest message of a batch as RocketMQ's clients send it.

Big-endian (RocketMQ ``MessageDecoder.encodeMessage``), one item behind the other; topic, queue,
hosts and time are those of the request:

    offset  size  field        unit
    0       4     item_size    bytes, this field included
    4       4     magic        0, not looked at
    8       4     body_crc     0, not looked at: the broker computes it
    12      4     flag         the application's
    16      4+n   body         size, bytes
    20+n    2+n   properties   size, ``properties``
"""

COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_MASK = 0xC
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
COMPRESSION_MASK = 0x700
COMPRESSION_LZ4 = 0x100
COMPRESSION_ZSTD = 0x200
COMPRESSION_ZLIB = 0x300

V6_MASK = BORN_HOST_V6 | STORE_HOST_V6
_V6_EXTRA = HOST_V6_SIZE - HOST_V4_SIZE
_SYS_FLAG = Struct(">i")
_BODY_SIZE = Struct(">i")
_TIMES = Struct(">i")
_BEHIND_TIMES = _TIMES.size + POSITION.size + _BODY_SIZE.size
"""From the reconsume times, of this many bytes, to the body: they and two more fields."""


def _head(born: int, store: int) -> Struct:
    return Struct(f">iIiiiqqiq{born}sq{store}siqi")


_HEADS = {
    0: _head(HOST_V4_SIZE, HOST_V4_SIZE),
    BORN_HOST_V6: _head(HOST_V6_SIZE, HOST_V4_SIZE),
    STORE_HOST_V6: _head(HOST_V4_SIZE, HOST_V6_SIZE),
    BORN_HOST_V6 | STORE_HOST_V6: _head(HOST_V6_SIZE, HOST_V6_SIZE),
}
"""Everything up to the body's size, by the two host bits."""

assert _HEADS[0].size == HEAD_SIZE
assert HEAD_SIZE + 1 + 2 == SIZE_MIN
assert _HEADS[V6_MASK].size + 1 + 2 == SIZE_MIN + 2 * _V6_EXTRA


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message as stored; ``body_crc`` and ``size`` are the record's when it was decoded.

    ``body`` of a decoded message is a part of the buffer it was decoded from: valid as long as
    that is, and to be copied by who keeps it. ``properties`` are raw (``decode_properties``).
    """

    topic: str
    queue_id: int
    body: memoryview | bytes
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    born_timestamp: int = 0
    born_host: Host = NO_HOST
    store_timestamp: int = 0
    store_host: Host = NO_HOST
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body_crc: int = 0
    size: int = 0

    def parsed_properties(self) -> dict[str, str]:
        """The properties by name; parsed on each call."""
        return decode_properties(self.properties)

    @property
    def tags(self) -> str:
        """The tag, empty when there is none."""
        return self.parsed_properties().get(TAGS, "")

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys, as the index splits them."""
        return split_keys(self.parsed_properties().get(KEYS, ""))

    @property
    def unique_id(self) -> str:
        """The client's id of the message, empty when there is none."""
        return self.parsed_properties().get(UNIQ_KEY, "")

    @property
    def transaction(self) -> int:
        """One of the ``TRANSACTION_`` values."""
        return self.sys_flag & TRANSACTION_MASK


def split_keys(keys: str) -> tuple[str, ...]:
    """The keys in a ``KEYS`` property: divided by single spaces, empty ones skipped."""
    return tuple(key for key in keys.split(" ") if key)


def body_checksum(body: bytes | bytearray | memoryview) -> int:
    """``body_crc`` of ``body``."""
    return crc32(body) & CRC_MASK


def message_size(
    *, topic_size: int, body_size: int, properties_size: int, sys_flag: int = 0
) -> int:
    """Bytes of a record whose parts have these sizes in bytes."""
    hosts = _HEADS[sys_flag & V6_MASK].size
    return hosts + body_size + 1 + topic_size + 2 + properties_size


def store_fields_at(record: memoryview) -> tuple[int, int]:
    """Where the broker's own time stands in a whole record, and what follows the broker's host."""
    (sys_flag,) = _SYS_FLAG.unpack_from(record, SYS_FLAG_AT)
    born = HOST_V6_SIZE if sys_flag & BORN_HOST_V6 else HOST_V4_SIZE
    store = HOST_V6_SIZE if sys_flag & STORE_HOST_V6 else HOST_V4_SIZE
    store_timestamp = BORN_HOST_AT + born
    return store_timestamp, store_timestamp + 8 + store


def is_version_2(view: memoryview, at: int = 0) -> bool:
    """Whether two bytes say the size of the topic of the record at ``at``."""
    return view[at + _LAST_OF_MAGIC_AT] == MAGIC_V2 & 0xFF


def topic_place(view: memoryview, at: int, size_at: int) -> tuple[int, int]:
    """Where the topic of the record at ``at`` begins, and its bytes; ``size_at`` says how many.

    ``size_at`` is within ``view``; what is said need not be.
    """
    if not is_version_2(view, at):
        return size_at + 1, view[size_at]
    return size_at + 2, int.from_bytes(view[size_at : size_at + 2], "big")


def properties_in(record: memoryview) -> memoryview:
    """The bytes of the properties of a whole record; empty where they do not end it."""
    _, behind_store_host = store_fields_at(record)
    body_size_at = behind_store_host + 12
    topic_at = body_size_at + 4 + _BODY_SIZE.unpack_from(record, body_size_at)[0]
    if not body_size_at < topic_at < len(record):
        return record[:0]
    topic_at, topic_size = topic_place(record, 0, topic_at)
    begin = topic_at + topic_size + PROPERTIES_SIZE.size
    if begin > len(record):
        return record[:0]
    (size,) = PROPERTIES_SIZE.unpack_from(record, begin - PROPERTIES_SIZE.size)
    return record[begin:] if size == len(record) - begin else record[:0]


def queue_of(record: memoryview) -> tuple[bytes, int]:
    """Topic and queue of a whole, well-formed record."""
    _, behind_store_host = store_fields_at(record)
    body_size_at = behind_store_host + 12
    topic_at = body_size_at + 4 + _BODY_SIZE.unpack_from(record, body_size_at)[0]
    topic_at, topic_size = topic_place(record, 0, topic_at)
    topic = bytes(record[topic_at : topic_at + topic_size])
    return topic, _SYS_FLAG.unpack_from(record, QUEUE_ID_AT)[0]


def encode_message(message: Message) -> bytes:
    """The record of ``message``.

    ``body_crc`` and ``size`` are computed, and so are the two host bits of ``sys_flag``, from the
    hosts; what ``message`` has there is not looked at.

    Raises:
        MessageIllegalError: a field does not fit the format.
    """
    topic, body, properties = _checked_parts(message)
    sys_flag = message.sys_flag & ~V6_MASK
    if is_v6(message.born_host):
        sys_flag |= BORN_HOST_V6
    if is_v6(message.store_host):
        sys_flag |= STORE_HOST_V6
    head = _HEADS[sys_flag & V6_MASK]
    try:
        fixed = head.pack(
            head.size + len(body) + 1 + len(topic) + 2 + len(properties),
            MAGIC,
            body_checksum(body),
            message.queue_id,
            message.flag,
            message.queue_offset,
            message.physical_offset,
            sys_flag,
            message.born_timestamp,
            encode_host(message.born_host),
            message.store_timestamp,
            encode_host(message.store_host),
            message.reconsume_times,
            message.prepared_transaction_offset,
            len(body),
        )
    except struct.error as error:
        raise MessageIllegalError("a number does not fit its field", reason=str(error)) from error
    return b"".join(
        (
            fixed,
            body,
            bytes((len(topic),)),
            topic,
            PROPERTIES_SIZE.pack(len(properties)),
            properties,
        )
    )


def _checked_parts(message: Message) -> tuple[bytes, memoryview | bytes, bytes]:
    try:
        topic = message.topic.encode()
    except UnicodeEncodeError as error:
        raise MessageIllegalError("topic is not text", topic=message.topic) from error
    if not 0 < len(topic) <= TOPIC_SIZE_MAX:
        raise MessageIllegalError(
            "topic is empty or too long", size=len(topic), limit=TOPIC_SIZE_MAX
        )
    body, properties = message.body, message.properties
    if len(body) > BODY_SIZE_MAX:
        raise MessageIllegalError("body is too large", size=len(body), limit=BODY_SIZE_MAX)
    if len(properties) > PROPERTIES_SIZE_MAX:
        raise MessageIllegalError(
            "properties are too large", size=len(properties), limit=PROPERTIES_SIZE_MAX
        )
    return topic, body, properties


def decode_message(
    view: memoryview,
    at: int = 0,
    *,
    end: int | None = None,
    check_crc: bool = True,
    file: str = "",
) -> Message:
    """The message whose record begins at ``at``; its ``size`` tells where the next one begins.

    The body is a part of ``view``; topic and properties are copied.

    Args:
        view: bytes of a file or of a part of one, one dimension of single bytes.
        at: where the record begins in ``view``.
        end: where what may be read of ``view`` ends, its own end when left out.
        check_crc: whether the body is compared with ``body_crc``.
        file: named in the error.

    Raises:
        CorruptLogError: there is no whole, well-formed record; names file, offset and field.
    """
    if end is None:
        end = len(view)
    assert 0 <= at <= end <= len(view), (at, end, len(view))
    head = _checked_head(view, at, end, file)
    (
        size, _, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp,
        born_host, store_timestamp, store_host, reconsume_times, prepared, body_size,
    ) = head.unpack_from(view, at)  # fmt: skip

    end = at + size
    body_at = at + head.size
    body_end = body_at + body_size
    if body_size < 0 or body_end >= end:
        raise corrupt("body does not fit", file, body_at - 4, "body_size", body_size)
    topic_at, topic_size = topic_place(view, at, body_end)
    properties_at = topic_at + topic_size + 2
    size_max = STORED_TOPIC_SIZE_MAX if is_version_2(view, at) else TOPIC_SIZE_MAX
    if not 0 < topic_size <= size_max or properties_at > end:
        raise corrupt("topic does not fit", file, body_end, "topic_size", topic_size)
    (properties_size,) = PROPERTIES_SIZE.unpack_from(view, properties_at - 2)
    if properties_size < 0 or properties_at + properties_size != end:
        raise corrupt(
            "properties do not end the record",
            file,
            properties_at - 2,
            "properties_size",
            properties_size,
        )
    body = view[body_at:body_end]
    if check_crc and body_checksum(body) != body_crc:
        raise corrupt("body is not what was written", file, at + BODY_CRC_AT, "body_crc", body_crc)
    store_host_at = body_at - 16 - len(store_host)
    return Message(
        topic=_decode_topic(bytes(view[topic_at : topic_at + topic_size]), file, topic_at),
        queue_id=queue_id,
        body=body,
        properties=bytes(view[properties_at:end]),
        flag=flag,
        sys_flag=sys_flag,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        born_timestamp=born_timestamp,
        born_host=_decode_host(born_host, file, at + BORN_HOST_AT, "born_host"),
        store_timestamp=store_timestamp,
        store_host=_decode_host(store_host, file, store_host_at, "store_host"),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared,
        body_crc=body_crc,
        size=size,
    )


def tried_again(record: bytes | memoryview, times: int) -> bytearray:
    """The record of a message that is delivered again, as its consumer is to read it.

    Args:
        record: a whole one, which was checked.
        times: how often it was delivered before.
    """
    found = bytearray(record)
    (sys_flag,) = _SYS_FLAG.unpack_from(found, SYS_FLAG_AT)
    _TIMES.pack_into(found, _HEADS[sys_flag & V6_MASK].size - _BEHIND_TIMES, times)
    return found


def _checked_head(view: memoryview, at: int, end: int, file: str) -> Struct:
    """Layout of the record's fixed part, which is known to lie before ``end``."""
    if at + SIZE_MIN > end:
        raise corrupt("record is cut off", file, at, "total_size", end - at)
    size, magic = SIZE_AND_MAGIC.unpack_from(view, at)
    if magic not in MAGICS:
        raise corrupt("not a message", file, at + MAGIC_AT, "magic", magic)
    (sys_flag,) = _SYS_FLAG.unpack_from(view, at + SYS_FLAG_AT)
    head = _HEADS[sys_flag & V6_MASK]
    if size < head.size + 3 or at + size > end:
        raise corrupt("size is impossible", file, at, "total_size", size)
    return head


def _decode_topic(data: bytes, file: str, at: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise corrupt("topic is not UTF-8", file, at, "topic", data) from error


def _decode_host(data: bytes, file: str, at: int, field: str) -> Host:
    try:
        return decode_host(data)
    except CorruptLogError as error:
        raise corrupt(error.message, file, at, field, data) from error
