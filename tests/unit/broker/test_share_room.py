"""Room of share groups: what one owner, and one group, may have of what all may."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from ledgermq.broker.consumers.share_room import ShareRoom
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import BusyError
from ledgermq.rules.tables.share_changes import Run, ShareChanged, ShareEnded
from ledgermq.rules.tables.shares import ShareTable


def room_of(table: ShareTable, *, own: int, total: int) -> ShareRoom:
    settings = Settings()
    limits = replace(settings.limits, share_unsettled_per_group=own, share_unsettled_max=total)
    return ShareRoom(table, replace(settings, limits=limits))


def take(
    table: ShareTable, group: str, count: int, first: int = 0, *, by: str | None = None
) -> None:
    runs = {0: (Run(first, count, 9, 1, 7),)}
    table.apply(ShareChanged(group, "t", {0: 0}, runs, {}, taken_by=by), 0, 0)


def left(room: ShareRoom, group: str) -> tuple[int, str]:
    found = room.limits(group, deliveries_max=1, priority_factor=0)
    return found.room, str(found.reached)


def test_no_group_has_more_than_it_leaves_for_all_others() -> None:
    table = ShareTable()
    room = room_of(table, own=60, total=100)
    take(table, "one", 30)
    assert left(room, "one")[0] == 20
    take(table, "one", 20, first=30)
    assert left(room, "one")[0] == 0
    assert "as it leaves for all others" in left(room, "one")[1]
    for number in range(4):
        group = f"greedy-{number}"
        take(table, group, left(room, group)[0])
        assert table.unsettled_of(group) <= 100 - table.unsettled
    assert left(room, "late")[0] > 0
    assert "limits.share_unsettled_per_group" in left(room_of(table, own=5, total=1_000), "x")[1]


def test_an_owner_has_a_quarter_of_all_groups_that_it_has_taken_of_last_whoever_leads() -> None:
    table = ShareTable()
    for group in ("one", "two"):
        take(table, group, 10, by="10.0.0.1")
    take(table, "other", 30, by="10.0.0.2")
    owners = "10.0.0.1", "10.0.0.2", "10.0.0.3", ""
    # The next leader knows the table, and nothing else.
    for known in (table, ShareTable.read(table.to_document())):
        room = room_of(known, own=60, total=100)
        assert [room.left_of(owner) for owner in owners] == [5, -5, 25, None]
        assert "unsettled=20, limit=25" in str(room.reached_by("10.0.0.1", "one"))
        take(known, "two", 1, first=10, by="10.0.0.2")
        assert [room.left_of(owner) for owner in owners] == [15, -16, 25, None]
        take(known, "two", 1, first=11)
        assert room.left_of("10.0.0.2") == -17
        take(known, "two", 1, first=12, by="")
        assert room.left_of("10.0.0.2") == -5
        known.apply(ShareEnded("other", "t"), 0, 0)
        assert (room.left_of("10.0.0.1"), room.left_of("10.0.0.2")) == (15, 25)


def test_what_plans_of_one_command_hand_out_counts_before_it_is_in_the_table() -> None:
    table = ShareTable()
    room = room_of(table, own=60, total=100)
    taken = [Counter(a=20), Counter(a=4, b=5)]
    for number, of in enumerate(taken):
        room.plan(f"group-{number}", of)
    assert [room.left_of(owner) for owner in "abc"] == [1, 20, 25]
    assert [left(room, group)[0] for group in ("group-0", "late")] == [25, 35]
    for number, of in enumerate(taken):
        room.end_plan(f"group-{number}", of)
    assert [room.left_of(owner) for owner in "abc"] == [25, 25, 25]
    assert left(room, "group-0")[0] == 50


def test_who_waits_for_many_at_one_connection_leaves_places_to_others_there() -> None:
    room = room_of(ShareTable(), own=60, total=100)
    mine = room.settings.limits.held_pulls_per_client
    room.wait((b"process", "10.0.0.1"), mine)
    with pytest.raises(BusyError, match="held_pulls_per_client"):
        room.check_waiting((b"process", "10.0.0.1"))
    room.check_waiting((b"process", "10.0.0.2"))
    room.wait((b"process", "10.0.0.1"), -1)
    room.check_waiting((b"process", "10.0.0.1"))
