"""Retry rules: a message given back becomes a later retry, or a dead letter.

The rules are those of RocketMQ 4.9.4 (``SendMessageProcessor.asyncConsumerSendMsgBack``). A message
that is given back is stored once more: for ``%RETRY%group``, by way of the delay level's queue, or
in ``%DLQ%group`` once it was tried often enough. All but these fields are those of the message:

    topic, queue id     SCHEDULE_TOPIC_XXXX and level - 1; of a dead letter %DLQ%group and 0
    reconsume_times     one more
    RETRY_TOPIC         the topic that it was sent to, kept over all retries
    ORIGIN_MESSAGE_ID   the offset id of the first copy, kept over all retries
    DELAY               the level; 0 for a dead letter
    REAL_TOPIC, _QID    where the delayed message goes: %RETRY%group and one of its queues
    WAIT                false

The store host is that of the node that stores the copy, so that its offset id names who has it.
RocketMQ keeps the first copy's there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ledgermq.formats.records.delayed_message import RealQueue, level_properties
from ledgermq.formats.records.message import Message
from ledgermq.formats.records.message_id import OffsetId, encode_offset_id
from ledgermq.formats.records.properties import (
    DELAY,
    ORIGIN_MESSAGE_ID,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    RETRY_TOPIC,
    WAIT,
    encode_properties,
)
from ledgermq.model.errors import MessageIllegalError, NoPermissionError
from ledgermq.model.limits import DELAY_TOPIC
from ledgermq.model.names.group_topics import RETRY_PREFIX, dead_letter_topic, retry_topic
from ledgermq.rules.tables.groups import SubscriptionGroup
from ledgermq.rules.tables.topics import Topic, check_topic_name

DEAD_LETTER_QUEUES = 1

FIRST_LEVEL = 3
"""The delay level of the first retry: 10 seconds, with RocketMQ's table."""

REPLAYED_FROM = "REPLAYED_FROM"
"""Property of a replayed dead letter: topic, queue and offset of the dead letter."""


class Returned(NamedTuple):
    """What to store of a message that was given back.

    Attributes:
        topic: where it is going to be read: the group's retry topic, or that of its dead letters.
        queues: how many queues the topic is created with, if it does not exist.
        level: the delay level; 0: it is there at once.
        message: the copy to store; store fields and store host are whoever's who stores it.
    """

    topic: str
    queues: int
    level: int
    message: Message


def give_back(
    message: Message,
    group: SubscriptionGroup,
    *,
    level: int,
    times_max: int | None,
    level_max: int,
    existing: Topic | None,
    chance: int,
) -> Returned | None:
    """What to store of a message that ``group`` could not process.

    ``None`` when the group has no retry queues: then it is dropped, as RocketMQ does it.

    Args:
        message: as it was read.
        level: the delay level that the consumer asks for: one above the table's means the last one,
            0 the next in turn, a negative one no retry any more.
        times_max: how often it may be tried again; the group's number when ``None``.
        level_max: the highest delay level.
        existing: the group's retry topic, if there is one.
        chance: any number; chooses the queue.

    Raises:
        MessageIllegalError: the name of the group is too long to be part of a topic's.
        NoPermissionError: the group's retry topic may not be written to.
    """
    if group.retry_queues <= 0:
        return None
    times = group.retry_times_max if times_max is None else times_max
    properties = message.parsed_properties()
    properties.setdefault(RETRY_TOPIC, message.topic)
    properties.setdefault(ORIGIN_MESSAGE_ID, offset_id_of(message))
    properties[WAIT] = "false"
    again = replace(
        message,
        reconsume_times=message.reconsume_times + 1,
        queue_offset=0,
        physical_offset=0,
        store_timestamp=0,
        prepared_transaction_offset=0,
    )
    if level < 0 or message.reconsume_times >= times:
        topic = dead_letter_topic(group.name)
        check_topic_name(topic)
        properties[DELAY] = "0"
        dead = replace(again, topic=topic, queue_id=0, properties=encode_properties(properties))
        return Returned(topic, DEAD_LETTER_QUEUES, 0, dead)
    topic = retry_topic(group.name)
    check_topic_name(topic)
    queues = group.retry_queues
    if existing is not None:
        check_writable(existing)
        queues = min(queues, existing.write_queues)
    waits = min(level or FIRST_LEVEL + message.reconsume_times, level_max)
    properties |= level_properties(waits, RealQueue(topic, chance % queues))
    delayed = replace(
        again,
        topic=DELAY_TOPIC,
        queue_id=waits - 1,
        properties=encode_properties(properties),
    )
    return Returned(topic, group.retry_queues, waits, delayed)


def replay(dead: Message, topic: str, *, queues: int) -> Message:
    """The message to store in ``topic`` for a dead letter that is to be consumed once more.

    It has all its retries before it. Read from the retry topic it is shown under the topic that it
    was first sent to; in any other topic it is a message of that topic.

    Args:
        dead: the dead letter as it was read.
        topic: the group's retry topic, or the one that the message was first sent to.
        queues: of the topic; the dead letter's offset chooses one.
    """
    properties = dead.parsed_properties()
    for name in (DELAY, REAL_TOPIC, REAL_QUEUE_ID, WAIT):
        properties.pop(name, None)
    if not topic.startswith(RETRY_PREFIX):
        properties.pop(RETRY_TOPIC, None)
    properties[REPLAYED_FROM] = place_of(dead)
    return replace(
        dead,
        topic=topic,
        queue_id=dead.queue_offset % max(1, queues),
        properties=encode_properties(properties),
        reconsume_times=0,
        queue_offset=0,
        physical_offset=0,
        store_timestamp=0,
        prepared_transaction_offset=0,
    )


def first_topic(dead: Message) -> str:
    """The topic that a dead letter was first sent to.

    Raises:
        MessageIllegalError: it does not say.
    """
    topic = dead.parsed_properties().get(RETRY_TOPIC)
    if topic is None:
        raise MessageIllegalError(
            "dead letter does not say which topic it was sent to: replay it to the group",
            topic=dead.topic,
            queue=dead.queue_id,
            offset=dead.queue_offset,
        )
    return topic


def place_of(dead: Message) -> str:
    """Topic, queue and offset of a dead letter, as its replayed copy names them."""
    return f"{dead.topic}/{dead.queue_id}/{dead.queue_offset}"


def offset_id_of(message: Message) -> str:
    """The offset id of a message as it was read."""
    return encode_offset_id(OffsetId(message.store_host, message.physical_offset))


def check_writable(topic: Topic) -> None:
    """Refuse a topic that takes no messages.

    Raises:
        NoPermissionError: it has no queues to write to, or no permission.
    """
    if not topic.is_writable:
        raise NoPermissionError(
            "topic may not be written to: nothing was stored; set its permission",
            topic=topic.name,
            perm=int(topic.permission),
            write_queues=topic.write_queues,
        )
