"""When a leader's broker says that it leads: when its queues hold what consumers have seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.ipc.cursor_page import CursorPage, Dispatched, Grant, LogCursor, PublishedRole
from ledgermq.model.config.settings import LogKind
from ledgermq.model.ids import Index, NodeId, Position, Term
from ledgermq.sessions.leadership.standing import ReaderStanding, standing_of
from ledgermq.wire.session import CANDIDATE, FOLLOWER, LEADER, Standing

N0 = NodeId("n0")


@pytest.fixture
def page(tmp_path: Path) -> Iterator[CursorPage]:
    with CursorPage.create(tmp_path / "page") as made:
        yield made


def commit(page: CursorPage, position: int, term: int) -> None:
    page.publish_committed(LogCursor(Position(position), Index(position), Term(term)))


def dispatch(page: CursorPage, position: int) -> None:
    page.publish_dispatched(Dispatched(Position(position), 0, 0, 0, 0))


def test_a_leader_leads_its_consumers_when_its_queues_have_caught_up(page: CursorPage) -> None:
    standing = ReaderStanding(page, LogKind.DLEDGER)
    dispatch(page, 500)
    commit(page, 900, 4)
    page.publish_grant(Grant(Term(5), True, PublishedRole.LEADER, N0))
    said = [standing.look()]
    dispatch(page, 900)
    said.append(standing.look())
    commit(page, 1_000, 5)
    said.append(standing.look())
    dispatch(page, 999)
    said.append(standing.look())
    # What is committed later need not be waited for.
    commit(page, 2_000, 5)
    dispatch(page, 1_000)
    said.append(standing.look())

    assert said == [Standing(CANDIDATE, 5, "n0")] * 4 + [Standing(LEADER, 5, "n0")]
    assert standing.look() is None


def test_a_plain_log_has_no_terms_to_wait_for(page: CursorPage) -> None:
    standing = ReaderStanding(page, LogKind.COMMITLOG)
    commit(page, 100, 0)
    dispatch(page, 100)
    page.publish_grant(Grant(Term(2), True, PublishedRole.LEADER, N0))

    assert standing.look() == Standing(LEADER, 2, "n0")


def test_a_plain_log_is_waited_for_until_raft_has_told_how_far_it_is(page: CursorPage) -> None:
    standing = ReaderStanding(page, LogKind.COMMITLOG)
    page.publish_written(LogCursor(Position(100), Index(1), Term(0)), 1)
    page.publish_grant(Grant(Term(2), True, PublishedRole.LEADER, N0))
    said = [standing.look()]
    news = [standing.has_news]
    commit(page, 100, 0)
    news.append(standing.has_news)
    said.append(standing.look())
    dispatch(page, 100)
    said.append(standing.look())

    assert said == [Standing(CANDIDATE, 2, "n0")] * 2 + [Standing(LEADER, 2, "n0")]
    assert news == [False, True]


def test_an_empty_plain_log_has_nothing_to_wait_for(page: CursorPage) -> None:
    standing = ReaderStanding(page, LogKind.COMMITLOG)
    page.publish_grant(Grant(Term(2), True, PublishedRole.LEADER, N0))
    said = [standing.look()]
    page.publish_written(LogCursor(Position(0), Index(-1), Term(0)), 0)
    said.append(standing.look())

    assert said == [Standing(CANDIDATE, 2, "n0"), Standing(LEADER, 2, "n0")]


def test_dispatch_is_waited_for_until_the_leader_may_say_so_and_by_no_follower(
    page: CursorPage,
) -> None:
    standing = ReaderStanding(page, LogKind.DLEDGER)
    dispatch(page, 500)
    commit(page, 900, 5)
    waits = []
    for granted, role in ((False, PublishedRole.FOLLOWER), (True, PublishedRole.LEADER)):
        page.publish_grant(Grant(Term(5), granted, role, N0))
        standing.look()
        waits.append(standing.awaits_dispatch)
    dispatch(page, 900)
    standing.look()
    waits.append(standing.awaits_dispatch)

    assert waits == [False, True, False]


def test_each_change_of_term_or_leader_is_seen_once(page: CursorPage) -> None:
    standing = ReaderStanding(page, LogKind.DLEDGER)
    first = standing.look()
    page.publish_grant(Grant(Term(3), False, PublishedRole.FOLLOWER, NodeId("n2")))
    second = standing.look()

    assert (first, second, standing.look()) == (
        Standing(FOLLOWER, 0, ""),
        Standing(FOLLOWER, 3, "n2"),
        None,
    )


@pytest.mark.parametrize(
    ("role", "serves", "told"),
    [
        (PublishedRole.FOLLOWER, True, FOLLOWER),
        (PublishedRole.CANDIDATE, True, CANDIDATE),
        (PublishedRole.LEADER, False, CANDIDATE),
        (PublishedRole.LEADER, True, LEADER),
    ],
)
def test_only_a_leader_that_serves_says_that_it_leads(
    role: PublishedRole, serves: bool, told: str
) -> None:
    assert standing_of(Grant(Term(1), True, role, N0), serves=serves).role == told
