"""Message options: all that an application may say of a message beside topic and body.

There is one list for type checkers, the typed dictionaries, and one for Python, the arguments of
``outgoing``: what no message has is refused by the name of the verb. One keyword more is a line in
both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypedDict, Unpack

from ledgermq.client.core.wrong_calls import check_keywords, check_one_of
from ledgermq.client.sending.delivery import AT_ONCE, Delivery, delivery_of
from ledgermq.client.sending.outgoing import (
    Body,
    OutgoingMessage,
    check_bodies,
    properties_bytes,
    topic_bytes,
)
from ledgermq.formats.java_hash import java_hash
from ledgermq.formats.records.priority import PRIORITY_MAX, queue_of
from ledgermq.formats.records.properties import DELAY, MESSAGE_GROUP, PRIORITY
from ledgermq.model.errors import MessageIllegalError, TopicUnknownError


class RequestOptions(TypedDict, total=False):
    """Options of a request; ``Producer.send`` explains them."""

    tag: str | None
    keys: Sequence[str]
    properties: Mapping[str, str] | None
    queue_id: int | None
    queue_key: str | None
    message_group: str | None


class HalfOptions(RequestOptions, total=False):
    """Options of a message of a transaction; ``Producer.send`` explains them."""

    flag: int
    unique_id: str | None


class BatchOptions(RequestOptions, total=False):
    """Options of the messages of a batch; ``Producer.send`` explains them."""

    flag: int
    delay_level: int
    delay: int | timedelta | None
    deliver_at: int | datetime | None
    priority: int | None


class MessageOptions(BatchOptions, total=False):
    """Options of a message; ``Producer.send`` explains them."""

    unique_id: str | None


NAMES = frozenset(("tag", "keys"))
"""Options of which a message may have any and still go the short way; see ``named``."""

_EACH_HAS = frozenset({"tag", "keys", "properties", "flag", "message_group", "priority"})
"""Options that a batch of bare bodies has in common, and an ``OutgoingMessage`` has itself."""


class WholeMessages(list[OutgoingMessage]):
    """Messages of a batch that were made of bare bodies: they have what is given beside them."""


@dataclass(slots=True)
class QueueChoice:
    """Where messages of one call are to go.

    One is made for each message that is sent, and not changed: Python takes twice as long to make
    what it keeps from being changed.

    Attributes:
        queue_id: the one to take, if the application says.
        key: messages of one key go to one queue, while the topic has the same number of queues.
        delivery: when they go there.
        priority: the number of the queue, or of the last one.
    """

    topic: bytes
    queue_id: int | None = None
    key: str | None = None
    delivery: Delivery = AT_ONCE
    priority: int | None = None

    def among(self, queues: int) -> int | None:
        """The queue that the application asks for, ``None`` when any will do.

        Args:
            queues: so many has the topic.

        Raises:
            TopicUnknownError: the topic has no such queue.
        """
        if self.queue_id is not None:
            if not 0 <= self.queue_id < queues:
                raise TopicUnknownError(
                    "topic has no such queue",
                    topic=self.topic.decode(),
                    queue_id=self.queue_id,
                    limit=queues - 1,
                )
            return self.queue_id
        if self.key is not None:
            # RocketMQ's SelectMessageQueueByHash: Java's remainder has the sign of the hash.
            return abs(java_hash(self.key)) % queues
        if self.priority is not None:
            return queue_of(self.priority, queues)
        return None


def outgoing(
    topic: str,
    body: Body,
    verb: str = "send",
    /,
    *,
    tag: str | None = None,
    keys: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    queue_id: int | None = None,
    queue_key: str | None = None,
    message_group: str | None = None,
    flag: int = 0,
    delay_level: int = 0,
    delay: int | timedelta | None = None,
    deliver_at: int | datetime | None = None,
    unique_id: str | None = None,
    priority: int | None = None,
    **strange: object,
) -> tuple[QueueChoice, OutgoingMessage]:
    """Where a message is to go, and the message.

    Args:
        verb: what has been called with these arguments.

    Raises:
        TypeError: there is an argument that no message has.
        MessageIllegalError: the topic cannot be one, the message has two queues or two times of
            delivery, or one that is out of range, its group is empty, its priority is none or goes
            to a queue that something else says, or a property says what an argument does.
    """
    if strange:
        check_options(strange, MessageOptions, verb)
    if type(body) is not bytes:
        check_bodies((type(body),))
    _check_tag(tag)
    if queue_id is not None and not isinstance(queue_id, int):
        raise MessageIllegalError("queue_id is no whole number", queue_id=queue_id)
    delivery = AT_ONCE
    if delay_level or delay is not None or deliver_at is not None:
        delivery = delivery_of(delay_level, delay=delay, deliver_at=deliver_at)
    if queue_key is not None and not isinstance(queue_key, str):
        raise MessageIllegalError("queue_key is not a text", queue_key=queue_key)
    if queue_id is not None and queue_key is not None:
        check_one_of(MessageIllegalError, queue_id=queue_id, queue_key=queue_key)
    if properties and delivery is not AT_ONCE:
        _check_free(properties, DELAY, "delay, deliver_at or delay_level")
    if message_group is not None:
        if not isinstance(message_group, str) or not message_group:
            raise MessageIllegalError("message_group is no text", message_group=message_group)
        properties = _with_own(properties, MESSAGE_GROUP, message_group, "message_group")
        queue_key = message_group if queue_key is None else queue_key
    if priority is not None:
        check_one_of(
            MessageIllegalError, priority=priority, queue_id=queue_id, message_group=message_group,
            queue_key=queue_key if message_group is None else None, delay=delay,
            deliver_at=deliver_at, delay_level=delay_level or None,
        )  # fmt: skip
        _check_free(properties, DELAY, "priority")
        properties = with_priority(properties, priority)
    choice = QueueChoice(topic_bytes(topic), queue_id, queue_key, delivery, priority)
    return choice, OutgoingMessage(body, tag, keys, properties, flag, unique_id=unique_id)


def named(options: MessageOptions | BatchOptions) -> bytes | None:
    """The properties of messages with no options but ``NAMES``: what stands before a unique id;
    None without any option.

    Raises:
        MessageIllegalError: they are none, as from ``outgoing`` and ``properties_bytes``.
    """
    if not options:
        return None
    tag = options.get("tag")
    _check_tag(tag)
    return properties_bytes(tag, options.get("keys", ()), None)


def _check_tag(tag: str | None) -> None:
    if isinstance(tag, str) and tag != tag.strip():
        # RocketMQ stores it, and takes the blanks away of what consumers name.
        raise MessageIllegalError("tag has blanks around it: no consumer could name it", tag=tag)


def with_priority(properties: Mapping[str, str] | None, priority: int) -> Mapping[str, str]:
    """The properties of a message with a priority.

    Raises:
        MessageIllegalError: it is none.
    """
    if type(priority) is not int or not 0 <= priority <= PRIORITY_MAX:
        raise MessageIllegalError(
            "priority out of range", priority=priority, minimum=0, limit=PRIORITY_MAX
        )
    return _with_own(properties, PRIORITY, str(priority), "priority")


def _with_own(
    properties: Mapping[str, str] | None, name: str, value: str, argument: str
) -> Mapping[str, str]:
    """The properties, with one that has an argument of its own.

    Raises:
        MessageIllegalError: they have it already.
    """
    _check_free(properties, name, argument)
    if properties is None:
        properties = {}
    # What is no mapping is refused when the message is encoded.
    is_one = isinstance(properties, Mapping)
    return {**properties, name: value} if is_one else properties


def _check_free(properties: Mapping[str, str] | None, name: str, argument: str) -> None:
    if isinstance(properties, Mapping) and name in properties:
        raise MessageIllegalError(
            f"{argument} and the property {name} were both given: give one of them",
            properties=properties,
        )


def half_outgoing(
    topic: str, body: Body, **options: Unpack[HalfOptions]
) -> tuple[QueueChoice, OutgoingMessage]:
    """``outgoing`` of a message of a transaction, which is delivered when that is committed."""
    check_options(options, HalfOptions, "send")
    return outgoing(topic, body, **options)


def shared_outgoing(
    topic: str,
    messages: Sequence[Body] | Sequence[OutgoingMessage],
    verb: str,
    **options: Unpack[BatchOptions],
) -> tuple[QueueChoice, OutgoingMessage]:
    """``outgoing`` of the messages of a batch, which have no unique id in common.

    Raises:
        MessageIllegalError: as from ``outgoing``; or messages that have options of their own are
            given one in common.
    """
    check_options(options, BatchOptions, verb)
    own = not isinstance(messages, WholeMessages) and {OutgoingMessage} == set(map(type, messages))
    for name, value in options.items():
        # A queue and a time are those of the whole batch.
        if own and value and name in _EACH_HAS:
            raise MessageIllegalError(
                f"{name} was given beside OutgoingMessages, of which each has its own",
                **{name: value},
            )
    return outgoing(topic, b"", verb, **options)


def check_options(options: Mapping[str, object], declared: type, verb: str) -> None:
    """Refuse what a typed dictionary does not have, as Python refuses a keyword argument.

    Raises:
        TypeError: ``options`` has something else.
    """
    check_keywords(verb, options, declared.__annotations__)
