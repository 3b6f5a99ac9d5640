"""Several replicas are read as one store: each message once, from a copy that is whole."""

from __future__ import annotations

import shutil
import zlib
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ledgermq.formats.records.message import decode_message
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.ids import Index
from ledgermq.pipeline.columns.message_schema import COLUMNS
from ledgermq.pipeline.columns.row_filter import RowFilter
from ledgermq.pipeline.queue_ranges import MessageRange
from ledgermq.pipeline.source.data_loss import DataLossError
from ledgermq.pipeline.source.file_source import FileSource
from ledgermq.pipeline.source.replica_source import ReplicaSource
from ledgermq.pipeline.source.row_source import open_source, open_to_plan
from ledgermq.pipeline.source.store_source import StoreSource
from ledgermq.pipeline.source_options import TopicChoice, parse_options
from ledgermq.store.files.properties_file import DLedgerCheckpoint, encode_dledger_checkpoint
from tests.row_batches import batches_of, walked_batches

Row = dict[str, Any]
UNIT_SIZE = 20


@pytest.fixture
def replicas(golden_copy: Any) -> list[Path]:
    """The three stores of a group that the Java broker wrote."""
    return [golden_copy(name) for name in ("gd0", "gd1", "gd2")]


@pytest.fixture
def expected(golden: Any) -> list[Row]:
    """The rows of one whole replica, by position."""
    return rows_of(StoreSource(golden("gd0")))


def ranges_of(source: FileSource) -> list[MessageRange]:
    bounds = source.bounds(source.queues())
    return [range_ for range_ in bounds.values() if range_.first < range_.end]


def rows_of(source: FileSource, *, fail: bool = True) -> list[Row]:
    with closing(source):
        parts = source.plan(ranges_of(source), split_bytes=1 << 30, splits_min=3)
        rows = [
            row
            for part in parts
            for batch in batches_of(
                source.read(part, fail_on_data_loss=fail), COLUMNS, RowFilter(), inflate=True
            )
            for row in batch.to_pylist()
        ]
    return sorted(rows, key=lambda row: row["physicalOffset"])


def log_files(root: Path) -> list[Path]:
    return sorted(next(root.glob("dledger-*/data")).iterdir())


def log_file_of(root: Path, position: int) -> tuple[Path, int]:
    """The log file that holds a position, and the offset in it."""
    file = max((f for f in log_files(root) if int(f.name) <= position), key=lambda f: f.name)
    return file, position - int(file.name)


