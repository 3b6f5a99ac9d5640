"""What a pull gets: RocketMQ's corrections, and a selection that no plain loop would contradict."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.arrays import UNIT
from ledgermq.formats.records.message import SIZE_MIN
from ledgermq.rules.messages.pull_rules import (
    OffsetVerdict,
    ReadableRange,
    Selection,
    TransferLimits,
    judge_offset,
    pending_messages_max,
    select,
    tag_table,
)
from ledgermq.store.queues.queue_end import PREFILL_SIZE
from ledgermq.wire.pull_frame import PullStatus


@pytest.mark.parametrize(
    ("offset", "bounds", "expected"),
    [
        (0, ReadableRange(0, 0), OffsetVerdict(PullStatus.NO_MESSAGE_IN_QUEUE, 0, True)),
        (3, ReadableRange(0, 0), OffsetVerdict(PullStatus.NO_MESSAGE_IN_QUEUE, 0, False)),
        (-1, ReadableRange(0, 0), OffsetVerdict(PullStatus.NO_MESSAGE_IN_QUEUE, 0, False)),
        (3, ReadableRange(0, 0, 5), OffsetVerdict(PullStatus.NO_MESSAGE_IN_QUEUE, 3, True)),
        (6, ReadableRange(0, 0, 5), OffsetVerdict(PullStatus.NO_MESSAGE_IN_QUEUE, 0, False)),
        (-1, ReadableRange(0, 4), OffsetVerdict(PullStatus.OFFSET_TOO_SMALL, 0, False)),
        (0, ReadableRange(5, 5), OffsetVerdict(PullStatus.OFFSET_TOO_SMALL, 5, False)),
        (4, ReadableRange(5, 9), OffsetVerdict(PullStatus.OFFSET_TOO_SMALL, 5, False)),
        (5, ReadableRange(5, 9), None),
        (8, ReadableRange(5, 9), None),
        (9, ReadableRange(5, 9), OffsetVerdict(PullStatus.OFFSET_OVERFLOW_ONE, 9, True)),
        (10, ReadableRange(5, 9), OffsetVerdict(PullStatus.OFFSET_OVERFLOW_BADLY, 9, False)),
        (5, ReadableRange(5, 5), OffsetVerdict(PullStatus.OFFSET_OVERFLOW_ONE, 5, True)),
        (11, ReadableRange(5, 9, 2), OffsetVerdict(PullStatus.OFFSET_OVERFLOW_ONE, 11, True)),
        (12, ReadableRange(5, 9, 2), OffsetVerdict(PullStatus.OFFSET_OVERFLOW_BADLY, 9, False)),
    ],
)
def test_an_offset_is_judged_as_rocketmq_judges_it(
    offset: int, bounds: ReadableRange, expected: OffsetVerdict | None
) -> None:
    verdict = judge_offset(offset, bounds)

    assert verdict == expected


def test_the_part_of_the_log_that_is_not_dispatched_bounds_what_may_come() -> None:
    assert pending_messages_max(1_000, 1_000) == 0
    assert pending_messages_max(1_000, 900) == 0
    assert pending_messages_max(1_000, 1_000 + 3 * SIZE_MIN - 1) == 2


UNLIMITED = TransferLimits(2**40, 2**40, 2**40, 2**40, 0)


def selected(
    positions: list[int],
    sizes: list[int],
    tags: list[int] | None = None,
    *,
    wanted: list[int] | None = None,
    count_max: int = 99,
    size_max: int = 9_999,
    first_position: int = 0,
    disk_below: int = 0,
    limits: TransferLimits = UNLIMITED,
) -> Selection:
    units = np.empty(len(sizes), UNIT)
    units["position"], units["size"] = positions, sizes
    units["tags"] = tags if tags is not None else 0
    return select(
        units,
        tags=tag_table(tuple(wanted or ())),
        count_max=count_max,
        size_max=size_max,
        first_position=first_position,
        disk_below=disk_below,
        limits=limits,
    )


def test_prefilled_units_are_not_handed_out() -> None:
    selection = selected([0, 0, 500], [PREFILL_SIZE, PREFILL_SIZE, 100])

    assert (selection.positions.tolist(), selection.scanned) == ([500], 3)


def test_tags_are_compared_by_their_low_32_bits_as_java_does() -> None:
    tags = [2598919, -5, 0, 2**32 + 2598919, -(2**31) - 1]

    selection = selected([0, 1, 2, 3, 4], [1] * 5, tags, wanted=[2598919, -5 + 2**32])

    assert selection.positions.tolist() == [0, 1, 3, 4]


def test_messages_that_were_removed_are_passed_over() -> None:
    selection = selected([0, 100, 200], [100] * 3, count_max=1, size_max=100, first_position=100)

    assert (selection.positions.tolist(), selection.scanned) == ([100], 2)
    assert not selection.ends_removed


def test_that_all_messages_were_removed_is_told_from_that_none_matched() -> None:
    removed = selected([0, 100], [100, 100], first_position=200)
    unmatched = selected([0, 100], [100, 100], [1, 1], wanted=[2], first_position=100)

    assert (removed.positions.tolist(), removed.scanned, removed.ends_removed) == ([], 2, True)
    assert (unmatched.positions.tolist(), unmatched.ends_removed) == ([], False)


def test_the_first_message_is_given_however_large_it_is() -> None:
    selection = selected([0, 100], [100, 100], size_max=0)

    assert (selection.positions.tolist(), selection.scanned) == ([0], 1)


@pytest.mark.parametrize(
    ("disk_below", "chosen"), [(0, 4), (101, 4), (200, 4), (201, 2), (300, 2), (1_000, 2)]
)
def test_less_is_given_of_what_is_on_disk(disk_below: int, chosen: int) -> None:
    limits = TransferLimits(500, 4, 250, 2, 0)

    selection = selected(
        [0, 100, 200, 300, 400, 500], [100] * 6, disk_below=disk_below, limits=limits
    )

    assert len(selection.positions) == selection.scanned == chosen
    assert selection.looked_at == 100 * chosen


units = st.lists(
    st.tuples(st.integers(1, 400), st.sampled_from([0, 1, -1, 7, 2**31 - 1, -(2**31)])),
    max_size=40,
)


def plain_selection(
    *,
    rows: list[tuple[int, int]],
    wanted: list[int],
    count_max: int,
    size_max: int,
    disk_below: int,
    limits: TransferLimits,
) -> tuple[list[int], int]:
    """RocketMQ's loop over the units."""
    chosen: list[int] = []
    size = position = 0
    for number, (unit_size, tag) in enumerate(rows):
        if position < disk_below:
            most, largest = limits.disk_count, limits.disk_size
        else:
            most, largest = limits.memory_count, limits.memory_size
        most, largest = min(most, count_max), min(largest, size_max)
        if chosen and (len(chosen) >= most or size + unit_size > largest):
            return chosen, number
        position += unit_size
        if wanted and tag not in wanted:
            continue
        chosen.append(number)
        size += unit_size
    return chosen, len(rows)


