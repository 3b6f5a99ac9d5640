"""Record encoder: messages as they will stand on disk, many at once.

This is the hot path of a producer.

Layout of a record: ``formats/records/message.py``; in front of it a hole for the entry header.
Everything that is the same for the messages of one batch is packed once, and each costs one
``pack``, one CRC-32, its unique id, and its share of one ``join``. Rows, of which there are many
more at a time, are columns, and a kernel makes records of them.
"""

from __future__ import annotations

import struct
import time
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain, repeat
from struct import Struct
from typing import NamedTuple, Self

from ledgermq.client.sending.outgoing import (
    UNIQUE_ID_DIGITS,
    Body,
    OutgoingMessage,
    check_properties_size,
    check_unique_id,
    properties_bytes,
)
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import measure_rows, write_rows
from ledgermq.formats.records.host_address import HOST_V6_SIZE, Host, encode_host, is_v6
from ledgermq.formats.records.message import (
    BORN_HOST_V6,
    COMPRESSED,
    COMPRESSION_MASK,
    CRC_MASK,
    MAGIC,
    PROPERTIES_SIZE,
    STORE_HOST_V6,
)
from ledgermq.formats.records.message_id import UniqueIdMaker
from ledgermq.model.errors import MessageIllegalError
from ledgermq.model.limits import ENTRY_SIZE_MAX, PROPERTIES_SIZE_MAX
from ledgermq.wire.send_frame import SendRun, encode_one_table, encode_send

_COMPRESSION_BITS = COMPRESSED | COMPRESSION_MASK

assert array("I").itemsize == 4


class Form(NamedTuple):
    """What the encoding depends on of a node's WELCOME."""

    entry_header_size: int
    store_host_size: int
    body_size_max: int


class Target(NamedTuple):
    """Where messages go, and the flags of those that have none of their own."""

    topic: bytes
    queue_id: int
    flag: int = 0
    sys_flag: int = 0


NO_IDS: Mapping[int, str] = {}


LoneRecord = tuple[list[Body], int, str]
"""One encoded record: its bytes, to be joined, their size, and its unique id."""


class LoneForms(NamedTuple):
    """What lone frames of one queue have in common; see ``kernel.write_batch``.

    Attributes:
        prefix: what their unique ids begin with.
        body_max: bytes of the largest body that fits.
    """

    prefix: str
    run: SendRun
    frame: bytes
    begin: bytes
    tail: bytes
    body_max: int


class EncodedRecords(NamedTuple):
    """Encoded records of one queue.

    Attributes:
        parts: their bytes, to be joined.
        sizes: size of each, entry header included.
        size: of all of them.
        id_prefix: what their unique ids begin with.
        first_id: number of the first unique id; the others follow.
        own_ids: unique ids that the application gave, by the number of their message.
    """

    parts: list[Body]
    sizes: array[int]
    size: int
    id_prefix: str
    first_id: int
    own_ids: Mapping[int, str] = NO_IDS

    def id_of(self, number: int) -> str:
        """The unique id of a message."""
        return self.own_ids.get(number) or unique_id(self.id_prefix, self.first_id + number)


def unique_id(prefix: str, number: int) -> str:
    """The text of one unique id."""
    return f"{prefix}{number:012X}"


def unique_id_behind(first: str, number: int) -> str:
    """The unique id drawn ``number`` ids after ``first``: those of a batch come in a row."""
    prefix, last = first[:-UNIQUE_ID_DIGITS], int(first[-UNIQUE_ID_DIGITS:], 16)
    return unique_id(prefix, last + number)


class Column(NamedTuple):
    """Values one behind the other.

    Attributes:
        bounds: the n-th value of ``data`` goes from ``bounds[n]`` to ``bounds[n + 1]``; signed
            64-bit numbers.
    """

    data: memoryview
    bounds: memoryview

    @classmethod
    def of(cls, values: Sequence[Body]) -> Self:
        """The column of ``values``."""
        bounds = array("q", accumulate(map(len, values), initial=0))
        return cls(memoryview(b"".join(values)), memoryview(bounds))

    def size_of(self, number: int) -> int:
        """Bytes of a value."""
        return self.bounds[number + 1] - self.bounds[number]


