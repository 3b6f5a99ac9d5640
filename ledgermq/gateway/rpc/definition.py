"""Messages of RocketMQ's gRPC protocol: their fields as a table, made into classes when imported.

Package ``apache.rocketmq.v2``, service ``MessagingService``. What stands here is what is spoken
here: names and numbers are the protocol's. A table in place of generated code: that of one protobuf
release is refused by the libraries of others. The classes live in a pool of their own, so that a
program may have the protocol from elsewhere besides.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any, NamedTuple

from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PACKAGE = "apache.rocketmq.v2"
SERVICE = f"{PACKAGE}.MessagingService"


class RpcCode(IntEnum):
    """What a status says, also of a call that went well as far as gRPC sees."""

    CODE_UNSPECIFIED = 0
    OK = 20000
    MULTIPLE_RESULTS = 30000
    BAD_REQUEST = 40000
    ILLEGAL_ACCESS_POINT = 40001
    ILLEGAL_TOPIC = 40002
    ILLEGAL_CONSUMER_GROUP = 40003
    ILLEGAL_MESSAGE_TAG = 40004
    ILLEGAL_MESSAGE_KEY = 40005
    ILLEGAL_MESSAGE_GROUP = 40006
    ILLEGAL_MESSAGE_PROPERTY_KEY = 40007
    INVALID_TRANSACTION_ID = 40008
    ILLEGAL_MESSAGE_ID = 40009
    ILLEGAL_FILTER_EXPRESSION = 40010
    ILLEGAL_INVISIBLE_TIME = 40011
    ILLEGAL_DELIVERY_TIME = 40012
    INVALID_RECEIPT_HANDLE = 40013
    MESSAGE_PROPERTY_CONFLICT_WITH_TYPE = 40014
    UNRECOGNIZED_CLIENT_TYPE = 40015
    MESSAGE_CORRUPTED = 40016
    CLIENT_ID_REQUIRED = 40017
    ILLEGAL_POLLING_TIME = 40018
    UNAUTHORIZED = 40100
    FORBIDDEN = 40300
    NOT_FOUND = 40400
    MESSAGE_NOT_FOUND = 40401
    TOPIC_NOT_FOUND = 40402
    CONSUMER_GROUP_NOT_FOUND = 40403
    REQUEST_TIMEOUT = 40800
    MESSAGE_BODY_TOO_LARGE = 41301
    MESSAGE_BODY_EMPTY = 41302
    PRECONDITION_FAILED = 42800
    TOO_MANY_REQUESTS = 42900
    MESSAGE_PROPERTIES_TOO_LARGE = 43101
    INTERNAL_ERROR = 50000
    INTERNAL_SERVER_ERROR = 50001
    HA_NOT_AVAILABLE = 50002
    NOT_IMPLEMENTED = 50100
    PROXY_TIMEOUT = 50400
    UNSUPPORTED = 50500


class TransactionResolution(IntEnum):
    """How a transaction ends; without a resolution it is asked for again."""

    TRANSACTION_RESOLUTION_UNSPECIFIED = 0
    COMMIT = 1
    ROLLBACK = 2


class TransactionSource(IntEnum):
    """Why a producer ends a transaction: by itself, or because it was asked."""

    SOURCE_UNSPECIFIED = 0
    SOURCE_CLIENT = 1
    SOURCE_SERVER_CHECK = 2


class QueuePermission(IntEnum):
    """What may be done with a queue."""

    PERMISSION_UNSPECIFIED = 0
    NONE = 1
    READ = 2
    WRITE = 3
    READ_WRITE = 4


class FilterType(IntEnum):
    """What a filter's expression is written in."""

    FILTER_TYPE_UNSPECIFIED = 0
    TAG = 1
    SQL = 2


class AddressScheme(IntEnum):
    """What the hosts of endpoints are."""

    ADDRESS_SCHEME_UNSPECIFIED = 0
    IPv4 = 1
    IPv6 = 2
    DOMAIN_NAME = 3


