"""Trace record codec: what RocketMQ's clients note of a message's way, in a topic of its own.

A record is UTF-8 text: fields divided by 0x01, the last one followed by 0x02. The first field is
the kind (``TraceDataEncoder.encoderFromContextBean``):

    Pub             time, region, group, topic, id, tags, keys, store host, body size, cost, type,
                    offset id, success
    SubBefore       time, region, group, request id, id, retries, keys
    SubAfter        request id, id, cost, success, keys, code, time, group
    EndTransaction  time, region, group, topic, id, tags, keys, store host, type, transaction id,
                    state, from check

Times are epoch ms, costs are ms. The body of a trace message is one record behind the other; the
message's keys are the ids and the keys of the messages that it tells of.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from ledgermq.model.errors import ProtocolError
from ledgermq.model.limits import TIMESTAMP_MAX

FIELD_END = "\x01"
RECORD_END = "\x02"
REGION = "DefaultRegion"
"""What RocketMQ's clients say where nobody has named one."""

NOTHING = "null"
"""What Java writes for tags, keys and an offset id that a message has not; its decoder fails where
the last field of a record is empty.
"""

RECORD_SIZE_MAX = 128 * 1024
"""Characters; RocketMQ's clients put no more into a whole trace message."""

STATE_COMMIT = "COMMIT_MESSAGE"
STATE_ROLLBACK = "ROLLBACK_MESSAGE"


class TracedKind(IntEnum):
    """What kind of message was sent (Java's ``MessageType``)."""

    NORMAL = 0
    HALF = 1
    COMMITTED = 2
    DELAYED = 3


class ProcessedCode(IntEnum):
    """How a consumer's work on a message ended (Java's ``ConsumeReturnType``)."""

    SUCCESS = 0
    TIMED_OUT = 1
    RAISED = 2
    RETURNED_NOTHING = 3
    FAILED = 4


class TracedSend(NamedTuple):
    """A message was sent, or could not be (``Pub``)."""

    time: int
    group: str
    topic: str
    id: str
    tags: str
    keys: str
    store_host: str
    body_size: int
    cost: int
    kind: TracedKind
    offset_id: str
    is_success: bool

    def encode(self) -> str:
        """The record."""
        return _record(
            "Pub", self.time, REGION, self.group, self.topic, self.id,
            _or_nothing(self.tags), _or_nothing(self.keys), self.store_host, self.body_size,
            self.cost, int(self.kind), _or_nothing(self.offset_id), _boolean(self.is_success),
        )  # fmt: skip


class TracedDelivery(NamedTuple):
    """A consumer was given a message (``SubBefore``)."""

    time: int
    group: str
    request_id: str
    id: str
    retries: int
    keys: str

    def encode(self) -> str:
        """The record."""
        return _record(
            "SubBefore", self.time, REGION, self.group, self.request_id, self.id, self.retries,
            _or_nothing(self.keys),
        )  # fmt: skip


class TracedProcessing(NamedTuple):
    """A consumer has worked on a message (``SubAfter``); ``request_id`` is that of its delivery.

    Attributes:
        time: when the work ended; 0 where an old client does not say.
    """

    request_id: str
    id: str
    cost: int
    is_success: bool
    keys: str
    code: int
    time: int
    group: str

    def encode(self) -> str:
        """The record."""
        return _record(
            "SubAfter", self.request_id, self.id, self.cost, _boolean(self.is_success),
            _or_nothing(self.keys), self.code, self.time, self.group,
        )  # fmt: skip


class TracedEnd(NamedTuple):
    """A message of a transaction was committed or rolled back (``EndTransaction``)."""

    time: int
    group: str
    topic: str
    id: str
    tags: str
    keys: str
    store_host: str
    kind: TracedKind
    transaction_id: str
    state: str
    is_from_check: bool

    def encode(self) -> str:
        """The record."""
        return _record(
            "EndTransaction", self.time, REGION, self.group, self.topic, self.id,
            _or_nothing(self.tags), _or_nothing(self.keys), self.store_host, int(self.kind),
            self.transaction_id, self.state, _boolean(self.is_from_check),
        )  # fmt: skip