class RowColumns(NamedTuple):
    """Rows of one queue, by column.

    Attributes:
        properties: of each row, as ``outgoing.properties_bytes`` encodes them; behind them its
            unique id, where that is not drawn.
        drawn: a byte for each row: 1 where its unique id is drawn, 0 where it has one.
        flags: of each row, signed 32-bit numbers; none: all have that of their target.
    """

    bodies: Column
    properties: Column
    drawn: bytes
    flags: memoryview = memoryview(array("i"))


class RecordEncoder:
    """Encodes for one form of log."""

    def __init__(self, form: Form, *, born_host: Host, ids: UniqueIdMaker) -> None:
        """An encoder.

        Args:
            born_host: the client's address, as in every message.
        """
        self.form = form
        self._ids = ids
        self._born_host = encode_host(born_host)
        self._no_store_host = bytes(form.store_host_size)
        self._sys_flag = BORN_HOST_V6 if is_v6(born_host) else 0
        if form.store_host_size == HOST_V6_SIZE:
            self._sys_flag |= STORE_HOST_V6
        fields = f"iiqqiq{len(self._born_host)}sq{form.store_host_size}siq"
        self._middle = Struct(f">{fields}")
        self._head = Struct(f">{form.entry_header_size}xiIi{self._middle.size}si")
        self._whole_head = Struct(f">{form.entry_header_size}xiIi{fields}i")
        self._record_max = ENTRY_SIZE_MAX if form.entry_header_size else 2**31 - 1

    def encode_bodies(
        self, target: Target, bodies: Sequence[Body], properties: bytes
    ) -> EncodedRecords:
        """Records of ``bodies``, which share ``properties`` (``outgoing.properties_bytes``).

        Raises:
            MessageIllegalError: a body is too large; ``record`` is its number.
        """
        lengths = self._body_lengths(bodies)
        ids = self._ids.reserve(len(bodies))
        tail = record_tail(target.topic, properties, ids[0])
        environment = self._head.size + len(tail) + UNIQUE_ID_DIGITS
        sizes = [length + environment for length in lengths]
        middles = repeat(self._pack_middle(target))
        return self._assemble(bodies, lengths, sizes, middles=middles, tails=repeat(tail), ids=ids)

    def encode_one(
        self, topic: bytes, queue_id: int, message: OutgoingMessage, properties: bytes
    ) -> LoneRecord:
        """The record of a message that has no unique id, as ``encode_bodies`` has it, at a third of
        the price: most producers send one at a time.

        Raises:
            MessageIllegalError: the message breaks a limit of the format.
        """
        body = message.body
        id_prefix, number = self._ids.reserve(1)
        tail = record_tail(topic, properties, id_prefix)
        length = len(body)
        size = self._whole_head.size + length + len(tail) + UNIQUE_ID_DIGITS
        if length > self.form.body_size_max or size > self._record_max:
            self._body_lengths((body,))
            self._check_sizes((size,))
        if message.sys_flag & ~_COMPRESSION_BITS:
            self._pack_middle(Target(topic, queue_id, message.flag, message.sys_flag))
        try:
            head = self._whole_head.pack(
                size - self.form.entry_header_size,
                MAGIC,
                crc32(body, 0) & CRC_MASK,
                queue_id,
                message.flag,
                0,
                0,
                self._sys_flag | message.sys_flag,
                time.time_ns() // 1_000_000,
                self._born_host,
                0,
                self._no_store_host,
                0,
                0,
                length,
            )
        except struct.error as error:
            raise _not_numbers(message.flag, queue_id) from error
        digits = f"{number:012X}"
        return [head, body, tail, digits.encode()], size, f"{id_prefix}{digits}"

    def lone_forms(self, topic: bytes, queue_id: int, properties: bytes, prefix: str) -> LoneForms:
        """What all lone frames of a queue have in common, for ``kernel.write_batch``.

        Args:
            prefix: what unique ids begin with.

        Raises:
            MessageIllegalError: the properties are too large.
        """
        begin = self._whole_head.pack(
            0, MAGIC, 0, queue_id, 0, 0, 0, self._sys_flag, 0, self._born_host, 0,
            self._no_store_host, 0, 0, 0,
        )  # fmt: skip
        run = SendRun(1, queue_id, topic)
        tail = record_tail(topic, properties, prefix)
        frame = encode_send(
            0,
            tables=encode_one_table(0, run),
            records=1,
            runs=1,
            topics_size=len(topic),
            payload_size=0,
            checksum=0,
            entry_header_size=self.form.entry_header_size,
            store_host_size=self.form.store_host_size,
        )
        around = len(begin) + len(tail) + UNIQUE_ID_DIGITS
        body_max = min(self.form.body_size_max, self._record_max - around)
        return LoneForms(prefix, run, frame, begin, tail, body_max)

    def encode_messages(
        self, target: Target, messages: Sequence[OutgoingMessage]
    ) -> EncodedRecords:
        """Records of ``messages``, each with its own properties and flag.

        Raises:
            MessageIllegalError: a message breaks a limit of the format; ``record`` is its number.
        """
        bodies = [message.body for message in messages]
        lengths = self._body_lengths(bodies)
        ids = self._ids.reserve(len(bodies))
        own = {
            number: check_unique_id(one.unique_id)
            for number, one in enumerate(messages)
            if one.unique_id is not None
        }
        tails = [
            record_tail(target.topic, properties_bytes(one.tag, one.keys, one.properties), ids[0])
            if one.unique_id is None
            else _whole_tail(target.topic, one)
            for one in messages
        ]
        environment = self._head.size + UNIQUE_ID_DIGITS
        sizes = [
            environment + length + len(tail) for length, tail in zip(lengths, tails, strict=True)
        ]
        for number in own:
            sizes[number] -= UNIQUE_ID_DIGITS
        flags = {(message.flag, message.sys_flag) for message in messages}
        packed = {
            (flag, sys_flag): self._pack_middle(target._replace(flag=flag, sys_flag=sys_flag))
            for flag, sys_flag in flags
        }
        middles = [packed[message.flag, message.sys_flag] for message in messages]
        return self._assemble(
            bodies, lengths, sizes, middles=middles, tails=tails, ids=ids, own=own
        )

    def encode_rows(
        self, target: Target, rows: RowColumns, first: int, end: int
    ) -> tuple[bytearray, array[int]]:
        """Records of the rows from ``first`` to ``end``, and the size of each.

        Raises:
            MessageIllegalError: a record breaks a limit of the format; ``record`` is its number
                among all rows.
        """
        prefix, number = self._ids.reserve(end - first)
        topic = bytes((len(target.topic),)) + target.topic
        head = self._head.pack(0, MAGIC, 0, self._pack_middle(target), 0)
        around = len(head) + len(topic) + PROPERTIES_SIZE.size
        id_size = len(prefix) + UNIQUE_ID_DIGITS
        sizes = array("I", bytes(4 * (end - first)))
        total, fault, record = measure_rows(
            memoryview(sizes),
            rows.bodies.bounds,
            rows.properties.bounds,
            rows.drawn,
            first,
            end - first,
            around,
            id_size,
            self.form.body_size_max,
            PROPERTIES_SIZE_MAX,
            self._record_max,
        )
        if fault:
            own = rows.properties.size_of(record) + id_size * rows.drawn[record]
            raise self._row_error(record, rows.bodies.size_of(record), own, around)
        records = bytearray(total)
        write_rows(
            records,
            memoryview(sizes),
            rows.bodies.data,
            rows.bodies.bounds,
            rows.properties.data,
            rows.properties.bounds,
            rows.flags,
            rows.drawn,
            first,
            end - first,
            self.form.entry_header_size,
            head,
            topic,
            prefix.encode(),
            number,
            crc32,
        )
        return records, sizes

    def _row_error(
        self, record: int, body: int, properties: int, around: int
    ) -> MessageIllegalError:
        """Which limit a row has passed."""
        if body > self.form.body_size_max:
            return self._body_error(record, body)
        if properties > PROPERTIES_SIZE_MAX:
            return MessageIllegalError(
                "properties are too large",
                record=record,
                size=properties,
                limit=PROPERTIES_SIZE_MAX,
            )
        return self._size_error(record, around + body + properties)

    def _body_error(self, record: int, size: int) -> MessageIllegalError:
        return MessageIllegalError(
            "body is too large",
            record=record,
            size=size,
            limit=self.form.body_size_max,
            setting="store.max_message_size",
        )

    def _size_error(self, record: int, size: int) -> MessageIllegalError:
        return MessageIllegalError(
            "message and its entry header are too large for one entry",
            record=record,
            size=size,
            limit=self._record_max,
        )

    def _check_sizes(self, sizes: Sequence[int]) -> None:
        largest = max(sizes)
        if largest > self._record_max:
            raise self._size_error(sizes.index(largest), largest)

    def _body_lengths(self, bodies: Sequence[Body]) -> list[int]:
        lengths = list(map(len, bodies))
        longest = max(lengths)
        if longest > self.form.body_size_max:
            raise self._body_error(lengths.index(longest), longest)
        return lengths

    def _pack_middle(self, target: Target) -> bytes:
        """The fields between the body's CRC and its size."""
        if target.sys_flag & ~_COMPRESSION_BITS:
            raise MessageIllegalError(
                "sys_flag has bits that do not tell of a compression",
                sys_flag=target.sys_flag,
                allowed=_COMPRESSION_BITS,
            )
        try:
            return self._middle.pack(
                target.queue_id,
                target.flag,
                0,
                0,
                self._sys_flag | target.sys_flag,
                time.time_ns() // 1_000_000,
                self._born_host,
                0,
                self._no_store_host,
                0,
                0,
            )
        except struct.error as error:
            raise _not_numbers(target.flag, target.queue_id) from error

    def _assemble(
        self,
        bodies: Sequence[Body],
        lengths: list[int],
        sizes: list[int],
        *,
        middles: Iterable[bytes],
        tails: Iterable[bytes],
        ids: tuple[str, int],
        own: Mapping[int, str] = NO_IDS,
    ) -> EncodedRecords:
        self._check_sizes(sizes)
        pack = self._head.pack
        hole = self.form.entry_header_size
        heads = [
            pack(size - hole, MAGIC, crc32(body, 0) & CRC_MASK, middle, length)
            for size, body, middle, length in zip(sizes, bodies, middles, lengths, strict=False)
        ]
        numbers: Iterable[bytes] = map(b"%012X".__mod__, range(ids[1], ids[1] + len(bodies)))
        if own:
            # Their tails have them already.
            numbers = [b"" if row in own else digits for row, digits in enumerate(numbers)]
        parts = list(chain.from_iterable(zip(heads, bodies, tails, numbers, strict=False)))
        return EncodedRecords(parts, array("I", sizes), sum(sizes), *ids, own)


