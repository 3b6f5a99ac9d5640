"""Packs: what is written is read, and nothing that is torn or too large."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.model.errors import ProtocolError
from ledgermq.wire.send_frame import SendRun
from ledgermq.wire.staged_pack import HEAD_SIZE, decode_pack, encode_pack

RUNS = [SendRun(2, 0, b"orders"), SendRun(1, 7, b"other")]
RECORDS = [b"one", b"second", b"3"]


def pack() -> bytes:
    sizes = array("I", map(len, RECORDS)).tobytes()
    return encode_pack(8, sizes, RUNS, b"".join(RECORDS))


def test_a_pack_is_read_as_it_was_written() -> None:
    found = decode_pack(pack())

    assert found.store_host_size == 8
    assert found.runs == RUNS
    assert [bytes(record) for record in found.records()] == RECORDS


@pytest.mark.parametrize("size", range(len(pack())))
def test_a_pack_that_is_cut_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError):
        decode_pack(pack()[:size])


def test_a_pack_with_something_behind_it_is_refused() -> None:
    with pytest.raises(ProtocolError, match="another size"):
        decode_pack(pack() + b"x")


@pytest.mark.parametrize(
    ("at", "value"), [(0, 2), (1, 9), (4, 0), (4, 4), (6, 255), (8, 0), (8, 4), (12, 1)]
)
def test_tables_that_do_not_fit_one_another_are_refused(at: int, value: int) -> None:
    body = bytearray(pack())
    body[at] = value
    with pytest.raises(ProtocolError):
        decode_pack(bytes(body))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_read(body: bytes) -> None:
    try:
        found = decode_pack(body)
    except ProtocolError:
        return
    assert len(body) >= HEAD_SIZE
    assert sum(map(len, found.records())) == len(found.payload)
