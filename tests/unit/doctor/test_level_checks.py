"""Members that hold a feature level back, and logs that need a newer version, are told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledgermq.doctor.examination import level_checks
from ledgermq.doctor.finding import Diagnosis, Weight
from ledgermq.members.reports import write_levels
from ledgermq.model.features import LEVEL, MemberLevel, version_of
from ledgermq.process.runtime_paths import RuntimePaths
from tests.unit.doctor.subjects import by_check, subject_in


def examined(
    folder: Path, *levels: int | None, in_force: int = 0, needed: int = 0
) -> dict[str, Diagnosis]:
    """Of a running node that has heard this of the members n0, n1 and so on."""
    subject = subject_in(folder)
    path = RuntimePaths(subject.settings.listen.runtime_dir).levels
    path.parent.mkdir()
    members = [
        MemberLevel(node=f"n{number}", level=level, away=False)
        for number, level in enumerate(levels)
    ]
    write_levels(path, members)
    counters = {"broker": {"feature_level": in_force, "level_needed": needed}}
    status: Any = {"counters": counters}
    return by_check(level_checks, replace(subject, status=status))


def test_members_that_know_what_is_in_force_are_well(tmp_path: Path) -> None:
    found = examined(tmp_path, 1, 1, 1, in_force=1)

    assert [one.verdict for one in found.values()] == [Weight.OK, Weight.OK]
    assert found["levels.members"].measured == "n0 1, n1 1, n2 1; level 1 is in force"


def test_a_witness_says_who_is_to_be_asked(tmp_path: Path) -> None:
    subject = subject_in(tmp_path, node={"witness": True})
    status: Any = {"counters": {"broker": {"feature_level": 0, "level_needed": 0}}}
    found = by_check(level_checks, replace(subject, status=status))

    assert [one.verdict for one in found.values()] == [Weight.OK]
    assert "a member with messages" in found["levels.members"].measured


def test_a_level_that_all_know_is_the_next_step(tmp_path: Path) -> None:
    found = examined(tmp_path, 1, 1)["levels.members"]

    assert found.verdict is Weight.OK
    assert "cluster features --enable" in found.measured


@pytest.mark.parametrize(
    ("level", "reason"),
    [
        (0, "n1 knows level 0, and needs version 0.2.0"),
        (None, "n1 was not heard of"),
    ],
    ids=["older", "silent"],
)
def test_who_holds_a_level_back_is_named(tmp_path: Path, level: int | None, reason: str) -> None:
    found = examined(tmp_path, 1, level, 1)["levels.members"]

    assert found.verdict is Weight.WARN
    assert found.change.startswith(f"{reason}: ")


def test_a_log_that_needs_a_newer_version_fails(tmp_path: Path) -> None:
    found = examined(tmp_path, 1, in_force=LEVEL, needed=LEVEL + 1)["levels.log"]

    assert found.verdict is Weight.FAIL
    assert f"needs level {LEVEL + 1}" in found.measured
    assert f"one newer than {version_of(LEVEL)}" in found.change


def test_of_a_node_that_does_not_run_nothing_is_known(tmp_path: Path) -> None:
    (found,) = level_checks(subject_in(tmp_path))

    assert found.verdict is Weight.OK


def test_a_node_from_before_levels_is_no_failure(tmp_path: Path) -> None:
    status: Any = {"counters": {"broker": {}}}
    (found,) = level_checks(replace(subject_in(tmp_path), status=status))

    assert found.verdict is Weight.OK
    assert "from before" in found.measured
