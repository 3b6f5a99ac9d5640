"""No byte of a log that something vouches for can change, and no file lose its end, unseen."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ledgermq.formats.dledger_entry import CHAIN_CRC_AT, HEADER_SIZE
from ledgermq.formats.dledger_index import ITEM_SIZE
from ledgermq.formats.records.host_address import encode_host
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Index, Position, QueueOffset, Term
from ledgermq.repair.check.check_store import CheckOptions, check_store
from ledgermq.repair.log_verify import VerifiedLog, verify_log
from ledgermq.store.files.append_files import AppendFiles
from ledgermq.store.log.log_writer import LogEnd, LogWriter, StampedRun
from ledgermq.store.log_reader import LogReader
from ledgermq.store.recovery.log_checkpoint import LogCheckpoint, encode
from ledgermq.store.store_directory import open_directory
from tests.unit.store.records import BROKER, frame_of, record

FILE_SIZE = 700
INDEX_FILE_SIZE = 4 * ITEM_SIZE
BODIES = [b"first", b"a longer second body", b"third", b"", b"fifth"]

UNPROTECTED = {
    "queue_id",
    "flag",
    "queue_offset",
    "sys_flag",  # but for the bits that say how long the hosts are
    "born_timestamp",
    "born_host",
    "store_timestamp",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
    "topic",
    "properties",
}
"""Fields of a message of RocketMQ's that nothing on disk vouches for: it has a CRC of the body."""

MESSAGE_FIELDS = [
    ("total_size", 4),
    ("magic", 4),
    ("body_crc", 4),
    ("queue_id", 4),
    ("flag", 4),
    ("queue_offset", 8),
    ("physical_offset", 8),
    ("sys_flag", 4),
    ("born_timestamp", 8),
    ("born_host", 8),
    ("store_timestamp", 8),
    ("store_host", 8),
    ("reconsume_times", 4),
    ("prepared_transaction_offset", 8),
    ("body_size", 4),
]


def verify(root: Path) -> VerifiedLog:
    reader = LogReader(open_directory(root))
    try:
        return verify_log(reader)
    finally:
        reader.close()


def write_log(root: Path, *, entries: bool, terms: tuple[int, ...] = (1, 1, 1, 2, 2)) -> None:
    """A log of two files that ``LogWriter`` wrote, and what a clean stop leaves beside it."""
    data_directory = root / "dledger-n0" / "data" if entries else root / "commitlog"
    data = AppendFiles(data_directory, file_size=FILE_SIZE, position=0)
    index = None
    if entries:
        index_directory = root / "dledger-n0" / "index"
        index = AppendFiles(index_directory, file_size=INDEX_FILE_SIZE, position=0)
    end = LogEnd(Position(0), Index(-1 if entries else 0), Term(0), 0)
    writer = LogWriter(data, index, end=end, store_host=encode_host(BROKER))
    for number, (body, term) in enumerate(zip(BODIES, terms, strict=True)):
        payload, sizes = frame_of([record(body, number=number, header_size=writer.header_size)])
        writer.put(
            payload,
            sizes,
            [StampedRun(1, QueueOffset(number))],
            term=Term(term),
            store_timestamp=1_700,
        )
    writer.publish()
    checkpoint = LogCheckpoint(writer.end, FILE_SIZE)
    writer.close()
    (root / "ledgermq").mkdir()
    (root / "ledgermq" / "log-checkpoint").write_bytes(encode(checkpoint))


def put_part_of_java_log(store: Path, root: Path) -> None:
    """The first three entries of ``store``, alone in a store with small files."""
    data = (store / "dledger-n0" / "data" / f"{0:020d}").read_bytes()
    items = (store / "dledger-n0" / "index" / f"{0:020d}").read_bytes()[: 3 * ITEM_SIZE]
    end = int.from_bytes(items[-28:-20], "big") + int.from_bytes(items[-20:-16], "big")
    for folder, content in (("data", data[:end] + bytes(64)), ("index", items + bytes(ITEM_SIZE))):
        (root / "dledger-n0" / folder).mkdir(parents=True)
        (root / "dledger-n0" / folder / f"{0:020d}").write_bytes(content)


def log_files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("0*") if path.is_file())


@contextmanager
def changed(path: Path, at: int, mask: int) -> Iterator[None]:
    """The file with the bits ``mask`` of one byte turned over, for the time of the block."""
    with path.open("r+b") as file:
        (before,) = os.pread(file.fileno(), 1, at)
        os.pwrite(file.fileno(), bytes([before ^ mask]), at)
        yield
        os.pwrite(file.fileno(), bytes([before]), at)


def fault_of(root: Path) -> CorruptLogError | None:
    try:
        verify(root)
    except CorruptLogError as error:
        return error
    return None


@pytest.mark.parametrize("entries", [True, False], ids=["dledger", "commitlog"])
def test_a_log_that_was_not_touched_is_whole(tmp_path: Path, *, entries: bool) -> None:
    write_log(tmp_path, entries=entries)

    assert verify(tmp_path).records == len(BODIES)
    assert len(list(tmp_path.rglob("data/*" if entries else "commitlog/*"))) > 1


