"""Requesters, producers of transactions and admins in a cluster, for asyncio: one for each group.

Each has connections of its own; which group a message is for a ``ProducerOfGroups`` chooses.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

from ledgermq.client.admin.admin import AsyncAdmin
from ledgermq.client.aio.producer import AsyncProducer
from ledgermq.client.aio.requester import AsyncRequester
from ledgermq.client.aio.transactions import AsyncTransactionalProducer
from ledgermq.client.broker_connection import TIMEOUT_S
from ledgermq.client.closing import AsyncClosing
from ledgermq.client.clusters.cluster_clients import ANSWERS_S, AdminsByName, ClusterRequests
from ledgermq.client.clusters.cluster_producer import ProducerOfGroups
from ledgermq.client.clusters.group_watch import ASKED_AGAIN_S, GroupWatch, WatchedGroup, seeds_of
from ledgermq.client.clusters.used_group import UsedGroup
from ledgermq.client.core.asked import AwaitsCalls
from ledgermq.client.core.known_groups import KnownGroups
from ledgermq.client.sending.message_options import RequestOptions
from ledgermq.model.errors import ConfigError, LedgerError, NotLeaderError

logger = logging.getLogger(__name__)

Client = TypeVar("Client", bound="AsyncRequester | AsyncTransactionalProducer")
Result = TypeVar("Result")


class AsyncClientsOfGroups(AsyncClosing, Generic[Client]):
    """One client for each group that is used, which is open; another one where a group has moved.

    Those of different groups are opened at the same time.
    """

    def __init__(self, producer: AsyncProducer) -> None:
        """Clients of the groups that ``producer`` chooses, which is one of a cluster."""
        self._producer: ProducerOfGroups = producer.of_all.threads
        self._opening: dict[str, asyncio.Lock] = {}
        self._clients: dict[str, tuple[WatchedGroup, Client]] = {}
        self._retired: list[Client] = []

    @abstractmethod
    def _make(self, address: str) -> Client:
        """A client of the group at an address, which is not open yet."""

    def groups(self) -> list[str]:
        """Names of the groups that are known now."""
        return self._producer.groups()

    async def of(self, used: UsedGroup) -> Client:
        """The client of a group.

        Raises:
            LedgerError: it cannot be opened.
        """
        group = used.group
        async with self._opening.setdefault(group.name, asyncio.Lock()):
            known = self._clients.get(group.name)
            if known is not None and known[0] is group:
                return known[1]
            client = self._make(group.address)
            await client.__aenter__()
            if known is not None:
                # What it has under way comes to its end where the group was.
                self._retired.append(known[1])
            self._clients[group.name] = group, client
            return client

    async def chosen(self, topic: str, options: RequestOptions, **how: Any) -> Client:
        """The client of the group that a message would go to; see ``ProducerOfGroups.choose``."""
        used = await asyncio.to_thread(self._producer.choose, topic, options, **how)
        return await self.of(used)

    async def close(self) -> None:
        """Close all."""
        clients = [*(client for _, client in self._clients.values()), *self._retired]
        self._clients.clear()
        self._retired.clear()
        for client in clients:
            await client.close()


class AsyncRequesterOfGroups(ClusterRequests, AwaitsCalls, AsyncClientsOfGroups[AsyncRequester]):
    """What an ``AsyncRequester`` is in a cluster: it has one for each group that is asked."""

    def __init__(self, ordinary: AsyncRequester, _: KnownGroups) -> None:
        """A requester in the place of ``ordinary``."""
        super().__init__(ordinary._producer)
        self._ordinary = ordinary

    def _make(self, address: str) -> AsyncRequester:
        like = self._ordinary
        return AsyncRequester(
            address,
            name=like._name,
            options=like._producer.options,
            tracing=like._tracing,
            one_group=True,
        )


class AsyncTransactionalProducerOfGroups(AsyncClientsOfGroups[AsyncTransactionalProducer]):
    """What an ``AsyncTransactionalProducer`` is in a cluster: it has one for each group."""

    def __init__(self, ordinary: AsyncTransactionalProducer, _: KnownGroups) -> None:
        """A producer in the place of ``ordinary``; see ``TransactionalProducerOfGroups``."""
        super().__init__(ordinary._producer)
        self._ordinary = ordinary
        self._listening: asyncio.Task[None] | None = None
        if ordinary._listener is not None:
            self._listening = asyncio.create_task(self._listen())

    async def close(self) -> None:
        """Say goodbye; open transactions are asked for later, of other producers of the group."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            await asyncio.wait([listening])
        await super().close()

    def _make(self, address: str) -> AsyncTransactionalProducer:
        like = self._ordinary
        return AsyncTransactionalProducer(
            address,
            group=like.group,
            listener=like._listener,
            name=like._name,
            options=like.options,
            tracing=like.tracing,
            one_group=True,
            course=like._course,
        )

    async def _listen(self) -> None:
        """Have a producer in each group that answers: it may ask for what another one has left."""
        while True:
            for name in self._producer.answering():
                try:
                    await self.of(self._producer.used(name))
                except LedgerError as error:
                    # It may have left the cluster just now.
                    logger.warning("group is not listened to: group=%s: %s", name, error)
            await asyncio.sleep(ASKED_AGAIN_S)


