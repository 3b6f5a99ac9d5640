"""Properties codec: a message's map of texts, beside its body.

Layout (RocketMQ ``MessageDecoder.messageProperties2String``), UTF-8, repeated for each property:

    size  field
    n     name, not empty, without 0x01 and 0x02
    1     0x01
    n     value, not empty, without 0x02
    1     0x02, left out behind the last one

Readers also take a 0x02 behind the last one, which old clients wrote, and drop what does not fit.
"""

from __future__ import annotations

from collections.abc import Mapping

from ledgermq.model.errors import MessageIllegalError

NAME_END = b"\x01"
VALUE_END = b"\x02"

KEYS = "KEYS"
TAGS = "TAGS"
UNIQ_KEY = "UNIQ_KEY"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
WAIT = "WAIT"
DELAY = "DELAY"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
TRANSACTION_PREPARED = "TRAN_MSG"
TRANSACTION_ID = "__transactionId__"
PRODUCER_GROUP = "PGROUP"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
CLUSTER = "CLUSTER"
STAGE = "STAGE"
MESSAGE_GROUP = "__SHARDINGKEY"
PRIORITY = "_SYS_MSG_PRIORITY_"


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The bytes of ``properties``, in their order.

    Raises:
        MessageIllegalError: a name or a value that a reader would drop or cut.
    """
    for name, value in properties.items():
        if not name or "\x01" in name or "\x02" in name:
            raise MessageIllegalError("property name is empty or has a separator", name=name)
        if not value or "\x02" in value:
            raise MessageIllegalError(
                "property value is empty or has a separator", name=name, value=value
            )
    text = "\x02".join([f"{name}\x01{value}" for name, value in properties.items()])
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise MessageIllegalError(
            "properties are not text", reason=error.reason, at=error.start
        ) from error


def decode_properties(data: bytes | memoryview) -> dict[str, str]:
    """The properties in ``data``, by the rules of ``MessageDecoder.string2messageProperties``.

    Never fails: a property without a name or a value is dropped, the later of two with the same
    name wins, and what is not UTF-8 becomes U+FFFD, as in Java.
    """
    properties: dict[str, str] = {}
    for part in bytes(data).split(VALUE_END):
        name, separator, value = part.partition(NAME_END)
        if separator and name and value:
            properties[name.decode(errors="replace")] = value.decode(errors="replace")
    return properties
