"""How much a micro-batch takes, and how far a query is behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable

from ledgermq.model.errors import ConfigError
from ledgermq.pipeline.chosen_columns import ChosenColumns
from ledgermq.pipeline.queue_ranges import MessageRange
from ledgermq.pipeline.source.data_loss import DataLossError
from ledgermq.pipeline.source_options import parse_options
from ledgermq.pipeline.stream_reader import StreamReader, lag, limited
from tests.small_store import write_store

READ = {"orders": {"0": 5, "1": 5}}
EVERYTHING = ReadAllAvailable()
LACKS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1_000)), max_size=8)


@given(LACKS, st.integers(1, 500))
def test_a_batch_has_as_many_rows_as_allowed_and_no_more(
    lacks: list[tuple[int, int]], rows_max: int
) -> None:
    starts = {("t", number): start for number, (start, _) in enumerate(lacks)}
    ends = {("t", number): start + lack for number, (start, lack) in enumerate(lacks)}
    bounds = {queue: MessageRange(*queue, 0, end) for queue, end in ends.items()}
    found = limited(starts, ends, bounds, rows_max)
    total = sum(lack for _, lack in lacks)

    assert sum(found[queue] - starts[queue] for queue in found) == min(total, rows_max)
    assert all(starts[queue] <= found[queue] <= ends[queue] for queue in ends)


def test_a_batch_is_shared_by_what_each_queue_lacks() -> None:
    starts, ends = {("t", 0): 0, ("t", 1): 0}, {("t", 0): 900, ("t", 1): 100}
    bounds = {queue: MessageRange(*queue, 0, end) for queue, end in ends.items()}

    assert limited(starts, ends, bounds, 100) == {("t", 0): 90, ("t", 1): 10}


def test_what_is_deleted_already_takes_no_room() -> None:
    bounds = {("t", 0): MessageRange("t", 0, 500, 600)}

    assert limited({("t", 0): 0}, {("t", 0): 600}, bounds, 50) == {("t", 0): 550}


def test_a_new_queue_begins_with_its_first_message() -> None:
    bounds = {("t", 0): MessageRange("t", 0, 7, 20)}

    assert limited({}, {("t", 0): 20}, bounds, 5) == {("t", 0): 12}


def test_the_lag_is_what_a_query_has_not_read() -> None:
    progress = {
        "endOffset": {"a": {"0": 5}},
        "latestOffset": {"a": {"0": 9, "1": 2}},
    }

    assert lag(progress) == {"a": {"0": 4, "1": 2}}


def reader_of(root: Path, **options: object) -> StreamReader:
    texts = {name: str(value) for name, value in options.items()}
    given = {"path": str(root), "startingOffsets": "earliest", **texts}
    return StreamReader(parse_options(given, streaming=True), ChosenColumns(("queueOffset",)))


def lose_last_unit(root: Path) -> None:
    """What a node's queue looks like that is being built again: its last message is not there."""
    last = max((root / "consumequeue" / "orders" / "0").iterdir())
    units = last.read_bytes()
    used = (len(units.rstrip(b"\0")) - 1) // 20 * 20
    last.write_bytes(units[:used].ljust(len(units), b"\0"))


def test_a_query_begins_where_it_was_told_and_ends_where_the_queues_do(tmp_path: Path) -> None:
    write_store(tmp_path)
    reader = reader_of(tmp_path)

    assert reader.initialOffset() == {"orders": {"0": 0, "1": 0}}
    assert reader.latestOffset(reader.initialOffset(), EVERYTHING) == READ
    assert reader_of(tmp_path, startingOffsets="latest").initialOffset() == READ


def test_a_queue_that_is_built_again_is_waited_for(tmp_path: Path) -> None:
    write_store(tmp_path)
    lose_last_unit(tmp_path)
    reader = reader_of(tmp_path)

    assert reader.reportLatestOffset() == {"orders": {"0": 4, "1": 5}}
    assert reader.latestOffset(READ, EVERYTHING) == READ


def test_a_queue_that_does_not_come_back_is_data_loss(tmp_path: Path) -> None:
    write_store(tmp_path)
    lose_last_unit(tmp_path)
    reader = reader_of(tmp_path, timeoutMs=1)

    def ask_on() -> None:
        # Some time has passed when the files were looked at so often.
        for _ in range(10_000):
            assert reader.latestOffset(READ, EVERYTHING) == READ

    with pytest.raises(DataLossError, match="topic='orders', queueId=0, wanted=5, end=4"):
        ask_on()
    with pytest.raises(ConfigError, match="queue ends before"):
        reader.partitions({"orders": {"0": 0}}, READ)
