"""Cold frames: what the broker and port processes ask the process that reads sealed pieces.

A message is parts of ZeroMQ's; the first one is a JSON object, whose ``kind`` says what it is. Both
ends are processes of one node and one version, and know each other by the runtime directory alone.

    ask      topic, queue, offset, ...     a ``ColdQuestion``
    since    topic, queue, time            a ``ColdSince``
    search   topic, key, ... or position   a ``ColdSearch``
    greet    serial                        tell me where queues begin, now and when it changes
    found    next, header_size             starts, sizes (u32 of the host), records
    hits     more                          sizes (u32 of the host), records one after the other
    nothing  next, gone                    no message that is wanted: go on at ``next``
    offset   offset                        of the first message of a time or later, or -1
    refused                                part 2 is that of a REFUSED
    begins   serial                        part 2: {topic: [[queue, first offset]]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from ledgermq.model.errors import LedgerError, ProtocolError
from ledgermq.model.names.queue_name import QueueName
from ledgermq.model.units import MIB
from ledgermq.wire.session import decode_refused, encode_refused

Part = bytes | memoryview

QUESTION_SIZE_MAX = MIB
"""Bytes of a question: an SQL expression and thousands of hashes fit."""

RECORDS_SIZE_MAX = MIB
"""Bytes of the records of one answer, unless its only message is larger: as many questions as
``cold.pulls_max`` says may have their answers in memory at once."""


SEARCH_WAIT_MS = 60_000
"""After so long nobody waits for a search any more."""

RETRY_AFTER_MS = 1_000
"""Who was refused because the place is away, or a piece damaged, need not ask again before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdQuestion:
    """Messages of a queue that the log has no more.

    Attributes:
        number: of whoever asks; the answer has it.
        floor: what is before is not shown, although pieces may have it: it belongs to an older
            topic of this name.
        messages_max, bytes_max: most of one answer; one message is given whatever its size.
        tag_hashes, expression: as those of a PULL.
    """

    number: int
    topic: str
    queue_id: int
    offset: int
    floor: int
    messages_max: int
    bytes_max: int
    tag_hashes: tuple[int, ...] = ()
    expression: str = ""


class ColdSince(NamedTuple):
    """From which queue offset on are the messages of a time, epoch ms, or later?"""

    number: int
    topic: str
    queue_id: int
    time_ms: int


class ColdSearch(NamedTuple):
    """Which messages have a key, or begin at a position?

    Attributes:
        before: position where the log begins: what is behind it is found there.
        position: of the message that is wanted; -1: those of ``topic`` with ``key`` that were
            stored from ``begin_ms`` to ``end_ms``, both included, the newest ones.
    """

    number: int
    before: int
    position: int = -1
    topic: str = ""
    key: str = ""
    begin_ms: int = 0
    end_ms: int = 0
    messages_max: int = 1


class ColdHits(NamedTuple):
    """The answer to ``ColdSearch``.

    Attributes:
        has_more: older pieces were not looked through, or have messages that were left out.
        sizes: of the records in ``payload``, one behind the other in the order of the log, 32 bits
            of the host.
    """

    number: int
    has_more: bool
    sizes: Part
    payload: Part


class ColdOffset(NamedTuple):
    """The answer to ``ColdSince``; -1: all that pieces have of the queue is older."""

    number: int
    offset: int


class ColdRecords(NamedTuple):
    """Records of one answer.

    Attributes:
        next_offset: queue offset to ask for next.
        header_size: so many bytes before each record are its entry's header.
        starts, sizes: of the records in ``payload``, 32 bits of the host.
    """

    number: int
    next_offset: int
    header_size: int
    starts: Part
    sizes: Part
    payload: Part


class ColdNothing(NamedTuple):
    """There is no message that is wanted before ``next_offset``.

    Attributes:
        is_gone: the one that was asked for is in no piece; ``next_offset`` is that of the first one
            behind it that is in one, or -1.
    """

    number: int
    next_offset: int
    is_gone: bool


class ColdRefusal(NamedTuple):
    """Why there is no answer."""

    number: int
    error: LedgerError


class ColdGreeting(NamedTuple):
    """Where do queues begin? The answer with ``serial`` is by a manifest that is read from now on;
    others may come before it, and later, when that changes.
    """

    serial: int


