"""Records torn at the border of a sector, which RocketMQ's own checks take for whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import verify_span, walk_records
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.formats.records.properties import encode_properties
from ledgermq.model.ids import QueueOffset, Term
from ledgermq.store.log.log_writer import LogWriter, StampedRun
from ledgermq.store.recovery.log_checkpoint import LogCheckpoint
from ledgermq.store.recovery.recovery import Verdict, recover_log
from tests.plain_codecs import as_version_2
from tests.simulator.machine.disk import SECTOR_SIZE
from tests.unit.store.records import frame_of

FILE_SIZE = 8_192
HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])


def message(*, body: bytes, properties: dict[str, str]) -> bytes:
    return encode_message(
        Message(
            topic="orders",
            queue_id=0,
            body=body,
            properties=encode_properties(properties),
            born_timestamp=1_600_000_000_000,
            store_timestamp=1_700_000_000_000,
            born_host=("10.0.0.1", 1_234),
        )
    )


def is_torn(record: bytes | bytearray, begin: int = 0) -> bool:
    """Whether the only record of a log's file, which begins there, is torn."""
    return walk_records(memoryview(record), begin, len(record), 0, 0, 0)[0] == begin


LONG = {"UNIQ_KEY": "A" * 32, "KEYS": "k" * 900}


@pytest.mark.parametrize("begin", range(0, SECTOR_SIZE, 37))
def test_a_record_without_one_of_its_last_sectors_is_torn_and_a_whole_one_is_not(
    begin: int,
) -> None:
    record = message(body=b"b" * 64, properties=LONG)
    whole = bytearray(begin) + record
    end = len(whole)
    properties = end - 900
    torn = []
    for sector in range(0, end, SECTOR_SIZE):
        if sector < properties:
            continue
        copy = bytearray(whole)
        copy[sector : sector + SECTOR_SIZE] = bytes(len(copy[sector : sector + SECTOR_SIZE]))
        torn.append(is_torn(copy, begin))

    assert torn and all(torn)
    assert not is_torn(whole, begin)


def test_a_record_of_version_2_is_torn_where_its_topic_or_its_properties_are_not_there() -> None:
    record = message(body=b"b" * 64, properties=LONG)
    whole = as_version_2(record, topic=b"t" * 200)

    assert not is_torn(whole)
    for begin, end in ((len(whole) - 600, len(whole)), (154, 354)):
        torn = bytearray(bytes(SECTOR_SIZE - begin % SECTOR_SIZE) + whole)
        at = SECTOR_SIZE - begin % SECTOR_SIZE
        torn[at + begin : at + end] = bytes(end - begin)

        assert is_torn(torn, at)


def test_a_record_without_properties_is_whole() -> None:
    record = message(body=b"b", properties={})

    assert not is_torn(record)


def test_a_body_of_zeros_is_no_lost_sector() -> None:
    record = message(body=bytes(2_000), properties={"UNIQ_KEY": "A" * 32})

    assert not is_torn(record)


def test_a_record_whose_store_time_was_not_written_is_torn() -> None:
    record = bytearray(message(body=b"b", properties={"UNIQ_KEY": "A" * 32}))
    record[56:64] = bytes(8)

    assert is_torn(record)


@pytest.mark.parametrize("is_durable", [False, True])
def test_recovery_cuts_it_behind_the_durable_end_and_leaves_it_before(
    tmp_path: Path, is_durable: bool
) -> None:
    found = recover_log(
        tmp_path, None, file_size=FILE_SIZE, checkpoint=None, progress=lambda _d, _t: None
    )
    writer = LogWriter(found.data, None, end=found.end, store_host=HOST)
    ends = []
    for number in range(3):
        payload, sizes = frame_of([message(body=b"b" * 64, properties=LONG)])
        writer.put(
            payload,
            sizes,
            [StampedRun(1, QueueOffset(number))],
            term=Term(0),
            store_timestamp=1_700,
        )
        writer.publish()
        ends.append(writer.end)
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    last = ends[-1].position
    sector = last - last % SECTOR_SIZE
    assert last - 800 < sector < last
    content[sector:last] = bytes(last - sector)
    path.write_bytes(content)
    # To RocketMQ it is whole: magic, sizes and the CRC of the body are right.
    checked = verify_span(memoryview(content), 0, last, 0, 0, -1, 0, 0, bytearray(), crc32)
    checkpoint = LogCheckpoint(ends[2 if is_durable else 1], FILE_SIZE)

    found = recover_log(
        tmp_path, None, file_size=FILE_SIZE, checkpoint=checkpoint, progress=lambda _d, _t: None
    )

    assert checked[:2] == (last, 3)
    assert found.end == ends[2 if is_durable else 1]
    assert found.verdict is (Verdict.WHOLE if is_durable else Verdict.TORN_TAIL)
