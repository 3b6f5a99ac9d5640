"""A store directory gives the messages of its queues, and no more than is committed."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.ids import Position
from ledgermq.pipeline.columns.message_schema import COLUMNS
from ledgermq.pipeline.columns.row_filter import RowFilter
from ledgermq.pipeline.queue_ranges import MessageRange
from ledgermq.pipeline.source.data_loss import DataLossError
from ledgermq.pipeline.source.store_source import StoreSource
from ledgermq.pipeline.source_options import TopicChoice
from ledgermq.store import log_reader
from ledgermq.store.files.file_names import file_name
from ledgermq.store.log.entry_files import first_entry_position
from ledgermq.store.store_view import StoreView
from tests.row_batches import batches_of, walked_batches
from tests.small_store import LOG_FILE_SIZE, write_store

STORES = ["gs1", "gs1.live", "gd0", "gd0.live", "gd1", "gd2.live", "gu0", "gu2", "g6"]
Row = dict[str, Any]


def ranges_of(source: StoreSource) -> list[MessageRange]:
    bounds = source.bounds(source.queues())
    return [range_ for range_ in bounds.values() if range_.first < range_.end]


def rows_of(source: StoreSource, ranges: list[MessageRange], *, fail: bool = True) -> list[Row]:
    read = source.read(ranges, fail_on_data_loss=fail)
    batches = batches_of(read, COLUMNS, RowFilter(), inflate=True)
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("name", STORES)
def test_rows_are_the_messages_of_the_queues(golden: Any, name: str) -> None:
    source = StoreSource(golden(name))
    ranges = ranges_of(source)
    parts = source.plan(ranges, split_bytes=1 << 30, splits_min=4)
    rows = {row["physicalOffset"]: row for part in parts for row in rows_of(source, list(part))}
    queued = list(StoreView(golden(name)).messages())

    assert len(parts) > 1
    assert len(rows) == len(queued)
    for message in queued:
        row = rows[message.message.physical_offset]

        assert (row["topic"], row["queueId"]) == message.queue[:2]
        assert row["queueOffset"] == message.queue_offset
        assert dict(row["properties"]) == message.message.parsed_properties()
        assert row["crcOk"]


@pytest.mark.parametrize("name", ["gs1", "gd0", "gu0", "g6"])
def test_a_log_without_queues_gives_the_same_rows(golden_copy: Any, name: str) -> None:
    root = golden_copy(name)
    source = StoreSource(root)
    expected = rows_of(source, ranges_of(source))
    shutil.rmtree(root / "consumequeue")
    source = StoreSource(root)
    everything = RowFilter(TopicChoice(pattern=".*"))
    rows: list[Row] = []
    for first, end in pairwise(source.walk_bounds()):
        batches = walked_batches(source.walk(first, end), COLUMNS, everything, inflate=True)
        rows += [row for batch in batches for row in batch.to_pylist()]

    assert not source.has_queues
    assert rows == expected


def test_an_entry_that_is_not_known_to_be_committed_is_not_walked_to(golden_copy: Any) -> None:
    root = golden_copy("gd0.live")
    shutil.rmtree(root / "consumequeue")
    source = StoreSource(root)

    assert source.walk_bounds()[-1] == source.log.committed_end() < source.log.end


def test_an_open_plain_log_without_queues_is_refused(golden_copy: Any) -> None:
    root = golden_copy("gs1.live")
    shutil.rmtree(root / "consumequeue")

    with pytest.raises(ConfigError, match="nothing says how far it is committed"):
        StoreSource(root).walk_bounds()


def test_units_of_messages_that_the_log_lost_are_not_given(tmp_path: Path) -> None:
    write_store(tmp_path, messages=11)
    (tmp_path / "abort").touch()
    last = max((tmp_path / "dledger-n0" / "data").iterdir())
    whole = StoreSource(tmp_path)
    lost = [
        row for row in rows_of(whole, ranges_of(whole)) if row["physicalOffset"] > int(last.name)
    ]
    last.write_bytes(bytes(LOG_FILE_SIZE))
    source = StoreSource(tmp_path)

    assert len(lost) > 1
    assert len(rows_of(source, ranges_of(source))) == 11 - len(lost)


def test_a_unit_that_points_elsewhere_gives_no_row(tmp_path: Path) -> None:
    write_store(tmp_path)
    first, second = (
        tmp_path / "consumequeue" / "orders" / queue / ("0" * 20) for queue in ("0", "1")
    )
    first.write_bytes(second.read_bytes())
    source = StoreSource(tmp_path)

    with pytest.raises(CorruptLogError, match="another queue"):
        rows_of(source, ranges_of(source)[:1])
    with pytest.raises(CorruptLogError, match="overlap"):
        rows_of(source, ranges_of(source))


def remove_first_file(root: Path) -> None:
    """As retention does: log, then queues."""
    (root / "dledger-n0" / "data" / ("0" * 20)).unlink()


def test_a_file_that_goes_between_plan_and_task_is_an_error_that_counts(tmp_path: Path) -> None:
    write_store(tmp_path)
    ranges = ranges_of(StoreSource(tmp_path))
    remove_first_file(tmp_path)

    with pytest.raises(DataLossError, match="failOnDataLoss=false") as caught:
        rows_of(StoreSource(tmp_path), ranges)

    assert caught.value.details["topic"] == "orders"
    assert caught.value.details["missing"] == 2


def test_a_file_that_goes_under_a_task_is_left_out_when_that_is_allowed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_store(tmp_path)
    source = StoreSource(tmp_path)
    ranges = ranges_of(source)
    kept = [row for row in rows_of(source, ranges) if row["physicalOffset"] >= LOG_FILE_SIZE]
    source.close()
    source = StoreSource(tmp_path)
    read = source.read(ranges, fail_on_data_loss=False)
    source.bounds(range_.queue for range_ in ranges)
    remove_first_file(tmp_path)
    batches = batches_of(read, COLUMNS, RowFilter(), inflate=True)
    rows = [row for batch in batches for row in batch.to_pylist()]

    assert 0 < len(rows) < 10
    assert rows == kept
    assert "missing" in caplog.text


def test_a_file_that_goes_while_the_store_is_opened_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_store(tmp_path)
    looked: list[int] = []

    def look(folder: Path, start: int) -> Position:
        if not looked:
            (folder / file_name(start)).unlink()
        looked.append(start)
        return first_entry_position(folder, start)

    monkeypatch.setattr(log_reader, "first_entry_position", look)
    source = StoreSource(tmp_path)

    assert looked == [0, LOG_FILE_SIZE]
    assert source.log.first == LOG_FILE_SIZE


def test_the_first_message_of_a_time_is_found_in_a_queue(golden: Any) -> None:
    source = StoreSource(golden("gd0"))
    range_ = max(ranges_of(source), key=lambda range_: range_.end - range_.first)
    times = [row["storeTimestamp"].timestamp() * 1_000 for row in rows_of(source, [range_])]
    for time in {times[0] - 1, times[0], times[len(times) // 2], times[-1], times[-1] + 1}:
        found = source.offset_at_time(range_, round(time))
        expected = [range_.first + row for row, at in enumerate(times) if at >= round(time)]

        assert found == (expected[0] if expected else range_.end)
