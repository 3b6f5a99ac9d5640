"""SEND and SENT: many messages in one frame, and where they were stored.

The layouts are in docs/formats/client-protocol.md. The tables are handed on as memoryviews of the
frame: nothing here runs once a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.sent_layout import ONE_SENT
from ledgermq.model.errors import ProtocolError
from ledgermq.model.limits import FRAME_RECORDS_MAX, FRAME_SIZE_MAX, TOPIC_SIZE_MAX
from ledgermq.wire.header import (
    FLAG_RESUME,
    FLAG_RETRY,
    HEADER_SIZE,
    MAGIC,
    VERSION_MIN,
    Header,
    Kind,
    decode_header,
    encode_header,
)
from ledgermq.wire.session import NOT_TOLD

_SEND = Struct("<IIIIHHI")
_RUN = Struct("<IiI")
_SENT = Struct("<qqB3xI")
_SPAN = Struct("<IIqq")
_WHOLE_SEND = Struct("<3sBBBHQIIIIHHI")
"""Header and fixed fields."""

_VERSION_FIELD, _CHECKSUM_FIELD = 1, 9

_ONE_TABLE = Struct("<IIiI")
"""Size of the only record, and its run."""

_COUNT = Struct("<I")
_DUPLICATE = Struct("<IiqI")
_POSITION = Struct("<q")
DUPLICATES_VERSION = 4
"""From it on a SENT may tell of duplicates."""

FIRST_ATTEMPT_VERSION = 5
"""From it on a SEND may tell from where on its first attempt may stand in the log."""

NOT_SENT = 2**63 - 1
"""Mark in the place of that position: nothing of a frame can be stored yet."""

SENT_HEAD_SIZE = 8
SENT_HEAD = encode_header(Kind.SENT, 0)[:SENT_HEAD_SIZE]
"""What a SENT begins with that tells of no duplicates; the request id follows."""

_SEND_KIND, _SENT_KIND = int(Kind.SEND), int(Kind.SENT)

RUN_SIZE = _RUN.size
SEND_TABLES_AT = HEADER_SIZE + _SEND.size
SENT_SPANS_AT = HEADER_SIZE + _SENT.size

assert SEND_TABLES_AT == 40
assert SENT_SPANS_AT == 40


class SendRun(NamedTuple):
    """Consecutive records of one queue."""

    records: int
    queue_id: int
    topic: bytes


class SendFrame(NamedTuple):
    """The tables of a SEND; ``sizes`` is a view of the message they came in.

    Attributes:
        sizes: unsigned 32-bit size of each record, its entry header included.
        checksum: CRC-32 of ``tables`` followed by the payload, as the client computed it.
        tables: what the checksum covers of part 1.
        first_position: no earlier attempt to send it is stored before; or ``NOT_TOLD``.
    """

    request_id: int
    is_retry: bool
    is_resumed: bool
    sizes: memoryview
    runs: list[SendRun]
    payload_size: int
    checksum: int
    entry_header_size: int
    store_host_size: int
    tables: memoryview
    first_position: int = NOT_TOLD


class SentSpan(NamedTuple):
    """Records stored one behind the other in one file; see the protocol's SENT."""

    first: int
    records: int
    physical_offset: int
    queue_offset: int


class Duplicate(NamedTuple):
    """A record that was not stored, because one with its unique id is; its span says where.

    Attributes:
        record: its number in the frame.
        queue_id, topic: where the stored one stands.
        store_timestamp: when that was stored, epoch ms.
    """

    record: int
    queue_id: int
    store_timestamp: int
    topic: bytes


class Sent(NamedTuple):
    """What a SENT says."""

    request_id: int
    term: int
    store_timestamp: int
    ack: int
    spans: list[SentSpan]
    duplicates: Sequence[Duplicate] = ()


def encode_tables(sizes: bytes | memoryview, runs: Sequence[SendRun]) -> bytes:
    """The tables of a SEND, from the records' sizes as little-endian 32-bit words."""
    packed = b"".join(_RUN.pack(run.records, run.queue_id, len(run.topic)) for run in runs)
    return b"".join((sizes, packed, *(run.topic for run in runs)))


def encode_one_table(size: int, run: SendRun) -> bytes:
    """The tables of a SEND of one record, as ``encode_tables`` has them."""
    records, queue_id, topic = run
    return _ONE_TABLE.pack(size, records, queue_id, len(topic)) + topic


