"""Offsets as JSON, places in queues, and what is left of what was asked for."""

from __future__ import annotations

import pytest

from ledgermq.model.errors import ConfigError
from ledgermq.pipeline.queue_ranges import (
    MessageRange,
    parse_queue_table,
    placed,
    queue_document,
    queue_table,
    ranges_between,
)
from ledgermq.pipeline.source.data_loss import DataLossError

A0, A1 = ("a", 0), ("a", 1)
BOUNDS = {A0: MessageRange("a", 0, 10, 20), A1: MessageRange("a", 1, 0, 5)}


def test_offsets_come_back_from_the_checkpoint_as_they_went() -> None:
    offsets = {("b", 3): 1, A1: 2, ("a", 10): 0}

    assert queue_table(queue_document(offsets), option="checkpoint") == offsets


def test_earliest_and_latest_can_be_said_of_each_queue() -> None:
    table = parse_queue_table('{"a": {"0": -1, "1": -2}}', option="startingOffsets")

    assert placed(table, BOUNDS, option="startingOffsets") == {A0: 20, A1: 0}


@pytest.mark.parametrize(("option", "expected"), [("startingOffsets", 0), ("endingOffsets", 5)])
def test_a_queue_that_is_not_named_is_read_whole(option: str, expected: int) -> None:
    assert placed({A0: 15}, BOUNDS, option=option) == {A0: 15, A1: expected}


def test_a_queue_that_is_not_read_must_not_be_named() -> None:
    with pytest.raises(ConfigError, match=r"option='endingOffsets', topic='b', queueId=0"):
        placed({("b", 0): 1}, BOUNDS, option="endingOffsets")


def test_nothing_is_to_be_read_of_a_queue_without_new_messages() -> None:
    ranges = ranges_between({A0: 20, A1: 2}, {A0: 20, A1: 4}, BOUNDS, fail=True)

    assert ranges == [MessageRange("a", 1, 2, 4)]


def test_a_new_queue_is_read_from_its_beginning() -> None:
    assert ranges_between({}, {A0: 12}, BOUNDS, fail=True) == [MessageRange("a", 0, 10, 12)]


@pytest.mark.parametrize(
    ("start", "end", "missing", "left"),
    [(4, 15, 6, [MessageRange("a", 0, 10, 15)]), (4, 8, 4, []), (9, 10, 1, [])],
)
def test_what_is_deleted_is_counted(
    start: int, end: int, missing: int, left: list[MessageRange], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DataLossError) as caught:
        ranges_between({A0: start}, {A0: end}, BOUNDS, fail=True)

    assert caught.value.details["missing"] == missing
    assert ranges_between({A0: start}, {A0: end}, BOUNDS, fail=False) == left
    assert f"missing={missing}" in caplog.text


def test_a_queue_that_has_gone_is_data_loss() -> None:
    with pytest.raises(DataLossError, match="topic='b'"):
        ranges_between({("b", 0): 3}, {("b", 0): 7}, BOUNDS, fail=True)
    assert ranges_between({("b", 0): 3}, {("b", 0): 7}, BOUNDS, fail=False) == []


@pytest.mark.parametrize(("start", "end"), [(10, 21), (30, 20), (15, 12)])
def test_what_cannot_be_read_is_refused(start: int, end: int) -> None:
    with pytest.raises(ConfigError, match="ends before"):
        ranges_between({A0: start}, {A0: end}, BOUNDS, fail=True)
