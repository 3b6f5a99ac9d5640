"""Orders between the processes of a node, and the answers to them: one type a kind.

An order is a small fixed frame, little-endian: kind u8, 7 bytes reserved, then five signed 64-bit
numbers. Some have records behind it, each with its size (u32) before it; a size of 0 stands before
the three numbers of ``PackRows`` (i64, u32, u32). ``_LAYOUTS`` has a row for each kind: which of
the five numbers are its fields. Those that it does not use are 0.

An order is repeated by its sender until it is answered; a receiver that sees it twice answers
twice. The *sequence* of GRANT and FOLLOW is raft's: an answer carries that of its order, and the
writer carries out only an order with a higher one than any before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple

from ledgermq.model.errors import ProtocolError
from ledgermq.model.ids import Index, Position, Term

_FRAME = Struct("<B7xqqqqq")
_SIZE = Struct("<I")
_PACK_ROWS = Struct("<qII")
_LED_MEMBER = Struct("<qqqB")
_COUNT = 1
"""The number that says how many records are behind PROPOSE_STATE."""

_FEED_RECORDS = 3

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


class Ready(NamedTuple):
    """Writer to raft: it has recovered the log, and nobody has told it what to do."""

    last_index: Index
    end: Position
    last_term: Term


class GrantTerm(NamedTuple):
    """Raft to writer: stamp in a term. It begins a fresh append ring.

    Attributes:
        last_index, last_term: the last entry of the log with which the election was won. A writer
            whose log has not exactly that end stamps nothing.
    """

    term: Term
    last_index: Index
    last_term: Term
    sequence: int = 0


class Granted(NamedTuple):
    """Writer to raft: it stamps behind this end of the log, if that is the one that was named."""

    term: Term
    last_index: Index
    end: Position
    last_term: Term
    sequence: int


class Follow(NamedTuple):
    """Raft to writer: stamp no more, cut what is behind entry ``keep``, and take entries.

    It begins a fresh append ring.
    """

    term: Term
    keep: Index
    sequence: int = 0


class Followed(NamedTuple):
    """Writer to raft: it takes entries behind this end of the log."""

    term: Term
    last_index: Index
    end: Position
    last_term: Term
    sequence: int


class TopicsChanged(NamedTuple):
    """Broker to writer: the table of topics has another version, or is that of all in a term.

    Attributes:
        version: this one.
        since: ``topics`` says what changed after this version, for a writer that knows it. Any
            other answers with version 0.
        term: in which the broker leads, with tables that have all that was acknowledged before; 0:
            they may lack some of it.
        writer_start: how often the writer was started that it is meant for: another one takes no
            notice of it.
        topics: what became of those that changed, ``None`` where there is no such topic any more;
            as one record, a JSON object. Without it ``config/topics.json`` is to be read.
    """

    version: int
    since: int = 0
    term: int = 0
    writer_start: int = 0
    topics: Mapping[str, WritableTopic | None] | None = None


class TopicsLoaded(NamedTuple):
    """Writer to broker: sends to what the table named at ``version`` are accepted.

    ``term`` and ``writer_start`` are those of the order.
    """

    version: int
    term: int
    writer_start: int


class PackRows(NamedTuple):
    """The rows of a pack that stands in the log (``wire/staged_pack.py``), in place of their bytes.

    Attributes:
        position: of the record that has the pack.
        size: of that record.
        rows: how many records it has.
    """

    position: int
    size: int
    rows: int


class ProposeState(NamedTuple):
    """Broker to writer: append these records of the broker's own, as one group.

    ``PackRows`` stand for records which the writer takes from its log.

    It is not repeated, and its answer is the records themselves, in the log. A writer takes none
    that was meant for an earlier life of it, or comes from an earlier broker than one it has heard.
    So whatever is lost stays lost, and a broker whose newest proposal is in the log knows what
    became of all earlier ones.

    Attributes:
        broker_start: how often its broker was started.
        writer_start: how often the writer was started that it is meant for.
        sequence: the broker's own, which a refusal carries.
    """

    term: Term
    broker_start: int
    writer_start: int
    sequence: int
    records: Sequence[bytes | PackRows]


class StateRefused(NamedTuple):
    """Writer to broker: nothing of a proposal was stored; the fields are those of the proposal."""

    term: Term
    broker_start: int
    writer_start: int
    sequence: int


class Repaired(NamedTuple):
    """Writer to raft: the bytes of REPAIR ``number`` are in the file, and durable."""

    number: int


class Damaged(NamedTuple):
    """A reader to raft: what stands in the log at ``position`` is not what was written."""

    position: Position


class FollowRun(NamedTuple):
    """Raft to writer: take by itself what the leader sends it, until raft ends run ``number``.

    Nobody answers: whether the run lasts stands in the cursor page.

    Attributes:
        last_index: the last entry of the log, which is of ``term`` and the leader's, too.
        round: the leader's last round of heartbeats that was heard of.
        leader: its name (``page_slots.names_cells``).
    """

    number: int
    term: Term
    last_index: Index
    round: int
    leader: int


class FeedFrom(NamedTuple):
    """Raft to writer: dial the writer of a member, which leads, and take what it sends.

    Attributes:
        peer: its name (``page_slots.names_cells``).
        port, host: where this writer is awaited; numeric.
        pem: certificate and key of this node's raft process, to show.
        believed: certificate of the other one (DER).
    """

    peer: int
    port: int
    host: str
    pem: bytes
    believed: bytes


class AwaitFollower(NamedTuple):
    """Raft to writer: be there for the writer of a member, which follows; ``FollowerStands``
    answers.

    Attributes:
        peer: its name (``page_slots.names_cells``).
        port, host: to listen at; numeric. 0: any port that is free.
        pem: certificate and key of this node's raft process, to show.
        believed: certificate of the other one's (DER).
    """

    peer: int
    port: int
    host: str
    pem: bytes
    believed: bytes


class FollowerStands(NamedTuple):
    """Writer to raft: how it is with the connection to the writer of ``peer``.

    Attributes:
        port: 0: there is one; the port at which it is awaited; -1: it cannot be.
    """

    peer: int
    port: int


class LedMember(NamedTuple):
    """A member in a leader's run.

    Attributes:
        name: of ``page_slots.names_cells``.
        match: the last entry that it holds, and the last one that it was sent.
        run: number of its own run; 0: it is silent, and nothing is sent to it.
        votes: it is no learner.
    """

    name: int
    match: int
    run: int
    votes: int


class LeadRun(NamedTuple):
    """Raft to writer: feed the other members, and count what they hold, until raft ends run
    ``number``.

    Nobody answers: whether the run lasts stands in the cursor page.

    Attributes:
        last_index: the last entry of the log that raft knows of; there may be more.
        round: the last round of heartbeats.
        begin: the first entry of ``term``.
        members: all but this one.
    """

    number: int
    term: Term
    last_index: Index
    round: int
    begin: Index
    members: Sequence[LedMember]


class RunGivenBack(NamedTuple):
    """Writer to raft: something in run ``number`` is for raft to judge, and it takes no more."""

    number: int


class SnapshotWanted(NamedTuple):
    """Writer to broker: retention keeps log before this position for want of a snapshot."""

    before: Position


class MakeCheckpoint(NamedTuple):
    """Broker to the process of receipts: make the next checkpoint; ``CheckpointMade`` answers.

    Attributes:
        number: of the order, which the answer carries.
        begin, until: positions of the log: up to the first one it is in the tree, and no more than
            up to the other one is to be.
        renew: one is to be made also where nothing has come.
        content: as one record, a JSON object: ``before`` and ``topics``.
    """

    number: int
    begin: int
    until: int
    renew: int
    content: bytes


class CheckpointMade(NamedTuple):
    """The process of receipts to the broker: what has come of order ``number``.

    Attributes:
        end: position up to which it has gone through the log; -1: it has failed, and its log says
            why.
        is_behind: there is more to go through at once.
        content: as one record, the body of the checkpoint's message; empty: nothing has come.
    """

    number: int
    end: int
    is_behind: int
    content: bytes


Order = (
    Ready
    | GrantTerm
    | Granted
    | Follow
    | Followed
    | TopicsChanged
    | TopicsLoaded
    | ProposeState
    | StateRefused
    | Repaired
    | Damaged
    | SnapshotWanted
    | FollowRun
    | RunGivenBack
    | FeedFrom
    | AwaitFollower
    | FollowerStands
    | LeadRun
    | MakeCheckpoint
    | CheckpointMade
)


class OrderKind(IntEnum):
    """The first byte of an order; numbers are never reused."""

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
    FOLLOW_RUN = 17
    RUN_GIVEN_BACK = 18
    FEED_FROM = 19
    AWAIT_FOLLOWER = 20
    FOLLOWER_STANDS = 21
    LEAD_RUN = 22
    MAKE_CHECKPOINT = 23
    CHECKPOINT_MADE = 24


class _Layout(NamedTuple):
    """``numbers``: which of the five each field is, in the order of the fields."""

    kind: OrderKind
    numbers: tuple[int, ...]


_LAYOUTS: Mapping[Callable[..., Order], _Layout] = {
    Ready: _Layout(OrderKind.READY, (1, 2, 3)),
    GrantTerm: _Layout(OrderKind.GRANT, (0, 1, 3, 4)),
    Granted: _Layout(OrderKind.GRANTED, (0, 1, 2, 3, 4)),
    Follow: _Layout(OrderKind.FOLLOW, (0, 1, 4)),
    Followed: _Layout(OrderKind.FOLLOWED, (0, 1, 2, 3, 4)),
    TopicsChanged: _Layout(OrderKind.TOPICS_CHANGED, (1, 2, 0, 3)),
    TopicsLoaded: _Layout(OrderKind.TOPICS_LOADED, (1, 0, 3)),
    ProposeState: _Layout(OrderKind.PROPOSE_STATE, (0, 2, 3, 4)),
    StateRefused: _Layout(OrderKind.STATE_REFUSED, (0, 2, 3, 4)),
    Repaired: _Layout(OrderKind.REPAIRED, (1,)),
    Damaged: _Layout(OrderKind.DAMAGED, (2,)),
    SnapshotWanted: _Layout(OrderKind.SNAPSHOT_WANTED, (2,)),
    FollowRun: _Layout(OrderKind.FOLLOW_RUN, (4, 0, 1, 2, 3)),
    RunGivenBack: _Layout(OrderKind.RUN_GIVEN_BACK, (4,)),
    FeedFrom: _Layout(OrderKind.FEED_FROM, (0, 1)),
    AwaitFollower: _Layout(OrderKind.AWAIT_FOLLOWER, (0, 1)),
    FollowerStands: _Layout(OrderKind.FOLLOWER_STANDS, (0, 1)),
    LeadRun: _Layout(OrderKind.LEAD_RUN, (4, 0, 1, 2, 3)),
    MakeCheckpoint: _Layout(OrderKind.MAKE_CHECKPOINT, (4, 1, 2, 3)),
    CheckpointMade: _Layout(OrderKind.CHECKPOINT_MADE, (4, 2, 3)),
}
_TYPES = {layout.kind: (make, layout.numbers) for make, layout in _LAYOUTS.items()}


def kind_of(order: Order) -> OrderKind:
    """What ``order`` is on the wire, and in log lines."""
    return _LAYOUTS[type(order)].kind


def encode(order: Order) -> bytes:
    """The message to send."""
    layout = _LAYOUTS[type(order)]
    # What is behind the frame stands last, and has no place in it.
    fields: Sequence[Any] = order
    numbers = [0] * 5
    for place, field in zip(layout.numbers, fields, strict=False):
        numbers[place] = field
    records: Sequence[bytes | PackRows] = ()
    match order:
        case ProposeState():
            records = order.records
            numbers[_COUNT] = len(records)
        case TopicsChanged() if order.topics is not None:
            records = [json.dumps(dict(order.topics)).encode()]
        case LeadRun():
            records = [_LED_MEMBER.pack(*member) for member in order.members]
        case MakeCheckpoint() | CheckpointMade() if order.content:
            records = [order.content]
        case FeedFrom() | AwaitFollower():
            records = [order.host.encode("ascii"), order.pem, order.believed]
        case _:
            pass
    parts = [_FRAME.pack(layout.kind, *numbers)]
    for record in records:
        if isinstance(record, PackRows):
            parts += [_SIZE.pack(0), _PACK_ROWS.pack(*record)]
        else:
            parts += [_SIZE.pack(len(record)), record]
    return b"".join(parts)


def parse(message: bytes) -> Order:
    """The order in ``message``, with what is behind it.

    Raises:
        ProtocolError: it is none of this version's.
    """
    if len(message) < _FRAME.size:
        raise ProtocolError("order of a wrong size", size=len(message), expected=_FRAME.size)
    kind, *numbers = _FRAME.unpack_from(message)
    if kind not in _TYPES:
        raise ProtocolError("unknown order", kind=kind)
    make, places = _TYPES[kind]
    fields = [numbers[place] for place in places]
    if kind in _BEHIND:
        return make(*fields, *_BEHIND[kind](_records(message)))
    if len(message) != _FRAME.size:
        raise ProtocolError("order of a wrong size", size=len(message), expected=_FRAME.size)
    return make(*fields)


def _told_topics(
    records: Sequence[bytes | PackRows],
) -> tuple[Mapping[str, WritableTopic | None] | None]:
    if not records:
        return (None,)
    if isinstance(records[0], PackRows):
        raise ProtocolError("rows of a pack where topics should be")
    return (_topics(records[0]),)


def _led_member(record: bytes | PackRows) -> LedMember:
    if not isinstance(record, bytes) or len(record) != _LED_MEMBER.size:
        raise ProtocolError("member of a leader's run of a wrong size")
    return LedMember(*_LED_MEMBER.unpack(record))


def _told_of_feed(records: Sequence[bytes | PackRows]) -> tuple[str, bytes, bytes]:
    found = [record for record in records if isinstance(record, bytes)]
    if len(found) != len(records) or len(found) != _FEED_RECORDS or not found[0].isascii():
        raise ProtocolError("order of a connection without an address and certificates")
    host, pem, believed = found
    return host.decode("ascii"), pem, believed


def _content(records: Sequence[bytes | PackRows]) -> tuple[bytes]:
    """The one record of an order, or nothing."""
    if not records:
        return (b"",)
    if len(records) > 1 or not isinstance(records[0], bytes):
        raise ProtocolError("order with other records than one", records=len(records))
    return (records[0],)


def _records(message: bytes) -> list[bytes | PackRows]:
    """The records behind an order; raises ``ProtocolError`` when they do not fill the message."""
    records: list[bytes | PackRows] = []
    at = _FRAME.size
    while at < len(message):
        end = at + _SIZE.size
        left = len(message) - end
        size = _SIZE.unpack_from(message, at)[0] if left >= 0 else -1
        if not 0 <= size <= left or (size == 0 and left < _PACK_ROWS.size):
            raise ProtocolError("order with a torn record", at=at, size=len(message))
        if size == 0:
            size = _PACK_ROWS.size
            records.append(PackRows(*_PACK_ROWS.unpack_from(message, end)))
        else:
            records.append(message[end : end + size])
        at = end + size
    return records


def _topics(record: bytes) -> dict[str, WritableTopic | None]:
    """The topics of TOPICS_CHANGED; raises ``ProtocolError`` when they are no such object."""
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


_BEHIND: Mapping[OrderKind, Callable[[Sequence[bytes | PackRows]], Sequence[Any]]] = {
    OrderKind.PROPOSE_STATE: lambda records: (records,),
    OrderKind.TOPICS_CHANGED: _told_topics,
    OrderKind.FEED_FROM: _told_of_feed,
    OrderKind.AWAIT_FOLLOWER: _told_of_feed,
    OrderKind.LEAD_RUN: lambda records: (list(map(_led_member, records)),),
    OrderKind.MAKE_CHECKPOINT: _content,
    OrderKind.CHECKPOINT_MADE: _content,
}
"""What the records behind an order are, by its kind: the fields behind its numbers."""
