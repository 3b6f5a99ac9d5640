"""Clients of one group each, for asyncio: ``GroupClients`` in a loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from ledgermq.client.aio.cluster_producer import AsyncProducerOfGroups
from ledgermq.client.clusters.group_watch import WatchedGroup
from ledgermq.client.clusters.used_group import UsedGroup
from ledgermq.client.sending.message_options import RequestOptions


class Opened(Protocol):
    """What is opened by ``async with``."""

    async def __aenter__(self) -> object: ...

    async def close(self) -> None:
        """Say goodbye."""


Client = TypeVar("Client", bound=Opened)


class AsyncGroupClients(Generic[Client]):
    """One client for each group that is used, which is open; another one where a group has moved.

    Those of different groups are opened at the same time.
    """

    def __init__(self, producer: AsyncProducerOfGroups, make: Callable[[str], Client]) -> None:
        """``make`` takes the group's address."""
        self._producer = producer
        self._make = make
        self._opening: dict[str, asyncio.Lock] = {}
        self._clients: dict[str, tuple[WatchedGroup, Client]] = {}
        self._retired: list[Client] = []

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

    async def chosen(
        self, topic: str, options: RequestOptions, *, group: str, until: float, size: int = 0
    ) -> Client:
        """The client of the group that a message would go to; see ``ProducerOfGroups.choose``."""
        used = await self._producer.choose(topic, options, group=group, until=until, size=size)
        return await self.of(used)

    async def close(self) -> None:
        """Close all."""
        clients = [*(client for _, client in self._clients.values()), *self._retired]
        self._clients.clear()
        self._retired.clear()
        for client in clients:
            await client.close()
