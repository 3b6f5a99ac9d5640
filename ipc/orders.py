"""Orders between the processes of a node, and the answers to them: small fixed frames.

Layout, little-endian: kind u8, 7 bytes reserved, then five signed 64-bit numbers.

    kind             from → to          term    number            position        extra
    READY            writer → raft      –       last index        end of the log  last term
    GRANT            raft → writer      term    –                 –               –
    GRANTED          writer → raft      term    last index        end of the log  last term
    FOLLOW           raft → writer      term    last to keep      –               –
    FOLLOWED         writer → raft      term    last index        end of the log  last term
    REPAIRED         writer → raft      –       number of it      –               –
    DAMAGED          broker → raft      –       –                 of a bad byte   –
    DAMAGED          dispatcher → raft  –       –                 of a bad byte   –
    TOPICS_CHANGED   broker → writer    –       version           since           –
    TOPICS_LOADED    writer → broker    –       version           –               –
    PROPOSE_STATE    broker → writer    term    records           broker's start  writer's start
    STATE_REFUSED    writer → broker    term    –                 broker's start  writer's start
    SNAPSHOT_WANTED  writer → broker    –       –                 before it       –

TOPICS_CHANGED without anything behind it: the file is to be read. Else one JSON object follows it,
as a record: by topic its queues for writing, its window of de-duplication in milliseconds, and
where its queues begin, if that is not 0; null for no topic; of all that changed since the version
at *position*, for a writer that knows that one. Any other answers with version 0.

PROPOSE_STATE is followed by so many records, each with its size (u32) before it; it is not
repeated, and its answer is the records themselves, in the log. It is for the writer that was
started so many times, and from the broker that was: a writer takes none that was meant for an
earlier one, or comes from an earlier broker than one it has heard. So whatever is lost stays lost,
and a broker whose newest proposal is in the log knows what became of all earlier ones.

The fifth number is raft's *sequence*: an answer carries that of its order, and the writer carries
out only an order with a higher one than any before. GRANT and FOLLOW begin a fresh append ring. The
broker's proposals have numbers of their own, which their refusals carry.

An order is repeated by its sender until it is answered; a receiver that sees it twice answers
twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from ledgermq.model.errors import ProtocolError

_FRAME = Struct("<B7xqqqqq")
_SIZE = Struct("<I")


class OrderKind(IntEnum):
    """What an order says; numbers are never reused."""

    READY = 1
    GRANT = 2
    GRANTED = 3
    FOLLOW = 7
    FOLLOWED = 8
    TOPICS_CHANGED = 10
    TOPICS_LOADED = 11
    PROPOSE_STATE = 12
    STATE_REFUSED = 13
    REPAIRED = 14
    DAMAGED = 15
    SNAPSHOT_WANTED = 16


_WITH_RECORDS = (OrderKind.PROPOSE_STATE, OrderKind.TOPICS_CHANGED)


class Order(NamedTuple):
    """One order or answer; the module's table tells what the numbers mean for each kind."""

    kind: OrderKind
    term: int = 0
    number: int = 0
    position: int = 0
    extra: int = 0
    sequence: int = 0

    @property
    def version(self) -> int:
        """``number`` under the name that the topic orders give it."""
        return self.number

    def encode(self) -> bytes:
        """The frame to send."""
        return _FRAME.pack(*self)

    def encode_with(self, records: Sequence[bytes]) -> bytes:
        """The frame to send, with records behind it."""
        parts = [self.encode()]
        for record in records:
            parts += [_SIZE.pack(len(record)), record]
        return b"".join(parts)


def parse(message: bytes) -> Order:
    """The order in ``message``; the records of one that has some are told by ``records_of``.

    Raises:
        ProtocolError: it is none of this version's.
    """
    if len(message) < _FRAME.size:
        raise ProtocolError("order of a wrong size", size=len(message), expected=_FRAME.size)
    kind, *numbers = _FRAME.unpack_from(message)
    if kind not in OrderKind.__members__.values():
        raise ProtocolError("unknown order", kind=kind)
    if kind not in _WITH_RECORDS and len(message) != _FRAME.size:
        raise ProtocolError("order of a wrong size", size=len(message), expected=_FRAME.size)
    return Order(OrderKind(kind), *numbers)


def records_of(message: bytes) -> list[bytes]:
    """The records behind the order in ``message``.

    Raises:
        ProtocolError: they do not fill the message.
    """
    records: list[bytes] = []
    at = _FRAME.size
    while at < len(message):
        end = at + _SIZE.size
        size = _SIZE.unpack_from(message, at)[0] if end <= len(message) else 0
        if not 0 < size <= len(message) - end:
            raise ProtocolError("order with a torn record", at=at, size=len(message))
        records.append(message[end : end + size])
        at = end + size
    return records


def topics_changed(version: int) -> bytes:
    """Broker to writer: ``config/topics.json`` has a new content."""
    return Order(OrderKind.TOPICS_CHANGED, number=version).encode()


NO_OFFSETS: Mapping[int, int] = {}


class WritableTopic(NamedTuple):
    """What a writer knows of a topic.

    Attributes:
        queues: how many take messages.
        window_ms: its window of de-duplication, 0 where it has none.
        first_offsets: where queues begin, by their number: what is before belongs to a topic of the
            same name that was deleted.
    """

    queues: int
    window_ms: int = 0
    first_offsets: Mapping[int, int] = NO_OFFSETS


def topics_told(version: int, since: int, topics: Mapping[str, WritableTopic | None]) -> bytes:
    """Broker to writer: what became of the topics that changed since another version.

    Args:
        topics: ``None`` where there is no such topic.
    """
    order = Order(OrderKind.TOPICS_CHANGED, number=version, position=since)
    return order.encode_with([json.dumps(dict(topics)).encode()])


def read_topics_told(record: bytes) -> dict[str, WritableTopic | None]:
    """What ``topics_told`` says of topics.

    Raises:
        ProtocolError: it is no such object.
    """
    try:
        told = json.loads(record)
    except ValueError as error:
        raise ProtocolError("topics of an order are no JSON") from error
    if not isinstance(told, dict) or not all(map(_is_told, told.values())):
        raise ProtocolError("topics of an order are not numbers by name")
    return {name: None if row is None else _writable(*row) for name, row in told.items()}


def _is_told(row: object) -> bool:
    if row is None:
        return True
    if not isinstance(row, list) or len(row) != 3 or not isinstance(row[2], dict):
        return False
    numbers = [*row[:2], *row[2].values()]
    return all(type(one) is int for one in numbers) and all(map(str.isdecimal, row[2]))


def _writable(queues: int, window_ms: int, first_offsets: Mapping[str, int]) -> WritableTopic:
    firsts = {int(queue): offset for queue, offset in first_offsets.items()}
    return WritableTopic(queues, window_ms, firsts)


def topics_loaded(version: int) -> bytes:
    """Writer to broker: sends to what the file named at ``version`` are accepted."""
    return Order(OrderKind.TOPICS_LOADED, number=version).encode()


def repaired(number: int) -> bytes:
    """Writer to raft: the bytes of REPAIR ``number`` are in the file, and durable."""
    return Order(OrderKind.REPAIRED, number=number).encode()


def damaged(position: int) -> bytes:
    """A reader to raft: what stands in the log at ``position`` is not what was written."""
    return Order(OrderKind.DAMAGED, position=position).encode()
