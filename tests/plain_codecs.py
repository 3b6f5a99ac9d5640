"""Plain forms of codecs: what kernels write and read, record by record, for tests alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from ledgermq.formats.dledger_entry import (
    HEADER_SIZE,
    MAGIC,
    EntryHeader,
    chain_checksum,
    check_entry,
    decode_entry_header,
)
from ledgermq.formats.index_file import (
    SLOT_SIZE,
    TIME_DIFFERENCE_MAX,
    IndexHeader,
    IndexLayout,
    get_header,
    index_key_hash,
    put_header,
)
from ledgermq.formats.java_hash import java_hash
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.formats.records.message import (
    ITEM_SIZE_MIN,
    MAGIC_V2,
    PROPERTIES_SIZE,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
    properties_in,
    queue_of,
    split_keys,
)
from ledgermq.formats.records.properties import KEYS, UNIQ_KEY
from ledgermq.formats.records.trace_record import FIELD_END, RECORD_END, TraceRecord, _decoded
from ledgermq.model.errors import CorruptLogError, MessageIllegalError, ProtocolError
from ledgermq.model.ids import Index, Position, Term
from ledgermq.model.limits import BODY_SIZE_MAX, PROPERTIES_SIZE_MAX

_ENTRY_HEADER = Struct(">iiqqqiIIi")
_INDEX_SLOT = Struct(">i")
_INDEX_ITEM = Struct(">iqii")
_UNIT = Struct(">qiq")
_BATCH_ITEM = Struct(">iiiii")


def encode_entry_header(header: EntryHeader) -> bytes:
    """The 48 bytes of ``header``, with its CRCs as they are."""
    assert header.size >= HEADER_SIZE, header
    assert min(header.index, header.term, header.position) >= 0, header
    return _ENTRY_HEADER.pack(
        MAGIC,
        header.size,
        header.index,
        header.term,
        header.position,
        0,
        header.chain_crc,
        header.body_crc,
        header.body_size,
    )


class Entry(NamedTuple):
    """One entry; ``body`` is a part of the buffer that it was decoded from."""

    header: EntryHeader
    body: memoryview


def encode_entry(
    body: bytes | memoryview,
    *,
    index: Index,
    term: Term,
    position: Position,
    previous_chain_crc: int,
) -> bytes:
    """A protected entry; its ``chain_crc`` is the next one's ``previous_chain_crc``."""
    header = EntryHeader(HEADER_SIZE + len(body), index, term, position, 0, crc32(body))
    chain_crc = chain_checksum(encode_entry_header(header), previous_chain_crc)
    return encode_entry_header(replace(header, chain_crc=chain_crc)) + bytes(body)


def decode_entry(
    view: memoryview,
    at: int = 0,
    *,
    previous_chain_crc: int | None,
    end: int | None = None,
    position: Position | None = None,
    file: str = "",
) -> Entry:
    """The whole entry at ``at``, checked as by ``decode_entry_header`` and ``check_entry``."""
    header = decode_entry_header(view, at, end=end, position=position, file=file)
    check_entry(view, at, header, previous_chain_crc=previous_chain_crc, file=file)
    return Entry(header, view[at + HEADER_SIZE : at + header.size])


class QueueUnit(NamedTuple):
    """Where one message of one queue lies in the commit log."""

    physical_offset: int
    size: int
    tags_hash: int


PREFILL = QueueUnit(0, 0x7FFF_FFFF, 0)
"""What stands before the first unit of a queue that begins in the middle of a file."""


def tags_hash(tags: str) -> int:
    """The hash of a message's tag as the unit holds it, 0 without one."""
    return java_hash(tags) if tags else 0


def put_unit(page: memoryview, number: int, unit: QueueUnit) -> None:
    """Write ``unit`` in slot ``number`` of the queue file mapped at ``page``.

    The caller owns the order of things: a unit is put only after its message is in the log, so
    that a reader who sees a size can follow the pointer.
    """
    assert 0 <= number < len(page) // UNIT_SIZE, number
    assert unit.size > 0, unit
    assert unit.physical_offset >= 0, unit
    _UNIT.pack_into(page, number * UNIT_SIZE, *unit)


def get_unit(
    page: memoryview, number: int, *, log_end: int | None = None, file: str = ""
) -> QueueUnit | None:
    """Slot ``number`` of the queue file at ``page``; ``None`` when nothing was written there yet.

    Args:
        page: bytes of one queue file.
        number: slot in the file.
        log_end: first position past the commit log; ``None`` takes any pointer.
        file: named in the error.

    Raises:
        CorruptLogError: the slot cannot be a pointer, or points outside the log.
    """
    assert 0 <= number < len(page) // UNIT_SIZE, number
    unit = QueueUnit(*_UNIT.unpack_from(page, number * UNIT_SIZE))
    if unit.size == 0:
        return None
    if unit == PREFILL:
        return unit
    end = unit.physical_offset + unit.size
    if unit.physical_offset >= 0 and unit.size > 0 and (log_end is None or end <= log_end):
        return unit
    raise CorruptLogError(
        "queue unit outside the log",
        file=file,
        offset=number * UNIT_SIZE,
        field="size" if unit.size < 0 else "physical_offset",
        unit=tuple(unit),
        log_end=log_end,
    )


def as_version_2(record: bytes, *, topic: bytes) -> bytes:
    """A record as RocketMQ 5 writes it where its topic is a long one; it may be any."""
    old, _ = queue_of(memoryview(record))
    properties_at = len(record) - len(properties_in(memoryview(record))) - 2
    head = bytearray(record[: properties_at - len(old) - 1])
    made = bytes(head) + len(topic).to_bytes(2, "big") + topic + record[properties_at:]
    return len(made).to_bytes(4, "big") + MAGIC_V2.to_bytes(4, "big") + made[8:]


