"""What a pull gets: RocketMQ's corrections, and a selection that no plain loop would contradict."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.broker.pull_rules import (
    QueueBounds,
    Selection,
    Verdict,
    judge_offset,
    match_tags,
    pending_messages_max,
    select,
)
from ledgermq.store.message import SIZE_MIN
from ledgermq.store.queue_end import PREFILL_SIZE
from ledgermq.wire.pull_frame import PullStatus

NOTHING = np.zeros(0, np.int64)


def column(values: list[int], dtype: str = ">i8") -> np.ndarray:
    return np.array(values, np.int64).astype(dtype)


@pytest.mark.parametrize(
    ("offset", "bounds", "expected"),
    [
        (0, QueueBounds(0, 0), Verdict(PullStatus.NO_NEW_MESSAGE, 0, True)),
        (3, QueueBounds(0, 0), Verdict(PullStatus.OFFSET_TOO_LARGE, 0, False)),
        (-1, QueueBounds(0, 0), Verdict(PullStatus.OFFSET_TOO_SMALL, 0, False)),
        (4, QueueBounds(5, 9), Verdict(PullStatus.OFFSET_TOO_SMALL, 5, False)),
        (5, QueueBounds(5, 9), None),
        (8, QueueBounds(5, 9), None),
        (9, QueueBounds(5, 9), Verdict(PullStatus.NO_NEW_MESSAGE, 9, True)),
        (10, QueueBounds(5, 9), Verdict(PullStatus.OFFSET_TOO_LARGE, 9, False)),
        (5, QueueBounds(5, 5), Verdict(PullStatus.NO_NEW_MESSAGE, 5, True)),
        (11, QueueBounds(5, 9, 2), Verdict(PullStatus.NO_NEW_MESSAGE, 11, True)),
        (12, QueueBounds(5, 9, 2), Verdict(PullStatus.OFFSET_TOO_LARGE, 9, False)),
    ],
)
def test_an_offset_is_judged_as_rocketmq_judges_it(
    offset: int, bounds: QueueBounds, expected: Verdict | None
) -> None:
    verdict = judge_offset(offset, bounds)

    assert verdict == expected


def test_the_part_of_the_log_that_is_not_dispatched_bounds_what_may_come() -> None:
    assert pending_messages_max(1_000, 1_000) == 0
    assert pending_messages_max(1_000, 900) == 0
    assert pending_messages_max(1_000, 1_000 + 3 * SIZE_MIN - 1) == 2


def test_prefilled_units_are_not_handed_out() -> None:
    selection = select(
        column([0, 0, 500]),
        column([PREFILL_SIZE, PREFILL_SIZE, 100], ">i4"),
        column([0, 0, 0]),
        tag_hashes=NOTHING,
        count_max=9,
        size_max=999,
        first_position=0,
    )

    assert (selection.chosen.tolist(), selection.scanned) == ([2], 3)


def test_tags_are_compared_by_their_low_32_bits_as_java_does() -> None:
    tags = column([2598919, -5, 0, 2**32 + 2598919, -(2**31) - 1])

    matched = match_tags(tags, column([2598919, -5], "<i4"))

    assert matched.tolist() == [True, True, False, True, True]


def test_messages_that_were_removed_are_passed_over() -> None:
    selection = select(
        column([0, 100, 200]),
        column([100, 100, 100], ">i4"),
        column([0, 0, 0]),
        tag_hashes=NOTHING,
        count_max=1,
        size_max=100,
        first_position=100,
    )

    assert (selection.chosen.tolist(), selection.scanned) == ([1], 2)


def test_the_first_message_is_given_however_large_it_is() -> None:
    selection = select(
        column([0, 100]),
        column([100, 100], ">i4"),
        column([0, 0]),
        tag_hashes=NOTHING,
        count_max=5,
        size_max=0,
        first_position=0,
    )

    assert (selection.chosen.tolist(), selection.scanned) == ([0], 1)


units = st.lists(
    st.tuples(st.integers(1, 400), st.sampled_from([0, 1, -1, 7, 2**31 - 1, -(2**31)])),
    max_size=40,
)


def plain_selection(
    rows: list[tuple[int, int]], wanted: list[int], count_max: int, size_max: int
) -> tuple[list[int], int]:
    """RocketMQ's loop over the units."""
    chosen: list[int] = []
    size = 0
    for number, (unit_size, tag) in enumerate(rows):
        if wanted and tag not in wanted:
            continue
        if chosen and (len(chosen) >= count_max or size + unit_size > size_max):
            return chosen, number
        chosen.append(number)
        size += unit_size
    return chosen, len(rows)


@given(
    rows=units,
    wanted=st.lists(st.sampled_from([0, 1, -1, 7, 99]), max_size=3),
    count_max=st.integers(1, 50),
    size_max=st.integers(0, 3_000),
)
def test_a_selection_is_what_rocketmqs_loop_selects(
    rows: list[tuple[int, int]], wanted: list[int], count_max: int, size_max: int
) -> None:
    sizes = [size for size, _ in rows]
    positions = [sum(sizes[:number]) for number in range(len(rows))]

    selection: Selection = select(
        column(positions),
        column(sizes, ">i4"),
        column([tag for _, tag in rows]),
        tag_hashes=np.array(wanted, np.int64),
        count_max=count_max,
        size_max=size_max,
        first_position=0,
    )

    expected = plain_selection(rows, wanted, count_max, size_max)
    assert (selection.chosen.tolist(), selection.scanned) == expected
