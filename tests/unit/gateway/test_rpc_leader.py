"""Tests of ``ledgermq.gateway.rpc.leader``: what a gRPC call waits for while nobody leads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.gateway.rpc.leader import LeaderWatch
from ledgermq.ipc.cursor_page import CursorPage, Dispatched, Grant, LogCursor, PublishedRole
from ledgermq.model.config.settings import Settings
from ledgermq.model.ids import Index, NodeId, Position, Term

SETTINGS = Settings()


@pytest.fixture
def page(tmp_path: Path) -> Iterator[CursorPage]:
    with CursorPage.create(tmp_path / "page") as made:
        yield made


def lead(page: CursorPage, leader: str) -> None:
    role = PublishedRole.LEADER if leader == "n0" else PublishedRole.FOLLOWER
    page.publish_committed(LogCursor(Position(100), Index(1), Term(5)))
    page.publish_grant(Grant(Term(5), leader == "n0", role, NodeId(leader)))


def test_a_call_looks_before_it_says_that_nobody_leads(page: CursorPage) -> None:
    watch = LeaderWatch(SETTINGS, page)
    page.publish_dispatched(Dispatched(Position(100), 0, 0, 0, 0))
    lead(page, "n0")

    asyncio.run(watch.settle(None))

    assert watch.leads


def test_a_call_waits_for_a_node_that_leads_and_dispatches_still(page: CursorPage) -> None:
    watch = LeaderWatch(SETTINGS, page)
    lead(page, "n0")

    async def go() -> bool:
        call = asyncio.create_task(watch.settle(600.0))
        await asyncio.sleep(0)
        is_waiting = not call.done() and not watch.leads
        page.publish_dispatched(Dispatched(Position(100), 0, 0, 0, 0))
        watch.look()
        await call
        return is_waiting

    assert asyncio.run(go())
    assert watch.leads


def test_a_call_does_not_wait_where_another_node_leads(page: CursorPage) -> None:
    watch = LeaderWatch(SETTINGS, page)
    lead(page, "n1")

    async def go() -> bool:
        call = asyncio.create_task(watch.settle(600.0))
        await asyncio.sleep(0)
        return call.done()

    assert asyncio.run(go())
    assert (watch.leads, watch.leader) == (False, "n1")


def test_a_call_is_answered_where_nobody_comes_to_lead(page: CursorPage) -> None:
    watch = LeaderWatch(SETTINGS, page)

    asyncio.run(watch.settle(0.001))

    assert (watch.leads, watch.leader) == (False, "")