def index_keys(topic: str, properties: dict[str, str], *, sys_flag: int) -> tuple[str, ...]:
    """The keys under which a message is indexed, in RocketMQ's order; none for a rollback."""
    if sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
        return ()
    keys = split_keys(properties.get(KEYS, ""))
    unique_id = properties.get(UNIQ_KEY)
    if unique_id:
        keys = (unique_id, *keys)
    return tuple(f"{topic}#{key}" for key in keys)


def time_difference(header: IndexHeader, store_timestamp: int) -> int:
    """Seconds from the file's begin, as an item holds them.

    Java measures before it sets the begin: in a file that follows a full one, the first item's
    difference is the one from the full file's end.
    """
    if header.begin_timestamp <= 0:
        return 0
    milliseconds = store_timestamp - header.begin_timestamp
    return min(max(milliseconds, 0) // 1_000, TIME_DIFFERENCE_MAX)


def put_key(
    page: memoryview,
    layout: IndexLayout,
    key: str,
    *,
    physical_offset: int,
    store_timestamp: int,
    file: str = "",
) -> bool:
    """Add one key of one message (``IndexFile.putKey``); false when the file is full.

    Args:
        page: writable bytes of the whole file.
        key: ``topic#key``, as ``index_keys`` gives it.
        file: named in the error.

    Raises:
        CorruptLogError: the file's header cannot be.
    """
    header = get_header(page, layout, file=file)
    number = header.index_count
    if number >= layout.items:
        return False
    key_hash = index_key_hash(key)
    slot_at = layout.slot_at(key_hash % layout.slots)
    (previous,) = _INDEX_SLOT.unpack_from(page, slot_at)
    if not 0 < previous <= number:
        previous = 0
    difference = time_difference(header, store_timestamp)
    _INDEX_ITEM.pack_into(
        page, layout.item_at(number), key_hash, physical_offset, difference, previous
    )
    page[slot_at : slot_at + SLOT_SIZE] = _INDEX_SLOT.pack(number)
    if number == 1:
        header = header._replace(
            begin_timestamp=store_timestamp, begin_physical_offset=physical_offset
        )
    put_header(
        page,
        header._replace(
            end_timestamp=store_timestamp,
            end_physical_offset=physical_offset,
            slot_count=header.slot_count + (previous == 0),
            index_count=number + 1,
        ),
    )
    return True


class BatchItem(NamedTuple):
    """One message of a batch; ``body`` may be a part of the buffer that it was decoded from."""

    flag: int
    body: memoryview | bytes
    properties: bytes


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """The payload of ``items``.

    Raises:
        MessageIllegalError: a body or properties are too large.
    """
    parts: list[bytes | memoryview] = []
    for flag, body, properties in items:
        if len(body) > BODY_SIZE_MAX:
            raise MessageIllegalError("body is too large", size=len(body), limit=BODY_SIZE_MAX)
        if len(properties) > PROPERTIES_SIZE_MAX:
            raise MessageIllegalError(
                "properties are too large", size=len(properties), limit=PROPERTIES_SIZE_MAX
            )
        assert -0x8000_0000 <= flag <= 0x7FFF_FFFF, flag
        size = ITEM_SIZE_MIN + len(body) + len(properties)
        head = _BATCH_ITEM.pack(size, 0, 0, flag, len(body))
        parts += (head, body, PROPERTIES_SIZE.pack(len(properties)), properties)
    return b"".join(parts)


def decode_batch(payload: memoryview) -> list[BatchItem]:
    """The items of ``payload``; their bodies are parts of it.

    Raises:
        ProtocolError: it is not a whole number of well-formed items.
    """
    items: list[BatchItem] = []
    at = 0
    while at < len(payload):
        if at + ITEM_SIZE_MIN > len(payload):
            raise _illegal("batch item is cut off", at, "item_size", len(payload) - at)
        size, _, _, flag, body_size = _BATCH_ITEM.unpack_from(payload, at)
        end = at + size
        if size < ITEM_SIZE_MIN or end > len(payload):
            raise _illegal("batch item has an impossible size", at, "item_size", size)
        body_at = at + _BATCH_ITEM.size
        properties_at = body_at + body_size + PROPERTIES_SIZE.size
        if body_size < 0 or properties_at > end:
            raise _illegal("body does not fit in its batch item", at, "body_size", body_size)
        (properties_size,) = PROPERTIES_SIZE.unpack_from(payload, body_at + body_size)
        if properties_size < 0 or properties_at + properties_size != end:
            raise _illegal(
                "properties do not end their batch item", at, "properties_size", properties_size
            )
        body = payload[body_at : body_at + body_size]
        items.append(BatchItem(flag, body, bytes(payload[properties_at:end])))
        at = end
    return items


def _illegal(text: str, item_at: int, field: str, value: int) -> ProtocolError:
    return ProtocolError(text, item_at=item_at, field=field, value=value)


def decode_traces(body: bytes | memoryview) -> list[TraceRecord]:
    """The records of a trace message; what is none, or is of no kind known, is left out.

    Raises:
        ProtocolError: the body is not UTF-8.
    """
    try:
        text = bytes(body).decode()
    except UnicodeDecodeError as error:
        raise ProtocolError("trace message is not UTF-8", at=error.start) from error
    records = (_decoded(part.split(FIELD_END)) for part in text.split(RECORD_END) if part)
    return [record for record in records if record is not None]
