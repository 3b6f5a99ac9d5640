"""Frames of masters: cut anywhere, and refused where no master sends such ones."""

from __future__ import annotations

import pytest

from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.ha_frames import (
    HEADER,
    PUSHED_SIZE_MAX,
    REPORT,
    FrameReader,
    ReportReader,
    encode_pushed,
)

BEGIN = 4_711
BODIES = (b"a" * 40, b"", b"bc", b"", b"d")


def frames() -> bytes:
    position, data = BEGIN, b""
    for body in BODIES:
        data += HEADER.pack(position, len(body)) + body
        position += len(body)
    return data


@pytest.mark.parametrize("step", [1, 2, 11, 12, 13, 53, 1_000])
def test_bodies_are_found_however_the_frames_are_cut(step: int) -> None:
    reader, data = FrameReader(BEGIN), frames()
    found = b"".join(
        bytes(part)
        for at in range(0, len(data), step)
        for part in reader.feed(data[at : at + step])
    )

    assert found == b"".join(BODIES)
    assert reader.position == BEGIN + len(found)


@pytest.mark.parametrize(
    ("position", "size", "named"),
    [
        (BEGIN, PUSHED_SIZE_MAX + 1, "size"),
        (BEGIN, -1, "size"),
        (BEGIN + 1, 5, "position"),
        (BEGIN - 1, 5, "position"),
        (-1, 0, "position"),
    ],
)
def test_a_frame_that_no_master_sends_is_refused_with_its_number(
    position: int, size: int, named: str
) -> None:
    reader = FrameReader(BEGIN)

    with pytest.raises(ProtocolError) as caught:
        reader.feed(HEADER.pack(position, size) + b"12345")
    assert caught.value.details[named] == {"size": size, "position": position}[named]


def test_a_frame_that_does_not_follow_the_one_before_is_refused() -> None:
    reader = FrameReader(BEGIN)
    reader.feed(HEADER.pack(BEGIN, 2) + b"ab")

    with pytest.raises(ProtocolError):
        reader.feed(HEADER.pack(BEGIN + 3, 1) + b"c")


def test_what_a_master_encodes_is_what_a_slave_reads() -> None:
    reader, position, data = FrameReader(BEGIN), BEGIN, b""
    for body in BODIES:
        data += encode_pushed(position, body)
        position += len(body)

    assert b"".join(map(bytes, reader.feed(data))) == b"".join(BODIES)


@pytest.mark.parametrize("step", [1, 3, 8, 9, 40])
def test_reports_are_found_however_they_are_cut(step: int) -> None:
    reader, data = ReportReader(), b"".join(map(REPORT.pack, (0, 0, 7, 40, 40)))
    has_come = [reader.feed(data[at : at + step], sent=40) for at in range(0, len(data), step)]

    assert reader.reported == 40
    assert any(has_come)


@pytest.mark.parametrize("positions", [(-1,), (-(2**63),), (41,), (30, 29), (2**63 - 1,)])
def test_a_position_that_a_slave_cannot_have_is_refused(positions: tuple[int, ...]) -> None:
    reader = ReportReader()
    with pytest.raises(ProtocolError) as refused:
        reader.feed(b"".join(map(REPORT.pack, positions)), sent=40)

    assert refused.value.details["position"] == positions[-1]