def overwrite(path: Path, at: int, octets: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(octets)


def flip(root: Path, position: int) -> None:
    file, at = log_file_of(root, position)
    overwrite(file, at, bytes([file.read_bytes()[at] ^ 0x10]))


def unit_file(root: Path, row: Row) -> Path:
    return root / "consumequeue" / row["topic"] / str(row["queueId"]) / ("0" * 20)


def body_of(row: Row) -> int:
    """Position of a message's body."""
    return int(row["physicalOffset"]) + 88


@pytest.mark.parametrize("count", [2, 3])
def test_replicas_have_each_row_once(replicas: list[Path], expected: list[Row], count: int) -> None:
    assert rows_of(ReplicaSource(replicas[:count])) == expected


def test_the_first_one_is_read(replicas: list[Path], expected: list[Row]) -> None:
    # Nobody looks at the files of the others while those of the first one are whole.
    for root in replicas[1:]:
        for file in log_files(root):
            file.write_bytes(b"\xff" * file.stat().st_size)

    assert rows_of(ReplicaSource(replicas)) == expected


def test_files_that_one_lacks_come_from_another(replicas: list[Path], expected: list[Row]) -> None:
    files = [log_files(root) for root in replicas]
    assert len(files[0]) >= 2
    files[0][0].unlink()
    files[1][1].unlink()
    # What is left of a file that was cut is read.
    with files[2][0].open("r+b") as file:
        file.truncate(3_000)
    shutil.rmtree(replicas[0] / "consumequeue")

    assert rows_of(ReplicaSource(replicas)) == expected


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_directory_that_is_not_there_is_replaced(
    replicas: list[Path], expected: list[Row], number: int
) -> None:
    shutil.rmtree(replicas[number])

    assert rows_of(ReplicaSource(replicas)) == expected


def test_each_byte_that_is_damaged_is_read_elsewhere(
    replicas: list[Path], expected: list[Row]
) -> None:
    for number, row in enumerate(expected[10:400:37]):
        # Size, queue offset, position, body; of one replica or of two.
        place = [row["physicalOffset"] + 3, row["physicalOffset"] + 27, body_of(row)][number % 3]
        for root in replicas[: 1 + number % 2]:
            flip(root, place)
    found = rows_of(ReplicaSource(replicas))

    assert found == expected
    assert all(row["crcOk"] for row in found)


def test_units_that_point_elsewhere_are_replaced(replicas: list[Path], expected: list[Row]) -> None:
    row = next(row for row in expected if row["topic"] == "plain0" and row["queueOffset"] == 3)
    file = unit_file(replicas[0], row)
    units = file.read_bytes()[: 6 * UNIT_SIZE]
    swapped = units[4 * UNIT_SIZE : 5 * UNIT_SIZE] + units[3 * UNIT_SIZE : 4 * UNIT_SIZE]
    overwrite(file, 3 * UNIT_SIZE, swapped)
    overwrite(file, 5 * UNIT_SIZE + 7, b"\x01")

    assert rows_of(ReplicaSource(replicas)) == expected


def test_queues_that_end_early_go_on_in_another(replicas: list[Path], expected: list[Row]) -> None:
    row = next(row for row in expected if row["topic"] == "plain0" and row["queueOffset"] == 3)
    overwrite(unit_file(replicas[0], row), 3 * UNIT_SIZE, bytes(2 * UNIT_SIZE))
    unit_file(replicas[1], row).write_bytes(b"no units")

    assert rows_of(ReplicaSource(replicas)) == expected


def test_what_no_replica_has_is_lost_and_counted(
    replicas: list[Path], expected: list[Row], caplog: pytest.LogCaptureFixture
) -> None:
    size = log_files(replicas[0])[0].stat().st_size
    planned = ReplicaSource(replicas)
    parts = planned.plan(ranges_of(planned), split_bytes=1 << 30, splits_min=1)
    # Both have seen the files, and map none of them before they are gone.
    failing, going_on = ReplicaSource(replicas), ReplicaSource(replicas)
    for root in replicas:
        log_files(root)[0].unlink()

    def read(source: FileSource, *, fail: bool) -> list[Row]:
        batches = batches_of(
            source.read(parts[0], fail_on_data_loss=fail), COLUMNS, RowFilter(), inflate=True
        )
        return [row for batch in batches for row in batch.to_pylist()]

    with pytest.raises(DataLossError) as caught, closing(planned), closing(failing):
        read(failing, fail=True)
    left = [row for row in expected if row["physicalOffset"] >= size]

    assert 0 < len(left) < len(expected)
    assert "missing" in caught.value.details
    with closing(going_on):
        assert read(going_on, fail=False) == left
    assert "messages have been deleted" in caplog.text


def test_damage_that_all_replicas_have_is_an_error_as_with_one(
    replicas: list[Path], expected: list[Row]
) -> None:
    row = expected[100]
    for root in replicas:
        flip(root, body_of(row))
    found = rows_of(ReplicaSource(replicas))

    assert [one["physicalOffset"] for one in found if not one["crcOk"]] == [row["physicalOffset"]]
    assert len(found) == len(expected)
    for root in replicas:
        flip(root, row["physicalOffset"] + 5)
    with pytest.raises(CorruptLogError, match="record is not whole") as caught:
        rows_of(ReplicaSource(replicas))
    assert caught.value.details["field"] == "magic"


def test_what_a_deposed_leader_never_committed_is_not_read(
    replicas: list[Path], expected: list[Row]
) -> None:
    last = expected[-1]
    # A whole message of another content at the same place, which its queues do not have.
    file, at = log_file_of(replicas[0], last["physicalOffset"])
    record = bytearray(file.read_bytes()[at : at + 4_096])
    size = decode_message(memoryview(bytes(record)), 0).size
    record = record[:size]
    record[88] ^= 1
    body = bytes(record[88 : 88 + len(last["body"])])
    record[8:12] = (zlib.crc32(body) & 0x7FFF_FFFF).to_bytes(4, "big")
    overwrite(file, at, bytes(record))
    decode_message(memoryview(bytes(record)), 0)
    overwrite(unit_file(replicas[0], last), last["queueOffset"] * UNIT_SIZE, bytes(UNIT_SIZE))
    before = Index(last["raftIndex"] - 1)
    (next(replicas[0].glob("dledger-*")) / "checkpoint").write_bytes(
        encode_dledger_checkpoint(DLedgerCheckpoint(Index(last["raftIndex"]), before))
    )

    assert rows_of(ReplicaSource(replicas)) == expected
    assert rows_of(ReplicaSource(replicas[::-1])) == expected


def test_replicas_without_queues_are_walked(replicas: list[Path], expected: list[Row]) -> None:
    for root in replicas:
        shutil.rmtree(root / "consumequeue")
    log_files(replicas[0])[0].unlink()
    flip(replicas[1], expected[100]["physicalOffset"] + 5)
    source = ReplicaSource(replicas)
    everything = RowFilter(TopicChoice(pattern=".*"))
    rows = [
        row
        for first, end in pairwise(source.walk_bounds())
        for batch in walked_batches(source.walk(first, end), COLUMNS, everything, inflate=True)
        for row in batch.to_pylist()
    ]

    assert not source.has_queues
    assert rows == expected


def test_times_and_positions_are_found_in_any_replica(
    replicas: list[Path], expected: list[Row]
) -> None:
    one, source = StoreSource(replicas[2]), ReplicaSource(replicas)
    log_files(replicas[0])[0].unlink()
    source.refresh()
    range_ = next(range_ for range_ in ranges_of(one) if range_.topic == "plain0")
    source.bounds([range_.queue])
    for row in expected[::50]:
        time = round(row["storeTimestamp"].timestamp() * 1_000)
        position = row["physicalOffset"]

        assert source.offset_at_time(range_, time) == one.offset_at_time(range_, time)
        assert source.offset_at_position(range_, position) == one.offset_at_position(
            range_, position
        )


def test_stores_of_different_groups_are_refused(golden: Any) -> None:
    options = parse_options({"path": f"{golden('gd0')},{golden('gu0')}"}, streaming=False)
    with pytest.raises(ConfigError, match="not replicas of one group"):
        open_to_plan(options)
    same = parse_options({"path": f"{golden('gd0')},{golden('gd1')}"}, streaming=False)

    assert isinstance(open_to_plan(same), ReplicaSource)
    assert isinstance(open_source(same), ReplicaSource)


def test_directories_of_which_none_is_a_store_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with pytest.raises(ConfigError, match="not a store directory"):
        ReplicaSource([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(ConfigError, match="each of several directories"):
        parse_options({"path": "/a,/b", "selfId": "n0"}, streaming=False)
