"""``AsyncTransactionalProducerOfGroups``: ``TransactionalProducerOfGroups`` for asyncio."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Self

from ledgermq.client.aio.cluster_producer import AsyncProducerOfGroups
from ledgermq.client.aio.group_clients import AsyncGroupClients
from ledgermq.client.aio.transactions import AsyncListener, AsyncTransactionalProducer
from ledgermq.client.closing import AsyncClosing
from ledgermq.client.clusters.group_watch import ASKED_AGAIN_S
from ledgermq.client.sending.message_options import RequestOptions
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.client.sending.transaction_course import TransactionCourse
from ledgermq.client.tracing.tracing import Tracing
from ledgermq.model.errors import LedgerError

logger = logging.getLogger(__name__)


class AsyncTransactionalProducerOfGroups(AsyncClosing):
    """What an ``AsyncTransactionalProducer`` is in a cluster: it has one for each group."""

    def __init__(
        self,
        producer: AsyncProducerOfGroups,
        *,
        course: TransactionCourse,
        listener: AsyncListener | None,
        name: str,
        options: ProducerOptions,
        tracing: Tracing | None,
    ) -> None:
        """A producer that chooses by ``producer``; see ``TransactionalProducerOfGroups``."""

        def make(address: str) -> AsyncTransactionalProducer:
            return AsyncTransactionalProducer(
                address,
                group=course.group,
                listener=listener,
                name=name,
                options=options,
                tracing=tracing,
                one_group=True,
                course=course,
            )

        self._timeout_s = options.timeout_s
        self._producer = producer
        self._clients = AsyncGroupClients(self._producer, make)
        self._listens = listener is not None
        self._listening: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
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

    def groups(self) -> list[str]:
        """Names of the groups that are known now."""
        return self._producer.groups()

    async def chosen(
        self, topic: str, options: RequestOptions, group: str
    ) -> AsyncTransactionalProducer:
        """The producer of the group that a message would go to; see ``ProducerOfGroups.choose``."""
        until = time.monotonic() + self._timeout_s
        return await self._clients.chosen(topic, options, group=group, until=until)

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
