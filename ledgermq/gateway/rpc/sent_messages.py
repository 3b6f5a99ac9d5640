"""Messages of gRPC clients: checked by the protocol's rules, and made into what is stored."""

from __future__ import annotations

import hashlib
import zlib
from binascii import crc32
from typing import Any, NamedTuple

from ledgermq.client.sending.message_options import QueueChoice, outgoing
from ledgermq.client.sending.outgoing import OutgoingMessage
from ledgermq.gateway.rpc.definition import DigestType, Encoding, MessageType, RpcCode
from ledgermq.gateway.rpc.statuses import RpcRefusedError, epoch_ms
from ledgermq.model.errors import MessageIllegalError
from ledgermq.model.limits import (
    FORBIDDEN_TOPICS,
    TOPIC_NAME,
    TOPIC_SIZE_MAX,
    UNIQUE_ID_SIZE_MAX,
)
from ledgermq.model.names.message_types import BY_PRIORITY

PROPERTIES_MAX = 128
PROPERTIES_BYTES_MAX = 16 * 1024
MESSAGE_GROUP_MAX = 64
"""Bounds of RocketMQ's proxy."""

# fmt: off
RESERVED = frozenset({
    "KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG",
    "PGROUP", "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG",
    "CORRECTION_FLAG", "MQ2_FLAG", "RECONSUME_TIME", "MSG_REGION", "UNIQ_KEY",
    "EXTEND_UNIQ_INFO", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "POP_CK", "POP_CK_OFFSET",
    "1ST_POP_TIME", "TRAN_PREPARED_QUEUE_OFFSET", "DUP_INFO", "INSTANCE_ID", "CLUSTER",
    "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "MSG_TYPE",
    "TRACE_ON", "TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS", "TRACE_CONTEXT",
    "INNER_NUM", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "TIMER_DELIVER_MS",
    "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS",
    "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY", "__STARTDELIVERTIME", "__SHARDINGKEY",
    "__transactionId__", "_SYS_MSG_PRIORITY_", "DELIVER_AT", "CANCELS_AT", "STAGE",
})
# fmt: on
"""Names of properties to which RocketMQ, or this broker, gives a meaning of their own."""

TYPES = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)
"""What may be sent to a topic that has no type of its own."""


def types_of(topic_type: str) -> tuple[MessageType, ...]:
    """What may be sent to a topic of this type; only clients that know of priorities bear to be
    told of them.
    """
    if topic_type == BY_PRIORITY:
        return (*TYPES, MessageType.PRIORITY)
    return tuple(one for one in TYPES if one.name == topic_type) or TYPES


class ClientMessage(NamedTuple):
    """One message, checked.

    Attributes:
        message_id: its client's, and its unique id in the log.
        deliver_at_ms: epoch ms; None: at once.
    """

    topic: str
    message_id: str
    kind: MessageType
    choice: QueueChoice
    message: OutgoingMessage
    deliver_at_ms: int | None


def check_type(sent: ClientMessage, topic_type: str) -> None:
    """Refuse a message of a type that its topic does not take.

    Raises:
        RpcRefusedError: it is one.
    """
    if sent.kind not in types_of(topic_type):
        raise RpcRefusedError(
            RpcCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            "topic takes messages of other types: see message.type of ledgermq topic alter",
            topic=sent.topic,
            type=sent.kind.name,
            topic_type=topic_type,
        )


def check_topic_name(resource: Any) -> str:
    """The name of a topic that clients may use.

    Raises:
        RpcRefusedError: it cannot be one, or is the broker's own.
    """
    name: str = resource.name
    if resource.resource_namespace:
        raise RpcRefusedError(
            RpcCode.ILLEGAL_TOPIC,
            "topics have no namespaces here",
            namespace=resource.resource_namespace[:TOPIC_SIZE_MAX],
        )
    if not 0 < len(name) <= TOPIC_SIZE_MAX or TOPIC_NAME.match(name) is None:
        raise RpcRefusedError(
            RpcCode.ILLEGAL_TOPIC,
            "topic is empty, too long, or has a character that is not allowed",
            topic=name[: TOPIC_SIZE_MAX + 1],
            limit=TOPIC_SIZE_MAX,
        )
    if name in FORBIDDEN_TOPICS:
        raise RpcRefusedError(RpcCode.ILLEGAL_TOPIC, "topic is the broker's own", topic=name)
    return name


def sent_message(message: Any, *, body_size_max: int) -> ClientMessage:
    """What a client wants to have stored.

    Raises:
        RpcRefusedError: it breaks a rule of the protocol.
    """
    topic = check_topic_name(message.topic)
    system = message.system_properties
    kind = _kind(system)
    if not 0 < len(system.message_id) <= UNIQUE_ID_SIZE_MAX:
        raise RpcRefusedError(
            RpcCode.ILLEGAL_MESSAGE_ID, "message has no id, or a long one", limit=UNIQUE_ID_SIZE_MAX
        )
    properties = _properties(message.user_properties)
    tag, keys = _tag(system), _keys(system)
    message_group = _message_group(system.message_group) if kind is MessageType.FIFO else None
    deliver_at_ms = epoch_ms(system.delivery_timestamp) if kind is MessageType.DELAY else None
    body = _body(message, body_size_max)
    try:
        choice, made = outgoing(
            topic,
            body,
            tag=tag,
            keys=keys,
            properties=properties,
            message_group=message_group,
            deliver_at=deliver_at_ms,
            unique_id=system.message_id,
            priority=system.priority if kind is MessageType.PRIORITY else None,
        )
    except MessageIllegalError as error:
        code = RpcCode.BAD_REQUEST if deliver_at_ms is None else RpcCode.ILLEGAL_DELIVERY_TIME
        raise RpcRefusedError(code, error.message, **error.details) from error
    return ClientMessage(topic, system.message_id, kind, choice, made, deliver_at_ms)