class MessageType(IntEnum):
    """What a message asks for beside being stored."""

    MESSAGE_TYPE_UNSPECIFIED = 0
    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4
    LITE = 5
    PRIORITY = 6


class DigestType(IntEnum):
    """How a body's digest was made."""

    DIGEST_TYPE_UNSPECIFIED = 0
    CRC32 = 1
    MD5 = 2
    SHA1 = 3


class ClientType(IntEnum):
    """What a client does."""

    CLIENT_TYPE_UNSPECIFIED = 0
    PRODUCER = 1
    PUSH_CONSUMER = 2
    SIMPLE_CONSUMER = 3
    PULL_CONSUMER = 4
    LITE_PUSH_CONSUMER = 5
    LITE_SIMPLE_CONSUMER = 6


class Encoding(IntEnum):
    """What was done to a body."""

    ENCODING_UNSPECIFIED = 0
    IDENTITY = 1
    GZIP = 2


class RpcLanguage(IntEnum):
    """What a client is written in."""

    LANGUAGE_UNSPECIFIED = 0
    JAVA = 1
    CPP = 2
    DOT_NET = 3
    GOLANG = 4
    RUST = 5
    PYTHON = 6
    PHP = 7
    NODE_JS = 8
    RUBY = 9
    OBJECTIVE_C = 10
    DART = 11
    KOTLIN = 12


ENUMS: dict[str, type[IntEnum]] = {
    "Code": RpcCode,
    "Permission": QueuePermission,
    "Language": RpcLanguage,
    **{
        kind.__name__: kind
        for kind in (
            TransactionResolution, TransactionSource, FilterType, AddressScheme, MessageType,
            DigestType, ClientType, Encoding,
        )
    },
}  # fmt: skip
"""By their names in the protocol."""


