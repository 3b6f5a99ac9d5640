"""Sessions of callers with the broker: how many, for how long, and who is told to come again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from ledgermq.model.errors import BusyError, QuotaError, TimedOutError
from ledgermq.observer.callers import HttpCaller
from ledgermq.observer.inquiries import broker_sessions
from ledgermq.observer.inquiries.broker_sessions import (
    SESSIONS_MAX,
    UNDER_WAY_MAX,
    BrokerSession,
    BrokerSessions,
)
from ledgermq.wire.session import LOOKS


def caller(number: int) -> HttpCaller:
    return HttpCaller(LOOKS, f"caller {number}")


def run(folder: Path, test: Any) -> Any:
    """Run a test with sessions of a node that is not there: nothing is asked of it."""

    async def in_loop() -> Any:
        sessions = BrokerSessions(f"ipc://{folder}")
        try:
            return await test(sessions)
        finally:
            sessions.close()

    return asyncio.run(in_loop())


async def named(session: BrokerSession) -> BrokerSession:
    return session


class Held:
    """Inquiries that are under way until they are let go."""

    def __init__(self, sessions: BrokerSessions) -> None:
        self._sessions = sessions
        self._let_go = asyncio.Event()
        self._asked: list[asyncio.Task[None]] = []

    async def begin(self, *callers: HttpCaller) -> None:
        """One more of each caller."""
        self._asked += [
            asyncio.create_task(self._sessions.ask(one, lambda _: self._wait())) for one in callers
        ]
        await asyncio.sleep(0)

    async def end(self) -> None:
        """Let all go."""
        self._let_go.set()
        await asyncio.gather(*self._asked)

    def _wait(self) -> Coroutine[Any, Any, None]:
        async def wait() -> None:
            await self._let_go.wait()

        return wait()


def test_a_caller_has_one_session_however_often_it_asks(tmp_path: Path) -> None:
    async def test(sessions: BrokerSessions) -> None:
        first, again = await sessions.ask(caller(1), named), await sessions.ask(caller(1), named)
        other = await sessions.ask(caller(2), named)

        assert first is again
        assert other is not first

    run(tmp_path, test)


def test_who_asks_too_much_at_once_is_refused_and_others_are_not(tmp_path: Path) -> None:
    async def test(sessions: BrokerSessions) -> None:
        held = Held(sessions)
        await held.begin(*[caller(1)] * UNDER_WAY_MAX)
        with pytest.raises(QuotaError, match=str(UNDER_WAY_MAX)):
            await sessions.ask(caller(1), named)
        await sessions.ask(caller(2), named)
        await held.end()
        await sessions.ask(caller(1), named)

    run(tmp_path, test)


def test_of_more_callers_than_there_is_room_for_an_idle_one_makes_way(tmp_path: Path) -> None:
    async def test(sessions: BrokerSessions) -> None:
        held = Held(sessions)
        first = await sessions.ask(caller(0), named)
        await held.begin(*map(caller, range(1, SESSIONS_MAX)))
        await sessions.ask(caller(SESSIONS_MAX), named)
        assert await sessions.ask(caller(0), named) is not first
        await held.begin(caller(0))
        with pytest.raises(BusyError, match=str(SESSIONS_MAX)):
            await sessions.ask(caller(SESSIONS_MAX), named)
        await held.end()

    run(tmp_path, test)


def test_an_inquiry_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_sessions, "INQUIRY_S", 0.01)

    async def test(sessions: BrokerSessions) -> None:
        with pytest.raises(TimedOutError):
            await sessions.ask(caller(1), lambda session: session.topics())
        await sessions.ask(caller(1), named)

    run(tmp_path, test)


def test_a_session_that_nobody_uses_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_sessions, "IDLE_S", 0.0)

    async def test(sessions: BrokerSessions) -> None:
        first = await sessions.ask(caller(1), named)
        await asyncio.sleep(0.01)

        assert await sessions.ask(caller(1), named) is not first

    run(tmp_path, test)
