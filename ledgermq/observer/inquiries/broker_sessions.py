"""Sessions with the node's own broker, one for each caller: each has the rights of its caller."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import TypeVar

from ledgermq.client.admin.admin import AdminVerbs
from ledgermq.client.admin.broker_admins import AccessVerbs, SchemaVerbs
from ledgermq.client.broker_connection import AsyncBrokerClient
from ledgermq.client.core.nodes import AnyLink
from ledgermq.client.core.requests import Result, Steps
from ledgermq.client.reading.dead_letters import DeadLettersVerbs
from ledgermq.client.reading.queries import QueriesVerbs
from ledgermq.model.errors import BusyError, QuotaError, TimedOutError
from ledgermq.observer.callers import HttpCaller
from ledgermq.wire.session import SPOKEN_SIZE_MAX

SESSIONS_MAX = 32
"""Callers at once; of more, one that does not ask just now makes way."""

UNDER_WAY_MAX = 12
"""Questions of one caller at once, of the 32 that the port takes of all: others get their turn."""

QUESTION_S = 8.0
"""Until the broker answers one question. It refuses for a while after a change of leaders."""

INQUIRY_S = 20.0
"""For all questions of one inquiry together; less than the port waits for an answer."""

IDLE_S = 60.0

Answer = TypeVar("Answer")
Inquire = Callable[["BrokerSession"], Coroutine[object, object, Answer]]
"""What is asked in a session, one question after the other."""


class BrokerSession(AdminVerbs, AccessVerbs, SchemaVerbs, QueriesVerbs, AsyncBrokerClient):
    """One caller's; all that the client library asks of a broker.

    Attributes:
        under_way: inquiries that use it now.
    """

    def __init__(self, address: str, caller: HttpCaller) -> None:
        """A session that is opened by ``async with``, or ``__aenter__``."""
        name, spoken_for = f"http {caller.name}"[:SPOKEN_SIZE_MAX], caller.spoken_for()
        super().__init__(address, name=name, timeout_s=QUESTION_S, speaks_for=spoken_for)
        self.under_way = 0
        self.idle: asyncio.TimerHandle | None = None

    @property
    def has_failed(self) -> bool:
        """Whether the broker has refused it for good."""
        return self._link.failure is not None

    def letters(self, group: str) -> LettersOfGroup:
        """Questions about the dead letters of ``group``."""
        return LettersOfGroup(self, self._link, group)


class LettersOfGroup(DeadLettersVerbs):
    """Dead letters of one group, asked for in a session."""

    def __init__(self, session: BrokerSession, link: AnyLink, group: str) -> None:
        self._session = session
        self._link = link
        self.group = group

    async def run(self, steps: Steps[Result]) -> Result:
        return await self._session.run(steps)


class BrokerSessions:
    """All of them; owned by the observer's loop.

    Invariant: at most ``SESSIONS_MAX``, who was used last at the end.
    """

    def __init__(self, address: str) -> None:
        """None is open yet.

        Args:
            address: of the node itself, ``ipc://RUNTIME``.
        """
        self._address = address
        self._sessions: OrderedDict[HttpCaller, BrokerSession] = OrderedDict()

    async def ask(
        self,
        caller: HttpCaller,
        inquire: Callable[[BrokerSession], Coroutine[object, object, Answer]],
    ) -> Answer:
        """What ``inquire`` finds in the session of ``caller``, within ``INQUIRY_S``.

        Raises:
            BusyError: all sessions are in use.
            QuotaError: the caller has asked too much at once.
            TimedOutError: it took too long; what was to be changed may be.
            LedgerError: the broker refused.
        """
        session = await self._session(caller)
        if session.under_way >= UNDER_WAY_MAX:
            raise QuotaError("caller asks too much at once", limit=UNDER_WAY_MAX, name=caller.name)
        session.under_way += 1
        if session.idle is not None:
            session.idle.cancel()
        try:
            async with asyncio.timeout(INQUIRY_S):
                return await inquire(session)
        except TimeoutError:
            raise TimedOutError("not answered in time", limit_s=INQUIRY_S) from None
        finally:
            session.under_way -= 1
            if session.has_failed:
                # It would never stand again: who asks next has another one.
                self._end(caller, session)
            elif not session.under_way:
                loop = asyncio.get_running_loop()
                session.idle = loop.call_later(IDLE_S, self._end, caller, session)

    def close(self) -> None:
        """Say goodbye, and end all."""
        for caller, session in list(self._sessions.items()):
            self._end(caller, session)

    async def _session(self, caller: HttpCaller) -> BrokerSession:
        session = self._sessions.get(caller)
        if session is not None:
            self._sessions.move_to_end(caller)
            return session
        if len(self._sessions) >= SESSIONS_MAX:
            self._make_room()
        session = BrokerSession(self._address, caller)
        self._sessions[caller] = session
        await session.__aenter__()
        return session

    def _make_room(self) -> None:
        for caller, session in self._sessions.items():
            if not session.under_way:
                self._end(caller, session)
                return
        raise BusyError("too many callers at once", limit=SESSIONS_MAX)

    def _end(self, caller: HttpCaller, session: BrokerSession) -> None:
        if session.idle is not None:
            session.idle.cancel()
        if self._sessions.get(caller) is session:
            del self._sessions[caller]
        session.close()
