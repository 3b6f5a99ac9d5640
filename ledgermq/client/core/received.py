"""Received messages: a view of one answer, decoded as far as somebody looks.

Records are laid out as in ``formats/records/message.py``. A ``ReceivedMessage`` keeps the whole
answer alive; ``message.body`` is what to keep for long.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, Self, overload

from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.records.body_compression import BodyStart, body_start, plain_body
from ledgermq.formats.records.host_address import Host, decode_host
from ledgermq.formats.records.message import (
    BORN_HOST_V6,
    COMPRESSED,
    CRC_MASK,
    MAGICS,
    PROPERTIES_SIZE,
    SIZE_MIN,
    STORE_HOST_V6,
    V6_MASK,
    split_keys,
    topic_place,
)
from ledgermq.formats.records.message_id import OffsetId, encode_offset_id
from ledgermq.formats.records.properties import KEYS, RETRY_TOPIC, TAGS, UNIQ_KEY, decode_properties
from ledgermq.model.errors import BodyUnreadableError, CorruptLogError, MessageIllegalError
from ledgermq.model.names.group_topics import RETRY_PREFIX
from ledgermq.wire.pull_frame import Pulled, PullStatus

_HEADS = {
    0: Struct(">iIiiiqqiq8sq8siqi"),
    BORN_HOST_V6: Struct(">iIiiiqqiq20sq8siqi"),
    STORE_HOST_V6: Struct(">iIiiiqqiq8sq20siqi"),
    BORN_HOST_V6 | STORE_HOST_V6: Struct(">iIiiiqqiq20sq20siqi"),
}
_V4 = _HEADS[0]

Head = tuple[int, int, int, int, int, int, int, int, int, bytes, int, bytes, int, int, int]


class ReceivedMessage:
    """One message. All times are epoch ms.

    Attributes:
        topic: the one that it was sent to, also when it was given back since (``stored_topic``).
        broker_group: name of the group of nodes that it was read in, in a cluster; empty elsewhere.
    """

    __slots__ = ("_at", "_body_at", "_head", "_properties", "_records", "broker_group", "topic")

    def __init__(self, topic: str, records: memoryview, at: int, size: int) -> None:
        """The message whose record lies at ``records[at : at + size]``.

        Raises:
            CorruptLogError: the record is not one.
        """
        head: Head = _V4.unpack_from(records, at) if size >= SIZE_MIN else _NO_HEAD
        body_at = at + _V4.size
        sys_flag = head[7]
        if sys_flag & V6_MASK:
            layout = _HEADS[sys_flag & V6_MASK]
            body_at = at + layout.size
            if size > layout.size:
                head = layout.unpack_from(records, at)
        if head[0] != size or head[1] not in MAGICS or not 0 <= head[14] <= at + size - body_at - 3:
            raise CorruptLogError("record of an answer is not one", topic=topic, at=at, size=size)
        self.topic = topic
        self.broker_group = ""
        self._records = records
        self._at = at
        self._head = head
        self._body_at = body_at
        self._properties: dict[str, str] | None = None

    @classmethod
    def of_record(cls, record: memoryview) -> Self:
        """The message whose record is all of ``record``, of whichever topic.

        Raises:
            CorruptLogError: the record is not one.
        """
        message = cls("", record, 0, len(record))
        message.topic = message.stored_topic
        return message

    @property
    def stored_topic(self) -> str:
        """The topic whose queue has it: of a message that was given back the group's retry topic.

        Raises:
            CorruptLogError: it is no text.
        """
        records = self._records
        topic_at, size = topic_place(records, self._at, self._body_at + self._head[14])
        topic = bytes(records[topic_at : topic_at + size])
        try:
            return topic.decode()
        except UnicodeDecodeError as error:
            raise CorruptLogError("topic is not UTF-8", topic=topic) from error

    @property
    def queue_id(self) -> int:
        """Queue that the message is in."""
        return self._head[3]

    @property
    def flag(self) -> int:
        """The application's number."""
        return self._head[4]

    @property
    def queue_offset(self) -> int:
        """Number of the message in its queue."""
        return self._head[5]

    @property
    def physical_offset(self) -> int:
        """Position of the record in the log."""
        return self._head[6]

    @property
    def sys_flag(self) -> int:
        """RocketMQ's bits."""
        return self._head[7]

    @property
    def born_timestamp(self) -> int:
        """When the producer made it, by its own clock."""
        return self._head[8]

    @property
    def born_host(self) -> Host:
        """Address of the producer."""
        return decode_host(self._head[9])

    @property
    def store_timestamp(self) -> int:
        """When the node stored it."""
        return self._head[10]

    @property
    def store_host(self) -> Host:
        """Address of the node that stored it."""
        return decode_host(self._head[11])

    @property
    def reconsume_times(self) -> int:
        """How often it was given back."""
        return self._head[12]

    @property
    def record(self) -> memoryview:
        """The whole record, as in the log."""
        return self._records[self._at : self._at + self._head[0]]

    @property
    def stored_body(self) -> memoryview:
        """The body as stored, perhaps compressed; not compared with its CRC."""
        return self._records[self._body_at : self._body_at + self._head[14]]

    @property
    def is_compressed(self) -> bool:
        """Whether the producer has compressed the body."""
        return bool(self._head[7] & COMPRESSED)

    @property
    def body(self) -> bytes:
        """The application's bytes, a new copy on each call.

        Raises:
            CorruptLogError, BodyUnreadableError: as from ``body_view``.
        """
        return bytes(self._plain_body())

    def text(self, encoding: str = "utf-8") -> str:
        """The body as a text.

        Raises:
            MessageIllegalError: it is none in this encoding.
            CorruptLogError, BodyUnreadableError: as from ``body_view``.
        """
        try:
            return str(self.body_view, encoding)
        except UnicodeDecodeError as error:
            raise self._illegal(f"body is no text in {encoding}", at=error.start) from error

    def json(self) -> Any:
        """The value that the body is the JSON of, in UTF-8, UTF-16 or UTF-32.

        Raises:
            MessageIllegalError: it is no JSON, or one too deep to be read.
            CorruptLogError, BodyUnreadableError: as from ``body_view``.
        """
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise self._illegal("body is no JSON", reason=str(error)) from error

    @property
    def body_view(self) -> memoryview:
        """``body`` without a copy, if it is not compressed: a view that keeps the answer alive.

        Raises:
            CorruptLogError: it is not what the producer sent.
            BodyUnreadableError: it is compressed, and cannot be decompressed; ``stored_body`` has
                it as it is.
        """
        return memoryview(self._plain_body())

    def body_start(self, size_max: int) -> BodyStart:
        """The first ``size_max`` bytes of the body, and whether that is all of it.

        Of a compressed body no more is decompressed, whatever it would become.

        Raises:
            CorruptLogError: they are not those that the producer sent.
            BodyUnreadableError: they are compressed, and cannot be decompressed so far.
        """
        body = self._checked_body()
        try:
            return body_start(body, self._head[7], size_max)
        except BodyUnreadableError as error:
            error.details["queue_offset"] = self.queue_offset
            raise

    @property
    def body_fault(self) -> BodyUnreadableError | None:
        """Why the body cannot be decompressed, ``None`` when it can, or needs not.

        Raises:
            CorruptLogError: its bytes are not those that the producer sent.
        """
        try:
            self.body_view.release()
        except BodyUnreadableError as error:
            return error
        return None

    @property
    def properties(self) -> dict[str, str]:
        """Properties by name; parsed once."""
        if self._properties is None:
            self._properties = decode_properties(self._raw_properties())
        return self._properties

    @property
    def tag(self) -> str:
        """The tag, empty when there is none."""
        return self.properties.get(TAGS, "")

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that the index has it under."""
        return split_keys(self.properties.get(KEYS, ""))

    @property
    def unique_id(self) -> str:
        """The producer's id of the message, empty when there is none."""
        return self.properties.get(UNIQ_KEY, "")

    @property
    def offset_message_id(self) -> str:
        """Names node and position."""
        return encode_offset_id(OffsetId(self.store_host, self.physical_offset))

    def __repr__(self) -> str:
        return (
            f"ReceivedMessage(topic={self.topic!r}, queue_id={self.queue_id},"
            f" queue_offset={self.queue_offset}, size={self._head[0]})"
        )

    def _illegal(self, text: str, **details: object) -> MessageIllegalError:
        return MessageIllegalError(
            text,
            topic=self.topic,
            queue_id=self.queue_id,
            queue_offset=self.queue_offset,
            **details,
        )

    def _plain_body(self) -> bytes | bytearray | memoryview:
        body = self._checked_body()
        if not self._head[7] & COMPRESSED:
            return body
        try:
            return plain_body(body, self._head[7])
        except BodyUnreadableError as error:
            error.details["queue_offset"] = self.queue_offset
            raise

    def _checked_body(self) -> memoryview:
        """The body as it is stored.

        Raises:
            CorruptLogError: it is not what the producer sent.
        """
        body = self.stored_body
        if crc32(body, 0) & CRC_MASK != self._head[2] & CRC_MASK:
            raise CorruptLogError(
                "body is not what was sent",
                topic=self.topic,
                queue_id=self.queue_id,
                queue_offset=self.queue_offset,
            )
        return body

    def _raw_properties(self) -> memoryview:
        records, end = self._records, self._at + self._head[0]
        topic_at, size = topic_place(records, self._at, self._body_at + self._head[14])
        properties_at = topic_at + size + 2
        if properties_at > end:
            raise CorruptLogError("topic does not fit its record", queue_offset=self.queue_offset)
        (size,) = PROPERTIES_SIZE.unpack_from(records, properties_at - 2)
        if size != end - properties_at:
            raise CorruptLogError(
                "properties do not end their record", queue_offset=self.queue_offset, size=size
            )
        return records[properties_at:end]


