"""Transaction rules: what a half message is, and what it becomes, as RocketMQ stores it.

A producer stores a *half message* in RocketMQ's half topic, where no consumer of its real topic
sees it. Its *end* makes of it (``TransactionalMessageBridge``, ``EndTransactionProcessor``):

    commit      a copy in the real topic, and an op message
    rollback    an op message
    again       a copy at the end of the half queue, with one more check counted
    discard     a copy in the topic of those that nobody has answered for
    drop        an op message: it is there once more, or came after its transaction's end

An op message says that the half message with the queue offset in its body is done with. Ours tell
by two properties more of which transaction, and how it ended.

All half messages with the same transaction id are ended together. The id is the property
``__transactionId__``; where there is none, the message's unique id, as with RocketMQ's clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.formats.records.delayed_message import delay_level, may_reach
from ledgermq.formats.records.host_address import Host
from ledgermq.formats.records.message import (
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    Message,
)
from ledgermq.formats.records.properties import (
    CHECK_IMMUNITY_TIME,
    DELAY,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_ID,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
    decode_properties,
    encode_properties,
)
from ledgermq.model.errors import CorruptLogError, MessageIllegalError
from ledgermq.model.limits import (
    DELAY_TOPIC,
    ENTRY_SIZE_MAX,
    PROPERTIES_SIZE_MAX,
    QUEUE_ID_MAX,
    TOPIC_SIZE_MAX,
)
from ledgermq.model.names.queue_name import QueueName
from ledgermq.model.names.transactions import HALF_TOPIC, OP_TOPIC, UNANSWERED_TOPIC, Decision

GROUP = "CID_RMQ_SYS_TRANS"
"""RocketMQ's consumer group of the half topic and of the op topic."""

HALF_QUEUE = QueueName(HALF_TOPIC, 0)
OP_QUEUE = QueueName(OP_TOPIC, 0)

OP_TAG = "d"
DECISION_PROPERTY = "TRAN_DECISION"
DROPPED = "drop"
"""Value in the place of a decision, where a half message is done with, and its transaction is
not."""

PROPERTIES_MAX = PROPERTIES_SIZE_MAX - 64
"""How often it was asked for has to find room behind them."""

RECORD_SIZE_MAX = ENTRY_SIZE_MAX - HEADER_SIZE - TOPIC_SIZE_MAX
NAME_SIZE_MAX = 255
_NUMBER_DIGITS_MAX = 18
_TRANSACTION_SIZE_MAX = 4_000
"""Characters of at most four bytes: twice of them fit into properties."""


class Way(IntEnum):
    """What becomes of a half message; the order is that of a group in the log."""

    COMMIT = 0
    ROLLBACK = 1
    AGAIN = 2
    DISCARD = 3
    DROP = 4


RECORDS_OF = {
    Way.COMMIT: 2,
    Way.ROLLBACK: 1,
    Way.AGAIN: 1,
    Way.DISCARD: 1,
    Way.DROP: 1,
}
"""How many messages each way makes."""

WAY_OF = {Decision.COMMIT: Way.COMMIT, Decision.ROLLBACK: Way.ROLLBACK}


class Half(NamedTuple):
    """What is known of a half message that waits for its end.

    Attributes:
        offset: in the half queue.
        position: of its record in the log.
        size: of its record, bytes.
        transaction: all with this id end together.
        unique_id: of the message; two with the same one are the same message, stored twice.
        group: of the producers that may end it.
        topic: where it is to go.
        born_ms, stored_ms: epoch ms.
        checks: how often it was asked for.
        immunity_ms: how long it is not to be asked for, if it says so itself.
    """

    offset: int
    position: int
    size: int
    transaction: str
    unique_id: str
    group: str
    topic: str
    born_ms: int
    stored_ms: int
    checks: int
    immunity_ms: int | None


class Op(NamedTuple):
    """What an op message tells: half messages are done with.

    Attributes:
        half_offsets: in the half queue: one of those that 4.9 and we write, of RocketMQ 5's as many
            as were decided within its interval, in the order of decision; none when it tells none.
        transaction, decision: not known of those that RocketMQ wrote.
        is_end: its transaction has ended; else only this copy of the half message is done with.
    """

    half_offsets: tuple[int, ...]
    transaction: str
    decision: Decision | None
    is_end: bool = True


