"""``AsyncConsumer``: ``Consumer`` for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import cached_property
from typing import Self

from ledgermq.client.aio.contact import AwaitsContact
from ledgermq.client.core.known_groups import KnownGroups
from ledgermq.client.core.read_traces import settling
from ledgermq.client.core.received import MessageBatch, ReceivedMessage, no_messages
from ledgermq.client.core.requests import Result, Steps
from ledgermq.client.core.wrong_calls import check_timeout
from ledgermq.client.first_contact import contact_steps, told_by
from ledgermq.client.loop_watch import AsyncRequests, is_set_within
from ledgermq.client.reading.pull_pipeline import OffsetReset, pulled_batch
from ledgermq.client.reading.retries import GivenBack, Reading, give_back_requests, given_back
from ledgermq.client.reading.start_offsets import checked_group
from ledgermq.client.reading.topic_reader import TopicReader
from ledgermq.model.errors import ConfigError


class AsyncConsumer(TopicReader, AwaitsContact):
    """Reads one topic; see ``Consumer``, which has the same arguments and the same methods.

    Used as ``async with AsyncConsumer(…) as consumer:``, by one task at a time. The groups of a
    cluster are found by a thread, and read in the loop.
    """

    IN_CLUSTER = "ledgermq.client.aio.cluster_consumers:AsyncConsumerOfGroups"
    OPENS_AGAIN = False

    _requests: AsyncRequests | None = None
    _reading: Reading | None = None

    @cached_property
    def _arrived(self) -> asyncio.Event:
        return asyncio.Event()

    @property
    def resets(self) -> list[OffsetReset]:
        """Queues that did not hold what came next, the latest ones: messages were skipped."""
        if self._several is not None:
            return [reset for one in self._several.consumers() for reset in one.resets]
        return list(self._begun().own.resets)

    async def __aenter__(self) -> Self:
        requests = self._requests = AsyncRequests(self._link, timeout_s=self.options.timeout_s)
        try:
            told = told_by(self._addresses) if self._asks else None
            if told is None and self._asks:
                told = await requests.run(contact_steps())
            if told is not None:
                self._know(told)
                return self
            offsets = await requests.run(self._starting_offsets())
        except BaseException:
            requests.close()
            raise
        self._reading = self._reading_of(requests.requests)
        self._begin_reading(self._reading, offsets)
        requests.on_turn = self._turn
        requests.turn()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._several is not None:
            # The thread that finds groups is waited for.
            await self._several.close()
        self.close()

    async def poll(self, timeout: float | None = 1.0) -> MessageBatch:
        """The next messages of one queue; see ``Consumer.poll``."""
        batch = await self._next_batch(timeout)
        if len(batch):
            self._begun().set_position(batch)
        return batch

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """All messages, also those to come; see ``Consumer.__iter__``."""
        if self._several is not None:
            async for message in self._several:
                yield message
            return
        pulls = self._begun()
        while self._requests is not None:
            for message in pulls.messages_of(await self._next_batch(None)):
                yield message

    async def pull(
        self, queue_id: int, offset: int, *, messages_max: int | None = None, hold_ms: int = 0
    ) -> MessageBatch:
        """Messages of one queue from ``offset`` on, apart from what ``poll`` gives."""
        request = self._pull_request(queue_id, offset, messages_max, hold_ms)
        await self._open().ask(request)
        return pulled_batch(self.topic, queue_id, request)

    async def retry_later(
        self,
        message: ReceivedMessage,
        *more: ReceivedMessage,
        delay_level: int = 0,
        times_max: int | None = None,
    ) -> list[GivenBack]:
        """Give messages back that could not be processed; see ``Consumer.retry_later``."""
        group, requests = checked_group(self.group), self._open()
        asked = give_back_requests(
            (message, *more), group, delay_level=delay_level, times_max=times_max
        )
        settled = (message, *more)
        with settling(self._tracing, "retry_later", message.topic, self._reader, settled):
            await requests.ask_all(asked)
            found = [given_back(request) for request in asked]
        retries = self._begun().retries
        if retries is not None:
            retries.look()
        return found

    async def run(self, steps: Steps[Result]) -> Result:
        """What ``steps`` come to; for the questions that both forms of consumer ask."""
        return await self._open().run(steps)

    def close(self) -> None:
        """Say goodbye to the node and close; nothing is committed. Who polls gets no messages."""
        if self._several is not None:
            self._several._close_at_once()
        if self._requests is not None:
            self._requests.close()
        self._requests = None
        self._arrived.set()

    async def _ask_groups(self) -> KnownGroups | None:
        return await self._open().run(contact_steps())

    def _leave_group(self) -> None:
        if self._requests is not None:
            self._requests.close()

    async def _next_batch(self, timeout: float | None) -> MessageBatch:
        pulls = self._begun()
        since_ns = 0 if self._tracing is None else time.time_ns()
        check_timeout(timeout)
        until = None if timeout is None else time.monotonic() + timeout
        while (requests := self._requests) is not None:
            batch = pulls.take()
            if batch is not None:
                # The next question leaves before the application works on this answer.
                requests.turn()
                if self._tracing is not None:
                    self._tracing.received(batch, self._reader, since_ns)
                return batch
            self._arrived.clear()
            requests.turn()
            if self._arrived.is_set():
                continue
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                break
            if not await is_set_within(self._arrived, left):
                break
        return no_messages(self.topic)

    def _turn(self) -> None:
        pulls = self._begun()
        pulls.advance(time.monotonic())
        if pulls.has_news:
            self._arrived.set()

    def _open(self) -> AsyncRequests:
        if self._requests is None:
            raise ConfigError("consumer is not open: async with AsyncConsumer(…)")
        return self._requests

    def _begun(self) -> Reading:
        if self._reading is None:
            raise ConfigError("consumer is not open: async with AsyncConsumer(…)")
        return self._reading