_FIELDS = """
FilterExpression: 1 type FilterType, 2 expression string
RetryPolicy: 1 max_attempts int32, 2 exponential_backoff ExponentialBackoff strategy,
  3 customized_backoff CustomizedBackoff strategy
ExponentialBackoff: 1 initial Duration, 2 max Duration, 3 multiplier float
CustomizedBackoff: 1 next Duration*
Resource: 1 resource_namespace string, 2 name string
SubscriptionEntry: 1 topic Resource, 2 expression FilterExpression
Address: 1 host string, 2 port int32
Endpoints: 1 scheme AddressScheme, 2 addresses Address*
Broker: 1 name string, 2 id int32, 3 endpoints Endpoints
MessageQueue: 1 topic Resource, 2 id int32, 3 permission Permission, 4 broker Broker,
  5 accept_message_types MessageType*
Digest: 1 type DigestType, 2 checksum string
SystemProperties: 1 tag string?, 2 keys string*, 3 message_id string, 4 body_digest Digest,
  5 body_encoding Encoding, 6 message_type MessageType, 7 born_timestamp Timestamp,
  8 born_host string, 9 store_timestamp Timestamp?, 10 store_host string,
  11 delivery_timestamp Timestamp?, 12 receipt_handle string?, 13 queue_id int32,
  14 queue_offset int64?, 15 invisible_duration Duration?, 16 delivery_attempt int32?,
  17 message_group string?, 18 trace_context string?,
  19 orphaned_transaction_recovery_duration Duration?, 20 dead_letter_queue DeadLetterQueue?,
  21 lite_topic string?, 22 priority int32?
DeadLetterQueue: 1 topic string, 2 message_id string
Message: 1 topic Resource, 2 user_properties map, 3 system_properties SystemProperties,
  4 body bytes
Assignment: 1 message_queue MessageQueue
Status: 1 code Code, 2 message string
UA: 1 language Language, 2 version string, 3 platform string, 4 hostname string
Settings: 1 client_type ClientType?, 2 access_point Endpoints?, 3 backoff_policy RetryPolicy?,
  4 request_timeout Duration?, 5 publishing Publishing pub_sub,
  6 subscription Subscription pub_sub, 7 user_agent UA, 8 metric Metric
Publishing: 1 topics Resource*, 2 max_body_size int32, 3 validate_message_type bool
Subscription: 1 group Resource?, 2 subscriptions SubscriptionEntry*, 3 fifo bool?,
  4 receive_batch_size int32?, 5 long_polling_timeout Duration?, 6 lite_subscription_quota int32?,
  7 max_lite_topic_size int32?
Metric: 1 on bool, 2 endpoints Endpoints?
QueryRouteRequest: 1 topic Resource, 2 endpoints Endpoints
QueryRouteResponse: 1 status Status, 2 message_queues MessageQueue*
SendMessageRequest: 1 messages Message*
SendResultEntry: 1 status Status, 2 message_id string, 3 transaction_id string, 4 offset int64,
  5 recall_handle string
SendMessageResponse: 1 status Status, 2 entries SendResultEntry*
QueryAssignmentRequest: 1 topic Resource, 2 group Resource, 3 endpoints Endpoints
QueryAssignmentResponse: 1 status Status, 2 assignments Assignment*
ReceiveMessageRequest: 1 group Resource, 2 message_queue MessageQueue,
  3 filter_expression FilterExpression, 4 batch_size int32, 5 invisible_duration Duration?,
  6 auto_renew bool, 7 long_polling_timeout Duration?, 8 attempt_id string?
ReceiveMessageResponse: 1 status Status content, 2 message Message content,
  3 delivery_timestamp Timestamp content
AckMessageEntry: 1 message_id string, 2 receipt_handle string, 3 lite_topic string?
AckMessageRequest: 1 group Resource, 2 topic Resource, 3 entries AckMessageEntry*
AckMessageResultEntry: 1 message_id string, 2 receipt_handle string, 3 status Status
AckMessageResponse: 1 status Status, 2 entries AckMessageResultEntry*
ForwardMessageToDeadLetterQueueRequest: 1 group Resource, 2 topic Resource,
  3 receipt_handle string, 4 message_id string, 5 delivery_attempt int32,
  6 max_delivery_attempts int32, 7 lite_topic string?
ForwardMessageToDeadLetterQueueResponse: 1 status Status
HeartbeatRequest: 1 group Resource?, 2 client_type ClientType
HeartbeatResponse: 1 status Status
EndTransactionRequest: 1 topic Resource, 2 message_id string, 3 transaction_id string,
  4 resolution TransactionResolution, 5 source TransactionSource, 6 trace_context string
EndTransactionResponse: 1 status Status
PrintThreadStackTraceCommand: 1 nonce string
ReconnectEndpointsCommand: 1 nonce string
ThreadStackTrace: 1 nonce string, 2 thread_stack_trace string?
VerifyMessageCommand: 1 nonce string, 2 message Message
VerifyMessageResult: 1 nonce string
RecoverOrphanedTransactionCommand: 1 message Message, 2 transaction_id string
TelemetryCommand: 1 status Status?, 2 settings Settings command,
  3 thread_stack_trace ThreadStackTrace command,
  4 verify_message_result VerifyMessageResult command,
  5 recover_orphaned_transaction_command RecoverOrphanedTransactionCommand command,
  6 print_thread_stack_trace_command PrintThreadStackTraceCommand command,
  7 verify_message_command VerifyMessageCommand command,
  8 reconnect_endpoints_command ReconnectEndpointsCommand command
NotifyClientTerminationRequest: 1 group Resource?
NotifyClientTerminationResponse: 1 status Status
ChangeInvisibleDurationRequest: 1 group Resource, 2 topic Resource, 3 receipt_handle string,
  4 invisible_duration Duration, 5 message_id string, 6 lite_topic string?, 7 suspend bool?
ChangeInvisibleDurationResponse: 1 status Status, 2 receipt_handle string
RecallMessageRequest: 1 topic Resource, 2 recall_handle string
RecallMessageResponse: 1 status Status, 2 message_id string
"""

MESSAGES = dict(re.findall(r"^(\w+): (.*(?:\n .*)*)", _FIELDS, re.M))
"""Fields of each message: number, name, type (``*``: many, ``?``: may be absent), and the choice of
which it is one."""