@pytest.mark.slow
@pytest.mark.long(but=1)
@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_single_byte_change_of_our_log_is_found(tmp_path: Path, mask: int) -> None:
    write_log(tmp_path, entries=True)
    missed = []
    for path in log_files(tmp_path):
        for at in range(path.stat().st_size):
            with changed(path, at, mask):
                fault = fault_of(tmp_path)
            if fault is None:
                missed.append((path.name, at))
                continue

            assert fault.details["file"] == str(path)
            assert {"offset", "field"} <= fault.details.keys()
            assert int(str(fault.details["offset"])) <= at

    assert missed == []


@pytest.mark.slow
@pytest.mark.parametrize("entries", [True, False], ids=["dledger", "commitlog"])
def test_every_truncation_of_a_file_is_found(tmp_path: Path, *, entries: bool) -> None:
    write_log(tmp_path, entries=entries)
    for path in log_files(tmp_path):
        content = path.read_bytes()
        for size in range(len(content)):
            os.truncate(path, size)
            fault = fault_of(tmp_path)

            assert fault is not None, (path, size)
            assert fault.details["file"] == str(path)
            assert fault.details["size"] == size
        path.write_bytes(content)

    assert verify(tmp_path).records == len(BODIES)


@pytest.mark.slow
def test_of_a_java_log_only_the_unprotected_fields_change_unseen(
    golden: Any, tmp_path: Path
) -> None:
    put_part_of_java_log(golden("gd0"), tmp_path)

    assert verify(tmp_path).records == 3

    data, index = log_files(tmp_path)
    missed = set()
    for path in (data, index):
        fields = java_fields(path.read_bytes()) if path == data else {}
        for at in range(path.stat().st_size):
            if fields.get(at) == "body" and at % 997:
                # A body of 188 kB is under one CRC: some of its bytes stand for all.
                continue
            for mask in (0x01, 0x80):
                with changed(path, at, mask):
                    fault = fault_of(tmp_path)
                if fault is None:
                    missed.add(fields.get(at, f"{path.parent.name} {at}"))
                    continue

                # An entry and its index item that disagree do not say which of them is right.
                assert fault.details["file"] in (str(path), str(index))
                assert {"offset", "field"} <= fault.details.keys()

    assert missed == UNPROTECTED


def java_fields(data: bytes) -> dict[int, str]:
    """Which field of a message each byte belongs to, by offset; entry headers are left out."""
    fields: dict[int, str] = {}
    at = 0
    while data[at : at + 4] == b"\0\0\0\1":
        end = at + int.from_bytes(data[at + 4 : at + 8], "big")
        at += HEADER_SIZE
        layout = list(MESSAGE_FIELDS)
        body_size_at = at + sum(size for _, size in layout) - 4
        body_size = int.from_bytes(data[body_size_at : body_size_at + 4], "big")
        topic_size = data[body_size_at + 4 + body_size]
        layout += [("body", body_size), ("topic_size", 1), ("topic", topic_size)]
        layout += [("properties_size", 2)]
        for name, size in layout:
            fields |= dict.fromkeys(range(at, at + size), name)
            at += size
        fields |= dict.fromkeys(range(at, end), "properties")
        at = end
    return fields


def test_an_entry_that_lost_its_protection_within_a_term_is_found(tmp_path: Path) -> None:
    write_log(tmp_path, entries=True)
    path = log_files(tmp_path)[0]
    data = bytearray(path.read_bytes())
    second = int.from_bytes(data[4:8], "big")
    data[second + CHAIN_CRC_AT : second + CHAIN_CRC_AT + 8] = bytes(8)
    path.write_bytes(data)
    with pytest.raises(CorruptLogError) as caught:
        verify(tmp_path)

    third = second + int.from_bytes(data[second + 4 : second + 8], "big")
    # The CRC of the entry behind it was begun with what it had.
    assert caught.value.message == "record is not whole"
    assert caught.value.details == {"file": str(path), "offset": third, "field": "entry chain crc"}


@pytest.mark.parametrize("terms", [(1, 1, 1, 1, 2), (1, 1, 1, 1, 1)])
def test_rocketmq_may_go_on_without_protection_also_in_a_term_of_ours(
    tmp_path: Path, terms: tuple[int, ...]
) -> None:
    """Started on a store of ours, DLedger first asks for votes of the term that it finds."""
    write_log(tmp_path, entries=True, terms=terms)
    item = (tmp_path / "dledger-n0" / "index" / f"{INDEX_FILE_SIZE:020d}").read_bytes()
    position = int.from_bytes(item[4:12], "big")
    path = log_files(tmp_path)[position // FILE_SIZE]
    with path.open("r+b") as file:
        os.pwrite(file.fileno(), bytes(8), position % FILE_SIZE + CHAIN_CRC_AT)
    checked = check_store(tmp_path, CheckOptions())

    assert verify(tmp_path).records == len(BODIES)
    assert [
        one.as_text() for one in checked.findings if one.file.startswith("dledger-n0/data")
    ] == []
    assert checked.unprotected == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gs1", "gd0", "gu0", "g6"])
def test_what_the_real_broker_left_is_whole(golden: Any, name: str) -> None:
    reader = LogReader(open_directory(golden(name)))
    verified = verify_log(reader)

    assert verified.end == reader.end
    assert verified.records == sum(1 for _ in reader.iterate())
