"""``AsyncProducerOfGroups``: ``ProducerOfGroups`` for asyncio.

It stands on the one for threads, which has some anyway: its outcomes are handed to the loop, and
nothing that it waits for is waited for in the loop (docs/decisions/0088).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self, TypeVar, Unpack

from ledgermq.client.closing import AsyncClosing
from ledgermq.client.clusters.cluster_producer import ProducerOfGroups
from ledgermq.client.clusters.fail_over import ROOM_S
from ledgermq.client.clusters.used_group import UsedGroup
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.core.results import BatchResult, SendResult
from ledgermq.client.loop_watch import is_set_within
from ledgermq.client.sending.fail_over_time import FAIL_OVER_S
from ledgermq.client.sending.message_options import BatchOptions, MessageOptions, RequestOptions
from ledgermq.client.sending.outgoing import Body, OutgoingMessage
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.client.tracing.tracing import Tracing
from ledgermq.model.errors import BusyError, ConfigError, NotLeaderError

Result = TypeVar("Result")


class AsyncProducerOfGroups(AsyncClosing):
    """What an ``AsyncProducer`` is in a cluster."""

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        name: str = "producer",
        options: ProducerOptions | None = None,
        tracing: Tracing | None = None,
        keys: Mapping[str, str] | None = None,
        fail_over_s: float = FAIL_OVER_S,
    ) -> None:
        """A producer, with the arguments of ``ProducerOfGroups``."""

        def make() -> ProducerOfGroups:
            return ProducerOfGroups(
                addresses,
                name=name,
                options=options,
                tracing=tracing,
                keys=keys,
                fail_over_s=fail_over_s,
            )

        self._make = make
        self._made: ProducerOfGroups | None = None
        self._found: set[str] = set()

    async def __aenter__(self) -> Self:
        self._has_settled = asyncio.Event()
        self._made = self._make()
        return self

    def groups(self) -> list[str]:
        """Names of the groups that are known now."""
        return self._producer.groups()

    async def send(
        self, topic: str, body: Body, *, group: str = "", **options: Unpack[MessageOptions]
    ) -> SendResult:
        """Send one message; where it is stored. See ``AsyncProducer.send``."""
        submitted = await self.submit(topic, body, group=group, **options)
        return await submitted

    async def submit(
        self, topic: str, body: Body, *, group: str = "", **options: Unpack[MessageOptions]
    ) -> asyncio.Future[SendResult]:
        """Send one message once a group has room; see ``AsyncProducer.submit``."""

        def send(callback: Callable[[SendFuture[SendResult]], object]) -> object:
            return self._producer.send(
                topic, body, group=group, callback=callback, block=False, **options
            )

        return await self._submit(topic, group, send)

    async def send_batch(
        self,
        topic: str,
        messages: Sequence[Body] | Sequence[OutgoingMessage],
        *,
        group: str = "",
        **options: Unpack[BatchOptions],
    ) -> BatchResult:
        """Send messages to one queue of one group; see ``AsyncProducer.send_batch``."""
        submitted = await self.submit_batch(topic, messages, group=group, **options)
        return await submitted

    async def submit_batch(
        self,
        topic: str,
        messages: Sequence[Body] | Sequence[OutgoingMessage],
        *,
        group: str = "",
        **options: Unpack[BatchOptions],
    ) -> asyncio.Future[BatchResult]:
        """Send messages once a group has room; see ``AsyncProducer.submit_batch``."""

        def send(callback: Callable[[SendFuture[BatchResult]], object]) -> object:
            return self._producer.send_batch(
                topic, messages, group=group, callback=callback, block=False, **options
            )

        return await self._submit(topic, group, send)

    async def choose(
        self,
        topic: str,
        options: RequestOptions,
        *,
        until: float,
        group: str = "",
        size: int = 0,
    ) -> UsedGroup:
        """The group that a message would go to, for who sends it by other means.

        See ``ProducerOfGroups.choose``.
        """
        return await asyncio.to_thread(
            self._producer.choose, topic, options, until=until, group=group, size=size
        )

    def answering(self) -> list[str]:
        """Names of the groups whose leader answers now."""
        return self._producer.answering()

    def used(self, group: str) -> UsedGroup:
        """A group with its producer; see ``ProducerOfGroups.used``."""
        return self._producer.used(group)

    async def cluster(self) -> str:
        """Name of the cluster that the messages go to; see ``Producer.cluster``."""
        return await asyncio.to_thread(self._producer.cluster)

    async def reply(
        self,
        request: ReceivedMessage,
        body: Body,
        *,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
    ) -> SendResult:
        """Reply to a request, in the group that it was read in; see ``Producer.reply``."""

        def reply() -> SendResult:
            return self._producer.reply(
                request, body, keys=keys, properties=properties, flag=flag
            ).result()

        return await asyncio.to_thread(reply)

    async def cancel(self, unique_id: str, *, group: str = "") -> None:
        """Take back a message that waits in a group; see ``Producer.cancel``."""
        await asyncio.to_thread(self._producer.cancel, unique_id, group=group)

    async def flush(self, timeout: float | None = None) -> None:
        """Return when every message sent so far has its outcome; see ``ProducerOfGroups.flush``."""
        await asyncio.to_thread(self._producer.flush, timeout)

    async def close(self, timeout: float | None = None) -> None:
        """Flush, say goodbye to all nodes, close; what has no outcome after ``timeout`` fails."""
        made, self._made = self._made, None
        if made is not None:
            await asyncio.to_thread(made.close, timeout)

    @property
    def _producer(self) -> ProducerOfGroups:
        if self._made is None:
            raise ConfigError("producer is not open: async with AsyncProducer(…)")
        return self._made

    async def _submit(
        self,
        topic: str,
        group: str,
        send: Callable[[Callable[[SendFuture[Result]], object]], object],
    ) -> asyncio.Future[Result]:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Result] = loop.create_future()

        def take(done: SendFuture[Result]) -> None:
            self._has_settled.set()
            if outcome.done():
                return
            error = done.exception()
            if error is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(done.result())

        def settle(done: SendFuture[Result]) -> None:
            loop.call_soon_threadsafe(take, done)

        until = time.monotonic() + self._producer.options.timeout_s
        if not group and topic not in self._found:
            # Where nobody has it, it is made: that is waited for.
            await asyncio.to_thread(self._producer.find, topic, until)
            self._found.add(topic)
        while True:
            self._has_settled.clear()
            try:
                send(settle)
            except (BusyError, NotLeaderError):
                if time.monotonic() >= until:
                    raise
            else:
                return outcome
            await is_set_within(self._has_settled, ROOM_S)