class Rpc(NamedTuple):
    """A call of the service; requests, or answers, may be a stream."""

    request: str
    answer: str
    streams_in: bool = False
    streams_out: bool = False


RPCS = {
    **{
        name: Rpc(f"{name}Request", f"{name}Response", streams_out=name == "ReceiveMessage")
        for name in (
            "QueryRoute", "Heartbeat", "SendMessage", "QueryAssignment", "ReceiveMessage",
            "AckMessage", "ForwardMessageToDeadLetterQueue", "EndTransaction",
            "NotifyClientTermination", "ChangeInvisibleDuration", "RecallMessage",
        )
    },
    "Telemetry": Rpc("TelemetryCommand", "TelemetryCommand", streams_in=True, streams_out=True),
}  # fmt: skip

_FIELD = re.compile(r"(\d+) (\w+) (\w+)([*?]?)(?: (\w+))?")
_WELL_KNOWN = {
    "Duration": duration_pb2.DESCRIPTOR,
    "Timestamp": timestamp_pb2.DESCRIPTOR,
}
_LABELS = {
    "*": FieldDescriptorProto.LABEL_REPEATED,
    "?": FieldDescriptorProto.LABEL_OPTIONAL,
    "": FieldDescriptorProto.LABEL_OPTIONAL,
}
_MAP = "map"
"""Type of a field that has texts by texts."""


def _file() -> Any:
    file = FileDescriptorProto(name="rocketmq.proto", package=PACKAGE, syntax="proto3")
    file.dependency.extend(one.name for one in _WELL_KNOWN.values())
    for name, kind in ENUMS.items():
        enum = file.enum_type.add(name=name)
        for one in kind:
            enum.value.add(name=one.name, number=one.value)
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        # Choices that a field is alone in stand behind the others.
        lone: list[Any] = []
        for number, field, kind_of, mark, choice in _FIELD.findall(fields):
            made = message.field.add(name=field, number=int(number), label=_LABELS[mark])
            _set_type(message, made, kind_of)
            if choice:
                made.oneof_index = _choice(message, choice)
            elif mark == "?":
                made.proto3_optional = True
                lone.append(made)
        for made in lone:
            made.oneof_index = _choice(message, f"_{made.name}")
    return file


def _set_type(message: Any, field: Any, kind: str) -> None:
    if kind == _MAP:
        entry = DescriptorProto(name="UserPropertiesEntry")
        entry.options.map_entry = True
        for number, name in ((1, "key"), (2, "value")):
            entry.field.add(
                name=name,
                number=number,
                type=FieldDescriptorProto.TYPE_STRING,
                label=FieldDescriptorProto.LABEL_OPTIONAL,
            )
        message.nested_type.append(entry)
        field.label = FieldDescriptorProto.LABEL_REPEATED
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{message.name}.{entry.name}"
    elif kind in _WELL_KNOWN:
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".google.protobuf.{kind}"
    elif kind in MESSAGES:
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{kind}"
    elif kind in ENUMS:
        field.type = FieldDescriptorProto.TYPE_ENUM
        field.type_name = f".{PACKAGE}.{kind}"
    else:
        field.type = getattr(FieldDescriptorProto, f"TYPE_{kind.upper()}")


def _choice(message: Any, name: str) -> int:
    names = [one.name for one in message.oneof_decl]
    if name not in names:
        message.oneof_decl.add(name=name)
        names.append(name)
    return names.index(name)


def _classes() -> dict[str, Any]:
    pool = DescriptorPool()
    for known in _WELL_KNOWN.values():
        pool.AddSerializedFile(known.serialized_pb)
    pool.AddSerializedFile(_file().SerializeToString())
    return {
        name: GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in MESSAGES
    }


_CLASSES = _classes()


def message_class(name: str) -> Any:
    """The class of a message of ``MESSAGES``."""
    return _CLASSES[name]


def make(name: str, /, **fields: object) -> Any:
    """A message of ``MESSAGES`` with these fields."""
    return _CLASSES[name](**fields)
