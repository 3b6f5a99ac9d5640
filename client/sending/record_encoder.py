"""Record encoder: messages as they will stand on disk, many at once.

This is the hot path of a producer.

Layout of a record: ``formats/records/message.py``; in front of it a hole for the entry header.
Everything that is the same for the messages of one batch is packed once, and each costs one
``pack``, one CRC-32, its unique id, and its share of one ``join``.
"""

from __future__ import annotations

import struct
import time
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from struct import Struct
from typing import NamedTuple

from ledgermq.client.sending.outgoing import (
    UNIQUE_ID_DIGITS,
    Body,
    OutgoingMessage,
    check_properties_size,
    check_unique_id,
    properties_bytes,
)
from ledgermq.formats.kernels.crc32 import crc32
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
        self._middle = Struct(f">iiqqiq{len(self._born_host)}sq{form.store_host_size}siq")
        self._head = Struct(f">{form.entry_header_size}xiIi{self._middle.size}si")
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
        if len(bodies) == 1:
            return self._encode_one(target, bodies[0], lengths[0], properties, ids)
        tail = _tail(target.topic, properties, ids[0])
        environment = self._head.size + len(tail) + UNIQUE_ID_DIGITS
        sizes = [length + environment for length in lengths]
        middles = repeat(self._pack_middle(target))
        return self._assemble(bodies, lengths, sizes, middles=middles, tails=repeat(tail), ids=ids)

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
            _tail(target.topic, properties_bytes(one.tag, one.keys, one.properties), ids[0])
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
        self,
        target: Target,
        bodies: Sequence[Body],
        properties: Sequence[bytes],
        flags: Sequence[int] | None = None,
        own_ids: Mapping[int, str] = NO_IDS,
    ) -> EncodedRecords:
        """Records of ``bodies``, each with encoded properties (``outgoing.properties_bytes``).

        Args:
            flags: of each record; that of ``target`` when left out.
            own_ids: unique ids that the application gives, by the number of their record.

        Raises:
            MessageIllegalError: a record breaks a limit of the format; ``record`` is its number.
        """
        lengths = self._body_lengths(bodies)
        ids = self._ids.reserve(len(bodies))
        id_prefix = ids[0].encode()
        id_size = len(id_prefix) + UNIQUE_ID_DIGITS
        longest = max(properties, key=len)
        if len(longest) + id_size > PROPERTIES_SIZE_MAX:
            raise MessageIllegalError(
                "properties are too large",
                record=properties.index(longest),
                size=len(longest) + id_size,
                limit=PROPERTIES_SIZE_MAX,
            )
        topic = bytes((len(target.topic),)) + target.topic
        pack_size = PROPERTIES_SIZE.pack
        tails = [topic + pack_size(len(own) + id_size) + own + id_prefix for own in properties]
        environment = self._head.size + UNIQUE_ID_DIGITS
        for number, given in own_ids.items():
            whole = properties[number] + check_unique_id(given).encode()
            check_properties_size(len(whole))
            tails[number] = topic + pack_size(len(whole)) + whole
        sizes = [
            environment + length + len(tail) for length, tail in zip(lengths, tails, strict=True)
        ]
        for number in own_ids:
            sizes[number] -= UNIQUE_ID_DIGITS
        middles: Iterable[bytes]
        if flags is None:
            middles = repeat(self._pack_middle(target))
        else:
            packed = {flag: self._pack_middle(target._replace(flag=flag)) for flag in set(flags)}
            middles = [packed[flag] for flag in flags]
        return self._assemble(
            bodies, lengths, sizes, middles=middles, tails=tails, ids=ids, own=own_ids
        )

    def _encode_one(
        self, target: Target, body: Body, length: int, properties: bytes, ids: tuple[str, int]
    ) -> EncodedRecords:
        """What ``_assemble`` makes of one body, at half the price: most producers send one."""
        tail = _tail(target.topic, properties, ids[0])
        size = self._head.size + length + len(tail) + UNIQUE_ID_DIGITS
        self._check_sizes((size,))
        head = self._head.pack(
            size - self.form.entry_header_size,
            MAGIC,
            crc32(body, 0) & CRC_MASK,
            self._pack_middle(target),
            length,
        )
        parts = [head, body, tail, b"%012X" % ids[1]]
        return EncodedRecords(parts, array("I", (size,)), size, *ids)

    def _check_sizes(self, sizes: Sequence[int]) -> None:
        largest = max(sizes)
        if largest > self._record_max:
            raise MessageIllegalError(
                "message and its entry header are too large for one entry",
                record=sizes.index(largest),
                size=largest,
                limit=self._record_max,
            )

    def _body_lengths(self, bodies: Sequence[Body]) -> list[int]:
        lengths = list(map(len, bodies))
        longest = max(lengths)
        if longest > self.form.body_size_max:
            raise MessageIllegalError(
                "body is too large",
                record=lengths.index(longest),
                size=longest,
                limit=self.form.body_size_max,
                setting="store.max_message_size",
            )
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
            raise MessageIllegalError(
                "flag or queue id is not a signed 32-bit number",
                flag=target.flag,
                queue_id=target.queue_id,
            ) from error

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


def _tail(topic: bytes, properties: bytes, id_prefix: str) -> bytes:
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
