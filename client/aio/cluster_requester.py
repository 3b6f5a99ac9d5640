"""``AsyncClusterRequester``: ``ClusterRequester`` for asyncio."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Self, Unpack

from ledgermq.client.aio.cluster_producer import AsyncClusterProducer
from ledgermq.client.aio.group_clients import AsyncGroupClients
from ledgermq.client.aio.requester import AsyncRequester
from ledgermq.client.closing import AsyncClosing
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.sending.message_options import RequestOptions, check_options
from ledgermq.client.sending.outgoing import Body
from ledgermq.client.sending.request_reply import REQUEST_TIMEOUT_S
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.client.tracing.tracing import Tracing


class AsyncClusterRequester(AsyncClosing):
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
        self._requesters = AsyncGroupClients(make)

    async def __aenter__(self) -> Self:
        await self._producer.__aenter__()
        return self

    async def request(
        self,
        topic: str,
        body: Body,
        *,
        group: str = "",
        timeout: float = REQUEST_TIMEOUT_S,
        **options: Unpack[RequestOptions],
    ) -> ReceivedMessage:
        """Send a request; the reply to it. See ``ClusterRequester.request``.

        Raises:
            TimedOutError: nobody has replied in time; the request may have been read all the same.
            LedgerError: the request was not stored; the class says why.
        """
        until = time.monotonic() + timeout
        check_options(options, RequestOptions)
        used = await self._producer.choose(topic, options, group=group, until=until)
        requester = await self._requesters.of(used)
        left = max(0.001, until - time.monotonic())
        return await requester.request(topic, body, timeout=left, **options)

    async def close(self) -> None:
        """Close; who waits for a reply gets none."""
        await self._requesters.close()
        await self._producer.close()
