"""``AsyncShareConsumer``: takes messages singly, beside any number of others on the same queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from ledgermq.client.blocking.share_consumer import ITERATION_WAIT_S
from ledgermq.client.broker_connection import TIMEOUT_S, AsyncBrokerClient
from ledgermq.client.core.address import DEFAULT_ADDRESS
from ledgermq.client.core.link import NEVER
from ledgermq.client.core.wrong_calls import check_timeout
from ledgermq.client.first_contact import nodes_of
from ledgermq.client.groups.share_buffer import (
    WAIT_S_MAX,
    ShareBuffer,
    ShareOptions,
    TakenMessage,
)
from ledgermq.model.errors import ConfigError


class AsyncShareConsumer(AsyncBrokerClient):
    """A member of a share group, as ``ShareConsumer`` is one; what that waits for is awaited.

    One that is closed gives back what was not settled: by ``async with``.
    """

    NAME = "share-consumer"

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        group: str,
        topic: str,
        options: ShareOptions | None = None,
        name: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """A member, with the arguments of ``ShareConsumer``."""
        self.group = group
        self.topic = topic
        self.options = options or ShareOptions()
        self._buffer = ShareBuffer(group, topic, self.options)
        self._has_said = asyncio.Event()
        self._settling = asyncio.Lock()
        super().__init__(nodes_of(address), name=name, timeout_s=timeout_s)

    @property
    def in_flight(self) -> int:
        """Messages that were taken and of which nobody has said what is to become of them."""
        return self._buffer.in_flight

    async def poll(self, timeout: float | None = 1.0) -> list[TakenMessage]:
        """The next messages; see ``ShareConsumer.poll``."""
        check_timeout(timeout)
        await self._take(timeout)
        return self._buffer.give()

    async def __aiter__(self) -> AsyncIterator[TakenMessage]:
        """All messages, also those to come, until the consumer is closed. Each is to be settled;
        where as many are in flight as may be it waits for that.
        """
        while True:
            self._buffer.refresh()
            if not (self._buffer.is_ready or self._buffer.has_room):
                self._has_said.clear()
                await self._has_said.wait()
            elif not self._buffer.is_ready:
                await self._take(ITERATION_WAIT_S)
            elif self._buffer.is_due:
                await self._take(0)
            for message in self._buffer.give(1):
                yield message

    def accept(self, *messages: TakenMessage) -> None:
        """They are done with; see ``ShareConsumer.accept``."""
        self._buffer.say("accept", messages)
        self._has_said.set()

    def release(self, *messages: TakenMessage, delay_ms: int = 0) -> None:
        """They are handed out again, after ``delay_ms``; see ``ShareConsumer.release``."""
        self._buffer.say("release", messages, delay_ms)
        self._has_said.set()

    def reject(self, *messages: TakenMessage) -> None:
        """They become dead letters of the group; see ``ShareConsumer.reject``."""
        self._buffer.say("reject", messages)
        self._has_said.set()

    async def extend(self, *messages: TakenMessage, invisible_ms: int | None = None) -> bool:
        """Keep them for longer, at once; see ``ShareConsumer.extend``."""
        more = self.options.invisible_ms if invisible_ms is None else invisible_ms
        return await self.run(self._buffer.extend(messages, more))

    async def flush(self) -> list[TakenMessage]:
        """Tell the broker what was said of messages; see ``ShareConsumer.flush``."""
        return await self._settle()

    async def __aexit__(self, *error: object) -> None:
        try:
            if self._ended_by is None:
                async with self._settling:
                    await self.run(self._buffer.give_back())
        finally:
            await super().__aexit__(*error)

    async def _settle(self) -> list[TakenMessage]:
        # Of tasks that settle at the same time each returns when what it has said is told.
        async with self._settling:
            return await self.run(self._buffer.settle())

    async def _take(self, seconds: float | None) -> None:
        """Tell what was said, and take messages as far as there is room."""
        if not self._buffer.goes_along:
            await self._settle()
        await self._receive(seconds)

    async def _receive(self, seconds: float | None) -> None:
        if self._requests is None:
            raise ConfigError(f"not open: async with {type(self).__name__}(…)")
        loop = asyncio.get_running_loop()
        until = NEVER if seconds is None else loop.time() + seconds
        while True:
            wait_s = min(max(0.0, until - loop.time()), WAIT_S_MAX)
            steps = self._buffer.receive(int(wait_s * 1_000))
            if await self._requests.run(steps, timeout_s=self._timeout_s + wait_s):
                return
            if loop.time() >= until or self._buffer.in_flight:
                return
