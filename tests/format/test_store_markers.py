from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.store_markers import encode_blank, is_blank
from ledgermq.model.config.settings import LogKind
from ledgermq.model.errors import CorruptLogError


def test_the_vectors_of_the_real_broker_are_written() -> None:
    commitlog = encode_blank(LogKind.COMMITLOG, 465)
    dledger = encode_blank(LogKind.DLEDGER, 16)

    assert commitlog == bytes.fromhex("000001d1 cbd43194")
    assert dledger == bytes.fromhex("ffffffff 00000010 0000000000000000")


@given(st.sampled_from(LogKind), st.integers(8, 300), st.binary(max_size=20))
def test_a_blank_is_found_where_it_was_written(log: LogKind, remaining: int, used: bytes) -> None:
    file = (used + encode_blank(log, remaining)).ljust(len(used) + remaining, b"x")

    assert is_blank(memoryview(file), len(used), log=log)
    assert is_blank(memoryview(file + b"next"), len(used), log=log, file_end=len(file))


@pytest.mark.parametrize("log", LogKind)
def test_a_record_zeros_and_the_end_of_a_file_are_no_blank(log: LogKind) -> None:
    record = bytes.fromhex("00000075 daa320a7 3610a686")

    assert not is_blank(memoryview(record), 0, log=log)
    assert not is_blank(memoryview(bytes(8)), 0, log=log)
    assert not is_blank(memoryview(encode_blank(log, 8))[:7], 0, log=log)
    assert not is_blank(memoryview(b""), 0, log=log)


@pytest.mark.parametrize("log", LogKind)
def test_each_log_has_a_blank_of_its_own(log: LogKind) -> None:
    other = LogKind.DLEDGER if log is LogKind.COMMITLOG else LogKind.COMMITLOG

    assert not is_blank(memoryview(encode_blank(other, 8)), 0, log=log)


@pytest.mark.parametrize(("log", "offset"), [(LogKind.COMMITLOG, 0), (LogKind.DLEDGER, 4)])
def test_a_blank_of_another_size_is_corrupt(log: LogKind, offset: int) -> None:
    with pytest.raises(CorruptLogError) as caught:
        is_blank(memoryview(encode_blank(log, 16) + bytes(16)), 0, log=log, file="0")

    details = caught.value.details
    assert (details["file"], details["offset"], details["field"]) == ("0", offset, "remaining")
