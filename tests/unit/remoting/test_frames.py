"""A stream cut anywhere gives the same frames, and keeps nothing behind a whole one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.first_bytes import REMOTING_FRAME_MAX
from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.frames import FrameSplitter


def sized(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


@given(
    st.lists(st.binary(min_size=4, max_size=40), max_size=6),
    st.lists(st.integers(1, 30), min_size=1),
)
def test_frames_come_whole_however_their_bytes_come(frames: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(sized, frames))
    splitter = FrameSplitter()
    found: list[bytes] = []
    turn = 0
    while stream:
        cut = cuts[turn % len(cuts)]
        found += map(bytes, splitter.feed(stream[:cut]))
        stream = stream[cut:]
        turn += 1

    assert found == frames
    assert splitter.waiting == 0


def test_bytes_of_a_frame_under_way_are_counted() -> None:
    splitter = FrameSplitter()
    first = list(splitter.feed(sized(b"whole") + sized(b"in parts")[:7]))
    waiting = splitter.waiting
    second = list(splitter.feed(sized(b"in parts")[7:]))

    assert ([bytes(one) for one in first], waiting) == ([b"whole"], 7)
    assert ([bytes(one) for one in second], splitter.waiting) == ([b"in parts"], 0)


@pytest.mark.parametrize("size", [0, 3, REMOTING_FRAME_MAX + 1, 2**32 - 1])
def test_a_size_beyond_the_limits_is_refused_behind_the_frames_before_it(size: int) -> None:
    splitter = FrameSplitter()
    frames = splitter.feed(sized(b"good") + size.to_bytes(4, "big") + b"rest")

    first = bytes(next(frames))
    with pytest.raises(ProtocolError) as refused:
        next(frames)

    assert first == b"good"
    assert refused.value.details["size"] == size


@pytest.mark.parametrize(
    ("begin", "who"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "a gRPC client of RocketMQ 5"),
        (b"GET / HTTP/1.1\r\n\r\n", "an HTTP request"),
        (b"POST /x HTTP/1.1\r\n\r\n", "an HTTP request"),
        (b"\x16\x03\x01\x02\x00\x01", "TLS"),
    ],
)
def test_another_protocol_is_named_in_words(begin: bytes, who: str) -> None:
    with pytest.raises(ProtocolError, match=who):
        list(FrameSplitter().feed(begin))
