"""Questions about messages outside of any queue's order: by id, by position, by key, by time.

``Queries`` waits, ``AsyncQueries`` is awaited; both have the same methods. Nothing is found that is
not committed. Of several nodes the leader is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ledgermq.client.address import DEFAULT_ADDRESS
from ledgermq.client.broker import QueueRange, integer, route_of
from ledgermq.client.broker_connection import AsyncBrokerClient, BrokerClient
from ledgermq.client.message_track import Track, browse, track
from ledgermq.client.received import MessageBatch, ReceivedMessage
from ledgermq.client.requests import Request, Steps, call_request, call_result
from ledgermq.formats.message_id import decode_offset_id
from ledgermq.model.errors import ConfigError, ProtocolError
from ledgermq.wire.header import Kind
from ledgermq.wire.query_frame import (
    MESSAGES_DEFAULT,
    MESSAGES_MAX,
    TIMESTAMP_MAX,
    AnyQuery,
    KeyQuery,
    PositionQuery,
    decode_queried,
    encode_query,
)

TIMEOUT_S = 15.0


class KeyedMessages(NamedTuple):
    """The messages that have a key.

    Attributes:
        messages: the newest ones, in the order of the log.
        has_more: there may be older ones that were left out.
        index_timestamp: store time of the newest message that the index knows, epoch ms: later ones
            cannot be found yet. 0 when it knows none.
        index_position: position of that one.
    """

    messages: list[ReceivedMessage]
    has_more: bool
    index_timestamp: int
    index_position: int


class Queries(BrokerClient):
    """Questions that wait for their answer; one thread at a time may ask."""

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        name: str = "queries",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """A connection, which is made with the first question.

        Args:
            address: as a ``Consumer`` takes it.
            name: of this client, as the node's operator sees it.
            timeout_s: for each question.

        Raises:
            ConfigError: the address cannot be one.
        """
        super().__init__(address, name=name, timeout_s=timeout_s)

    def message_at(self, position: int) -> ReceivedMessage | None:
        """The message whose record begins at a position of the log (its physical offset)."""
        return self._broker.run(message_at(position))

    def message_by_id(self, id_: str, *, topic: str | None = None) -> ReceivedMessage | None:
        """The message with an id: an offset id, or with ``topic`` also the producer's unique id.

        Raises:
            ConfigError: it is no offset id, and no topic is given.
            TopicUnknownError: there is no such topic.
        """
        return self._broker.run(_message_by_id(id_, topic))

    def by_key(
        self,
        topic: str,
        key: str,
        *,
        messages_max: int = MESSAGES_DEFAULT,
        begin: int = 0,
        end: int = TIMESTAMP_MAX,
    ) -> KeyedMessages:
        """The newest messages of ``topic`` that have ``key``, or have it as their unique id.

        Args:
            messages_max: 1 to 1024.
            begin, end: store times wanted, epoch ms, both included.

        Raises:
            TopicUnknownError: there is no such topic.
        """
        return self._broker.run(_by_key(_key_query(topic, key, messages_max, begin, end)))

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The queue offset that RocketMQ finds for a time.

        That is the message of exactly that store time, else the nearer one of its two neighbours in
        time; the first or the last one where there is only one neighbour.
        """
        return self._broker.offset_by_time(topic, queue_id, timestamp_ms)

    def earliest_time(self, topic: str | None = None, queue_id: int = 0) -> int | None:
        """Store time of the first message of a queue, or of the log without a topic, epoch ms.

        ``None`` when there is no message.
        """
        return self._broker.run(_earliest_time(topic, queue_id))

    def offsets(self, topic: str, queue_id: int) -> QueueRange:
        """The queue offsets that a queue holds."""
        return self._broker.queue(topic, queue_id)

    def browse(
        self, topic: str, queue_id: int, offset: int, *, messages_max: int = MESSAGES_DEFAULT
    ) -> MessageBatch:
        """Messages of one queue from ``offset`` on; no group consumes anything by that.

        Raises:
            TopicUnknownError: there is no such topic, or no such queue.
            ConfigError: a number is out of range.
        """
        link = self._link
        return self._broker.run(browse(link, topic, queue_id, offset, messages_max))

    def track(self, message: ReceivedMessage) -> list[Track]:
        """Which groups have consumed a message, as their offsets say."""
        return self._broker.run(track(message))

    def read_queues(self, topic: str) -> int:
        """How many queues of ``topic`` can be read.

        Raises:
            TopicUnknownError: there is no such topic.
        """
        return self._broker.route(topic, create=False).read_queues


