"""Room of share groups: what one owner, and one group, may have of what all may."""

from __future__ import annotations

from dataclasses import replace

from ledgermq.broker.consumers.share_room import ASKERS_SLACK, ShareRoom
from ledgermq.model.config.settings import Settings
from ledgermq.rules.tables.share_changes import Run, ShareChanged
from ledgermq.rules.tables.shares import ShareTable


def room_of(table: ShareTable, *, own: int, total: int) -> ShareRoom:
    settings = Settings()
    limits = replace(settings.limits, share_unsettled_per_group=own, share_unsettled_max=total)
    return ShareRoom(table, replace(settings, limits=limits))


def take(table: ShareTable, group: str, count: int, first: int = 0) -> None:
    runs = {0: (Run(first, count, 9, 1, 7),)}
    table.apply(ShareChanged(group, "t", {0: 0}, runs, {}), 0, 0)


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


def test_an_owner_has_a_quarter_of_all_groups_that_it_asked_for_last() -> None:
    table = ShareTable()
    room = room_of(table, own=60, total=100)
    for group in ("one", "two"):
        room.note_asker(group, "10.0.0.1")
        take(table, group, 10)
    room.note_asker("other", "10.0.0.2")
    take(table, "other", 30)
    assert [room.left_of(owner) for owner in ("10.0.0.1", "10.0.0.2", "10.0.0.3", "")] == [
        *(5, -5, 25), None
    ]  # fmt: skip
    assert "unsettled=20, limit=25" in str(room.reached_by("one"))
    room.note_asker("two", "10.0.0.2")
    assert (room.left_of("10.0.0.1"), room.left_of("10.0.0.2")) == (15, -15)


def test_groups_that_have_taken_nothing_are_forgotten() -> None:
    table = ShareTable()
    room = room_of(table, own=60, total=100)
    take(table, "there", 25)
    room.note_asker("there", "a")
    for number in range(10 * ASKERS_SLACK):
        room.note_asker(f"none-{number}", "a")
    assert len(room._askers) <= ASKERS_SLACK + 3
    assert room.left_of("a") == 0
