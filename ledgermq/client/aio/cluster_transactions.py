"""``AsyncClusterTransactionalProducer``: ``ClusterTransactionalProducer`` for asyncio."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from typing import Self

from ledgermq.client.aio.cluster_producer import AsyncClusterProducer
from ledgermq.client.aio.group_clients import AsyncGroupClients
from ledgermq.client.aio.transactions import (
    AsyncListener,
    AsyncTransaction,
    AsyncTransactionalProducer,
)
from ledgermq.client.calls import AwaitsCalls
from ledgermq.client.closing import AsyncClosing
from ledgermq.client.clusters.cluster_transactions import ClusterTransactions
from ledgermq.client.clusters.group_watch import ASKED_AGAIN_S
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.client.sending.transaction_parts import check_group
from ledgermq.client.tracing.tracing import Tracing
from ledgermq.model.errors import LedgerError
from ledgermq.model.names.transactions import Decision

logger = logging.getLogger(__name__)


class AsyncClusterTransactionalProducer(
    ClusterTransactions[AsyncTransaction, Awaitable[Decision | None]], AwaitsCalls, AsyncClosing
):
    """Sends messages in transactions, each in one group; see ``ClusterTransactionalProducer``.

    Used as ``async with AsyncClusterTransactionalProducer(…) as producer:``; a transaction in it as
    ``async with await producer.transaction("orders") as transaction:``.
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        group: str,
        listener: AsyncListener | None = None,
        name: str = "transactional-producer",
        options: ProducerOptions | None = None,
        tracing: Tracing | None = None,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        """A producer, with the arguments of ``ClusterTransactionalProducer``.

        Raises:
            ConfigError: the group has no name.
        """
        self.group = check_group(group)

        def make(address: str) -> AsyncTransactionalProducer:
            return AsyncTransactionalProducer(
                address,
                group=group,
                listener=listener,
                name=name,
                options=options,
                tracing=tracing,
            )

        self._timeout_s = (options or ProducerOptions()).timeout_s
        self._producer = AsyncClusterProducer(addresses, name=name, options=options, keys=keys)
        self._clients = AsyncGroupClients(self._producer, make)
        self._chosen = self._clients.chosen
        self._listens = listener is not None
        self._listening: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._producer.__aenter__()
        if self._listens:
            self._listening = asyncio.create_task(self._listen())
        return self

    async def close(self) -> None:
        """Say goodbye; open transactions are asked for later, of other producers of the group."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            await asyncio.wait([listening])
        await self._clients.close()
        await self._producer.close()

    async def _listen(self) -> None:
        """Have a producer in each group that answers: it may ask for what another one has left."""
        while True:
            for name in self._producer.answering():
                try:
                    await self._clients.of(self._producer.used(name))
                except LedgerError as error:
                    # It may have left the cluster just now.
                    logger.warning("group is not listened to: group=%s: %s", name, error)
            await asyncio.sleep(ASKED_AGAIN_S)
