"""Record encoder for messages of RocketMQ's clients, as they will stand in the log.

The layout is that of ``formats/records/message.py``, with a hole for the entry header before it.
What only the leader knows is left empty: the writer stamps it.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from struct import Struct

from ledgermq.client.sending.outgoing import Body
from ledgermq.client.sending.record_encoder import Form
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import (
    first_delayed,
    measure_units,
    send_record,
    write_units,
)
from ledgermq.formats.records.host_address import HOST_V6_SIZE, encode_host, plain_address
from ledgermq.formats.records.message import (
    BORN_HOST_V6,
    COMPRESSED,
    COMPRESSION_MASK,
    CRC_MASK,
    INNER_BATCH,
    MAGIC,
    MULTI_TAGS,
    NEED_UNWRAP,
    STORE_HOST_V6,
)
from ledgermq.formats.records.message import ITEM_SIZE_MIN as UNIT_SIZE_MIN
from ledgermq.gateway.producing.port_producer import ToStore
from ledgermq.gateway.producing.send_topics import SendTopic
from ledgermq.gateway.producing.sent_properties import SentProperties
from ledgermq.gateway.transport.remoting_sockets import Address
from ledgermq.model.errors import MessageIllegalError
from ledgermq.model.limits import (
    ENTRY_SIZE_MAX,
    FRAME_RECORDS_MAX,
    FRAME_SIZE_MAX,
    PROPERTIES_SIZE_MAX,
)
from ledgermq.remoting.command import SentHeader
from ledgermq.remoting.send_request import SendRequest

KEPT = COMPRESSED | COMPRESSION_MASK | MULTI_TAGS
REFUSED = NEED_UNWRAP | INNER_BATCH
"""Flags of a request that are stored, and those with which it is not."""

HEADS_MAX = 16_384
"""Addresses whose heads are kept."""

_PROPERTIES_SIZE = Struct(">H")
_FAULTS = (
    "batch is empty",
    "batch has a unit that does not fit it",
    f"batch has more than {FRAME_RECORDS_MAX} messages",
    "body of a batch's message is too large",
    "properties of a batch's message are too large",
    "message of a batch is too large for one entry",
)
"""Texts for the faults of ``measure_units``, in the order of their numbers."""


class RemotingRecords:
    """Encodes for one form of log.

    Attributes:
        form: that of the writer's WELCOME.
    """

    def __init__(self, form: Form) -> None:
        self.form = form
        hole, host = form.entry_header_size, form.store_host_size
        self._no_host = bytes(host)
        self._store_flag = STORE_HOST_V6 if host == HOST_V6_SIZE else 0
        self._heads = {
            born: Struct(f">{hole}xiIIiiqqiq{born}sq{host}siqi") for born in (8, HOST_V6_SIZE)
        }
        self._record_max = ENTRY_SIZE_MAX if hole else 2**31 - 1
        self._born: dict[Address, tuple[bytes, int]] = {}

    def sent(
        self,
        sent: SentHeader,
        body: memoryview,
        *,
        topic: SendTopic,
        peer: Address,
        properties: SentProperties,
    ) -> ToStore | None:
        """The record of a message as nearly all are; None where ``one`` has to look at it.

        Args:
            peer: who sends it.
        """
        _, _, _, _, _, queue_id, flags, born_ms, flag, times, own = sent
        if len(body) > self.form.body_size_max or flags & REFUSED:
            return None
        born = self._born
        if peer not in born:
            if len(born) >= HEADS_MAX:
                born.clear()
            born_host = born_host_of(peer)
            born_flag = BORN_HOST_V6 if len(born_host) == HOST_V6_SIZE else 0
            born[peer] = self.head(born_host), born_flag | self._store_flag
        head, host_flags = born[peer]
        record = send_record(
            head, self.form.entry_header_size, queue_id, flag, flags & KEPT | host_flags, born_ms,
            times, body, topic.sized_name, own, *properties.for_kernel, crc32,
        )  # fmt: skip
        if record is None or (size := len(record)) > self._record_max:
            return None
        # With each message: half of what the names' constructor costs.
        return tuple.__new__(ToStore, (topic.name, queue_id, (record,), (size,), size))

    def one(
        self,
        request: SendRequest,
        body: Body,
        *,
        topic: bytes,
        queue_id: int,
        properties: bytes,
        born_host: bytes,
        sys_flag: int = 0,
    ) -> ToStore:
        """The record of a message that goes to ``queue_id`` of ``topic``.

        Args:
            born_host: encoded (``formats.records.host_address``).
            sys_flag: bits beside those of the request.

        Raises:
            MessageIllegalError: the message is too large, or of a kind that is not stored.
        """
        length = len(body)
        if length > self.form.body_size_max:
            raise MessageIllegalError(
                "body is too large",
                size=length,
                limit=self.form.body_size_max,
                setting="store.max_message_size",
            )
        head = self._heads[len(born_host)]
        size = head.size + length + 1 + len(topic) + 2 + len(properties)
        if size > self._record_max:
            raise MessageIllegalError(
                "message and its entry header are too large for one entry",
                size=size,
                limit=self._record_max,
            )
        packed = head.pack(
            size - self.form.entry_header_size,
            MAGIC,
            crc32(body, 0) & CRC_MASK,
            queue_id,
            request.flag,
            0,
            0,
            self.flags(request, born_host) | sys_flag,
            request.born_timestamp,
            born_host,
            0,
            self._no_host,
            request.reconsume_times,
            0,
            length,
        )
        tail = b"%c%b%b%b" % (len(topic), topic, _PROPERTIES_SIZE.pack(len(properties)), properties)
        return ToStore(topic, queue_id, (packed, body, tail), (size,), size)

    def batch(
        self,
        request: SendRequest,
        units: memoryview,
        *,
        topic: bytes,
        queue_id: int,
        added: bytes,
        born_host: bytes,
    ) -> ToStore:
        """The records of a batch, which all go to one queue.

        Args:
            added: properties that each message gets besides its own.

        Raises:
            MessageIllegalError: the batch is empty or too large, or a message of it is; ``record``
                is its number.
        """
        body_max = self.form.body_size_max
        if len(units) > body_max:
            raise MessageIllegalError(
                "batch is too large",
                size=len(units),
                limit=body_max,
                setting="store.max_message_size",
            )
        head = self._heads[len(born_host)]
        name = bytes((len(topic),)) + topic
        sizes = array("I", bytes(4 * min(len(units) // UNIT_SIZE_MIN + 1, FRAME_RECORDS_MAX)))
        count, total, fault = measure_units(
            units,
            memoryview(sizes),
            head.size + len(name) + 2,
            len(added),
            body_max,
            PROPERTIES_SIZE_MAX,
            self._record_max,
        )
        if fault or not count:
            raise MessageIllegalError(_FAULTS[fault], record=count)
        if total > FRAME_SIZE_MAX:
            raise MessageIllegalError(
                "batch is too large with what is stored beside its messages: send it in parts",
                size=total,
                limit=FRAME_SIZE_MAX,
            )
        hole = self.form.entry_header_size
        flags = self.flags(request, born_host)
        packed = head.pack(
            0, MAGIC, 0, queue_id, 0, 0, 0, flags, request.born_timestamp, born_host,
            0, self._no_host, request.reconsume_times, 0, 0,
        )  # fmt: skip
        records = bytearray(total)
        write_units(units, records, memoryview(sizes), count, hole, packed, name, added, crc32)
        del sizes[count:]
        number = first_delayed(memoryview(records), 0, memoryview(sizes), 0, count, hole)
        if number >= 0:
            raise MessageIllegalError("message of a batch cannot be delayed", record=number)
        return ToStore(topic, queue_id, (records,), sizes, total)

    def head(self, born_host: bytes) -> bytes:
        """A record up to its body, with what all messages of one address have in common."""
        head = self._heads[len(born_host)]
        return head.pack(0, MAGIC, 0, 0, 0, 0, 0, 0, 0, born_host, 0, self._no_host, 0, 0, 0)

    def flags(self, request: SendRequest, born_host: bytes) -> int:
        """The flags of a request's messages as they are stored.

        Raises:
            MessageIllegalError: it has one of RocketMQ 5 that says what only its broker can read.
        """
        flags = request.sys_flag
        if flags & REFUSED:
            raise MessageIllegalError(
                "message is of a kind that is not stored here", sys_flag=flags, refused=REFUSED
            )
        born = BORN_HOST_V6 if len(born_host) == HOST_V6_SIZE else 0
        return flags & KEPT | born | self._store_flag


@lru_cache(maxsize=HEADS_MAX)
def born_host_of(peer: Address) -> bytes:
    """A client's address as messages have it: one of IPv4 is one, whatever it came by; no scope."""
    host, port = peer
    return encode_host((plain_address(host).partition("%")[0], port))
