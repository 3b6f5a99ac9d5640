"""Each kind of order on the wire: kind, then term, number, position, extra, sequence."""

from __future__ import annotations

import struct
from struct import pack

import pytest

from ledgermq.ipc.orders import (
    AwaitFollower,
    CheckpointMade,
    Damaged,
    FeedFrom,
    Follow,
    Followed,
    FollowerStands,
    FollowRun,
    Granted,
    GrantTerm,
    LeadRun,
    LedMember,
    MakeCheckpoint,
    Order,
    OrderKind,
    PackRows,
    ProposeState,
    Ready,
    Repaired,
    RunGivenBack,
    SnapshotWanted,
    StateRefused,
    TopicsChanged,
    TopicsLoaded,
    WritableTopic,
    encode,
    kind_of,
    parse,
)
from ledgermq.model.errors import ProtocolError
from ledgermq.model.ids import Index, Position, Term

TERM, LAST, END = Term(7), Index(9), Position(1234)


def frame(kind: int, *numbers: int) -> bytes:
    return pack("<B7x5q", kind, *numbers)


def behind(*records: bytes) -> bytes:
    return b"".join(pack("<I", len(record)) + record for record in records)


ORDERS: list[tuple[Order, bytes]] = [
    (FollowRun(8, TERM, LAST, 5, 6), frame(17, 7, 9, 5, 6, 8)),
    (RunGivenBack(8), frame(18, 0, 0, 0, 0, 8)),
    (
        FeedFrom(6, 80, "::1", b"pem", b"der"),
        frame(19, 6, 80, 0, 0, 0) + behind(b"::1", b"pem", b"der"),
    ),
    (
        AwaitFollower(6, 80, "::1", b"pem", b"der"),
        frame(20, 6, 80, 0, 0, 0) + behind(b"::1", b"pem", b"der"),
    ),
    (FollowerStands(6, -1), frame(21, 6, -1, 0, 0, 0)),
    (
        LeadRun(8, TERM, LAST, 5, Index(2), [LedMember(6, 9, 77, 1), LedMember(7, -1, 0, 0)]),
        frame(22, 7, 9, 5, 2, 8)
        + behind(struct.pack("<qqqB", 6, 9, 77, 1), struct.pack("<qqqB", 7, -1, 0, 0)),
    ),
    (Ready(LAST, END, Term(5)), frame(1, 0, 9, 1234, 5, 0)),
    (GrantTerm(TERM, Index(5), Term(6), 11), frame(2, 7, 5, 0, 6, 11)),
    (Granted(TERM, LAST, END, Term(5), 11), frame(3, 7, 9, 1234, 5, 11)),
    (Follow(TERM, Index(-1), 12), frame(7, 7, -1, 0, 0, 12)),
    (Followed(TERM, LAST, END, Term(5), 12), frame(8, 7, 9, 1234, 5, 12)),
    (TopicsChanged(3), frame(10, 0, 3, 0, 0, 0)),
    (
        TopicsChanged(4, 3, 7, 2, {"a": WritableTopic(4, 5, {1: 2}), "b": None}),
        frame(10, 7, 4, 3, 2, 0) + behind(b'{"a": [4, 5, {"1": 2}], "b": null}'),
    ),
    (TopicsChanged(4, 3, 7, 2, {}), frame(10, 7, 4, 3, 2, 0) + behind(b"{}")),
    (TopicsLoaded(4, 7, 2), frame(11, 7, 4, 0, 2, 0)),
    (
        ProposeState(TERM, 3, 4, 13, [b"one", b"r"]),
        frame(12, 7, 2, 3, 4, 13) + behind(b"one", b"r"),
    ),
    (
        ProposeState(TERM, 3, 4, 13, [b"one", PackRows(2**40, 5, 6), b"r"]),
        frame(12, 7, 3, 3, 4, 13) + behind(b"one") + pack("<IqII", 0, 2**40, 5, 6) + behind(b"r"),
    ),
    (StateRefused(TERM, 3, 4, 13), frame(13, 7, 0, 3, 4, 13)),
    (Repaired(6), frame(14, 0, 6, 0, 0, 0)),
    (Damaged(END), frame(15, 0, 0, 1234, 0, 0)),
    (SnapshotWanted(END), frame(16, 0, 0, 1234, 0, 0)),
    (MakeCheckpoint(5, 6, 7, 1, b"{}"), frame(23, 0, 6, 7, 1, 5) + behind(b"{}")),
    (CheckpointMade(5, 6, 0, b""), frame(24, 0, 0, 6, 0, 5)),
    (CheckpointMade(5, 6, 1, b"one"), frame(24, 0, 0, 6, 1, 5) + behind(b"one")),
]


@pytest.mark.parametrize(("order", "message"), ORDERS)
def test_an_order_is_the_same_bytes_as_ever_and_comes_back(order: Order, message: bytes) -> None:
    back = parse(message)

    assert encode(order) == message
    # Tuples of two types may be equal.
    assert (type(back), back) == (type(order), order)
    assert kind_of(order) == message[0]


def test_each_kind_has_its_bytes_above() -> None:
    assert {kind_of(order) for order, _ in ORDERS} == set(OrderKind)


@pytest.mark.parametrize("message", [b"", b"x", bytes(40), bytes([99]) + bytes(47)])
def test_what_is_no_order_is_refused(message: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse(message)


def test_nothing_is_behind_an_order_without_records() -> None:
    with pytest.raises(ProtocolError):
        parse(encode(GrantTerm(TERM, Index(5), Term(6))) + behind(b"one"))


@pytest.mark.parametrize("cut", [1, 4, 5, 9])
@pytest.mark.parametrize("last", [b"two", PackRows(4_096, 5, 6)])
def test_a_torn_record_is_refused(cut: int, last: bytes | PackRows) -> None:
    message = encode(ProposeState(TERM, 3, 4, 13, [b"one", last]))

    with pytest.raises(ProtocolError):
        parse(message[:-cut])


@pytest.mark.parametrize(
    "content",
    [b"x", b"[]", b'{"a": 4}', b'{"a": [1.5, 0]}', b'{"a": [1, 0]}', b'{"a": [1, 0, {"x": 1}]}'],
)
def test_an_order_that_tells_no_topics_is_refused(content: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse(frame(10, 0, 2, 1, 0, 0) + behind(content))
