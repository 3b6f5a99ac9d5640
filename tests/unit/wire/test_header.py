"""The header: what is encoded is decoded, and everything else is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.model.errors import ProtocolError
from ledgermq.wire.header import HEADER_SIZE, Header, Kind, decode_header, encode_header


@given(st.sampled_from(Kind), st.integers(0, 2**64 - 1), st.integers(0, 255))
def test_a_header_comes_back(kind: Kind, request_id: int, flags: int) -> None:
    header = decode_header(encode_header(kind, request_id, flags))

    assert header == Header(kind, flags, request_id)


def test_the_layout_is_the_documented_one() -> None:
    encoded = encode_header(Kind.SEND, 0x0102, 1)

    assert encoded == b"LMQ\x01\x0a\x01\0\0\x02\x01\0\0\0\0\0\0"


@pytest.mark.parametrize("size", range(HEADER_SIZE))
def test_a_cut_header_is_refused_with_its_size(size: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_header(encode_header(Kind.HELLO, 1)[:size])

    assert caught.value.details == {"size": size, "minimum": HEADER_SIZE}


@pytest.mark.parametrize(("at", "name"), [(0, "magic"), (2, "magic"), (3, "version"), (4, "kind")])
def test_a_strange_field_is_refused_by_name(at: int, name: str) -> None:
    encoded = bytearray(encode_header(Kind.HELLO, 1))
    encoded[at] = 99

    with pytest.raises(ProtocolError) as caught:
        decode_header(bytes(encoded))

    assert name in caught.value.details