def read_half(message: Message) -> Half:
    """The half message in a record of the half topic; one without a group has an empty one."""
    properties = decode_properties(message.properties)
    seconds = _number(properties.get(CHECK_IMMUNITY_TIME, ""))
    return Half(
        message.queue_offset,
        message.physical_offset,
        message.size,
        properties.get(TRANSACTION_ID) or properties.get(UNIQ_KEY, ""),
        properties.get(UNIQ_KEY, ""),
        properties.get(PRODUCER_GROUP, ""),
        properties.get(REAL_TOPIC, ""),
        message.born_timestamp,
        message.store_timestamp,
        _number(properties.get(TRANSACTION_CHECK_TIMES, "")) or 0,
        None if seconds is None else seconds * 1_000,
    )


def read_op(message: Message) -> Op:
    """What a record of the op topic tells.

    RocketMQ 5 puts a comma behind each offset (``TransactionalMessageServiceImpl``); one that is no
    number tells nothing, and takes nothing from the others.
    """
    properties = decode_properties(message.properties)
    offsets: tuple[int, ...] = ()
    if properties.get(TAGS) == OP_TAG:
        texts = bytes(message.body).decode("ascii", "replace").split(",")
        offsets = tuple(found for text in texts if (found := _number(text)) is not None)
    decision = properties.get(DECISION_PROPERTY, "")
    known = Decision(decision) if decision in Decision.__members__.values() else None
    return Op(offsets, properties.get(TRANSACTION_ID, ""), known, decision != DROPPED)


def check_half(message: Message) -> QueueName:
    """The queue that a half message of a client is for; it must be one as RocketMQ would store it.

    Raises:
        MessageIllegalError: it is none; names the property.
    """
    if len(message.properties) > PROPERTIES_MAX:
        raise MessageIllegalError(
            "properties of a half message are too large",
            size=len(message.properties),
            limit=PROPERTIES_MAX,
        )
    if message.size > RECORD_SIZE_MAX:
        # In its real topic, whose name may be longer, it must still fit into an entry.
        raise MessageIllegalError(
            "half message is too large", size=message.size, limit=RECORD_SIZE_MAX
        )
    properties = decode_properties(message.properties)
    if properties.get(TRANSACTION_PREPARED) != "true":
        raise _not_half(TRANSACTION_PREPARED, properties, "true")
    for name in (PRODUCER_GROUP, UNIQ_KEY, REAL_TOPIC):
        if not 0 < len(properties.get(name, "")) <= NAME_SIZE_MAX:
            raise _not_half(name, properties, f"1 to {NAME_SIZE_MAX} characters")
    if len(properties.get(TRANSACTION_ID, "")) > NAME_SIZE_MAX:
        raise _not_half(TRANSACTION_ID, properties, f"at most {NAME_SIZE_MAX} characters")
    queue_id = _number(properties.get(REAL_QUEUE_ID, ""))
    if queue_id is None or queue_id > QUEUE_ID_MAX:
        raise _not_half(REAL_QUEUE_ID, properties, "the number of a queue")
    for name in (TRANSACTION_CHECK_TIMES, DELAY):
        if name in properties:
            raise _not_half(name, properties, "not there")
    return QueueName(properties[REAL_TOPIC], queue_id)


def becomes(half: Message, way: Way, *, host: Host, now_ms: int, levels: int) -> list[Message]:
    """What a half message is moved to, in the order of the log; ``RECORDS_OF`` tells how many.

    But for its times it depends on nothing else: who looks for it in the log can make it again.

    Args:
        half: the record of the half topic; its body is not copied.
        host: of this broker.
        now_ms: epoch ms.
        levels: how many delay levels there are.
    """
    if way is Way.AGAIN:
        return [_copy_of(half, host, HALF_QUEUE, _with_one_check_more(half.properties))]
    if way is Way.DISCARD:
        return [_copy_of(half, host, QueueName(UNANSWERED_TOPIC, 0), half.properties)]
    made = [_committed(half, host, levels)] if way is Way.COMMIT else []
    made.append(_op_of(half, way, host, now_ms))
    return made


def marks_of(group: Sequence[tuple[int, Way]]) -> dict[str, int]:
    """The marks of a move (``moves.Moved``) that tell which way each offset goes."""
    marks: dict[str, int] = {}
    name, end, way_before = "", -1, None
    for offset, way in group:
        if offset == end and way is way_before:
            marks[name] += 1
        else:
            name = f"{way.name.lower()}@{offset}"
            marks[name] = 1
        end, way_before = offset + 1, way
    return marks


