"""Who is a member of a group, and what its members are told to differ in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledgermq.model.errors import NoPermissionError
from ledgermq.rules.consumers.enrolment import Enrolment, Member

A = Member(
    client="a",
    instance="1",
    host="here",
    model="clustering",
    start="first",
    ordered=False,
    strategy="average",
    subscription={"t": "*"},
)
B = replace(A, client="b", instance="2")


@pytest.fixture
def members() -> Enrolment:
    return Enrolment(epoch="e", expiry_ms=100)


def test_a_group_is_another_one_when_members_come_change_and_go(members: Enrolment) -> None:
    versions = [members.version("g")]

    def step(is_news: bool) -> bool:
        versions.append(members.version("g"))
        return is_news

    assert step(members.heartbeat("g", A, 0))
    assert step(members.heartbeat("g", B, 1))
    assert step(members.heartbeat("g", replace(A, subscription={"t": "x"}), 2))
    assert step(members.leave("g", "b", "2"))
    assert len(set(versions)) == len(versions)

    assert not step(members.heartbeat("g", replace(A, subscription={"t": "x"}), 3))
    assert not step(members.leave("g", "b", "2"))
    assert versions[-1] == versions[-3]


def test_members_that_are_silent_are_forgotten_the_oldest_first(members: Enrolment) -> None:
    members.heartbeat("g", A, 0)
    members.heartbeat("g", B, 10)
    members.heartbeat("h", A, 20)
    members.heartbeat("g", A, 30)

    assert members.next_expiry_ms() == 110
    assert members.expire(109) == []
    assert members.expire(120) == [("g", "b"), ("h", "a")]
    assert members.members("g") == [A]
    assert members.groups == ["g"]
    assert members.expire(130) == [("g", "a")]
    assert members.next_expiry_ms() is None
    assert (members.topics("g"), members.topics("h"), members.size) == (0, 0, 0)


def test_topics_are_counted_for_each_member(members: Enrolment) -> None:
    members.heartbeat("g", A, 0)
    members.heartbeat("g", replace(B, subscription={"t": "*", "u": "*"}), 0)
    both = members.topics("g")
    members.heartbeat("g", B, 0)

    assert (both, members.topics("g"), members.topics("h")) == (3, 2, 0)


def test_the_newer_of_two_with_one_name_is_the_member(members: Enrolment) -> None:
    newer = replace(A, instance="9")
    members.heartbeat("g", A, 0)
    members.heartbeat("g", newer, 1)

    with pytest.raises(NoPermissionError, match="client='a'"):
        members.heartbeat("g", A, 2)
    assert members.members("g") == [newer]
    assert not members.leave("g", "a", A.instance)


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (replace(B, subscription={"t": "*", "u": "*"}), "differ in topics: a has t, b has t, u"),
        (
            replace(B, subscription={"t": "x"}),
            r"differ in expression of topic t: a has \*, b has x",
        ),
        (replace(B, model="broadcasting"), "differ in model: a has clustering"),
        (replace(B, strategy="sticky"), "differ in strategy"),
        (replace(B, ordered=True), "differ in ordered: a has any order"),
    ],
)
def test_members_that_differ_are_named(members: Enrolment, other: Member, text: str) -> None:
    members.heartbeat("g", A, 0)
    members.heartbeat("g", other, 0)

    (difference,) = members.differences("g")

    assert str(difference).startswith("members " + text.replace("\\", ""))


def test_members_that_want_the_same_differ_in_nothing(members: Enrolment) -> None:
    members.heartbeat("g", A, 0)
    members.heartbeat("g", replace(B, host="elsewhere", start="last"), 0)

    assert list(members.differences("g")) == []
