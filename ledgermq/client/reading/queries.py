"""Queries for messages by id, position, key or time, outside of any queue's order.

``Queries`` waits, ``AsyncQueries`` is awaited; both have the same verbs. Nothing is found that is
not committed. Of several nodes the leader is asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ledgermq.client.broker_connection import AsyncBrokerClient, BrokerClient
from ledgermq.client.core import questions
from ledgermq.client.core.asked import asked, question
from ledgermq.client.core.link import NEVER
from ledgermq.client.core.nodes import AnyLink
from ledgermq.client.core.questions import ask
from ledgermq.client.core.received import MessageBatch, ReceivedMessage
from ledgermq.client.core.requests import Request, Steps
from ledgermq.client.reading.message_life import (
    LifeEvent,
    MessageLife,
    TracedEvents,
    copy_event,
    life_of,
    traced_events,
    traced_id,
)
from ledgermq.client.reading.message_track import Track, browse, track
from ledgermq.formats.records.message_id import decode_offset_id
from ledgermq.model.errors import (
    ConfigError,
    MessageIllegalError,
    NoPermissionError,
    ProtocolError,
    TopicUnknownError,
)
from ledgermq.model.limits import TIMESTAMP_MAX
from ledgermq.model.names.group_topics import dead_letter_topic, retry_topic
from ledgermq.model.names.system_topics import TRACE_TOPIC
from ledgermq.verbs.answers import integer
from ledgermq.wire.header import Kind
from ledgermq.wire.pull_frame import BYTES_MAX
from ledgermq.wire.query_frame import (
    MESSAGES_DEFAULT,
    MESSAGES_MAX,
    AnyQuery,
    KeyQuery,
    PositionQuery,
    decode_queried,
    encode_query,
)

COPIES_MAX = 1_000
"""Most copies of a message in retry topics and among dead letters that its life tells of."""


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


class QueriesVerbs:
    """What may be asked of messages."""

    NAME = "queries"
    _link: AnyLink

    offset_by_time = question(questions.offset_by_time)
    offset_since = question(questions.offset_since)
    offsets = question(questions.queue)

    @asked
    def message_at(self, position: int) -> Steps[ReceivedMessage | None]:
        """The message whose record begins at a position of the log (its physical offset)."""
        return message_at(position)

    @asked
    def message_by_id(self, id_: str, *, topic: str | None = None) -> Steps[ReceivedMessage | None]:
        """The message with an id: an offset id, or with ``topic`` also the producer's unique id.

        Raises:
            ConfigError: it is no offset id, and no topic is given.
            TopicUnknownError: there is no such topic.
        """
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

    @asked
    def by_key(
        self,
        topic: str,
        key: str,
        *,
        messages_max: int = MESSAGES_DEFAULT,
        begin: int = 0,
        end: int = TIMESTAMP_MAX,
    ) -> Steps[KeyedMessages]:
        """The newest messages of ``topic`` that have ``key``, or have it as their unique id.

        Args:
            messages_max: 1 to 1024.
            begin, end: store times wanted, epoch ms, both included.

        Raises:
            TopicUnknownError: there is no such topic.
        """
        if not 1 <= messages_max <= MESSAGES_MAX:
            raise ConfigError(
                "messages_max out of range", value=messages_max, minimum=1, limit=MESSAGES_MAX
            )
        if not key:
            raise ConfigError("key is empty", topic=topic)
        if not 0 <= begin <= TIMESTAMP_MAX or not 0 <= end <= TIMESTAMP_MAX:
            raise ConfigError("time out of range", begin=begin, end=end, minimum=0)
        if begin > end:
            raise ConfigError("begin is later than end", begin=begin, end=end)
        return (yield from _query(KeyQuery(topic, key, messages_max, begin, end)))

    @asked
    def life(
        self, message: ReceivedMessage, *, groups: Iterable[str] = (), traces: str = TRACE_TOPIC
    ) -> Steps[MessageLife]:
        """What has happened to a message, in order of time.

        Args:
            groups: whose retry topics and dead letters are looked through; those that the traces
                tell of are, too. ``track`` knows the groups.
            traces: the topic that clients have written their traces to.
        """
        told, fault = yield from _traces(message, traces)
        traced = traced_events(traced_id(message), told) if not fault else TracedEvents([], fault)
        copied = yield from _copied(message, {*groups, *traced.groups})
        return life_of(message, copied, traced)

    @asked
    def traces(
        self, message: ReceivedMessage, *, traces: str = TRACE_TOPIC
    ) -> Steps[tuple[list[ReceivedMessage], str]]:
        """The trace messages that may tell of ``message``, and why there are none, if so: the first
        part of ``life``, for who reads them elsewhere.
        """
        return _traces(message, traces)

    @asked
    def copied(self, message: ReceivedMessage, groups: Iterable[str]) -> Steps[list[LifeEvent]]:
        """What copies of ``message`` in retry topics and among dead letters of ``groups`` tell: the
        second part of ``life``.
        """
        return _copied(message, groups)

    @asked
    def earliest_time(self, topic: str | None = None, queue_id: int = 0) -> Steps[int | None]:
        """Store time of the first message of a queue, or of the log without a topic, epoch ms.

        ``None`` when there is no message.
        """
        if topic is None and queue_id:
            raise ConfigError("queue_id without a topic: name both, or neither", queue_id=queue_id)
        queue: dict[str, object] = {} if topic is None else {"topic": topic, "queue": queue_id}
        timestamp = integer((yield from ask("earliest_time", **queue)), "timestamp")
        return None if timestamp < 0 else timestamp

    @asked
    def browse(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        messages_max: int = MESSAGES_DEFAULT,
        bytes_max: int = BYTES_MAX,
    ) -> Steps[MessageBatch]:
        """Messages of one queue from ``offset`` on; no group consumes anything by that.

        Args:
            bytes_max: of all of them; one is given whatever its size.

        Raises:
            TopicUnknownError: there is no such topic, or no such queue.
            ConfigError: a number is out of range.
        """
        return browse(self._link, topic, queue_id, offset, messages_max, bytes_max=bytes_max)

    @asked
    def track(self, message: ReceivedMessage) -> Steps[list[Track]]:
        """What each group that reads the message's queue has done about it, by name.

        A group has consumed what lies before its offset; where its members subscribe to others
        only, it has passed over it. One that has not, and has no members now, is not online.
        """
        return track(self._link, message)

    @asked
    def read_queues(self, topic: str) -> Steps[int]:
        """How many queues of ``topic`` can be read.

        Raises:
            TopicUnknownError: there is no such topic.
        """
        return (yield from questions.route(topic, create=False)).read_queues


class Queries(QueriesVerbs, BrokerClient):
    """Questions that wait for their answer; one thread at a time may ask."""


class AsyncQueries(QueriesVerbs, AsyncBrokerClient):
    """Questions that are awaited: ``async with AsyncQueries(…) as queries:``."""


def _query(query: AnyQuery) -> Steps[KeyedMessages]:
    def encode(request_id: int) -> list[bytes]:
        return encode_query(request_id, query)

    request = Request(encode, Kind.QUERIED, deadline=NEVER)
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


def _copies(topic: str, key: str) -> Steps[list[ReceivedMessage]]:
    """The newest messages of a topic that have ``key``; none when there is no such topic."""
    try:
        return (yield from _query(KeyQuery(topic, key, MESSAGES_MAX))).messages
    except TopicUnknownError:
        return []


def _traces(message: ReceivedMessage, topic: str) -> Steps[tuple[list[ReceivedMessage], str]]:
    try:
        return (yield from _copies(topic, traced_id(message))), ""
    except NoPermissionError as error:
        return [], str(error)


def _copied(message: ReceivedMessage, groups: Iterable[str]) -> Steps[list[LifeEvent]]:
    id_ = traced_id(message)
    # Not the copies themselves: each keeps all of its answer in memory.
    places: dict[int, LifeEvent] = {}
    for group in sorted(set(groups)):
        for topic in (retry_topic(group), dead_letter_topic(group)):
            try:
                found = yield from _copies(topic, id_)
            except (MessageIllegalError, NoPermissionError):
                # Not this user's group, or a name that somebody made up in a trace.
                continue
            for one in found:
                if traced_id(one) == id_ and len(places) < COPIES_MAX:
                    places[one.physical_offset] = copy_event(one)
    places.pop(message.physical_offset, None)
    return list(places.values())


def message_at(position: int) -> Steps[ReceivedMessage | None]:
    """The message whose record begins at a position of the log."""
    if position < 0:
        raise ConfigError("position is negative", position=position)
    found = yield from _query(PositionQuery(position))
    return found.messages[0] if found.messages else None
