"""``AsyncProducerOfGroups``: ``ProducerOfGroups`` for asyncio.

It stands on the one for threads, which has some anyway: its outcomes are handed to the loop, and
nothing that it waits for is waited for in the loop (docs/decisions/0088).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, Unpack

from ledgermq.client.aio.producer import AsyncProducer
from ledgermq.client.closing import AsyncClosing
from ledgermq.client.clusters.cluster_producer import ProducerOfGroups
from ledgermq.client.clusters.fail_over import ROOM_S
from ledgermq.client.core.known_groups import KnownGroups
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.core.results import BatchResult, SendResult
from ledgermq.client.loop_watch import is_set_within
from ledgermq.client.sending.message_options import BatchOptions, MessageOptions
from ledgermq.client.sending.outgoing import Body, OutgoingMessage
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.model.errors import BusyError, NotLeaderError

Result = TypeVar("Result")


class AsyncProducerOfGroups(AsyncClosing):
    """What an ``AsyncProducer`` is in a cluster; its verbs are told in ``AsyncProducer``.

    Attributes:
        threads: what it stands on.
    """

    def __init__(self, ordinary: AsyncProducer, told: KnownGroups) -> None:
        """A producer in the place of ``ordinary``."""
        self._has_settled = asyncio.Event()
        self.threads = ProducerOfGroups(ordinary, told)
        self._found: set[str] = set()

    def groups(self) -> list[str]:
        """Names of the groups that are known now."""
        return self.threads.groups()

    async def send(self, topic: str, body: Body, **options: Any) -> SendResult:
        """Send one message; where it is stored."""
        return await (await self.submit(topic, body, **options))

    async def submit(
        self, topic: str, body: Body, *, group: str = "", **options: Unpack[MessageOptions]
    ) -> asyncio.Future[SendResult]:
        """Send one message once a group has room."""
        send = partial(self.threads.send, topic, body, group=group, block=False, **options)
        return await self._submit(topic, group, send)

    async def send_batch(
        self, topic: str, messages: Sequence[Body] | Sequence[OutgoingMessage], **options: Any
    ) -> BatchResult:
        """Send messages to one queue of one group."""
        return await (await self.submit_batch(topic, messages, **options))

    async def submit_batch(
        self,
        topic: str,
        messages: Sequence[Body] | Sequence[OutgoingMessage],
        *,
        group: str = "",
        **options: Unpack[BatchOptions],
    ) -> asyncio.Future[BatchResult]:
        """Send messages once a group has room."""
        send = partial(
            self.threads.send_batch, topic, messages, group=group, block=False, **options
        )
        return await self._submit(topic, group, send)

    async def cluster(self) -> str:
        """Name of the cluster that the messages go to."""
        return await asyncio.to_thread(self.threads.cluster)

    async def reply(self, request: ReceivedMessage, body: Body, **options: Any) -> SendResult:
        """Reply to a request, in the group that it was read in."""
        reply = partial(self.threads.reply, request, body, **options)
        return await asyncio.to_thread(lambda: reply().result())

    async def cancel(self, unique_id: str, *, group: str = "") -> None:
        """Take back a message that waits in a group."""
        await asyncio.to_thread(self.threads.cancel, unique_id, group=group)

    async def flush(self, timeout: float | None = None) -> None:
        """Return when every message sent so far has its outcome."""
        await asyncio.to_thread(self.threads.flush, timeout)

    async def close(self, timeout: float | None = None) -> None:
        """Flush, say goodbye to all nodes, close; what has no outcome after ``timeout`` fails."""
        await asyncio.to_thread(self.threads.close, timeout)

    async def _submit(
        self, topic: str, group: str, send: Callable[..., SendFuture[Result]]
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

        until = time.monotonic() + self.threads.options.timeout_s
        if not group and topic not in self._found:
            # Where nobody has it, it is made: that is waited for.
            await asyncio.to_thread(self.threads.find, topic, until)
            self._found.add(topic)
        while True:
            self._has_settled.clear()
            try:
                send(callback=settle)
            except (BusyError, NotLeaderError):
                if time.monotonic() >= until:
                    raise
            else:
                return outcome
            await is_set_within(self._has_settled, ROOM_S)
