"""Changes of the membership: which are allowed, and that they can be taken back."""

from __future__ import annotations

import pytest

from ledgermq.model.ids import Index, NodeId
from ledgermq.raft.membership import Membership, MembershipHistory, change_problem


def group(voters: str, learners: str = "", witnesses: str = "", bodiless: str = "") -> Membership:
    names = (frozenset(map(NodeId, text)) for text in (voters, learners, witnesses, bodiless))
    return Membership(*names)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (group("abc"), group("abc", "d")),
        (group("abc", "d"), group("abcd")),
        (group("abc", "d"), group("abcd", "", "d")),
        (group("abc"), group("ab")),
        (group("abc", "d"), group("abc")),
        (group("abc", "", "c"), group("ab")),
        # It has nothing to catch up with.
        (group("ab"), group("abc", "", "c", "c")),
        (group("abc", "", "c", "c"), group("ab")),
        (group("abc", "d", "c", "c"), group("abcd", "", "c", "c")),
    ],
)
def test_one_member_may_change(old: Membership, new: Membership) -> None:
    assert change_problem(old, new) is None


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (group("abc"), group("abcd"), "d must be a learner first"),
        (group("abc"), group("abde"), "one member changes at a time, not 3"),
        (group("abc"), group("abc"), "one member changes at a time, not 0"),
        (group("abc"), group("abc", "de"), "one member changes at a time, not 2"),
        (group("ab", "", "b"), group("b", "", "b"), "no voter would be left that can lead"),
        (group("abc"), group("abc", "", "c"), "c must leave before it becomes another kind"),
        (group("abc"), group("abc", "", "c", "c"), "c must leave before it becomes another kind"),
        (group("ab", "c"), group("abc", "", "c", "c"), "c must leave before it becomes another"),
        (group("abc", "", "c", "c"), group("abc"), "c must leave before it becomes another kind"),
        (group("abc", "", "c", "c"), group("ab", "c"), "c must leave before it becomes another"),
        (group("abc", "", "c", "c"), group("ac", "", "c", "c"), "fewer than a majority of the"),
        (group("abc", "", "c", "c"), group("abcd", "", "cd", "cd"), "fewer than a majority of"),
    ],
)
def test_other_changes_are_refused_with_the_reason(
    old: Membership, new: Membership, problem: str
) -> None:
    assert (change_problem(old, new) or "").startswith(problem)


def test_a_change_that_is_truncated_is_taken_back() -> None:
    history = MembershipHistory(group("abc"))
    history.put(Index(5), group("abc", "d"), commit=Index(3))
    history.put(Index(9), group("abcd"), commit=Index(5))

    assert not history.roll_back(Index(9))
    assert history.current == group("abcd")
    assert history.roll_back(Index(8))
    assert (history.index, history.current) == (5, group("abc", "d"))


def test_who_leaves_is_needed_until_that_is_committed() -> None:
    history = MembershipHistory(group("abc"))
    history.put(Index(5), group("ab"), commit=Index(3))

    assert history.is_needed(NodeId("c"), Index(4))
    assert not history.is_needed(NodeId("c"), Index(5))
