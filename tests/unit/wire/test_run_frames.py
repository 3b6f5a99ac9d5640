"""Frames by which a follower and its leader agree on a run: whole, of this version, told apart."""

from __future__ import annotations

import pytest

from ledgermq.model.errors import ProtocolError
from ledgermq.model.ids import Position, Term
from ledgermq.raft.message_codec import encode_message
from ledgermq.raft.messages import TimeoutNow
from ledgermq.wire.run_frames import (
    RunFrame,
    RunKind,
    decode_run_frame,
    encode_run_frame,
    is_run_frame,
)
from ledgermq.wire.ship_frames import Gone, encode_ship_frame

BEGINS = RunFrame(RunKind.BEGINS, Term(3), 1 << 60)


@pytest.mark.parametrize("kind", RunKind)
def test_a_frame_comes_out_as_it_went_in(kind: RunKind) -> None:
    part = encode_run_frame(BEGINS._replace(kind=kind))

    assert decode_run_frame(memoryview(part)) == BEGINS._replace(kind=kind)
    assert is_run_frame(part)


def test_frames_of_shipping_and_of_consensus_are_not_taken_for_them() -> None:
    assert not is_run_frame(encode_ship_frame(Gone(Term(1), Position(0))))
    assert not is_run_frame(encode_message(TimeoutNow(Term(1))))
    assert not is_run_frame(b"")


@pytest.mark.parametrize(
    "part",
    [
        b"\x11",
        encode_run_frame(BEGINS)[:-1],
        encode_run_frame(BEGINS) + b"x",
        b"\x1f" + encode_run_frame(BEGINS)[1:],
        encode_run_frame(BEGINS)[:1] + b"\x02" + encode_run_frame(BEGINS)[2:],
        encode_run_frame(BEGINS._replace(number=0)),
        encode_run_frame(BEGINS._replace(term=Term(-1))),
    ],
)
def test_what_cannot_be_is_refused(part: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_run_frame(part)