def _not_numbers(flag: int, queue_id: int) -> MessageIllegalError:
    name, value = ("queue_id", queue_id) if _is_signed(flag) else ("flag", flag)
    return MessageIllegalError(
        f"{name} is not a signed 32-bit number", **{name: value}, minimum=-(2**31), limit=2**31 - 1
    )


def _is_signed(value: object) -> bool:
    return isinstance(value, int) and -(2**31) <= value < 2**31


@lru_cache(maxsize=256)
def record_tail(topic: bytes, properties: bytes, id_prefix: str) -> bytes:
    """What stands behind a body, but for the last digits of the unique id."""
    size = len(properties) + len(id_prefix) + UNIQUE_ID_DIGITS
    check_properties_size(size)
    return b"".join(
        (bytes((len(topic),)), topic, PROPERTIES_SIZE.pack(size), properties, id_prefix.encode())
    )


def _whole_tail(topic: bytes, message: OutgoingMessage) -> bytes:
    """What stands behind the body of a message that has a unique id of its own."""
    assert message.unique_id is not None
    properties = properties_bytes(message.tag, message.keys, message.properties)
    properties += message.unique_id.encode()
    check_properties_size(len(properties))
    return b"".join(
        (bytes((len(topic),)), topic, PROPERTIES_SIZE.pack(len(properties)), properties)
    )
