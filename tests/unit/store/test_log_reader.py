"""The log as one, by position: where it ends, what is committed, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ledgermq.model.errors import CorruptLogError, TopicUnknownError
from ledgermq.repair.log_verify import verify_log
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory
from ledgermq.store.store_view import StoreView
from tests.small_store import write_store


def reader_of(root: Path) -> LogReader:
    return LogReader(open_directory(root))


def test_records_follow_one_another_over_both_parts_of_an_upgraded_log(golden: Any) -> None:
    reader = reader_of(golden("gu0"))
    records = list(reader.iterate())
    entries = [record.header for record in records if record.header is not None]

    assert [record.position for record in records] == sorted(r.position for r in records)
    assert [header.index for header in entries] == list(range(len(entries)))
    assert {record.header is None for record in records if record.position < 1_048_576} == {True}
    assert {record.header is None for record in records if record.position >= 1_048_576} == {False}


def test_a_part_of_the_log_is_read_alone(golden: Any) -> None:
    reader = reader_of(golden("gd0"))
    records = list(reader.iterate())
    part = list(reader.iterate(records[5].position, records[9].position))

    assert [record.position for record in part] == [r.position for r in records[5:9]]


@pytest.mark.parametrize("name", ["gd0", "gd1", "gd2", "gu0", "gu1", "gu2"])
def test_after_a_clean_stop_all_is_committed(golden: Any, name: str) -> None:
    reader = reader_of(golden(name))

    assert reader.committed_end() == reader.end


def test_a_running_store_says_what_is_committed(golden: Any) -> None:
    # The checkpoint in the copy names entry 439.
    reader = reader_of(golden("gd0.live"))
    ends = {
        record.header.index: record.position + record.header.size
        for record in reader.iterate()
        if record.header is not None
    }

    assert reader.committed_end() == ends[439] < reader.end


def test_without_a_checkpoint_nothing_is_known_to_be_committed(golden_copy: Any) -> None:
    root = golden_copy("gu0")
    (root / "dledger-n0" / "checkpoint").unlink()

    assert reader_of(root).committed_end() == 1_048_576


def test_what_is_appended_is_found_by_a_refresh(golden_copy: Any) -> None:
    root = golden_copy("gs1")
    whole = reader_of(root)
    records = list(whole.iterate())
    last = records[-1]
    path = root / "commitlog" / f"{0:020d}"
    content = path.read_bytes()
    os.truncate(path, last.position)
    os.truncate(path, len(content))
    reader = reader_of(root)

    assert reader.end == last.position

    path.write_bytes(content)
    reader.refresh()

    assert reader.end == whole.end
    assert reader.message_at(last.position).body == last.message.body


@pytest.mark.parametrize("position", [-1, 1, 1 << 40])
def test_a_position_without_a_message_is_refused(golden: Any, position: int) -> None:
    reader = reader_of(golden("gs1"))
    with pytest.raises(CorruptLogError) as caught:
        reader.message_at(position)

    assert {"file", "offset", "field"} <= caught.value.details.keys()
    assert reader.store_time_at(position, 100) == -1


def test_a_unit_of_another_size_than_its_message_is_refused(golden: Any) -> None:
    reader = reader_of(golden("gs1"))
    size = reader.message_at(0).size
    with pytest.raises(CorruptLogError) as caught:
        reader.message_at(0, size + 1)

    assert caught.value.details["expected"] == size + 1


def test_a_broken_record_stops_the_reading_and_is_named(golden_copy: Any) -> None:
    root = golden_copy("gd0")
    reader = reader_of(root)
    third = list(reader.iterate())[2]
    path = root / "dledger-n0" / "data" / f"{0:020d}"
    with path.open("r+b") as file:
        os.pwrite(file.fileno(), b"\xee", third.position)
    records = reader.iterate()
    before = [next(records), next(records)]
    with pytest.raises(CorruptLogError) as caught:
        next(records)

    assert before[1].position < third.position
    assert caught.value.details == {
        "file": str(path),
        "offset": third.position,
        "field": "magic",
    }


def test_messages_behind_a_broken_end_are_not_left_out_in_silence(golden_copy: Any) -> None:
    root = golden_copy("gs1")
    record = list(reader_of(root).iterate())[300]
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        os.pwrite(file.fileno(), b"\xee", record.position + 4)
    with pytest.raises(CorruptLogError) as caught:
        list(StoreView(root).messages())

    assert caught.value.message == "queue has messages behind the end of the log"
    assert caught.value.details["log_end"] == record.position


@pytest.mark.slow
def test_a_log_whose_oldest_file_was_deleted_is_read_and_verified(golden_copy: Any) -> None:
    root = golden_copy("gd0")
    oldest, *_ = sorted((root / "dledger-n0" / "data").iterdir())
    all_records = list(reader_of(root).iterate())
    oldest.unlink()
    kept = [record for record in all_records if record.position >= 1_048_576]
    reader = reader_of(root)

    assert reader.first == 1_048_576
    assert [record.position for record in reader.iterate()] == [r.position for r in kept]
    assert verify_log(reader).records == len(kept)

    view = StoreView(root)

    assert sum(1 for _ in view.messages()) == sum(
        queue.end - queue.first for queue in view.queues()
    )
    assert all(queued.message.physical_offset >= 1_048_576 for queued in view.messages())


def test_a_queue_that_is_not_there_is_named(golden: Any) -> None:
    view = StoreView(golden("gs1"))
    with pytest.raises(TopicUnknownError) as caught:
        list(view.messages("nowhere", 3))

    assert caught.value.details == {"topic": "nowhere", "queue": 3}


@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.parametrize("lost", [4, 100, 400])
def test_a_log_whose_beginning_was_lost_neither_begins_later_nor_is_empty(
    tmp_path: Path, lost: int, files: int
) -> None:
    write_store(tmp_path, messages=10 if files > 1 else 3)
    end = reader_of(tmp_path).end
    first_file, *others = sorted((tmp_path / "dledger-n0" / "data").iterdir())
    with first_file.open("r+b") as file:
        file.write(bytes(lost))
    damaged = reader_of(tmp_path)

    assert len(others) + 1 >= files
    assert (damaged.first, damaged.end) == (0, end)
    with pytest.raises(CorruptLogError, match="record is not whole"):
        list(damaged.iterate())


def test_a_log_that_begins_within_a_file_is_no_damaged_one(golden: Any) -> None:
    # What RocketMQ leaves of a follower that began anew: zeros, and no entry before the first one.
    reader = reader_of(golden("gd2"))

    assert len(list(reader.iterate())) > 0
