"""``AsyncClusterTransactionalProducer``: ``ClusterTransactionalProducer`` for asyncio."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Self, Unpack

from ledgermq.client.aio.cluster_producer import AsyncClusterProducer
from ledgermq.client.aio.group_clients import AsyncGroupClients
from ledgermq.client.aio.transactions import (
    AsyncListener,
    AsyncTransaction,
    AsyncTransactionalProducer,
)
from ledgermq.client.closing import AsyncClosing
from ledgermq.client.clusters.group_watch import ASKED_AGAIN_S
from ledgermq.client.sending.known_transactions import TransactionResult
from ledgermq.client.sending.message_options import HalfOptions, RequestOptions
from ledgermq.client.sending.outgoing import Body
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.client.sending.transaction_parts import check_group
from ledgermq.client.tracing.tracing import Tracing
from ledgermq.model.errors import LedgerError
from ledgermq.model.names.transactions import Decision

logger = logging.getLogger(__name__)


class AsyncClusterTransactionalProducer(AsyncClosing):
    """Sends messages in transactions, each in one group; see ``ClusterTransactionalProducer``.

    Used as ``async with AsyncClusterTransactionalProducer(…) as producer:``.
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
        self._clients = AsyncGroupClients(make)
        self._listens = listener is not None
        self._listening: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._producer.__aenter__()
        if self._listens:
            self._listening = asyncio.create_task(self._listen())
        return self

    async def transaction(self, topic: str, *, group: str = "") -> AsyncTransaction:
        """Begin a transaction in a group that has ``topic``.

        See ``ClusterTransactionalProducer.transaction``; used as ``async with await
        producer.transaction("orders") as transaction:``.

        Raises:
            LedgerError: no group can be chosen, or reached.
        """
        return (await self._chosen(topic, {}, group)).transaction()

    async def send(
        self,
        topic: str,
        body: Body,
        local: Callable[[str], Awaitable[Decision | None]],
        *,
        group: str = "",
        **options: Unpack[HalfOptions],
    ) -> TransactionResult:
        """Store a half message, do what it tells of, and end it as that went.

        See ``ClusterTransactionalProducer.send``; ``local`` is awaited.
        """
        producer = await self._chosen(topic, options, group)
        return await producer.send(topic, body, local, **options)

    async def close(self) -> None:
        """Say goodbye; open transactions are asked for later, of other producers of the group."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            await asyncio.wait([listening])
        await self._clients.close()
        await self._producer.close()

    async def _chosen(
        self, topic: str, options: RequestOptions, group: str
    ) -> AsyncTransactionalProducer:
        until = time.monotonic() + self._timeout_s
        used = await self._producer.choose(topic, options, group=group, until=until)
        return await self._clients.of(used)

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