def encode_send(
    request_id: int,
    *,
    tables: bytes,
    records: int,
    runs: int,
    topics_size: int,
    payload_size: int,
    checksum: int,
    entry_header_size: int,
    store_host_size: int,
    is_retry: bool = False,
    is_resumed: bool = False,
) -> bytes:
    """Part 1 of a SEND."""
    flags = (FLAG_RETRY if is_retry else 0) | (FLAG_RESUME if is_resumed else 0)
    fixed = _WHOLE_SEND.pack(
        MAGIC,
        VERSION_MIN,
        _SEND_KIND,
        flags,
        0,
        request_id,
        records,
        runs,
        payload_size,
        checksum,
        entry_header_size,
        store_host_size,
        topics_size,
    )
    return fixed + tables


def resent(head: bytes, request_id: int, *, is_retry: bool, is_resumed: bool) -> bytes:
    """Part 1 of another attempt to send the frame that ``head`` is part 1 of."""
    flags = (FLAG_RETRY if is_retry else 0) | (FLAG_RESUME if is_resumed else 0)
    return encode_header(Kind.SEND, request_id, flags) + head[HEADER_SIZE:]


def with_first_position(head: bytes, payload: bytes, position: int) -> bytes:
    """Part 1 of a SEND that tells from where on its earlier attempts may stand in the log.

    Args:
        head: part 1 without it; only a session of ``FIRST_ATTEMPT_VERSION`` takes the other.
        position: no earlier attempt is stored before it.
    """
    tables = head[SEND_TABLES_AT:] + _POSITION.pack(position)
    fields = list(_WHOLE_SEND.unpack_from(head))
    fields[_VERSION_FIELD] = FIRST_ATTEMPT_VERSION
    fields[_CHECKSUM_FIELD] = crc32(payload, crc32(tables, 0))
    return _WHOLE_SEND.pack(*fields) + tables


def decode_send(message: bytes | memoryview, header: Header | None = None) -> SendFrame:
    """The tables of a SEND, from its part 1.

    Args:
        header: of the message, where it is known already.

    Raises:
        ProtocolError: sizes and counts do not fit one another, or pass a limit.
    """
    if header is None:
        header = decode_header(message)
    if header.kind is not Kind.SEND:
        raise ProtocolError("not a SEND", kind=header.kind.name)
    if len(message) < SEND_TABLES_AT:
        raise ProtocolError("SEND without tables", size=len(message), minimum=SEND_TABLES_AT)
    fields = _SEND.unpack_from(message, HEADER_SIZE)
    records, run_count, payload_size, checksum, header_size, host_size, topics_size = fields
    if (
        not 1 <= run_count <= records <= FRAME_RECORDS_MAX
        or not 1 <= payload_size <= FRAME_SIZE_MAX
    ):
        _check("record count", records, 1, FRAME_RECORDS_MAX)
        _check("run count", run_count, 1, records)
        _check("payload size", payload_size, 1, FRAME_SIZE_MAX)
    runs_at = SEND_TABLES_AT + 4 * records
    topics_at = runs_at + RUN_SIZE * run_count
    topics_end = end = topics_at + topics_size
    first_position = NOT_TOLD
    if header.version >= FIRST_ATTEMPT_VERSION:
        end += _POSITION.size
    if end != len(message):
        raise ProtocolError("SEND of another size than its tables", size=len(message), expected=end)
    if end != topics_end:
        (first_position,) = _POSITION.unpack_from(message, topics_end)
        _check("position of the first attempt", first_position, 0, NOT_SENT)
    view = memoryview(message)
    if run_count == 1 and 1 <= topics_size <= TOPIC_SIZE_MAX:
        count, queue_id, size = _RUN.unpack_from(message, runs_at)
        if (count, size) != (records, topics_size):
            raise ProtocolError(
                "runs of another count or size than the records", runs=count, records=records
            )
        runs = [SendRun(count, queue_id, bytes(view[topics_at:topics_end]))]
    else:
        runs = decode_runs(view[runs_at:topics_at], view[topics_at:topics_end], records)
    return SendFrame(
        header.request_id,
        bool(header.flags & FLAG_RETRY),
        bool(header.flags & FLAG_RESUME),
        view[SEND_TABLES_AT:runs_at].cast("I"),
        runs,
        payload_size,
        checksum,
        header_size,
        host_size,
        view[SEND_TABLES_AT:],
        first_position,
    )


