"""What a leader reads to number messages is compared with its checksums, byte by byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.formats.dledger_entry import CHAIN_CRC_AT
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Index
from ledgermq.store.log.verified_span import check_one, check_span
from tests.unit.store.test_recovery import FILE_SIZE, Written, write_log


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write_log(tmp_path_factory.mktemp("spans"), entries=True)


def content_of(log: Written) -> bytes:
    path = Path(log.root / "data" / f"{0:020d}")
    return path.read_bytes()


def test_a_whole_file_passes_with_its_blank(log: Written) -> None:
    check_span(memoryview(content_of(log)), 0, FILE_SIZE, header_size=48, base=0)


def test_each_turned_bit_behind_the_first_entry_is_found_and_its_record_named(
    log: Written,
) -> None:
    content = content_of(log)
    begin, end = log.starts[1], log.starts[4]
    for at in range(begin, end, 3):
        changed = bytearray(content)
        changed[at] ^= 0x04

        with pytest.raises(CorruptLogError) as caught:
            check_span(memoryview(changed), 0, end, header_size=48, base=0)

        position = caught.value.details["position"]
        assert position == max(start for start in log.starts if start <= at)


def test_each_turned_bit_of_one_entry_is_found_but_for_the_chain(log: Written) -> None:
    content = content_of(log)
    begin, end = log.starts[1], log.starts[2]
    missed = []
    for at in range(begin, end):
        changed = bytearray(content)
        changed[at] ^= 0x04
        try:
            check_one(memoryview(changed), begin, base=0)
        except CorruptLogError:
            continue
        missed.append(at - begin)

    # Index and term are compared with the index by those who go by them.
    assert set(missed) <= {*range(8, 24), *range(CHAIN_CRC_AT, CHAIN_CRC_AT + 4)}


def test_a_turned_bit_of_the_first_entrys_chain_is_found_by_the_entry_before(log: Written) -> None:
    content = bytearray(content_of(log))
    begin, end = log.starts[1], log.starts[4]
    chain = int.from_bytes(content[CHAIN_CRC_AT : CHAIN_CRC_AT + 4], "big")
    first = Index(1)
    check_span(memoryview(content), begin, end, header_size=48, base=0, first=first, chain=chain)
    content[begin + CHAIN_CRC_AT + 1] ^= 0x04

    with pytest.raises(CorruptLogError) as caught:
        check_span(
            memoryview(content), begin, end, header_size=48, base=0, first=first, chain=chain
        )

    assert caught.value.details["position"] == begin
    assert caught.value.details["field"] == "entry chain crc"
