"""``AsyncRequester``: ``Requester`` for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Self, Unpack

from ledgermq.client.aio.consumer import AsyncConsumer
from ledgermq.client.aio.contact import AwaitsContact
from ledgermq.client.aio.producer import AsyncProducer
from ledgermq.client.blocking.requester import RETRY_S
from ledgermq.client.closing import AsyncClosing
from ledgermq.client.core.address import DEFAULT_ADDRESS
from ledgermq.client.core.known_groups import KnownGroups
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.first_contact import nodes_of
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.client.sending.message_options import RequestOptions, check_options
from ledgermq.client.sending.outgoing import Body
from ledgermq.client.sending.request_reply import (
    CORRELATION_ID,
    REQUEST_TIMEOUT_S,
    client_id,
    no_reply,
    reply_topic,
    request_properties,
)
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.client.tracing.tracing import Tracing
from ledgermq.model.errors import ClosedError, ConfigError, LedgerError
from ledgermq.model.message_filter import MessageFilter

logger = logging.getLogger(__name__)


class AsyncRequester(AwaitsContact, AsyncClosing):
    """Asks, and gets replies; see ``Requester``.

    Used as ``async with AsyncRequester(…) as requester:``, by any number of tasks of one loop.
    """

    IN_CLUSTER = "ledgermq.client.aio.cluster_clients:AsyncRequesterOfGroups"

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        name: str = "requester",
        options: ProducerOptions | None = None,
        tracing: Tracing | None = None,
        keys: Mapping[str, str] | None = None,
        one_group: bool = False,
    ) -> None:
        """A requester, with the arguments of ``Requester``."""
        self._address = nodes_of(address)
        self._name = name
        self._tracing = tracing
        self._client = client_id()
        self._producer = AsyncProducer(
            address, name=name, options=options, tracing=tracing, keys=keys, one_group=one_group
        )
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        self._is_wanted = asyncio.Event()
        self._last_error: LedgerError | None = None
        self._reader: asyncio.Task[None] | None = None
        self._open = AsyncExitStack()
        self._begin_contact(one_group=one_group)

    async def __aenter__(self) -> Self:
        self._told = self._several = None
        async with AsyncExitStack() as opening:
            await opening.enter_async_context(self._producer)
            told = await self._ask_groups()
            if told is not None:
                self._know(told)
                self._open = opening.pop_all()
                return self
            consumer = AsyncConsumer(
                self._address,
                topic=reply_topic(await self._producer.cluster()),
                start="last",
                one_group=True,
                filter=MessageFilter.by_tags(self._client),
                name=self._name,
                options=ConsumerOptions(hold_ms=30_000, timeout_s=self._producer.options.timeout_s),
            )
            await opening.enter_async_context(consumer)
            self._open = opening.pop_all()
        self._reader = asyncio.create_task(self._read(consumer))
        return self

    def groups(self) -> list[str]:
        """Names of the groups of nodes that are known now."""
        return self._producer.groups()

    async def request(
        self,
        topic: str,
        body: Body,
        *,
        group: str = "",
        timeout: float = REQUEST_TIMEOUT_S,
        **options: Unpack[RequestOptions],
    ) -> ReceivedMessage:
        """Send a request; the reply to it. See ``Requester.request``."""
        if self._reader is None:
            raise ConfigError("requester is not open: async with AsyncRequester(…)")
        correlation = uuid.uuid4().hex
        check_options(options, RequestOptions, "request")
        options["properties"] = request_properties(
            options.get("properties"),
            correlation_id=correlation,
            client=self._client,
            timeout_s=timeout,
        )
        reply: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation] = reply
        self._is_wanted.set()
        try:
            async with asyncio.timeout(timeout):
                await self._producer.send(topic, body, group=group, **options)
                return await reply
        except TimeoutError:
            raise no_reply(topic, correlation, timeout, self._last_error) from None
        finally:
            del self._waiting[correlation]
            if not self._waiting:
                self._is_wanted.clear()

    async def close(self) -> None:
        """Close; who waits for a reply gets none."""
        if self._several is not None:
            await self._several.close()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(ClosedError("requester is closed"))
        await self._open.aclose()

    async def _ask_groups(self) -> KnownGroups | None:
        return await self._producer.contact()

    async def _read(self, consumer: AsyncConsumer) -> None:
        while True:
            await self._is_wanted.wait()
            try:
                batch = await consumer.poll(None)
            except LedgerError as error:
                # Who waits is told at the end of his time; a new leader may be found before.
                logger.warning("replies not read: %s", error)
                self._last_error = error
                await asyncio.sleep(RETRY_S)
                continue
            self._last_error = None
            for message in batch:
                reply = self._waiting.get(message.properties.get(CORRELATION_ID, ""))
                if reply is not None and not reply.done():
                    reply.set_result(message)
