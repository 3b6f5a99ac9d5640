"""One queue of a share group beside a model that knows each message by itself."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ledgermq.rules.state.state_commands import StateCommand, decode_command, encode_command
from ledgermq.rules.tables.group_offsets import GroupOffsets
from ledgermq.rules.tables.share_changes import WAITS, OffsetSpan, Run, ShareChanged, ShareEnded
from ledgermq.rules.tables.share_queue import AHEAD_MS_MAX, ShareQueue
from ledgermq.rules.tables.shares import ShareTable
from ledgermq.rules.tables.table_changes import GroupSet, OffsetsSet, TopicSet

OFFSETS = 24

spans = st.builds(OffsetSpan, st.integers(0, OFFSETS), st.integers(1, 6))
runs = st.builds(
    Run,
    st.integers(0, OFFSETS),
    st.integers(1, 6),
    st.integers(0, 5) | st.just(WAITS),
    st.integers(0, 2),
    st.integers(0, 2),
)
queues = st.dictionaries(st.integers(0, 3), st.integers(0, 2**40), min_size=1, max_size=3)


@st.composite
def changes(draw: Any) -> ShareChanged:
    lows = draw(queues)
    of_each = st.lists(runs, max_size=4).map(tuple)
    settled = st.lists(spans, max_size=4).map(tuple)
    return ShareChanged(
        "g",
        "t",
        lows,
        {queue: draw(of_each) for queue in lows},
        {queue: draw(settled) for queue in lows},
        draw(st.booleans()),
        draw(st.none() | st.sampled_from(("", "10.0.0.1", "user:ann"))),
    )


def each(queue: ShareQueue) -> dict[int, tuple[int, int, int]]:
    return {
        offset: (run.until, run.delivery, run.mark)
        for run in queue.runs
        for offset in range(run.first, run.end)
    }


@given(st.integers(0, 10), st.lists(spans | runs, max_size=40), st.integers(0, 6))
@settings(deadline=None, max_examples=400)
def test_each_message_stands_as_it_was_last_said(
    begin: int, said: list[OffsetSpan | Run], now_ms: int
) -> None:
    queue, model, end = ShareQueue(begin), dict[int, tuple[int, int, int]](), begin
    for one in said:
        for offset in range(one.first, one.end):
            model.pop(offset, None)
        end = max(end, one.end)
        if isinstance(one, Run):
            queue.put(one)
            model |= dict.fromkeys(range(one.first, one.end), one[2:])
        else:
            queue.settle(one.first, one.length)

        assert each(queue) == model
        assert queue.next == end
        assert queue.low == min(model, default=end)
        assert queue.unsettled == len(model)
        times = [until for until, _, _ in model.values() if until != WAITS]
        assert queue.next_due(now_ms) == min(times, default=None)
        assert queue.waiting == len(model) - len(times)
        assert all(
            not after.follows(before)
            for before, after in zip(queue.runs, queue.runs[1:], strict=False)
        )
        for offset in range(OFFSETS + 8):
            run = queue.find(offset)
            assert (None if run is None else run[2:]) == model.get(offset)
            assert queue.runs_from(offset) == [one for one in queue.runs if one.end > offset]

    due = queue.due(now_ms, 100)
    assert [run.until for run in due] == sorted(run.until for run in due)
    assert len(set(due)) == len(due)
    assert {offset for run in due for offset in range(run.first, run.end)} == {
        offset for offset, (until, _, _) in model.items() if until <= now_ms
    }
    assert sorted(queue.due(now_ms, 100)) == sorted(due)
    assert queue.due(now_ms, 1) == due[:1]


@given(changes())
@settings(deadline=None)
def test_a_change_is_what_its_command_says(change: ShareChanged) -> None:
    body = encode_command(StateCommand("c", 1, (change, ShareEnded("g", "t"))))

    assert decode_command(body).changes == (change, ShareEnded("g", "t"))
    assert json.loads(body)["needs"] == 7


@given(st.lists(changes() | st.builds(OffsetsSet, st.just("g"), st.just("t"), queues), max_size=6))
@settings(deadline=None)
def test_a_table_is_that_of_its_document(applied: list[ShareChanged | OffsetsSet]) -> None:
    table = ShareTable()
    for change in applied:
        table.apply(change, 0, 0)
    again = ShareTable.read(json.loads(json.dumps(table.to_document())))

    assert again.to_document() == table.to_document()
    assert again.unsettled == table.unsettled == table.unsettled_of("g")
    assert table.unsettled == sum(queue.unsettled for _, of in table for queue in of.values())


def test_messages_that_were_taken_together_and_settled_in_ranges_cost_little_in_the_log() -> None:
    """What 32 messages cost that are handed out and accepted in batches."""
    batches = 50
    taken = tuple(
        Run(10**8 + 40 * n, 32, 1_795_951_172_959 + n, 1, 2**31 + n) for n in range(batches)
    )
    settled = tuple(OffsetSpan(10**8 + 40 * n, 32) for n in range(batches))
    change = ShareChanged("g", "t", {0: 10**8}, {0: taken}, {0: settled})

    assert len(encode_command(StateCommand("c", 1, (change,)))) < 2 * 32 * batches


def taken(first: int, length: int, low: int = 0) -> ShareChanged:
    return ShareChanged("g", "t", {0: low}, {0: (Run(first, length, 50, 1, 9),)}, {})


def test_an_offset_that_somebody_else_sets_ends_what_was_taken_and_low_does_not() -> None:
    table, offsets = ShareTable(), GroupOffsets()
    for change in (taken(5, 4, low=5), OffsetsSet("g", "t", {0: 5, 1: 3})):
        table.apply(change, 0, 0)
        offsets.apply(change, 0, 0)
    assert table.queues("g", "t")[0].unsettled == 4
    assert offsets.offsets("g", "t") == {0: 5, 1: 3}

    table.apply(OffsetsSet("g", "t", {0: 7}), 0, 0)

    queue = table.queues("g", "t")[0]
    assert (queue.next, queue.low, queue.unsettled, table.unsettled) == (7, 7, 0, 0)


def test_a_group_or_a_topic_that_is_gone_has_taken_nothing() -> None:
    for gone in (
        GroupSet("g", None),
        TopicSet("t", None),
        OffsetsSet("g", "t", None),
        ShareEnded("g", "t"),
    ):
        table = ShareTable()
        table.apply(taken(0, 4), 0, 0)
        for other in (GroupSet("h", None), TopicSet("u", None), GroupSet("g", {}), gone):
            assert table.topics("g") == ["t"]
            table.apply(other, 0, 0)
        assert (table.topics("g"), table.unsettled, table.unsettled_of("g")) == ([], 0, 0)


def test_what_a_wrong_clock_has_hidden_for_months_is_due_once_the_clock_is_right() -> None:
    now_ms, later = 1_800_000_000_000, 90 * 86_400_000
    soon, hidden = Run(0, 2, now_ms + 30_000, 1, 7), Run(4, 3, now_ms + later, 2, 8)
    queue = ShareQueue(0, [soon, hidden, Run(9, 1, WAITS, 0, 0)])

    assert queue.next_due(now_ms) == now_ms
    assert queue.due(now_ms, 10) == [hidden]
    # By the clock that was wrong nothing was.
    assert queue.due(now_ms + later - AHEAD_MS_MAX, 10) == [soon]
    queue.put(hidden._replace(until=now_ms + 60_000, delivery=3))
    assert queue.next_due(now_ms) == soon.until
    assert queue.due(now_ms, 10) == []
    queue.put(Run(10, 1, now_ms + AHEAD_MS_MAX, 1, 9))
    assert queue.due(now_ms, 10) == []
