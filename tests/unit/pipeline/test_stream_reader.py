"""How much a micro-batch takes, and how far a query is behind."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ledgermq.pipeline.queue_ranges import QueueRange
from ledgermq.pipeline.stream_reader import lag, limited

LACKS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1_000)), max_size=8)


@given(LACKS, st.integers(1, 500))
def test_a_batch_has_as_many_rows_as_allowed_and_no_more(
    lacks: list[tuple[int, int]], rows_max: int
) -> None:
    starts = {("t", number): start for number, (start, _) in enumerate(lacks)}
    ends = {("t", number): start + lack for number, (start, lack) in enumerate(lacks)}
    bounds = {queue: QueueRange(*queue, 0, end) for queue, end in ends.items()}
    found = limited(starts, ends, bounds, rows_max)
    total = sum(lack for _, lack in lacks)

    assert sum(found[queue] - starts[queue] for queue in found) == min(total, rows_max)
    assert all(starts[queue] <= found[queue] <= ends[queue] for queue in ends)


def test_a_batch_is_shared_by_what_each_queue_lacks() -> None:
    starts, ends = {("t", 0): 0, ("t", 1): 0}, {("t", 0): 900, ("t", 1): 100}
    bounds = {queue: QueueRange(*queue, 0, end) for queue, end in ends.items()}

    assert limited(starts, ends, bounds, 100) == {("t", 0): 90, ("t", 1): 10}


def test_what_is_deleted_already_takes_no_room() -> None:
    bounds = {("t", 0): QueueRange("t", 0, 500, 600)}

    assert limited({("t", 0): 0}, {("t", 0): 600}, bounds, 50) == {("t", 0): 550}


def test_a_new_queue_begins_with_its_first_message() -> None:
    bounds = {("t", 0): QueueRange("t", 0, 7, 20)}

    assert limited({}, {("t", 0): 20}, bounds, 5) == {("t", 0): 12}


def test_the_lag_is_what_a_query_has_not_read() -> None:
    progress = {
        "endOffset": {"a": {"0": 5}},
        "latestOffset": {"a": {"0": 9, "1": 2}},
    }

    assert lag(progress) == {"a": {"0": 4, "1": 2}}
