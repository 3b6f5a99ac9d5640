"""Link to the node: what stores messages, and sessions with its broker, one for each user.

The process is a client of its own node. It stores as the node's account, and so it looks at rights
and quotas of users itself before it does; what it asks of the broker for a user it asks in a
session that speaks for that user, and has its rights there.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from ledgermq.client.aio.producer import AsyncProducer
from ledgermq.client.broker_connection import AsyncBrokerClient
from ledgermq.client.core.questions import Route, ask, asking, route
from ledgermq.client.core.requests import Request, Result, Steps
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.gateway.rpc.callers import RpcCaller
from ledgermq.model.errors import BusyError, GroupUnknownError, NoPermissionError, QuotaError
from ledgermq.rules.tables.groups import SubscriptionGroup
from ledgermq.verbs.groups import ShowGroup
from ledgermq.verbs.shares import GIVE_UP
from ledgermq.wire.session import ANY_USER, SpokenFor

SEND_S = 10.0
"""Until a message is stored, or refused: clients give it up after three seconds by default."""

BROKER_S = 8.0

UNDER_WAY_MAX = 256
"""Questions of one user at once, beside those of calls that wait for messages."""

UNUSED_S = 60.0
AGE_S_MAX = 5.0
NAMES_KNOWN_MAX = 10_000

NAME = "grpc"


class NodeSession(AsyncBrokerClient):
    """One user's.

    Attributes:
        under_way: questions that wait for an answer.
        waiting: those of them that wait for messages; the broker bounds them.
    """

    NAME = NAME

    def __init__(self, address: str, speaks_for: SpokenFor | None) -> None:
        """A session that is opened by ``__aenter__``."""
        super().__init__(address, timeout_s=BROKER_S, speaks_for=speaks_for)
        self.under_way = self.waiting = 0
        self.used_at = time.monotonic()

    async def run_within(self, steps: Steps[Result], wait_s: float) -> Result:
        """What ``steps`` come to, each within so many seconds; see ``run``."""
        assert self._requests is not None
        return await self._requests.run(steps, timeout_s=wait_s)

    def number_of(self, request: Request) -> int | None:
        """By which number the broker knows a question under way; None: by none now."""
        assert self._requests is not None
        return self._requests.requests.id_of(request)

    @property
    def has_failed(self) -> bool:
        """Whether the broker has refused it for good."""
        return self._link.failure is not None


class GroupRules(NamedTuple):
    """What consumers of a group go by.

    Attributes:
        retry_times_max: so often a message is handed out again.
        is_ordered: messages of one message group come one after another.
    """

    retry_times_max: int
    is_ordered: bool


Known = TypeVar("Known")


class _Remembered(Generic[Known]):
    """What the broker has told by name, for ``AGE_S_MAX``; one question for all who ask."""

    def __init__(self, look_up: Callable[[str], Awaitable[Known]]) -> None:
        self._look_up = look_up
        self._known: OrderedDict[str, tuple[Known, float]] = OrderedDict()
        self._looking: dict[str, asyncio.Task[Known]] = {}

    async def get(self, name: str) -> Known:
        known = self._known.get(name)
        if known is not None and time.monotonic() - known[1] < AGE_S_MAX:
            return known[0]
        looking = self._looking.get(name)
        if looking is None:
            looking = asyncio.create_task(self._look(name))
            self._looking[name] = looking
            looking.add_done_callback(lambda _task: self._looking.pop(name, None))
        # Others wait for it, too.
        return await asyncio.shield(looking)

    async def _look(self, name: str) -> Known:
        self._known.pop(name, None)
        found = await self._look_up(name)
        while len(self._known) >= NAMES_KNOWN_MAX:
            self._known.popitem(last=False)
        self._known[name] = found, time.monotonic()
        return found


class NodeLink:
    """Owned by the process's loop.

    Invariant: at most ``users_max`` sessions of users, who was used last at the end.
    """

    def __init__(self, address: str, *, users_max: int) -> None:
        """Nothing is open.

        Args:
            address: of the node itself, ``ipc://RUNTIME``.
            users_max: users at once; of more, one that does not ask just now makes way.
        """
        self._address = address
        self._users_max = users_max
        self._sessions: OrderedDict[str, NodeSession] = OrderedDict()
        self._routes = _Remembered(self._look_up_route)
        self._groups = _Remembered(self._look_up_group)
        # Bodies are stored as they came: who has sent them has decided about compression.
        options = ProducerOptions(timeout_s=SEND_S, compress_above=None)
        self.producer = AsyncProducer(address, name=NAME, options=options, one_group=True)

    async def open(self) -> None:
        """Connect; returns also while the node is about to start."""
        await self.producer.__aenter__()

    async def close(self) -> None:
        """End all; messages under way have their outcome, or fail."""
        for user in list(self._sessions):
            self._sessions.pop(user).close()
        await self.producer.close(1.0)

    async def ask(
        self, caller: RpcCaller | None, steps: Steps[Result], *, wait_s: float = 0.0
    ) -> Result:
        """What ``steps`` come to, with the rights of ``caller``; None: the node's own.

        Args:
            wait_s: they wait for messages, for so long at most.

        Raises:
            NoPermissionError: the caller is none of the users, where they are looked at.
            BusyError: too many ask, or the caller asks too much at once.
            LedgerError: the broker refused, or did not answer.
        """
        user = _user_of(caller)
        session = await self._session(user)
        if not wait_s and session.under_way - session.waiting >= UNDER_WAY_MAX:
            raise QuotaError("caller asks too much at once", limit=UNDER_WAY_MAX, user=user)
        session.under_way += 1
        session.waiting += bool(wait_s)
        try:
            return await session.run_within(steps, wait_s or BROKER_S)
        finally:
            session.under_way -= 1
            session.waiting -= bool(wait_s)
            session.used_at = time.monotonic()
            if session.has_failed:
                # It would never stand again: who asks next has another one.
                self._end(user, session)

    async def give_up(
        self, caller: RpcCaller | None, request: Request, *, group: str, topic: str
    ) -> None:
        """Have the broker answer a receive under way at once: nobody waits for it any more.

        Raises:
            LedgerError: the broker refused, or did not answer.
        """
        session = self._sessions.get(_user_of(caller))
        number = None if session is None else session.number_of(request)
        if number is not None:
            await self.ask(caller, ask(GIVE_UP, group=group, topic=topic, request=number))

    async def route(self, topic: str) -> Route:
        """The queues of ``topic``, as they were at most ``AGE_S_MAX`` ago.

        Raises:
            TopicUnknownError: there is no such topic; none is made.
            LedgerError: the broker did not answer.
        """
        return await self._routes.get(topic)

    async def group(self, group: str) -> GroupRules:
        """What consumers of ``group`` go by, as it was at most ``AGE_S_MAX`` ago.

        One that is not there yet goes by what it would be made with.

        Raises:
            LedgerError: the broker did not answer.
        """
        return await self._groups.get(group)

    def tidy(self) -> None:
        """End sessions that nobody has used for a while; call it now and then."""
        until = time.monotonic() - UNUSED_S
        for user, session in list(self._sessions.items()):
            if not session.under_way and session.used_at < until:
                self._end(user, session)

    async def _look_up_route(self, topic: str) -> Route:
        return await self.ask(None, route(topic, create=False))

    async def _look_up_group(self, group: str) -> GroupRules:
        try:
            fields = (await self.ask(None, asking(ShowGroup(group)))).fields
        except GroupUnknownError:
            fields = {}
        known = SubscriptionGroup.read(group, fields)
        return GroupRules(known.retry_times_max, known.is_ordered)

    async def _session(self, user: str) -> NodeSession:
        session = self._sessions.get(user)
        if session is not None:
            self._sessions.move_to_end(user)
            return session
        if user and len(self._sessions) - ("" in self._sessions) >= self._users_max:
            self._make_room()
        spoken = SpokenFor(ANY_USER, f"{user} (grpc)", user) if user else None
        session = self._sessions[user] = NodeSession(self._address, spoken)
        await session.__aenter__()
        return session

    def _make_room(self) -> None:
        for user, session in self._sessions.items():
            if user and not session.under_way:
                self._end(user, session)
                return
        raise BusyError(
            "too many users ask, or wait for messages, at once",
            limit=self._users_max,
            setting="grpc.users_max",
        )

    def _end(self, user: str, session: NodeSession) -> None:
        if self._sessions.get(user) is session:
            del self._sessions[user]
        session.close()


def _user_of(caller: RpcCaller | None) -> str:
    """In whose session a caller's questions are asked; empty: the node's own.

    Raises:
        NoPermissionError: the caller is none of the users, where they are looked at.
    """
    if caller is None or not caller.is_checked:
        return ""
    if not caller.user:
        raise NoPermissionError("caller is none of the users")
    return caller.user