class AsyncQueries(AsyncBrokerClient):
    """See ``Queries``; used as ``async with AsyncQueries(…) as queries:``."""

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        name: str = "queries",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        super().__init__(address, name=name, timeout_s=timeout_s)

    async def message_at(self, position: int) -> ReceivedMessage | None:
        """See ``Queries.message_at``."""
        return await self._open().run(message_at(position))

    async def message_by_id(self, id_: str, *, topic: str | None = None) -> ReceivedMessage | None:
        """See ``Queries.message_by_id``."""
        return await self._open().run(_message_by_id(id_, topic))

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        messages_max: int = MESSAGES_DEFAULT,
        begin: int = 0,
        end: int = TIMESTAMP_MAX,
    ) -> KeyedMessages:
        """See ``Queries.by_key``."""
        return await self._open().run(_by_key(_key_query(topic, key, messages_max, begin, end)))

    async def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """See ``Queries.offset_by_time``."""
        return await self._open().run(_offset_by_time(topic, queue_id, timestamp_ms))

    async def earliest_time(self, topic: str | None = None, queue_id: int = 0) -> int | None:
        """See ``Queries.earliest_time``."""
        return await self._open().run(_earliest_time(topic, queue_id))

    async def offsets(self, topic: str, queue_id: int) -> QueueRange:
        """See ``Queries.offsets``."""
        return await self._open().run(_offsets(topic, queue_id))

    async def browse(
        self, topic: str, queue_id: int, offset: int, *, messages_max: int = MESSAGES_DEFAULT
    ) -> MessageBatch:
        """See ``Queries.browse``."""
        steps = browse(self._link, topic, queue_id, offset, messages_max)
        return await self._open().run(steps)

    async def track(self, message: ReceivedMessage) -> list[Track]:
        """See ``Queries.track``."""
        return await self._open().run(track(message))

    async def read_queues(self, topic: str) -> int:
        """See ``Queries.read_queues``."""
        return await self._open().run(_read_queues(topic))


def _query(query: AnyQuery) -> Steps[KeyedMessages]:
    def encode(request_id: int) -> list[bytes]:
        return encode_query(request_id, query)

    request = Request(encode, Kind.QUERIED, deadline=float("inf"))
    yield request
    parts = request.answer()
    if len(parts) != 2:
        raise ProtocolError("QUERIED without its records", parts=len(parts))
    records = memoryview(parts[1])
    queried = decode_queried(parts[0], records_size=len(records))
    places = zip(queried.starts, queried.sizes, strict=True)
    messages = [ReceivedMessage.of_record(records[at : at + size]) for at, size in places]
    return KeyedMessages(
        messages, queried.has_more, queried.index_timestamp, queried.index_position
    )


def message_at(position: int) -> Steps[ReceivedMessage | None]:
    """The message whose record begins at a position of the log."""
    if position < 0:
        raise ConfigError("position is negative", position=position)
    found = yield from _query(PositionQuery(position))
    return found.messages[0] if found.messages else None


def _message_by_id(id_: str, topic: str | None) -> Steps[ReceivedMessage | None]:
    if topic is not None:
        found = yield from _query(KeyQuery(topic, id_, MESSAGES_MAX))
        named = [message for message in found.messages if message.unique_id == id_]
        if named:
            return named[-1]
    try:
        place = decode_offset_id(id_)
    except ProtocolError as error:
        if topic is not None:
            return None
        raise ConfigError(
            "not an offset id; a producer's unique id is looked for in a topic: name it", id=id_
        ) from error
    message = yield from message_at(place.physical_offset)
    # The ids of a producer look like those of a place, and rarely name one.
    if message is None or message.offset_message_id != id_.upper():
        return None
    return message if topic in (None, message.topic) else None


def _key_query(topic: str, key: str, messages_max: int, begin: int, end: int) -> KeyQuery:
    if not 1 <= messages_max <= MESSAGES_MAX:
        raise ConfigError(
            "messages_max out of range", value=messages_max, minimum=1, limit=MESSAGES_MAX
        )
    if not key:
        raise ConfigError("key is empty", topic=topic)
    if not 0 <= begin <= TIMESTAMP_MAX or not 0 <= end <= TIMESTAMP_MAX:
        raise ConfigError("time out of range", begin=begin, end=end, minimum=0)
    return KeyQuery(topic, key, messages_max, begin, end)


def _by_key(query: KeyQuery) -> Steps[KeyedMessages]:
    return (yield from _query(query))


def _earliest_time(topic: str | None, queue_id: int) -> Steps[int | None]:
    arguments: dict[str, object] = {} if topic is None else {"topic": topic, "queue": queue_id}
    request = call_request("earliest_time", arguments)
    yield request
    timestamp = integer(call_result(request), "timestamp")
    return None if timestamp < 0 else timestamp


def _offset_by_time(topic: str, queue_id: int, timestamp_ms: int) -> Steps[int]:
    arguments = {"topic": topic, "queue": queue_id, "timestamp": timestamp_ms}
    request = call_request("offset_by_time", arguments)
    yield request
    return integer(call_result(request), "offset")


def _read_queues(topic: str) -> Steps[int]:
    request = call_request("route", {"topic": topic, "create": False})
    yield request
    return route_of(call_result(request)).read_queues


def _offsets(topic: str, queue_id: int) -> Steps[QueueRange]:
    request = call_request("queue", {"topic": topic, "queue": queue_id})
    yield request
    result = call_result(request)
    return QueueRange(integer(result, "min"), integer(result, "max"))
