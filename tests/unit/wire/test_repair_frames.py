"""Frames that ask for entries and bring them: whole, bounded, of this version."""

from __future__ import annotations

import pytest

from ledgermq.model.errors import ProtocolError
from ledgermq.model.ids import Index, Position, Term
from ledgermq.wire.repair_frames import (
    RepairFrame,
    RepairKind,
    decode_repair_frame,
    encode_repair_frame,
    entries_digest,
    is_repair_frame,
)
from ledgermq.wire.ship_frames import Gone, encode_ship_frame

ASK = RepairFrame(RepairKind.ASK_ENTRIES, 7, Index(3), Index(9), Term(2))
ENTRIES = ASK._replace(kind=RepairKind.ENTRIES, digest=entries_digest(b"entries"))


@pytest.mark.parametrize("frame", [ASK, ENTRIES, ASK._replace(kind=RepairKind.NO_ENTRIES)])
def test_a_frame_comes_out_as_it_went_in(frame: RepairFrame) -> None:
    part = encode_repair_frame(frame)

    assert decode_repair_frame(memoryview(part)) == frame
    assert is_repair_frame(part)


def test_frames_of_shipping_and_of_consensus_are_not_taken_for_them() -> None:
    gone = encode_ship_frame(Gone(Term(1), Position(0)))

    assert not is_repair_frame(gone)
    assert not is_repair_frame(b"\x01")
    assert not is_repair_frame(b"")


@pytest.mark.parametrize(
    "part",
    [
        b"@",
        encode_repair_frame(ASK)[:-1],
        encode_repair_frame(ASK) + b"x",
        encode_repair_frame(ENTRIES)[:-1],
        b"\x43" + encode_repair_frame(ASK)[1:],
        encode_repair_frame(ASK)[:1] + b"\x02" + encode_repair_frame(ASK)[2:],
        encode_repair_frame(ASK._replace(first=Index(10))),
        encode_repair_frame(ASK._replace(first=Index(-1))),
        encode_repair_frame(ASK._replace(term=Term(-1))),
    ],
)
def test_what_cannot_be_is_refused(part: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_repair_frame(part)