def decode_runs(table: memoryview, topics: memoryview, records: int) -> list[SendRun]:
    """The runs of ``encode_tables``.

    Args:
        table: ``RUN_SIZE`` bytes for each.
        topics: their topics, one behind the other.
        records: how many they have in all.

    Raises:
        ProtocolError: counts and sizes do not fit one another.
    """
    runs: list[SendRun] = []
    counted = 0
    at = 0
    for count, queue_id, size in _RUN.iter_unpack(table):
        _check("topic size", size, 1, TOPIC_SIZE_MAX)
        _check("records of a run", count, 1, records)
        runs.append(SendRun(count, queue_id, bytes(topics[at : at + size])))
        counted += count
        at += size
    if at != len(topics):
        raise ProtocolError("topics of another size", size=len(topics), expected=at)
    if counted != records:
        raise ProtocolError("runs of another count than the records", runs=counted, records=records)
    return runs


def pack_one_sent(
    request_id: int,
    term: int,
    store_timestamp: int,
    ack: int,
    *span: int,
) -> bytes:
    """The whole of a SENT of one span, without duplicates; see ``encode_sent``."""
    return ONE_SENT.pack(
        MAGIC, VERSION_MIN, _SENT_KIND, 0, 0, request_id, term, store_timestamp, ack, 1, *span
    )


def encode_sent(
    request_id: int,
    *,
    term: int,
    store_timestamp: int,
    ack: int,
    spans: Sequence[tuple[int, int, int, int]],
    duplicates: Sequence[Duplicate] = (),
) -> bytes:
    """The whole of a SENT.

    Args:
        spans: as ``SentSpan`` has them.
        duplicates: only for a session of ``DUPLICATES_VERSION``, in ascending order.
    """
    if len(spans) == 1 and not duplicates:
        return pack_one_sent(request_id, term, store_timestamp, ack, *spans[0])
    fixed = _SENT.pack(term, store_timestamp, ack, len(spans))
    version = DUPLICATES_VERSION if duplicates else VERSION_MIN
    parts = [encode_header(Kind.SENT, request_id, version=version), fixed]
    for span in spans:
        parts.append(_SPAN.pack(*span))
    if duplicates:
        parts.append(_COUNT.pack(len(duplicates)))
        parts.extend(_DUPLICATE.pack(*one[:3], len(one.topic)) for one in duplicates)
        parts.extend(one.topic for one in duplicates)
    return b"".join(parts)


def decode_sent(message: bytes | memoryview) -> Sent:
    """What a SENT says.

    Raises:
        ProtocolError: it is not one, or its size and its count of spans differ.
    """
    if len(message) == ONE_SENT.size and message[:SENT_HEAD_SIZE] == SENT_HEAD:
        fields = ONE_SENT.unpack(message)
        request_id, term, store_timestamp, ack, count = fields[5:10]
        if count == 1:
            # With each answer to a single message: half of what the names' constructors cost.
            span = tuple.__new__(SentSpan, fields[10:])
            return tuple.__new__(Sent, (request_id, term, store_timestamp, ack, [span], ()))
    header = decode_header(message)
    if header.kind is not Kind.SENT:
        raise ProtocolError("not a SENT", kind=header.kind.name)
    if len(message) < SENT_SPANS_AT:
        raise ProtocolError("SENT too short", size=len(message), minimum=SENT_SPANS_AT)
    term, store_timestamp, ack, count = _SENT.unpack_from(message, HEADER_SIZE)
    end = SENT_SPANS_AT + count * _SPAN.size
    has_more = header.version >= DUPLICATES_VERSION
    if len(message) < end or (len(message) != end and not has_more):
        raise ProtocolError("SENT of another size than its spans", size=len(message), spans=count)
    spans = list(map(SentSpan._make, _SPAN.iter_unpack(message[SENT_SPANS_AT:end])))
    duplicates = _decode_duplicates(memoryview(message)[end:]) if has_more else ()
    return Sent(header.request_id, term, store_timestamp, ack, spans, duplicates)


def _decode_duplicates(table: memoryview) -> list[Duplicate]:
    count = _COUNT.unpack_from(table)[0] if len(table) >= _COUNT.size else 0
    at = _COUNT.size + count * _DUPLICATE.size
    if len(table) < at or not count:
        raise ProtocolError("SENT without its duplicates", size=len(table), duplicates=count)
    found: list[Duplicate] = []
    rows = _DUPLICATE.iter_unpack(table[_COUNT.size : at])
    for record, queue_id, timestamp, size in rows:
        _check("topic size", size, 1, TOPIC_SIZE_MAX)
        found.append(Duplicate(record, queue_id, timestamp, bytes(table[at : at + size])))
        at += size
    if at != len(table):
        raise ProtocolError("duplicates of a SENT of another size", size=len(table), expected=at)
    return found


def _check(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ProtocolError(f"{name} out of range", value=value, minimum=low, limit=high)
