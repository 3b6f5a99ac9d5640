"""What is read is divided so that each message is in one part, and parts are about equal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ledgermq.pipeline.queue_ranges import MessageRange
from ledgermq.pipeline.source.split_plan import RangeExtent, split_by_count, split_ranges

SPACING = 100


def offset_at(range_: MessageRange, position: int) -> int:
    """Message n of any queue lies at position 100 n."""
    return min(max(-(-position // SPACING), range_.first), range_.end)


def messages(parts: list[tuple[MessageRange, ...]]) -> list[tuple[str, int, int]]:
    return sorted(
        (range_.topic, range_.queue_id, offset)
        for part in parts
        for range_ in part
        for offset in range(range_.first, range_.end)
    )


RANGES = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 200)), min_size=1, max_size=5).map(
    lambda pairs: [MessageRange("t", n, a, a + b) for n, (a, b) in enumerate(pairs)]
)


@given(RANGES, st.integers(1, 12))
def test_every_message_is_in_one_part(ranges: list[MessageRange], count: int) -> None:
    extents = [
        RangeExtent(r.first * SPACING, r.end * SPACING, (r.end - r.first) * SPACING) for r in ranges
    ]
    parts = split_ranges(ranges, extents, offset_at, split_bytes=1 << 40, splits_min=count)
    by_count = split_by_count(ranges, count)

    assert messages(parts) == messages([tuple(ranges)]) == messages(by_count)
    assert len(parts) <= count
    assert len(by_count) <= count


def test_parts_are_of_about_one_size_though_the_queues_are_not() -> None:
    ranges = [MessageRange("large", 0, 0, 1_000), MessageRange("small", 0, 0, 10)]
    extents = [RangeExtent(0, 100_000, 1_000_000), RangeExtent(0, 1_000, 10_000)]
    parts = split_ranges(ranges, extents, offset_at, split_bytes=101_000, splits_min=1)
    sizes = [sum(range_.end - range_.first for range_ in part) for part in parts]

    assert len(parts) == 10
    assert max(sizes) - min(sizes) < 15


def test_parts_by_count_differ_by_one_message_at_most() -> None:
    parts = split_by_count([MessageRange("a", 0, 5, 22), MessageRange("b", 0, 0, 3)], 3)
    sizes = [sum(range_.end - range_.first for range_ in part) for part in parts]

    assert sorted(sizes) == [6, 7, 7]


def test_nothing_to_read_is_no_part() -> None:
    assert split_ranges([], [], offset_at, split_bytes=1, splits_min=4) == []
