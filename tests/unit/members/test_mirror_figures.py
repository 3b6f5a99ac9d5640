"""What a mirror is said to be doing, by its last report and by its last word at the source."""

from __future__ import annotations

from typing import Any

import pytest

from ledgermq.members.mirrors.mirror_figures import (
    SILENT_MS,
    STALE_MS,
    EntriesLag,
    held_mirror,
    mirror_of_mark,
    own_mirror,
)
from ledgermq.members.mirrors.mirror_report import MirrorReport

NOW_MS = 1_700_000_000_000


def report(**given: Any) -> MirrorReport:
    return {  # type: ignore[typeddict-item]
        "source": "https://a:1", "node": "n1", "leads": False, "hears": True, "trouble": "",
        "lag_messages": 0, "lag_bytes": 0, "lag_s": 0.1, "silent_s": 0.1, "held": 9,
        "source_position": 9, "source_index": 1, "received_bytes": 9, "marked": -1,
        "mark_trouble": "", "at_ms": NOW_MS, **given,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "state"),
    [
        ({}, "copies"),
        ({"hears": False}, "deaf"),
        ({"trouble": "the source is another group"}, "stuck"),
        ({"source": ""}, "stuck"),
        ({"at_ms": NOW_MS - STALE_MS}, "stopped"),
        ({"at_ms": NOW_MS - STALE_MS, "source": ""}, "stopped"),
    ],
)
def test_a_mirror_copies_is_deaf_stuck_or_stopped(given: dict[str, Any], state: str) -> None:
    own = own_mirror(report(**given), NOW_MS)

    assert own["state"] == state
    assert own["running"] is (state != "stopped")


def test_a_report_of_a_clock_that_was_set_back_is_of_now() -> None:
    own = own_mirror(report(at_ms=NOW_MS + 60_000), NOW_MS)

    assert (own["age_s"], own["running"]) == (0, True)


def test_a_mirror_that_has_told_nothing_for_two_of_its_turns_is_silent() -> None:
    def told(at_ms: int) -> str:
        return held_mirror(
            "site-b", 700, at_ms, committed=1_000, lag=EntriesLag(3, 0.5), now_ms=NOW_MS
        )["state"]

    assert told(NOW_MS - SILENT_MS + 1) == "heard"
    assert told(NOW_MS - SILENT_MS) == "silent"


def test_a_mark_that_is_further_than_this_member_lacks_nothing_here() -> None:
    row = held_mirror(
        "site-b", 1_200, NOW_MS, committed=1_000, lag=EntriesLag(0, 0.0), now_ms=NOW_MS
    )

    assert (row["behind"], row["position"]) == (0, 1_200)


def test_marks_of_archives_are_no_mirrors() -> None:
    assert mirror_of_mark("mirror.site-b") == "site-b"
    assert mirror_of_mark("lake") == mirror_of_mark("site-b.mirror.") == ""