_NO_HEAD: Head = (0,) * 9 + (b"", 0, b"", 0, 0, 0)


class MessageBatch(Sequence[ReceivedMessage]):
    """Messages of one queue, in ascending order of their queue offsets; may be empty.

    Attributes:
        topic: whose queue it is; the retry topic, when these messages were given back.
        status: what the broker said.
        next_offset: queue offset behind the last one looked at; messages that the tags left out
            lie before it, too.
        begin: first queue offset that the queue holds.
        end: queue offset behind its last message.
        suggested: id of the member that had better be asked for what follows; empty = the leader.
        broker_group: name of the group of nodes that it was read in, in a cluster; empty elsewhere.
    """

    __slots__ = (
        "_has_retries",
        "_records",
        "_sizes",
        "_starts",
        "begin",
        "broker_group",
        "end",
        "next_offset",
        "queue_id",
        "status",
        "suggested",
        "topic",
    )

    def __init__(self, topic: str, queue_id: int, pulled: Pulled, records: memoryview) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.status = pulled.status
        self.next_offset = pulled.next_offset
        self.begin = pulled.begin
        self.end = pulled.end
        self.suggested = pulled.suggested
        self.broker_group = ""
        self._has_retries = topic.startswith(RETRY_PREFIX)
        self._records = records
        self._starts: Sequence[int] = pulled.starts
        self._sizes: Sequence[int] = pulled.sizes

    def keep_tags(self, tags: frozenset[str]) -> None:
        """Leave out messages whose tags only had the hash of one of ``tags``."""
        rows = [row for row, message in enumerate(self) if message.tag in tags]
        if len(rows) != len(self):
            self._starts = [self._starts[row] for row in rows]
            self._sizes = [self._sizes[row] for row in rows]

    @property
    def sizes(self) -> Sequence[int]:
        """Size of each record."""
        return self._sizes

    @property
    def size(self) -> int:
        """Bytes of all records."""
        return sum(self._sizes)

    def raw(self) -> Iterator[memoryview]:
        """The records as in the log, not decoded."""
        records = self._records
        for start, size in zip(self._starts, self._sizes, strict=True):
            yield records[start : start + size]

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, number: int) -> ReceivedMessage: ...

    @overload
    def __getitem__(self, number: slice) -> list[ReceivedMessage]: ...

    def __getitem__(self, number: int | slice) -> ReceivedMessage | list[ReceivedMessage]:
        if isinstance(number, slice):
            return [self[row] for row in range(*number.indices(len(self)))]
        start, size = self._starts[number], self._sizes[number]
        message = ReceivedMessage(self.topic, self._records, start, size)
        message.broker_group = self.broker_group
        return _as_sent(message) if self._has_retries else message

    def __iter__(self) -> Iterator[ReceivedMessage]:
        topic, records = self.topic, self._records
        places = zip(self._starts, self._sizes, strict=True)
        messages: Iterator[ReceivedMessage]
        messages = (ReceivedMessage(topic, records, start, size) for start, size in places)
        if self.broker_group:
            messages = map(self._of_group, messages)
        return map(_as_sent, messages) if self._has_retries else messages

    def _of_group(self, message: ReceivedMessage) -> ReceivedMessage:
        message.broker_group = self.broker_group
        return message

    def __repr__(self) -> str:
        return (
            f"MessageBatch(topic={self.topic!r}, queue_id={self.queue_id}, messages={len(self)},"
            f" next_offset={self.next_offset})"
        )


def _as_sent(message: ReceivedMessage) -> ReceivedMessage:
    """A message that was given back, under the topic that it was sent to, as in RocketMQ."""
    message.topic = message.properties.get(RETRY_TOPIC, message.topic)
    return message


def no_messages(topic: str) -> MessageBatch:
    """The batch that ``poll`` gives when there is nothing."""
    nothing = memoryview(b"").cast("I")
    pulled = Pulled(0, PullStatus.OFFSET_OVERFLOW_ONE, 0, 0, 0, nothing, nothing)
    return MessageBatch(topic, -1, pulled, memoryview(b""))
