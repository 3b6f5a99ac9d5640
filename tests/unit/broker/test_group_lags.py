"""How far groups are behind, found a few at a time."""

from __future__ import annotations

from collections.abc import Mapping

from ledgermq.broker.administration.group_calls import TOPICS_PER_LOOK_MAX, GroupLags, TopicLag
from ledgermq.rules.tables.group_offsets import GroupOffsets

END = 100


class Topics:
    """Queues that all end at ``END``; counts what is looked at."""

    def __init__(self) -> None:
        self.looked = 0

    def lag(self, _topic: str, offsets: Mapping[int, int]) -> int:
        self.looked += 1
        return sum(END - offset for offset in offsets.values())


def table(groups: int) -> GroupOffsets:
    offsets = GroupOffsets()
    for number in range(groups):
        offsets.set(f"g{number}", "orders", {0: 40, 1: 50})
    return offsets


def test_a_group_lags_by_what_it_has_not_consumed_in_all_queues() -> None:
    lags = GroupLags(table(1), Topics().lag)
    lags.look()

    assert lags.is_complete
    assert lags.by_group() == {"g0": {"orders": TopicLag(lag=110, consumed=90)}}


def test_one_question_looks_at_so_many_and_the_next_ones_at_the_rest() -> None:
    topics, count = Topics(), 2 * TOPICS_PER_LOOK_MAX + 1
    lags = GroupLags(table(count), topics.lag)
    lags.look()

    assert topics.looked == TOPICS_PER_LOOK_MAX
    assert not lags.is_complete
    lags.look()
    lags.look()
    assert topics.looked == count
    assert lags.is_complete
    assert len(lags.by_group()) == count


def test_a_group_that_is_gone_is_forgotten_in_the_next_round() -> None:
    offsets = table(2)
    lags = GroupLags(offsets, Topics().lag)
    lags.look()
    offsets.set("g0", "orders", None)
    lags.look()

    assert set(lags.by_group()) == {"g1"}
