"""``AsyncConsumer``: ``Consumer`` for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from types import TracebackType
from typing import Self

import zmq

from ledgermq.client.address import DEFAULT_ADDRESS, parse_addresses
from ledgermq.client.group import broker_link
from ledgermq.client.link import Context
from ledgermq.client.loop_watch import AsyncRequests
from ledgermq.client.pull_pipeline import (
    ConsumerOptions,
    OffsetReset,
    PullPipeline,
    checked_filter,
    pull_request,
    pulled_batch,
)
from ledgermq.client.received import MessageBatch, ReceivedMessage, no_messages
from ledgermq.client.retries import (
    GivenBack,
    Marks,
    Reading,
    RetryPulls,
    give_back_requests,
    given_back,
    marked,
    reads_retries,
)
from ledgermq.client.start_offsets import (
    Start,
    check_start,
    checked_group,
    ending_offsets,
    starting_offsets,
)
from ledgermq.model.errors import ConfigError
from ledgermq.model.message_filter import ALL_TAGS, MessageFilter
from ledgermq.wire.pull_frame import Pull


class AsyncConsumer:
    """Reads one topic; see ``Consumer``, which has the same arguments and the same methods.

    Used as ``async with AsyncConsumer(…) as consumer:``, by one task at a time.
    """

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        topic: str,
        group: str | None = None,
        queues: Iterable[int] | None = None,
        start: Start = "stored",
        tags: str = ALL_TAGS,
        filter: MessageFilter | None = None,
        name: str = "consumer",
        options: ConsumerOptions | None = None,
        retries: bool | None = None,
    ) -> None:
        self.topic = topic
        self.group = group
        self.options = options or ConsumerOptions()
        context: Context = zmq.Context.instance()
        self._link = broker_link(context, parse_addresses(address), client=name, group=group or "")
        self._filter = checked_filter(tags, filter)
        self._reads_retries = reads_retries(group, queues, retries)
        self._queues = None if queues is None else list(queues)
        self._start = check_start(start)
        self._requests: AsyncRequests | None = None
        self._reading: Reading | None = None
        self._arrived = asyncio.Event()

    @property
    def resets(self) -> list[OffsetReset]:
        """Queues that did not hold what came next, the latest ones: messages were skipped."""
        return list(self._begun().own.resets)

    async def __aenter__(self) -> Self:
        requests = self._requests = AsyncRequests(self._link, timeout_s=self.options.timeout_s)
        try:
            offsets = await requests.run(
                starting_offsets(self.topic, self.group, self._queues, self._start)
            )
        except BaseException:
            requests.close()
            raise
        pulls = PullPipeline(requests.requests, self.topic, self._filter, self.options)
        pulls.begin(offsets, follows_route=self._queues is None, now=time.monotonic())
        retries = None
        if self._reads_retries:
            retries = RetryPulls(requests.requests, checked_group(self.group), self.options)
        self._reading = Reading(pulls, retries)
        requests.on_turn = self._turn
        requests.turn()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def poll(self, timeout: float | None = 1.0) -> MessageBatch:
        """The next messages of one queue; an empty batch when there are none within ``timeout``.

        Raises:
            NotLeaderError: no broker answers.
        """
        batch = await self._next_batch(timeout)
        if len(batch):
            self._begun().set_position(batch)
        return batch

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """All messages, also those to come, until the consumer is closed.

        A message counts as read when it is given. After ``seek`` it goes on there.
        """
        pulls = self._begun()
        while self._requests is not None:
            for message in pulls.messages_of(await self._next_batch(None)):
                yield message

    async def pull(
        self, queue_id: int, offset: int, *, messages_max: int | None = None, hold_ms: int = 0
    ) -> MessageBatch:
        """Messages of one queue from ``offset`` on, apart from what ``poll`` gives."""
        pull = Pull(
            0,
            self.topic,
            queue_id,
            offset,
            messages_max or self.options.messages_max,
            self.options.bytes_max,
            hold_ms,
        )
        until = time.monotonic() + hold_ms / 1_000 + self.options.timeout_s
        request = pull_request(pull, self._link, deadline=until)
        await self._open().ask(request)
        return pulled_batch(self.topic, queue_id, request)

    def seek(self, queue_id: int, offset: int) -> None:
        """Let ``poll`` go on at ``offset`` of a queue."""
        self._begun().own.seek(queue_id, offset)

    def offsets(self) -> dict[int, int]:
        """Queue offset of the next message to be given, by queue id."""
        return self._begun().own.positions()

    async def committed(self) -> dict[int, int]:
        """The group's offsets in the broker, by queue id; queues never committed are left out."""
        return await self._open().group_offset(checked_group(self.group), self.topic)

    async def commit(self, offsets: Marks = None) -> None:
        """Note in the broker what the group has read; see ``Consumer.commit``."""
        group, requests = checked_group(self.group), self._open()
        for topic, noted in marked(offsets, self.topic, self._begun).items():
            await requests.group_commit(group, topic, noted)

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
        await requests.ask_all(asked)
        found = [given_back(request) for request in asked]
        retries = self._begun().retries
        if retries is not None:
            retries.look()
        return found

    async def ends(self) -> dict[int, int]:
        """Queue offset behind the last message of each queue, now."""
        return await self._open().run(ending_offsets(self.topic, self.offsets()))

    def close(self) -> None:
        """Say goodbye to the node and close; nothing is committed. Who polls gets no messages."""
        if self._requests is not None:
            self._requests.close()
        self._requests = None
        self._arrived.set()

    async def _next_batch(self, timeout: float | None) -> MessageBatch:
        pulls = self._begun()
        until = None if timeout is None else time.monotonic() + timeout
        while (requests := self._requests) is not None:
            batch = pulls.take()
            if batch is not None:
                # The next question leaves before the application works on this answer.
                requests.turn()
                return batch
            self._arrived.clear()
            requests.turn()
            if self._arrived.is_set():
                continue
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                break
            try:
                await asyncio.wait_for(self._arrived.wait(), left)
            except TimeoutError:
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
