"""Bells wake who sleeps and are dropped otherwise; orders arrive whole and in order."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.ipc.doorbell import BELLS_READ_MAX, Bell, Inbox
from ledgermq.ipc.orders import GrantTerm, Order, encode, parse
from ledgermq.model.ids import Index, Term
from tests.suite.space import short_folder

Context = zmq.Context


@pytest.fixture
def runtime() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=short_folder(), prefix="lmq-") as directory:
        CursorPage.create(Path(directory) / "cursors").close()
        yield Path(directory)


@pytest.fixture
def context() -> Iterator[Context]:
    made: Context = zmq.Context()
    yield made
    made.destroy(0)


def ready(inbox: Inbox, timeout_ms: int = 5_000) -> dict[object, int]:
    poller = zmq.Poller()
    for source in inbox.sources:
        poller.register(source, zmq.POLLIN)
    return dict(poller.poll(timeout_ms))


def test_a_bell_wakes_a_sleeper_once(runtime: Path, context: Context) -> None:
    with CursorPage.attach(runtime / "cursors") as page:
        inbox = Inbox(context, runtime, Role.RAFT)
        bell = Bell(context, runtime, page, Role.RAFT)
        bell.ring()
        awake = ready(inbox, 0)
        page.set_asleep(Role.RAFT, True)
        bell.ring()
        bell.ring()
        asleep = ready(inbox)

        assert awake == {}
        assert list(asleep) == [inbox.sources[1]]
        assert inbox.drain(asleep) == []
        assert ready(inbox, 0) == {}
        bell.close()
        inbox.close()


def test_who_listens_for_no_bells_is_roused_all_the_same(runtime: Path, context: Context) -> None:
    with CursorPage.attach(runtime / "cursors") as page:
        inbox = Inbox(context, runtime, Role.BROKER)
        bell = Bell(context, runtime, page, Role.BROKER)
        bell.ring()
        rung = ready(inbox, 0)
        bell.rouse()
        roused = ready(inbox)

        assert rung == {}
        assert list(roused) == [inbox.sources[1]]
        assert inbox.drain(roused) == []
        bell.close()
        inbox.close()


def test_bells_that_nobody_hears_do_not_block(runtime: Path, context: Context) -> None:
    with CursorPage.attach(runtime / "cursors") as page:
        bell = Bell(context, runtime, page, Role.RAFT)
        for _ in range(20 * BELLS_READ_MAX):
            page.set_asleep(Role.RAFT, True)
            bell.ring()
        inbox = Inbox(context, runtime, Role.RAFT)
        while waiting := ready(inbox, 0):
            assert inbox.drain(waiting) == []
        bell.close()
        inbox.close()


def test_orders_arrive_in_order_and_a_missing_target_is_told(
    runtime: Path, context: Context
) -> None:
    with CursorPage.attach(runtime / "cursors") as page:
        bell = Bell(context, runtime, page, Role.WRITER)
        order = GrantTerm(Term(7), Index(0), Term(1), 1)

        assert not bell.send(encode(order))
        inbox = Inbox(context, runtime, Role.WRITER)
        while not bell.send(encode(order)):
            ready(inbox, 5)
        bell.send(encode(order._replace(term=Term(8))))
        orders: list[Order] = []
        while len(orders) < 2:
            orders += map(parse, inbox.drain(ready(inbox)))

        assert orders == [order, order._replace(term=Term(8))]
        bell.close()
        inbox.close()


@pytest.mark.parametrize("umask", [0, 0o002])
def test_nobody_else_may_order_anything(runtime: Path, context: Context, umask: int) -> None:
    before = os.umask(umask)
    try:
        inbox = Inbox(context, runtime, Role.WRITER)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in runtime.iterdir()}
    inbox.close()

    assert modes == dict.fromkeys(("cursors", "writer.inbox", "writer.bell"), 0o600)
