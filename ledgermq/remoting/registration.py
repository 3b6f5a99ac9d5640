"""Registrations of brokers at a name server, as RocketMQ 4 and 5 send them, and ours.

A body is JSON (``RegisterBrokerBody``; before RocketMQ 3.0.11 the table of topics alone), or, where
the header says so, a zlib stream of

    size      JSON of the version of the table of topics
    int32     number of topics
    size      each: NAME READ_QUEUES WRITE_QUEUES PERM FILTER_TYPE, of RocketMQ 5 attributes behind
    …         filter servers, and RocketMQ 5's static topics, which are not looked at

where *size* is an int32 and so many bytes. There are no system flags and no orders in it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from ledgermq.formats.records.message import CRC_MASK
from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.fastjson import decode_body, encode_body
from ledgermq.remoting.fields import (
    INT32_MAX,
    INT64_MAX,
    Fields,
    flag,
    int32,
    int64,
    json_field,
    text,
)

REGISTRATION_SIZE_MAX = 4 * 1024 * 1024
"""Bytes of a body, as it came and decompressed: more than 20,000 topics in JSON."""

REGISTERED_NAME_SIZE_MAX = 255
"""Characters of a topic's, a broker's or a cluster's name, and of an address."""

REGISTERED_QUEUES_MAX = 65_536
REGISTERED_PERMISSION_MAX = 15
WORDS_MIN = 5

WHOLE_KEY = "ledgermqWhole"
"""A field of a registration that has all topics of its broker: others are gone. RocketMQ's brokers
send a changed topic alone, too, and name servers keep what they were told before."""

_LIMITS = {
    "readQueueNums": REGISTERED_QUEUES_MAX,
    "writeQueueNums": REGISTERED_QUEUES_MAX,
    "perm": REGISTERED_PERMISSION_MAX,
}
"""Numbers of a topic, as they stand one behind the other where they are compressed."""

_INT = struct.Struct(">i")


class RegisteredBroker(NamedTuple):
    """One process of a broker name; ``id`` 0 is the one that producers write to."""

    cluster: str
    name: str
    id: int
    address: str


class TableVersion(NamedTuple):
    """RocketMQ's ``DataVersion`` of a table of topics; another one when that is another one."""

    counter: int = 0
    timestamp_ms: int = 0
    state: int = 0


class TopicShape(NamedTuple):
    """A topic as a broker has it."""

    read_queues: int
    write_queues: int
    perm: int
    sys_flag: int = 0
    is_ordered: bool = False


class Registration(NamedTuple):
    """What a broker tells of its topics.

    Attributes:
        is_whole: it has no other topics.
        ha_address: where its slaves get the log; empty when it says nothing of that.
    """

    version: TableVersion
    topics: Mapping[str, TopicShape]
    is_whole: bool = False
    ha_address: str = ""


def registered_broker(fields: Fields) -> RegisteredBroker:
    """Who registers, asks or leaves.

    Raises:
        ProtocolError: a field is missing, too long, or no name, id or address.
    """
    address = _name(text(fields, "brokerAddr"), "brokerAddr")
    port = address.rpartition(":")[2]
    if not (port.isascii() and port.isdecimal() and 0 < int(port[:6]) <= 65_535):
        raise ProtocolError("address of a broker is not HOST:PORT", found=address)
    number = int64(fields, "brokerId", 0)
    if number < 0:
        raise ProtocolError("id of a broker is below 0", id=number)
    cluster, name = (_name(text(fields, one), one) for one in ("clusterName", "brokerName"))
    return RegisteredBroker(cluster, name, number, address)


def check_body(fields: Fields, body: bytes | memoryview) -> None:
    """Refuse a body that is too large, or not what was sent.

    Raises:
        ProtocolError: it is so.
    """
    if len(body) > REGISTRATION_SIZE_MAX:
        raise ProtocolError(
            "registration is too large", size=len(body), limit=REGISTRATION_SIZE_MAX
        )
    told = int32(fields, "bodyCrc32", 0)
    if told and told != zlib.crc32(body) & CRC_MASK:
        raise ProtocolError("body of a registration is not what its CRC says", crc=told)


def decode_registration(fields: Fields, body: bytes | memoryview) -> Registration:
    """What the body of a registration says; without one there are no topics, as version 0.

    Raises:
        ProtocolError: the body cannot be read, or a topic has a value out of its range.
    """
    check_body(fields, body)
    ha_address = fields.get("haServerAddr", "")[:REGISTERED_NAME_SIZE_MAX]
    if not len(body):
        return Registration(TableVersion(), {}, ha_address=ha_address)
    if flag(fields, "compressed"):
        return _decode_compressed(_inflated(body))._replace(ha_address=ha_address)
    found = decode_body(body, size_max=REGISTRATION_SIZE_MAX)
    wrapper = found.get("topicConfigSerializeWrapper", found)
    wrapper = _object(wrapper, "topicConfigSerializeWrapper")
    table = _object(wrapper.get("topicConfigTable"), "topicConfigTable")
    topics = {_name(name, "topicName"): _shape(row) for name, row in table.items()}
    version = _version(wrapper.get("dataVersion"))
    return Registration(version, topics, flag(fields, WHOLE_KEY), ha_address)