def way_in(marks: Mapping[str, int], offset: int) -> Way:
    """Which way the half message at ``offset`` goes.

    Raises:
        CorruptLogError: the marks do not tell.
    """
    for name, count in marks.items():
        word, _, first = name.partition("@")
        begin = _number(first)
        if (
            begin is not None
            and begin <= offset < begin + count
            and word.upper() in Way.__members__
        ):
            return Way[word.upper()]
    raise CorruptLogError("move of half messages does not tell their way", offset=offset)


def _committed(half: Message, host: Host, levels: int) -> Message:
    """Its properties stay all as they are, those of the transaction too, as in RocketMQ.

    One with a delay level, which RocketMQ takes from its producers, waits from now on where those
    of that level do: its properties name its queue already (``CommitLog.asyncPutMessage``, which
    looks at the level of all that is no half message and no rollback).
    """
    properties = decode_properties(half.properties)
    queue_id = _number(properties.get(REAL_QUEUE_ID, "")) or 0
    topic = properties.get(REAL_TOPIC, "")
    queue, made = QueueName(topic, queue_id), half.properties
    level = min(delay_level(half.properties), levels)
    if not may_reach(topic) or queue_id > QUEUE_ID_MAX:
        # Such a one cannot come from a client; it is kept where somebody can find it.
        queue = QueueName(UNANSWERED_TOPIC, 0)
    elif level:
        # It is no half message any more, and here the properties are rendered anew.
        left = {name: text for name, text in properties.items() if name != TRANSACTION_PREPARED}
        rendered = encode_properties(left)
        # Where others' bytes that were no text have grown beyond the limit it waits no more.
        if len(rendered) <= PROPERTIES_SIZE_MAX:
            queue, made = QueueName(DELAY_TOPIC, level - 1), rendered
    copy = _copy_of(half, host, queue, made)
    sys_flag = half.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT
    return _replaced(copy, sys_flag=sys_flag, prepared=half.physical_offset)


def _op_of(half: Message, way: Way, host: Host, now_ms: int) -> Message:
    known = read_half(half)
    words = {way: decision.value for decision, way in WAY_OF.items()}
    properties = {TAGS: OP_TAG, DECISION_PROPERTY: words.get(way, DROPPED)}
    # A client's has at most ``NAME_SIZE_MAX`` characters; of others' the offset tells enough.
    if 0 < len(known.transaction) <= _TRANSACTION_SIZE_MAX:
        # Not a fresh unique id: the op message is to be found in the log by what it must be.
        properties |= {UNIQ_KEY: known.transaction, TRANSACTION_ID: known.transaction}
    return Message(
        topic=OP_TOPIC,
        queue_id=OP_QUEUE.queue_id,
        body=str(half.queue_offset).encode(),
        properties=encode_properties(properties),
        born_timestamp=now_ms,
        born_host=host,
        store_host=host,
    )


def _copy_of(half: Message, host: Host, queue: QueueName, properties: bytes) -> Message:
    return Message(
        topic=queue.topic,
        queue_id=queue.queue_id,
        body=half.body,
        properties=properties,
        flag=half.flag,
        sys_flag=half.sys_flag & ~TRANSACTION_MASK,
        born_timestamp=half.born_timestamp,
        born_host=half.born_host,
        store_host=host,
        reconsume_times=half.reconsume_times,
    )


def _replaced(message: Message, *, sys_flag: int, prepared: int) -> Message:
    return Message(
        topic=message.topic,
        queue_id=message.queue_id,
        body=message.body,
        properties=message.properties,
        flag=message.flag,
        sys_flag=sys_flag,
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        store_host=message.store_host,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=prepared,
    )


def _with_one_check_more(properties: bytes) -> bytes:
    values = decode_properties(properties)
    checks = _number(values.get(TRANSACTION_CHECK_TIMES, "")) or 0
    values[TRANSACTION_CHECK_TIMES] = str(checks + 1)
    counted = encode_properties(values)
    # One of RocketMQ's may have no room for the count: its age alone ends it.
    return counted if len(counted) <= PROPERTIES_SIZE_MAX else properties


def _number(text: str) -> int | None:
    """A number that is not negative, as Java's ``Long.parseLong`` takes it here."""
    if text.isascii() and text.isdecimal() and len(text) <= _NUMBER_DIGITS_MAX:
        return int(text)
    return None


def _not_half(name: str, properties: dict[str, str], expected: str) -> MessageIllegalError:
    return MessageIllegalError(
        "not a half message",
        property=name,
        value=properties.get(name),
        expected=expected,
    )
