"""What members say to ship files: every frame survives the wire, and what is none is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.model.errors import ProtocolError
from ledgermq.model.ids import Index, Position, Term
from ledgermq.raft.message_codec import encode_message
from ledgermq.raft.messages import TimeoutNow
from ledgermq.wire.ship_frames import (
    MEMBERS_SIZE_MAX,
    Ask,
    AskDigest,
    AskEnds,
    Digest,
    Ends,
    Gone,
    Offer,
    ShipFrame,
    Slice,
    decode_ship_frame,
    encode_ship_frame,
    is_ship_frame,
)

NUMBERS = st.integers(0, 2**62)
DIGESTS = st.binary(min_size=32, max_size=32)
FRAMES = st.one_of(
    st.builds(
        Offer,
        NUMBERS,
        NUMBERS,
        NUMBERS,
        NUMBERS,
        NUMBERS,
        NUMBERS,
        st.binary(max_size=50),
        st.booleans(),
    ),
    st.builds(Ask, NUMBERS, NUMBERS, NUMBERS),
    st.builds(Slice, NUMBERS, NUMBERS, DIGESTS),
    st.builds(AskDigest, NUMBERS, NUMBERS, NUMBERS),
    st.builds(Digest, NUMBERS, NUMBERS, NUMBERS, DIGESTS),
    st.builds(Gone, NUMBERS, NUMBERS),
    st.builds(AskEnds, NUMBERS, NUMBERS),
    st.builds(Ends, NUMBERS, NUMBERS, NUMBERS, DIGESTS),
)
OFFER = Offer(Term(7), Position(4_096), Position(16_384), Index(9), Index(40), 4_096, b"n0")


@given(FRAMES)
def test_every_frame_survives_the_wire(frame: ShipFrame) -> None:
    encoded = encode_ship_frame(frame)

    assert decode_ship_frame(encoded) == frame
    assert decode_ship_frame(memoryview(encoded)) == frame


@given(FRAMES, st.integers(0, 100))
def test_a_frame_that_is_cut_short_is_refused(frame: ShipFrame, size: int) -> None:
    # The memberships at the end of an offer are all that may be of any size.
    encoded = encode_ship_frame(frame._replace(members=b"") if isinstance(frame, Offer) else frame)

    with pytest.raises(ProtocolError, match="cut short"):
        decode_ship_frame(encoded[: min(size, len(encoded) - 1)])


def test_an_offer_stands_on_the_wire_as_it_is_documented() -> None:
    numbers = (7, 4_096, 16_384, 9, 40, 4_096)

    assert encode_ship_frame(OFFER) == (
        b"\x20\x01\0\0\0\0\0\0" + b"".join(n.to_bytes(8, "little") for n in numbers) + b"n0"
    )
    assert encode_ship_frame(OFFER._replace(has_ends=True))[:8] == b"\x20\x01\x01\0\0\0\0\0"


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        pytest.param(b"\x20\x02" + bytes(60), "another version", id="version"),
        pytest.param(b"\x63\x01" + bytes(60), "unknown kind", id="kind"),
        pytest.param(
            encode_ship_frame(Ask(Term(1), Position(-1), 5)), "number below 0", id="position"
        ),
        pytest.param(encode_ship_frame(Ask(Term(1), Position(1), -5)), "number below 0", id="size"),
        pytest.param(
            encode_ship_frame(OFFER) + bytes(MEMBERS_SIZE_MAX), "memberships", id="memberships"
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(frame: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        decode_ship_frame(frame)


def test_frames_are_told_from_messages_of_the_consensus() -> None:
    assert is_ship_frame(encode_ship_frame(OFFER))
    assert not is_ship_frame(encode_message(TimeoutNow(Term(1))))
    assert not is_ship_frame(b"")
