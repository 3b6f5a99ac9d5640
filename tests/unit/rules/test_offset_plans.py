"""Where a reset leads to, and what is refused."""

from __future__ import annotations

import pytest

from ledgermq.model.errors import GroupActiveError, MessageIllegalError, TopicUnknownError
from ledgermq.rules.consumers.offset_plans import (
    OffsetChange,
    ResetTarget,
    check_nobody_consumes,
    chosen_queues,
    moves_of,
    reset_offset,
)
from ledgermq.rules.messages.pull_rules import ReadableRange

BOUNDS = ReadableRange(10, 40)


@pytest.mark.parametrize(
    ("target", "value", "expected"),
    [
        (ResetTarget.FIRST, 0, 10),
        (ResetTarget.LAST, 0, 40),
        (ResetTarget.TIME, 1_700_000_000_000, 25),
        (ResetTarget.NUMBER, 10, 10),
        (ResetTarget.NUMBER, 40, 40),
    ],
)
def test_a_reset_leads_to_an_offset_of_the_queue(
    target: ResetTarget, value: int, expected: int
) -> None:
    assert reset_offset(target, value, BOUNDS, since=25, queue_id=3) == expected


@pytest.mark.parametrize("value", [9, 41, 10**12])
def test_an_offset_that_the_queue_does_not_have_is_refused(value: int) -> None:
    with pytest.raises(MessageIllegalError) as caught:
        reset_offset(ResetTarget.NUMBER, value, BOUNDS, since=0, queue_id=3)

    expected = {"queue": 3, "offset": value, "minimum": 10, "limit": 40}
    assert caught.value.details == expected


def test_all_queues_or_those_that_were_named() -> None:
    assert chosen_queues("orders", None, 3) == [0, 1, 2]
    assert chosen_queues("orders", [2, 0, 2], 3) == [0, 2]
    with pytest.raises(TopicUnknownError):
        chosen_queues("orders", [3], 3)


def test_moves_tell_the_old_offset_beside_the_new_one() -> None:
    assert moves_of({0: 5, 7: 1}, {2: 9, 0: 5}) == [OffsetChange(0, 5, 5), OffsetChange(2, None, 9)]


def test_a_group_that_consumes_is_left_alone_unless_forced() -> None:
    check_nobody_consumes("billing", [], force=False)
    check_nobody_consumes("billing", ["a"], force=True)
    with pytest.raises(GroupActiveError, match="stop its members") as caught:
        check_nobody_consumes("billing", [f"c{number}" for number in range(9)], force=False)

    assert caught.value.details["members"] == 9
    assert caught.value.details["some"] == ["c0", "c1", "c2", "c3", "c4"]
