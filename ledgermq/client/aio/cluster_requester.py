"""``AsyncRequesterOfGroups``: ``RequesterOfGroups`` for asyncio."""

from __future__ import annotations

from typing import Self

from ledgermq.client.aio.cluster_producer import AsyncProducerOfGroups
from ledgermq.client.aio.group_clients import AsyncGroupClients
from ledgermq.client.aio.requester import AsyncRequester
from ledgermq.client.calls import AwaitsCalls
from ledgermq.client.closing import AsyncClosing
from ledgermq.client.clusters.cluster_requester import ClusterRequests
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.client.tracing.tracing import Tracing


class AsyncRequesterOfGroups(ClusterRequests, AwaitsCalls, AsyncClosing):
    """What an ``AsyncRequester`` is in a cluster: it has one for each group that is asked."""

    def __init__(
        self,
        producer: AsyncProducerOfGroups,
        *,
        name: str,
        options: ProducerOptions | None,
        tracing: Tracing | None,
    ) -> None:
        """A requester that chooses by ``producer``, whose owner closes it."""

        def make(address: str) -> AsyncRequester:
            return AsyncRequester(
                address, name=name, options=options, tracing=tracing, one_group=True
            )

        self._producer = producer
        self._requesters = AsyncGroupClients(self._producer, make)
        self._chosen = self._requesters.chosen

    async def __aenter__(self) -> Self:
        return self

    def groups(self) -> list[str]:
        """Names of the groups that are known now."""
        return self._producer.groups()

    async def close(self) -> None:
        """Close; who waits for a reply gets none."""
        await self._requesters.close()
