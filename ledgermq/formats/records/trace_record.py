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

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

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
        return _encoded("Pub", self)


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
        return _encoded("SubBefore", self)


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
        return _encoded("SubAfter", self)


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
        return _encoded("EndTransaction", self)


TraceRecord = TracedSend | TracedDelivery | TracedProcessing | TracedEnd


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
        kind, *rest = fields
        make, columns = _KINDS[kind]
        rest = rest[: len(columns)]
        if make is TracedSend and len(rest) == len(columns) - 1:
            # Old clients have no offset id: the success stands in its place.
            rest.insert(-1, NOTHING)
        elif make is TracedProcessing and _OLD_PROCESSING <= len(rest) < len(columns):
            # They do not say when the work ended, and for which group.
            rest = rest[:-1] if len(rest) == len(columns) - 1 else rest
            rest += _UNSAID[len(rest) - _OLD_PROCESSING :]
        pairs = zip(columns, rest, strict=True)
        return make(*(column.read(text) for column, text in pairs if column is not _REGION))
    except (KeyError, ValueError):
        # Another version's, or nobody's: it says nothing about the others.
        return None


def _encoded(kind: str, record: TraceRecord) -> str:
    values = iter(record)
    texts = [kind]
    for column in _KINDS[kind][1]:
        texts.append(REGION if column is _REGION else column.write(next(values)))
    text = FIELD_END.join(texts)
    if text.count(FIELD_END) >= len(texts) or RECORD_END in text:
        # A name that an application made up: it must not look like several fields.
        texts = [one.replace(FIELD_END, " ").replace(RECORD_END, " ") for one in texts]
        text = FIELD_END.join(texts)
    return text + RECORD_END


def _number(field: str) -> int:
    number = int(field)
    if not 0 <= number <= TIMESTAMP_MAX:
        raise ValueError(field)
    return number


class _Column(NamedTuple):
    """How a field stands in a record."""

    write: Callable[[Any], str]
    read: Callable[[str], object]


_PLAIN = _Column(str, str)
_REGION = _Column(str, str)
_NUMBER = _Column(str, _number)
_TEXT = _Column(lambda value: value or NOTHING, lambda text: "" if text == NOTHING else text)
_FLAG = _Column(lambda value: "true" if value else "false", lambda text: text == "true")
_KIND = _Column(lambda kind: str(int(kind)), lambda text: TracedKind(int(text)))

_SENT = _NUMBER, _REGION, _PLAIN, _PLAIN, _PLAIN, _TEXT, _TEXT, _PLAIN
_KINDS: Mapping[str, tuple[Callable[..., TraceRecord], tuple[_Column, ...]]] = {
    "Pub": (TracedSend, (*_SENT, _NUMBER, _NUMBER, _KIND, _TEXT, _FLAG)),
    "SubBefore": (TracedDelivery, (_NUMBER, _REGION, _PLAIN, _PLAIN, _PLAIN, _NUMBER, _TEXT)),
    "SubAfter": (
        TracedProcessing,
        (_PLAIN, _PLAIN, _NUMBER, _FLAG, _TEXT, _NUMBER, _NUMBER, _PLAIN),
    ),
    "EndTransaction": (TracedEnd, (*_SENT, _KIND, _PLAIN, _PLAIN, _FLAG)),
}
"""What makes the records of a kind, and their columns: the order of both is that of its fields."""

_OLD_PROCESSING = 4
_UNSAID = ["", "0", "0", ""]
"""Keys, code, time and group: the first clients had none of them."""