class ColdBegins(NamedTuple):
    """First offset of each queue that is in the pieces; ``serial`` is that of a greeting, or 0."""

    serial: int
    begins: Mapping[QueueName, int]


ColdMessage = ColdRecords | ColdNothing | ColdOffset | ColdHits | ColdRefusal | ColdBegins

AnyQuestion = ColdQuestion | ColdSince | ColdSearch


def encode_greeting(greeting: ColdGreeting) -> list[bytes]:
    """The parts of ``greet``."""
    return [_head("greet", serial=greeting.serial)]


def encode_question(question: AnyQuestion) -> list[bytes]:
    """The parts of ``ask``, ``since`` or ``search``."""
    if isinstance(question, ColdSearch):
        return [_head("search", **question._asdict())]
    if isinstance(question, ColdSince):
        return [_head("since", **question._asdict())]
    return [_head("ask", **asdict(question))]


def decode_question(parts: Sequence[bytes]) -> AnyQuestion | ColdGreeting:
    """What is asked.

    Raises:
        ProtocolError: it is none of them.
    """
    kind, fields = _split(parts)
    if kind not in ("greet", "ask", "since", "search"):
        raise ProtocolError("no question about pieces", kind=kind)
    try:
        if kind == "greet":
            return ColdGreeting(int(fields["serial"]))
        if kind == "since":
            return ColdSince(**fields)
        if kind == "search":
            return ColdSearch(**fields)
        hashes = tuple(map(int, fields.pop("tag_hashes")))
        return ColdQuestion(tag_hashes=hashes, **fields)
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError("question about pieces cannot be read", reason=str(error)) from error


def encode_answer(answer: ColdMessage) -> list[Part]:
    """The parts of an answer."""
    match answer:
        case ColdRecords(number, next_offset, header_size, starts, sizes, payload):
            head = _head("found", number=number, next=next_offset, header_size=header_size)
            return [head, starts, sizes, payload]
        case ColdNothing(number, next_offset, is_gone):
            return [_head("nothing", number=number, next=next_offset, gone=is_gone)]
        case ColdHits(number, has_more, sizes, payload):
            return [_head("hits", number=number, more=has_more), sizes, payload]
        case ColdRefusal(number, error):
            return [_head("refused", number=number), encode_refused(0, error)[1]]
        case ColdOffset(number, offset):
            return [_head("offset", number=number, offset=offset)]
        case ColdBegins(serial, begins):
            topics: dict[str, list[tuple[int, int]]] = {}
            for queue, begin in begins.items():
                topics.setdefault(queue.topic, []).append((queue.queue_id, begin))
            return [_head("begins", serial=serial), json.dumps(topics).encode()]


def decode_answer(parts: Sequence[Part]) -> ColdMessage:
    """What was answered.

    Raises:
        ProtocolError: nothing of ``encode_answer``.
    """
    kind, fields = _split(parts)
    try:
        if kind == "begins":
            return ColdBegins(
                int(fields["serial"]),
                {
                    QueueName(topic, queue_id): begin
                    for topic, rows in json.loads(bytes(parts[1])).items()
                    for queue_id, begin in rows
                },
            )
        number = int(fields["number"])
        if kind == "refused":
            return ColdRefusal(number, decode_refused(parts[1]).to_error())
        if kind == "offset":
            return ColdOffset(number, int(fields["offset"]))
        if kind == "hits":
            return ColdHits(number, bool(fields["more"]), parts[1], parts[2])
        next_offset = int(fields["next"])
        if kind == "nothing":
            return ColdNothing(number, next_offset, bool(fields["gone"]))
        if kind == "found":
            size = int(fields["header_size"])
            return ColdRecords(number, next_offset, size, parts[1], parts[2], parts[3])
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ProtocolError("answer about pieces cannot be read", reason=str(error)) from error
    raise ProtocolError("no answer about pieces", kind=kind)


def _head(kind: str, **fields: object) -> bytes:
    return json.dumps({"kind": kind, **fields}).encode()


def _split(parts: Sequence[Part]) -> tuple[str, dict[str, Any]]:
    try:
        fields = json.loads(bytes(parts[0]))
        return fields.pop("kind"), fields
    except (AttributeError, IndexError, KeyError, ValueError) as error:
        raise ProtocolError("message about pieces cannot be read", reason=str(error)) from error
