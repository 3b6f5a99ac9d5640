"""Message options: all that an application may say of a message beside topic and body.

There is one list for type checkers, the typed dictionaries, and one for Python, the arguments of
``outgoing``: what no message has is refused as any function does it. One keyword more is a line in
both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypedDict, Unpack

from ledgermq.client.sending.delivery import AT_ONCE, Delivery, delivery_of
from ledgermq.client.sending.outgoing import Body, OutgoingMessage, topic_bytes
from ledgermq.formats.java_hash import java_hash
from ledgermq.model.errors import MessageIllegalError, TopicUnknownError


class RequestOptions(TypedDict, total=False):
    """Options of a request; ``Producer.send`` explains them."""

    tag: str | None
    keys: Sequence[str]
    properties: Mapping[str, str] | None
    queue_id: int | None
    queue_key: str | None


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


class MessageOptions(BatchOptions, total=False):
    """Options of a message; ``Producer.send`` explains them."""

    unique_id: str | None


@dataclass(slots=True)
class QueueChoice:
    """Where messages of one call are to go.

    One is made for each message that is sent, and not changed: Python takes twice as long to make
    what it keeps from being changed.

    Attributes:
        queue_id: the one to take, if the application says.
        key: messages of one key go to one queue, while the topic has the same number of queues.
        delivery: when they go there.
    """

    topic: bytes
    queue_id: int | None = None
    key: str | None = None
    delivery: Delivery = AT_ONCE

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
        return None


def outgoing(
    topic: str,
    body: Body,
    *,
    tag: str | None = None,
    keys: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    queue_id: int | None = None,
    queue_key: str | None = None,
    flag: int = 0,
    delay_level: int = 0,
    delay: int | timedelta | None = None,
    deliver_at: int | datetime | None = None,
    unique_id: str | None = None,
) -> tuple[QueueChoice, OutgoingMessage]:
    """Where a message is to go, and the message.

    Raises:
        MessageIllegalError: the topic cannot be one, or the message has two times of delivery, or
            one that is out of range.
    """
    delivery = AT_ONCE
    if delay_level or delay is not None or deliver_at is not None:
        delivery = delivery_of(delay_level, delay=delay, deliver_at=deliver_at)
    if queue_key is not None and not isinstance(queue_key, str):
        raise MessageIllegalError("queue_key is not a text", queue_key=queue_key)
    choice = QueueChoice(topic_bytes(topic), queue_id, queue_key, delivery)
    return choice, OutgoingMessage(body, tag, keys, properties, flag, unique_id=unique_id)


def half_outgoing(
    topic: str, body: Body, **options: Unpack[HalfOptions]
) -> tuple[QueueChoice, OutgoingMessage]:
    """``outgoing`` of a message of a transaction, which is delivered when that is committed."""
    return outgoing(topic, body, delay_level=0, delay=None, deliver_at=None, **options)


def check_options(options: Mapping[str, object], declared: type) -> None:
    """Refuse what a typed dictionary does not have, as Python refuses a keyword argument.

    Raises:
        TypeError: ``options`` has something else.
    """
    strange = [name for name in options if name not in declared.__annotations__]
    if strange:
        raise TypeError(f"got an unexpected keyword argument {strange[0]!r}")