TraceRecord = TracedSend | TracedDelivery | TracedProcessing | TracedEnd


def decode_traces(body: bytes | memoryview) -> list[TraceRecord]:
    """The records of a trace message; what is none, or is of no kind known, is left out.

    Raises:
        ProtocolError: the body is not UTF-8.
    """
    try:
        text = bytes(body).decode()
    except UnicodeDecodeError as error:
        raise ProtocolError("trace message is not UTF-8", at=error.start) from error
    records = (_decoded(part.split(FIELD_END)) for part in text.split(RECORD_END) if part)
    return [record for record in records if record is not None]


def traces_naming(body: bytes | memoryview, name: str) -> Iterator[TraceRecord]:
    """The records of a trace message in which ``name`` stands, found without a look at the others.

    Records of more than ``RECORD_SIZE_MAX`` bytes are left out, and so is what stands behind the
    last whole one.

    Raises:
        ProtocolError: the body is not UTF-8.
    """
    whole = bytes(body)
    try:
        text = whole[: whole.rfind(RECORD_END.encode()) + 1].decode()
    except UnicodeDecodeError as error:
        raise ProtocolError("trace message is not UTF-8", at=error.start) from error
    at = 0
    while (found := text.find(name, at)) >= 0:
        begin = max(at, text.rfind(RECORD_END, at, found) + 1)
        end = text.find(RECORD_END, found)
        at = end + 1
        if end < 0:
            return
        if end - begin <= RECORD_SIZE_MAX:
            record = _decoded(text[begin:end].split(FIELD_END))
            if record is not None:
                yield record


def _decoded(fields: list[str]) -> TraceRecord | None:
    try:
        return _DECODERS[fields[0]](fields)
    except (KeyError, IndexError, ValueError):
        # Another version's, or nobody's: it says nothing about the others.
        return None


def _send(fields: list[str]) -> TraceRecord:
    # Old clients have no offset id: the success stands in its place.
    offset_id, is_success = fields[12:14] if len(fields) > 13 else ("", fields[12])
    return TracedSend(
        _number(fields[1]), fields[3], fields[4], fields[5], _text(fields[6]), _text(fields[7]),
        fields[8], _number(fields[9]), _number(fields[10]), TracedKind(int(fields[11])),
        _text(offset_id), _is_true(is_success),
    )  # fmt: skip


def _delivery(fields: list[str]) -> TraceRecord:
    return TracedDelivery(
        _number(fields[1]), fields[3], fields[4], fields[5], _number(fields[6]), _text(fields[7])
    )


def _processing(fields: list[str]) -> TraceRecord:
    code = _number(fields[6]) if len(fields) > 6 else 0
    time, group = (_number(fields[7]), fields[8]) if len(fields) > 8 else (0, "")
    keys = _text(fields[5]) if len(fields) > 5 else ""
    return TracedProcessing(
        fields[1], fields[2], _number(fields[3]), _is_true(fields[4]), keys, code, time, group
    )


def _end(fields: list[str]) -> TraceRecord:
    return TracedEnd(
        _number(fields[1]), fields[3], fields[4], fields[5], _text(fields[6]), _text(fields[7]),
        fields[8], TracedKind(int(fields[9])), fields[10], fields[11], _is_true(fields[12]),
    )  # fmt: skip


_DECODERS = {
    "Pub": _send,
    "SubBefore": _delivery,
    "SubAfter": _processing,
    "EndTransaction": _end,
}


def _record(*fields: object) -> str:
    texts = [str(field) for field in fields]
    record = FIELD_END.join(texts)
    if record.count(FIELD_END) >= len(texts) or RECORD_END in record:
        # A name that an application made up: it must not look like several fields.
        texts = [text.replace(FIELD_END, " ").replace(RECORD_END, " ") for text in texts]
        record = FIELD_END.join(texts)
    return record + RECORD_END


def _number(field: str) -> int:
    number = int(field)
    if not 0 <= number <= TIMESTAMP_MAX:
        raise ValueError(field)
    return number


def _text(field: str) -> str:
    return "" if field == NOTHING else field


def _or_nothing(value: str) -> str:
    return value or NOTHING


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _is_true(text: str) -> bool:
    return text == "true"