def encode_registration(
    version: Mapping[str, object], topics: Mapping[str, object]
) -> tuple[bytes, dict[str, str]]:
    """The body of a registration, and the fields of the header that are about it.

    Args:
        topics: ``TopicConfig`` as JSON, by name.
    """
    wrapper = {"dataVersion": version, "topicConfigTable": topics}
    body = encode_body({"filterServerList": [], "topicConfigSerializeWrapper": wrapper})
    return body, {"compressed": "false", "bodyCrc32": str(zlib.crc32(body) & CRC_MASK)}


def decode_version(body: bytes | memoryview) -> TableVersion:
    """The version that a broker asks about.

    Raises:
        ProtocolError: the body is none.
    """
    return _version(decode_body(body))


def encode_version(version: TableVersion) -> bytes:
    """The body of a question, or of its answer."""
    return encode_body(
        {
            "counter": version.counter,
            "stateVersion": version.state,
            "timestamp": version.timestamp_ms,
        }
    )


def _version(found: object) -> TableVersion:
    fields = _object(found, "dataVersion")
    return TableVersion(
        _integer(fields, "counter", INT64_MAX, 0),
        _integer(fields, "timestamp", INT64_MAX, 0),
        _integer(fields, "stateVersion", INT64_MAX, 0),
    )


def _object(found: object, name: str) -> Mapping[str, object]:
    """A JSON object; a null is as an empty one."""
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ProtocolError("field is of another type", field=name, type=type(found).__name__)
    return found


def _shape(found: object) -> TopicShape:
    fields = _object(found, "topicConfigTable")
    reads, writes, perm = (_integer(fields, name, limit) for name, limit in _LIMITS.items())
    sys_flag = _integer(fields, "topicSysFlag", INT32_MAX, 0)
    return TopicShape(reads, writes, perm, sys_flag, json_field(fields, "order", bool, False))


def _integer(
    fields: Mapping[str, object], name: str, limit: int, default: int | None = None
) -> int:
    return _bounded(json_field(fields, name, int, default), name, limit)


def _bounded(value: int, name: str, limit: int) -> int:
    if not 0 <= value <= limit:
        raise ProtocolError("number is out of its range", field=name, value=value, limit=limit)
    return value


def _name(found: str, what: str) -> str:
    if not found or len(found) > REGISTERED_NAME_SIZE_MAX:
        raise ProtocolError(
            "name is empty or too long",
            field=what,
            found=found[:64],
            size=len(found),
            limit=REGISTERED_NAME_SIZE_MAX,
        )
    if not found.isprintable():
        raise ProtocolError("name has characters that are none", field=what, found=found[:64])
    return found


def _inflated(body: bytes | memoryview) -> bytes:
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(body, REGISTRATION_SIZE_MAX + 1)
    except zlib.error as error:
        raise ProtocolError("registration is no zlib stream", reason=str(error)) from error
    if len(found) > REGISTRATION_SIZE_MAX:
        raise ProtocolError("registration is too large", limit=REGISTRATION_SIZE_MAX)
    if not stream.eof:
        raise ProtocolError("registration is cut off", size=len(body))
    return found


def _decode_compressed(content: bytes) -> Registration:
    reader = _Reader(content)
    version = decode_version(reader.sized())
    topics = dict(reader.topic() for _ in range(reader.integer()))
    return Registration(version, topics)


class _Reader:
    """Reads what was compressed, from its begin."""

    def __init__(self, content: bytes) -> None:
        self._content = memoryview(content)
        self._at = 0

    def integer(self) -> int:
        """An int32 that is not below 0."""
        return _bounded(int(_INT.unpack(self._take(_INT.size))[0]), "size", REGISTRATION_SIZE_MAX)

    def sized(self) -> memoryview:
        """Bytes with their number in front of them."""
        return self._take(self.integer())

    def topic(self) -> tuple[str, TopicShape]:
        """A topic."""
        try:
            words = str(self.sized(), "utf-8").split(" ")
        except UnicodeDecodeError as error:
            raise ProtocolError("topic of a registration is no text") from error
        if len(words) < WORDS_MIN:
            raise ProtocolError("topic of a registration has too few words", words=len(words))
        numbers = dict(zip(_LIMITS, words[1:4], strict=True))
        reads, writes, perm = (
            _bounded(int32(numbers, name), name, limit) for name, limit in _LIMITS.items()
        )
        return _name(words[0], "topicName"), TopicShape(reads, writes, perm)

    def _take(self, size: int) -> memoryview:
        found = self._content[self._at : self._at + size]
        if len(found) < size:
            raise ProtocolError("registration ends too early", wanted=size, found=len(found))
        self._at += size
        return found