@given(
    rows=units,
    wanted=st.lists(st.sampled_from([0, 1, -1, 7, 99]), max_size=3),
    count_max=st.integers(1, 50),
    size_max=st.integers(0, 3_000),
    disk_below=st.integers(0, 9_000),
    limits=st.builds(
        TransferLimits,
        st.integers(1, 3_000),
        st.integers(1, 50),
        st.integers(1, 3_000),
        st.integers(1, 50),
        st.just(0),
    ),
)
def test_a_selection_is_what_rocketmqs_loop_selects(
    *,
    rows: list[tuple[int, int]],
    wanted: list[int],
    count_max: int,
    size_max: int,
    disk_below: int,
    limits: TransferLimits,
) -> None:
    sizes = [size for size, _ in rows]
    selection = selected(
        [sum(sizes[:number]) for number in range(len(rows))],
        sizes,
        [tag for _, tag in rows],
        wanted=wanted,
        count_max=count_max,
        size_max=size_max,
        disk_below=disk_below,
        limits=limits,
    )

    expected = plain_selection(
        rows=rows,
        wanted=wanted,
        count_max=count_max,
        size_max=size_max,
        disk_below=disk_below,
        limits=limits,
    )
    numbers = np.searchsorted(np.cumsum(sizes), selection.positions, "right")
    assert (numbers.tolist(), selection.scanned) == expected
    assert selection.sizes.tolist() == [sizes[number] for number in numbers]
    assert selection.size == sum(selection.sizes.tolist())
