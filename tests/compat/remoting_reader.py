"""What the real broker answers to readers, asked over its own protocol with nothing in between.

RocketMQ's client corrects and filters; the bytes of the broker do not. A pull's answer names the
status of ``getMessage`` in its remark.
"""

from __future__ import annotations

import itertools
import json
import socket
from struct import Struct
from types import TracebackType
from typing import Any, NamedTuple, Self

from ledgermq.formats.records.message import decode_message
from tests.suite.patience import PATIENCE_S

PULL_MESSAGE = 11
QUERY_MESSAGE = 12
SEARCH_OFFSET_BY_TIMESTAMP = 29
GET_MAX_OFFSET = 30
GET_MIN_OFFSET = 31
GET_EARLIEST_MSG_STORETIME = 32
VIEW_MESSAGE_BY_ID = 33
SUCCESS = 0
QUERY_NOT_FOUND = 22
WITH_SUBSCRIPTION = 4

_HEAD = Struct(">II")


class Answer(NamedTuple):
    """A response; ``fields`` are its texts."""

    code: int
    remark: str
    fields: dict[str, str]
    body: bytes


class Pulled(NamedTuple):
    """What a pull came to; positions of the messages."""

    status: str
    next_offset: int
    begin: int
    end: int
    positions: list[int]


class RemotingReader:
    """One connection to a broker, one question at a time."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        self._file = self._socket.makefile("rb")
        self._ids = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        self._socket.close()

    def ask(self, code: int, **fields: object) -> Answer:
        """The response to a request with these fields."""
        request_id = next(self._ids)
        header = json.dumps(
            {
                "code": code,
                "language": "JAVA",
                "version": 401,
                "opaque": request_id,
                "flag": 0,
                "extFields": {name: str(value) for name, value in fields.items()},
            },
            separators=(",", ":"),
        ).encode()
        self._socket.sendall(_HEAD.pack(4 + len(header), len(header)) + header)
        size, header_size = _HEAD.unpack(self._read(_HEAD.size))
        told: dict[str, Any] = json.loads(self._read(header_size))
        body = self._read(size - 4 - header_size)

        assert told["opaque"] == request_id
        return Answer(told["code"], told.get("remark") or "", told.get("extFields") or {}, body)

    def pull(
        self, topic: str, queue: int, offset: int, *, messages: int, tags: str = "*"
    ) -> Pulled:
        """What ``getMessage`` says, without waiting for messages."""
        answer = self.ask(
            PULL_MESSAGE,
            consumerGroup="reads",
            topic=topic,
            queueId=queue,
            queueOffset=offset,
            maxMsgNums=messages,
            sysFlag=WITH_SUBSCRIPTION,
            commitOffset=0,
            suspendTimeoutMillis=0,
            subscription=tags,
            subVersion=0,
            expressionType="TAG",
        )
        fields = answer.fields
        assert "nextBeginOffset" in fields, answer
        return Pulled(
            answer.remark,
            int(fields["nextBeginOffset"]),
            int(fields["minOffset"]),
            int(fields["maxOffset"]),
            positions_of(answer.body),
        )

    def message_at(self, position: int) -> int | None:
        """The position that the message at ``position`` has; ``None`` when there is none."""
        answer = self.ask(VIEW_MESSAGE_BY_ID, offset=position)
        found = positions_of(answer.body) if answer.code == SUCCESS else []
        return found[0] if found else None

    def by_key(self, topic: str, key: str, *, begin: int = 0, end: int = 2**63 - 1) -> list[int]:
        """Positions of the messages that the index has under ``key``."""
        answer = self.ask(
            QUERY_MESSAGE, topic=topic, key=key, maxNum=64, beginTimestamp=begin, endTimestamp=end
        )
        assert answer.code in (SUCCESS, QUERY_NOT_FOUND), answer
        return positions_of(answer.body)

    def number(self, code: int, name: str, **fields: object) -> int:
        """A number that the broker answers with."""
        answer = self.ask(code, **fields)
        assert answer.code == SUCCESS, answer
        return int(answer.fields[name])

    def _read(self, size: int) -> bytes:
        content = self._file.read(size)
        assert len(content) == size, "the broker has closed the connection"
        return content


def positions_of(body: bytes) -> list[int]:
    """Physical offsets of the messages in an answer."""
    view, at, positions = memoryview(body), 0, []
    while at < len(view):
        message = decode_message(view, at)
        positions.append(message.physical_offset)
        at += message.size
    return positions
