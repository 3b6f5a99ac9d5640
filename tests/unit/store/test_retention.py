"""Which files go, which stay, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledgermq.model.config.amounts import FileSystem
from ledgermq.model.config.settings import ForceClean, RetentionSection
from ledgermq.store.retention import HOUR_MS, Guard, LogFileAge, RetentionPlan, Survey, plan

SIZE = 1_000
NOW_MS = 1_000 * HOUR_MS
ROOMY = FileSystem(total=100_000, used=10_000, free=90_000)
CROWDED = FileSystem(total=100_000, used=88_000, free=12_000)
SETTINGS = RetentionSection(file_reserved_time=72, delete_when="04;16")


def survey(
    *ages_h: float, hour: int = 4, disk: FileSystem = ROOMY, is_dledger: bool = True
) -> Survey:
    """Files that were written until so many hours ago, and the one that is being written."""
    files = [
        LogFileAge(number * SIZE, (number + 1) * SIZE, SIZE, NOW_MS - int(age * HOUR_MS))
        for number, age in enumerate((*ages_h, 0))
    ]
    return Survey(
        files=files,
        guards=(),
        disk=disk,
        store_bytes=len(files) * SIZE,
        archived=None,
        now_ms=NOW_MS,
        hour=hour,
        is_dledger=is_dledger,
    )


def begin(found: Survey, **changes: object) -> int:
    return plan(found, replace(SETTINGS, **changes)).begin  # type: ignore[arg-type]


def test_what_is_older_than_its_time_goes_in_the_hours_that_are_set() -> None:
    assert begin(survey(100, 80, 70)) == 2 * SIZE
    assert begin(survey(100, 80, 70, hour=16)) == 2 * SIZE
    assert begin(survey(100, 80, 70, hour=5)) == 0


def test_dledger_keeps_files_an_hour_longer() -> None:
    assert begin(survey(72.5)) == 0
    assert begin(survey(72.5, is_dledger=False)) == SIZE


def test_above_the_first_watermark_the_hour_does_not_count() -> None:
    assert begin(survey(100, 50, hour=5, disk=CROWDED)) == SIZE


def test_the_file_that_is_written_stays_whatever_happens() -> None:
    full = FileSystem(total=100_000, used=100_000, free=0)
    settings = replace(SETTINGS, force_clean=ForceClean.OLDEST)
    found = plan(survey(disk=full), settings)

    assert found.begin == 0
    assert "no file besides the one that is written" in found.held


def test_no_files_are_no_trouble() -> None:
    assert plan(replace(survey(), files=()), SETTINGS) == RetentionPlan(0)


def test_the_oldest_go_until_the_store_has_no_more_bytes_than_it_may() -> None:
    found = survey(3, 2, 1, hour=5)

    assert begin(found, bytes_max="2000B") == 2 * SIZE
    assert begin(found, bytes_max="2%") == 2 * SIZE
    assert begin(found, bytes_max="4000B") == 0


@pytest.mark.parametrize(
    ("force", "archived", "expected"),
    [
        (ForceClean.NEVER, None, 0),
        (ForceClean.ARCHIVED, None, 0),
        (ForceClean.ARCHIVED, 1_500, SIZE),
        (ForceClean.OLDEST, None, 3 * SIZE),
        (ForceClean.OLDEST, 0, 3 * SIZE),
    ],
)
def test_before_its_time_only_what_force_clean_names_goes(
    force: ForceClean, archived: int | None, expected: int
) -> None:
    found = replace(survey(4, 3, 2, 1, disk=CROWDED), archived=archived)

    # 88 of 100 are used, 85 may be: three files of a hundredth each.
    assert begin(found, force_clean=force) == expected


def test_what_an_archive_lacks_stays_after_its_time() -> None:
    found = replace(survey(100, 90), archived=SIZE + 1, archive="archive nightly")

    assert begin(found) == SIZE
    assert "archive nightly has the log up to 1001" in plan(found, SETTINGS).held
    assert "retention.archive_wait_hours = 72" in plan(found, SETTINGS).held


def test_an_archive_is_waited_for_so_long() -> None:
    found = replace(survey(146, 100), archived=10, archive="archive nightly")
    told = plan(found, SETTINGS)

    assert told.begin == SIZE
    assert "deleted before it is archived: archive nightly has the log up to 10" in told.unarchived
    assert "older than 144 h (retention.archive_wait_hours = 72)" in told.unarchived
    assert "archive nightly has the log up to 10" in told.held
    assert begin(found, archive_wait_hours=0) == 2 * SIZE
    assert begin(found, archive_wait_hours=100) == 0


def test_an_archive_is_waited_for_until_the_disk_is_so_full() -> None:
    found = replace(survey(100, 90, disk=CROWDED), archived=10, archive="archive nightly")
    told = plan(found, SETTINGS)

    assert told.begin == 2 * SIZE
    assert "88% of the disk are used (retention.archive_wait_below = 80%)" in told.unarchived
    assert begin(found, archive_wait_below="89%") == 0


def test_an_archive_is_waited_for_although_the_store_has_more_bytes_than_it_may() -> None:
    found = replace(survey(3, 2, 1, hour=5), archived=SIZE, archive="archive nightly")

    assert begin(found, bytes_max="2000B") == SIZE
    assert begin(replace(found, archived=5 * SIZE), bytes_max="2000B") == 2 * SIZE


def test_on_a_full_disk_the_archive_is_named_that_holds_what_is_old_enough() -> None:
    found = replace(survey(100, disk=CROWDED), archived=10, archive="archive nightly")
    held = plan(found, replace(SETTINGS, archive_wait_below="89%")).held

    assert held.startswith("88% of the disk are used, 12000 bytes are free")
    assert "but archive nightly has the log up to 10, and the file ends at 1000" in held
    assert "its time is not over" not in held


def test_what_is_archived_goes_without_a_word() -> None:
    found = replace(survey(146, 100), archived=2 * SIZE, archive="archive nightly")

    assert plan(found, SETTINGS) == RetentionPlan(2 * SIZE, plan(found, SETTINGS).reasons)


def test_what_the_store_itself_needs_stays_also_on_a_full_disk() -> None:
    guard = Guard("dispatch", SIZE + 10, "its checkpoint on the disk")
    found = replace(survey(100, 90, 80, disk=CROWDED), guards=(guard,))

    assert begin(found, force_clean=ForceClean.OLDEST) == SIZE


def test_what_a_named_group_has_not_read_stays_but_for_force_clean() -> None:
    guard = Guard("group audit", 2 * SIZE, "retention.keep_groups", reads=True)
    found = replace(survey(100, 90, 80), guards=(guard,))
    crowded = replace(survey(100, 90, 80, disk=CROWDED), guards=(guard,))

    assert begin(found) == 2 * SIZE
    assert begin(found, bytes_max="0B") == 2 * SIZE
    assert begin(crowded, force_clean=ForceClean.NEVER) == 2 * SIZE
    assert begin(crowded, force_clean=ForceClean.OLDEST) == 3 * SIZE


def test_what_is_held_is_told_with_numbers_and_settings() -> None:
    guard = Guard("group audit", 500, "retention.keep_groups", reads=True)
    found = replace(survey(100), guards=(guard,))

    assert plan(found, SETTINGS).held == (
        "older than 73 h (retention.file_reserved_time), but group audit needs the log from 500 on"
        " (retention.keep_groups), and the file ends at 1000"
    )
    assert plan(survey(1, disk=CROWDED), SETTINGS).held == (
        "88% of the disk are used, 12000 bytes are free (retention.force_above = 85%), but its time"
        ' is not over (retention.force_clean = "never")'
    )
