"""Requesters and producers of transactions in a cluster, for asyncio: one for each group.

Each has connections of its own; which group it is for a ``ProducerOfGroups`` chooses.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from typing import Any, Generic, TypeVar

from ledgermq.client.aio.producer import AsyncProducer
from ledgermq.client.aio.requester import AsyncRequester
from ledgermq.client.aio.transactions import AsyncTransactionalProducer
from ledgermq.client.calls import AwaitsCalls
from ledgermq.client.closing import AsyncClosing
from ledgermq.client.clusters.cluster_clients import ClusterRequests
from ledgermq.client.clusters.cluster_producer import ProducerOfGroups
from ledgermq.client.clusters.group_watch import ASKED_AGAIN_S, WatchedGroup
from ledgermq.client.clusters.used_group import UsedGroup
from ledgermq.client.core.known_groups import KnownGroups
from ledgermq.client.sending.message_options import RequestOptions
from ledgermq.model.errors import LedgerError

logger = logging.getLogger(__name__)

Client = TypeVar("Client", bound="AsyncRequester | AsyncTransactionalProducer")


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
