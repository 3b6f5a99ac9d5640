"""When a node is called ready: the first call of a client finds what was acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.daemon.health.health import Readiness
from ledgermq.ipc.counters import BrokerCounter
from ledgermq.ipc.cursor_page import CursorPage, Dispatched, Grant, LogCursor, PublishedRole, Role
from ledgermq.ipc.page_slots import SpaceState
from ledgermq.model.config.settings import NodeSection, Settings, StoreSection
from ledgermq.model.ids import Index, NodeId, Position, Term

END = Position(100)
ALONE = Settings()


@pytest.fixture
def page(tmp_path: Path) -> Iterator[CursorPage]:
    made = CursorPage.create(tmp_path / "cursors")
    yield made
    made.close()


@pytest.fixture
def alone(tmp_path: Path) -> Settings:
    return replace(ALONE, store=StoreSection(path_root_dir=tmp_path))


@pytest.fixture
def member(alone: Settings) -> Settings:
    peers = tuple(f"n{number}-127.0.0.1:1000{number}" for number in range(3))
    return replace(alone, node=NodeSection(self_id="n0", peers=peers))


def lead(page: CursorPage, term: int = 3) -> None:
    page.publish_grant(Grant(Term(term), True, PublishedRole.LEADER, NodeId("n0")))


def dispatch(page: CursorPage) -> None:
    end = LogCursor(END, Index(1), Term(3))
    page.publish_written(end, 0)
    page.publish_committed(end)
    page.publish_dispatched(Dispatched(END, 0, 0, 0, 0))


def count(page: CursorPage, counter: BrokerCounter, value: int) -> None:
    counters = page.counters(Role.BROKER)
    counters[counter] = value
    counters.release()


def missing(page: CursorPage, settings: Settings) -> str:
    return Readiness().missing(page, (), settings)


def test_a_node_that_is_alone_is_ready_with_the_snapshot_of_its_term(
    page: CursorPage, alone: Settings
) -> None:
    lead(page)
    dispatch(page)
    first = missing(page, alone)
    count(page, BrokerCounter.TABLES_AT, 1)
    second = missing(page, alone)
    count(page, BrokerCounter.TABLES_TERM, 2)
    third = missing(page, alone)
    count(page, BrokerCounter.TABLES_TERM, 3)

    assert first == "the broker's tables"
    assert (second, third) == ("the broker's first snapshot",) * 2
    assert missing(page, alone) == ""


@pytest.mark.parametrize("state", [SpaceState.ABOVE, SpaceState.FULL])
def test_on_a_full_disk_it_serves_what_it_has(
    page: CursorPage, alone: Settings, state: SpaceState
) -> None:
    lead(page)
    dispatch(page)
    count(page, BrokerCounter.TABLES_AT, 1)
    page.publish_space(state, 0, 0, 0)

    assert missing(page, alone) == ""


def test_with_damage_among_the_commands_it_serves_what_it_has(
    page: CursorPage, alone: Settings
) -> None:
    lead(page)
    dispatch(page)
    count(page, BrokerCounter.TABLES_AT, 1)
    count(page, BrokerCounter.TABLES_HELD_UP, 1)

    assert missing(page, alone) == ""


def test_with_commands_of_a_newer_version_it_serves_what_it_has(
    page: CursorPage, alone: Settings
) -> None:
    page.publish_grant(Grant(Term(3), False, PublishedRole.FOLLOWER, NodeId("")))
    dispatch(page)
    count(page, BrokerCounter.TABLES_AT, 1)
    count(page, BrokerCounter.TABLES_HELD_UP, 1)
    before = missing(page, alone)
    count(page, BrokerCounter.LEVEL_NEEDED, 2)

    assert (before, missing(page, alone)) == ("a leader", "")


def test_a_member_is_ready_without_a_majority(page: CursorPage, member: Settings) -> None:
    """Nothing is known to be committed, and systemd does not wait for ever."""
    page.publish_grant(Grant(Term(3), False, PublishedRole.FOLLOWER, NodeId("")))

    assert missing(page, member) == ""


def test_a_member_that_follows_is_ready_with_what_is_dispatched(
    page: CursorPage, member: Settings
) -> None:
    page.publish_grant(Grant(Term(3), False, PublishedRole.FOLLOWER, NodeId("n1")))
    dispatch(page)
    first = missing(page, member)
    count(page, BrokerCounter.TABLES_AT, 1)

    assert first == "the broker's tables"
    assert missing(page, member) == ""
