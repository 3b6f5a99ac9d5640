"""``AsyncClusterRequester``: ``ClusterRequester`` for asyncio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from ledgermq.client.aio.cluster_producer import AsyncClusterProducer
from ledgermq.client.aio.group_clients import AsyncGroupClients
from ledgermq.client.aio.requester import AsyncRequester
from ledgermq.client.calls import AwaitsCalls
from ledgermq.client.closing import AsyncClosing
from ledgermq.client.clusters.cluster_requester import ClusterRequests
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.client.tracing.tracing import Tracing


class AsyncClusterRequester(ClusterRequests, AwaitsCalls, AsyncClosing):
    """Asks in any group that has the topic, and gets its reply; see ``ClusterRequester``.

    Used as ``async with AsyncClusterRequester(…) as requester:``, by any number of tasks of a loop.
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        name: str = "requester",
        options: ProducerOptions | None = None,
        tracing: Tracing | None = None,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        """A requester, with the arguments of ``ClusterRequester``."""

        def make(address: str) -> AsyncRequester:
            return AsyncRequester(address, name=name, options=options, tracing=tracing)

        self._producer = AsyncClusterProducer(addresses, name=name, options=options, keys=keys)
        self._requesters = AsyncGroupClients(self._producer, make)
        self._chosen = self._requesters.chosen

    async def __aenter__(self) -> Self:
        await self._producer.__aenter__()
        return self

    async def close(self) -> None:
        """Close; who waits for a reply gets none."""
        await self._requesters.close()
        await self._producer.close()