def _kind(system: Any) -> MessageType:
    kind = system.message_type
    if kind == MessageType.MESSAGE_TYPE_UNSPECIFIED:
        kind = MessageType.NORMAL
    if kind not in (*TYPES, MessageType.PRIORITY):
        raise RpcRefusedError(
            RpcCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "messages of this type are not taken here",
            type=kind, taken=[one.name for one in (*TYPES, MessageType.PRIORITY)],
        )  # fmt: skip
    if (kind == MessageType.PRIORITY) != system.HasField("priority"):
        raise RpcRefusedError(
            RpcCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            "a message has a priority if it is one of PRIORITY, and only then",
        )
    has_time = system.HasField("delivery_timestamp")
    if (kind == MessageType.DELAY) != has_time:
        raise RpcRefusedError(
            RpcCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            "a message has a time of delivery if it is one of DELAY, and only then",
        )
    if (kind == MessageType.FIFO) != system.HasField("message_group"):
        raise RpcRefusedError(
            RpcCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            "a message has a message group if it is one of FIFO, and only then",
        )
    return MessageType(kind)


def _properties(given: Any) -> dict[str, str]:
    properties = dict(given)
    size = sum(len(name) + len(value) for name, value in properties.items())
    if len(properties) > PROPERTIES_MAX or size > PROPERTIES_BYTES_MAX:
        raise RpcRefusedError(
            RpcCode.MESSAGE_PROPERTIES_TOO_LARGE,
            "message has too many properties, or too large ones",
            properties=len(properties),
            limit=PROPERTIES_MAX,
            size=size,
            size_limit=PROPERTIES_BYTES_MAX,
        )
    for name, value in properties.items():
        if name in RESERVED or not name or not (name + value).isprintable():
            raise RpcRefusedError(
                RpcCode.ILLEGAL_MESSAGE_PROPERTY_KEY,
                "property has a name that is RocketMQ's own, or a character that divides",
                name=name[:TOPIC_SIZE_MAX],
            )
    # The store has no empty values: it would drop the property, or refuse the message.
    return {name: value for name, value in properties.items() if value}


def _tag(system: Any) -> str | None:
    if not system.HasField("tag"):
        return None
    tag: str = system.tag
    if not tag.strip() or "|" in tag or not tag.isprintable():
        raise RpcRefusedError(
            RpcCode.ILLEGAL_MESSAGE_TAG, "tag is blank, or has a bar", tag=tag[:TOPIC_SIZE_MAX]
        )
    return tag


def _keys(system: Any) -> list[str]:
    for key in system.keys:
        if not key.strip() or " " in key or not key.isprintable():
            raise RpcRefusedError(
                RpcCode.ILLEGAL_MESSAGE_KEY, "key is blank, or has one", key=key[:TOPIC_SIZE_MAX]
            )
    return list(system.keys)


def _message_group(group: str) -> str:
    if not group.strip() or len(group) > MESSAGE_GROUP_MAX or not group.isprintable():
        raise RpcRefusedError(
            RpcCode.ILLEGAL_MESSAGE_GROUP,
            "message group is blank or too long",
            group=group[: MESSAGE_GROUP_MAX + 1],
            limit=MESSAGE_GROUP_MAX,
        )
    return group


def _body(message: Any, size_max: int) -> bytes:
    body: bytes = message.body
    if not body:
        raise RpcRefusedError(RpcCode.MESSAGE_BODY_EMPTY, "message has no body")
    if len(body) > size_max:
        raise _too_large(len(body), size_max)
    digest = message.system_properties.body_digest
    if digest.checksum and digest.type in _DIGESTS:
        right = _DIGESTS[digest.type](body)
        if digest.checksum.upper().lstrip("0") != right.upper().lstrip("0"):
            raise RpcRefusedError(
                RpcCode.MESSAGE_CORRUPTED, "body is another one than its digest says"
            )
    if message.system_properties.body_encoding == Encoding.GZIP:
        return _plain(body, size_max)
    return body


def _plain(packed: bytes, size_max: int) -> bytes:
    """A body that came compressed: RocketMQ's other clients know no such form of one."""
    unpacking = zlib.decompressobj(wbits=31)
    try:
        plain = unpacking.decompress(packed, size_max + 1)
    except zlib.error as error:
        raise RpcRefusedError(
            RpcCode.MESSAGE_CORRUPTED, "body is no gzip", reason=str(error)
        ) from error
    if len(plain) > size_max:
        raise _too_large(len(plain), size_max)
    if not unpacking.eof:
        raise RpcRefusedError(RpcCode.MESSAGE_CORRUPTED, "body is a part of a gzip")
    return plain


def _too_large(size: int, size_max: int) -> RpcRefusedError:
    return RpcRefusedError(
        RpcCode.MESSAGE_BODY_TOO_LARGE,
        "body is too large",
        size=size,
        limit=size_max,
        setting="store.max_message_size",
    )


_DIGESTS = {
    DigestType.CRC32: lambda body: f"{crc32(body):X}",
    DigestType.MD5: lambda body: hashlib.md5(body, usedforsecurity=False).hexdigest(),
    DigestType.SHA1: lambda body: hashlib.sha1(body, usedforsecurity=False).hexdigest(),
}