class AsyncGroupAdmins(AdminsByName[AsyncAdmin], AwaitsCalls, AsyncClosing):
    """The admins of all groups of a cluster; see ``GroupAdmins``."""

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        name: str = "admin",
        timeout_s: float = TIMEOUT_S,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        """Admins, with the arguments of ``GroupAdmins``.

        Raises:
            ConfigError: there is no address.
        """
        self._seeds = seeds_of(addresses)
        self._name = name
        self._timeout_s = timeout_s
        self._keys = keys
        self._admins: dict[str, tuple[WatchedGroup, AsyncAdmin]] = {}
        self._begun: GroupWatch | None = None

    async def __aenter__(self) -> Self:
        self._begun = GroupWatch(self._seeds, client=self._name, keys=self._keys)
        return self

    async def each(
        self, order: Callable[[AsyncAdmin], Awaitable[Result]]
    ) -> dict[str, Result | LedgerError]:
        """What each group says to an order; see ``AsyncAdmin.each``."""

        async def ask(group: WatchedGroup) -> Result | LedgerError:
            if not group.answers:
                return NotLeaderError("group does not answer", group=group.name)
            try:
                return await order(await self._admin(group))
            except LedgerError as error:
                return error

        groups = await self._groups()
        until = time.monotonic() + min(ANSWERS_S, self._timeout_s)
        await asyncio.to_thread(self._watch.wait_for_answers, until)
        answers = await asyncio.gather(*map(ask, groups))
        return {group.name: answer for group, answer in zip(groups, answers, strict=True)}

    async def close(self) -> None:
        """Say goodbye to all nodes."""
        if self._begun is not None:
            await asyncio.to_thread(self._begun.close)
        self._close_at_once()

    def _close_at_once(self) -> None:
        """Close, where nothing can be awaited: the watch's thread ends within milliseconds."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.close()
        for _, admin in self._admins.values():
            admin.close()
        self._admins.clear()

    @property
    def _watch(self) -> GroupWatch:
        if self._begun is None:
            raise ConfigError("not open: async with AsyncGroupAdmins(…)")
        return self._begun

    async def _groups(self) -> list[WatchedGroup]:
        until = time.monotonic() + self._timeout_s
        return await asyncio.to_thread(self._watch.wait_for_groups, until)

    async def _admin(self, group: WatchedGroup) -> AsyncAdmin:
        known = self._admins.get(group.name)
        if known is not None and known[0] is group:
            return known[1]
        admin = AsyncAdmin(group.address, name=self._name, timeout_s=self._timeout_s)
        # Nothing is waited for in it: no other task makes a second one meanwhile.
        await admin.__aenter__()
        self._admins[group.name] = group, admin
        if known is not None:
            known[1].close()
        return admin
