"""Age of a group's rights: old ones are noted, and no clock and no election makes them young."""

from __future__ import annotations

import pytest

from ledgermq.rules.cluster.certificates import Certificate, certify
from ledgermq.rules.cluster.cluster_commands import (
    ClusterJoined,
    ClusterLeft,
    HomeCertified,
    RightsAged,
)
from ledgermq.rules.cluster.cluster_plans import RightsAge, rights_age
from ledgermq.rules.cluster.cluster_table import ClusterTable
from ledgermq.rules.cluster.signatures import SigningKey
from tests.unit.rules.cluster_changes import CERTIFIED, ROOT

NOW_MS, MAX_MS = 1_700_000_000_000, 60_000


def table(group: str = "b", *, confirmed_ms: int = 0, is_over: bool = False) -> ClusterTable:
    made = ClusterTable()
    made.apply(ClusterJoined("c", ROOT.public, group, ["tcp://10.0.0.1:1"]))
    made.apply(HomeCertified([CERTIFIED]))
    if confirmed_ms:
        made.apply(RightsAged(confirmed_ms, is_over))
    return made


def age(
    of: ClusterTable, *, current_ms: int | None = None, now_ms: int = NOW_MS, max_ms: int = MAX_MS
) -> RightsAge:
    return rights_age(of, current_ms=current_ms, now_ms=now_ms, max_ms=max_ms)


def test_what_the_home_has_just_confirmed_is_noted_and_again_after_a_part_of_the_bound() -> None:
    confirmed = NOW_MS - 10
    first = age(table(), current_ms=confirmed)
    known = table(confirmed_ms=confirmed)

    assert first == (RightsAged(confirmed, False), MAX_MS + 1 - 10)
    assert age(known, current_ms=confirmed + MAX_MS // 4 - 1).note is None
    assert age(known, current_ms=confirmed + MAX_MS // 4).note == RightsAged(
        confirmed + MAX_MS // 4, False
    )


def test_rights_are_too_old_after_the_bound_and_not_before_and_that_is_noted_once() -> None:
    known = table(confirmed_ms=NOW_MS)

    for current_ms in (None, NOW_MS):
        assert age(known, current_ms=current_ms, now_ms=NOW_MS + MAX_MS) == (None, 1)
        over = age(known, current_ms=current_ms, now_ms=NOW_MS + MAX_MS + 1)
        assert over == (RightsAged(NOW_MS, True), None)
    known.apply(RightsAged(NOW_MS, True))
    assert known.rights_too_old
    assert age(known, now_ms=NOW_MS + 10 * MAX_MS) == (None, None)
    again = age(known, current_ms=NOW_MS + 10 * MAX_MS, now_ms=NOW_MS + 10 * MAX_MS)
    assert again.note == RightsAged(NOW_MS + 10 * MAX_MS, False)


@pytest.mark.parametrize("confirmed_ms", [0, NOW_MS - MAX_MS - 1, NOW_MS + MAX_MS + 1])
def test_a_leader_that_was_told_nothing_yet_goes_by_what_is_noted(confirmed_ms: int) -> None:
    """Nothing, long ago, or by a clock that was ahead."""
    assert age(table(confirmed_ms=confirmed_ms)).note == RightsAged(confirmed_ms, True)


def test_without_a_bound_nothing_is_noted_but_that_it_is_gone() -> None:
    over = table(confirmed_ms=7, is_over=True)

    assert age(table(), current_ms=NOW_MS, max_ms=0) == (None, None)
    assert age(over, max_ms=0).note == RightsAged(7, False)


def test_the_home_refuses_nobody_also_when_it_becomes_one() -> None:
    lost = table(confirmed_ms=NOW_MS, is_over=True)
    made = Certificate("c", 2, True, "b", SigningKey(b"b" * 32).public, 0, b"")
    lost.apply(HomeCertified([certify(ROOT, made).signed]))

    assert (lost.is_home, lost.rights_too_old) == (True, False)
    assert age(table("a")) == age(lost, now_ms=NOW_MS + 10 * MAX_MS) == (None, None)


def test_what_was_noted_is_kept_and_goes_with_the_cluster() -> None:
    known = table(confirmed_ms=NOW_MS, is_over=True)
    again = ClusterTable.read(known.to_document())
    copy = ClusterTable()
    copy.replace_with(again)
    copy_told = copy.confirmed_ms, copy.rights_too_old
    copy.apply(ClusterLeft())
    copy.apply(RightsAged(NOW_MS, True))

    assert (again.confirmed_ms, again.rights_too_old) == copy_told == (NOW_MS, True)
    assert (copy.confirmed_ms, copy.rights_too_old) == (0, False)
    assert "belongs to no cluster" in copy.refused
    assert {"confirmedMs", "isOver"}.isdisjoint(table().to_document())
