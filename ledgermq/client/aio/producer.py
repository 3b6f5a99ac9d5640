"""``AsyncProducer``: ``Producer`` for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Self, TypeVar, Unpack

from ledgermq.client.aio.contact import AwaitsContact
from ledgermq.client.closing import AsyncClosing
from ledgermq.client.core.address import local_host
from ledgermq.client.core.known_groups import KnownGroups
from ledgermq.client.core.link import Link, keys_of
from ledgermq.client.core.nodes import AnyLink, broker_link, is_one_node, writer_group
from ledgermq.client.core.questions import ask
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.core.results import BatchResult, SendResult
from ledgermq.client.first_contact import check_only_group, contact_steps, link_group
from ledgermq.client.loop_watch import AsyncRequests, LoopWatch
from ledgermq.client.sending.message_options import (
    NAMES,
    BatchOptions,
    MessageOptions,
    QueueChoice,
    named,
    outgoing,
    shared_outgoing,
)
from ledgermq.client.sending.outgoing import Body, OutgoingMessage
from ledgermq.client.sending.request_reply import reply_target
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.client.sending.send_pipeline import SendPipeline
from ledgermq.client.sending.sender import RECORD_AROUND, Sender, batch_size
from ledgermq.client.topic_writer import TopicWriter
from ledgermq.model.errors import ConfigError, TimedOutError

Result = TypeVar("Result")
Callback = Callable[[SendFuture[Result]], object]


class AsyncProducer(TopicWriter, AwaitsContact, AsyncClosing):
    """Sends messages to a node or to the leader of a group; see ``Producer`` for what it promises.

    Used as ``async with AsyncProducer(…) as producer:``; its tasks belong to one loop. In a cluster
    it has threads.
    """

    ASKS_NOBODY = frozenset({"check_group", "contact"})

    IN_CLUSTER = "ledgermq.client.aio.cluster_producer:AsyncProducerOfGroups"

    _link: AnyLink | None = None

    async def __aenter__(self) -> Self:
        self._asking: dict[str, asyncio.Lock] = {}
        self._room_waiters: list[asyncio.Future[None]] = []
        broker = broker_link(self._context, self._places, client=self._name)
        self._requests = AsyncRequests(broker, timeout_s=self.options.timeout_s)
        try:
            self._link = await self._writer_link(broker)
        except BaseException:
            self._requests.close()
            raise
        self._pipeline = SendPipeline(self._link, self.options)
        self._sender = Sender(self._pipeline, _Awaited(), born_host=local_host(self._places))
        self._exchange = self._sender.exchange(self._routes)
        self._watch = LoopWatch(self._link, lambda: self._pipeline.deadline, self._take)
        self._turn()
        self._open_contact()
        return self

    def groups(self) -> list[str]:
        """Names of the groups of nodes that are known now."""
        return link_group(self._requests.requests.link)

    async def send(
        self,
        topic: str,
        body: Body,
        *,
        group: str = "",
        **options: Unpack[MessageOptions],
    ) -> SendResult:
        """Send one message; where it is stored. Takes and raises what ``Producer.send`` does."""
        submitted = await self.submit(topic, body, group=group, **options)
        return await submitted

    async def submit(
        self,
        topic: str,
        body: Body,
        *,
        group: str = "",
        **options: Unpack[MessageOptions],
    ) -> asyncio.Future[SendResult]:
        """Send one message once there is room for it; the future of where it is stored."""
        self.check_group(group)
        if self._tracing is None:
            if type(body) is bytes and options.keys() <= NAMES:
                properties = named(options)
                lone: asyncio.Future[SendResult] | None
                lone = self._send_short(
                    lambda put: self._exchange.put(topic, body, properties, put)
                )
                if lone is not None:
                    return lone
            choice, message = outgoing(topic, body, **options)
            return await self.submit_to(choice, message, queues=await self.write_queues(topic))
        course = self._tracing.send(topic, body, options, client=self._name)
        with course.beginning():
            choice, message = outgoing(topic, body, **options)
            queues = await self.write_queues(topic)
            outcome = await self.submit_to(choice, message, queues=queues)
        outcome.add_done_callback(course.settle)
        return outcome

    async def submit_to(
        self, choice: QueueChoice, message: OutgoingMessage, *, queues: int = 1
    ) -> asyncio.Future[SendResult]:
        """Send one message to a topic whose number of queues is known; see ``submit``."""
        message = self._compressor.message(message)

        def put(now: float, callback: Callback[SendResult]) -> object:
            return self._sender.put_one(choice, message, queues=queues, now=now, callback=callback)

        return await self._put(len(message.body) + RECORD_AROUND, put)

    async def send_batch(
        self,
        topic: str,
        messages: Sequence[Body] | Sequence[OutgoingMessage],
        *,
        group: str = "",
        **options: Unpack[BatchOptions],
    ) -> BatchResult:
        """Send messages to one queue; where they are stored. See ``Producer.send_batch``."""
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
        """Send messages of one queue once there is room; the future of where they are stored."""
        self.check_group(group)
        if self._tracing is None:
            return await self._submit_batch(topic, messages, options)
        messages, course = self._tracing.send_batch(topic, messages, options, client=self._name)
        with course.beginning():
            outcome = await self._submit_batch(topic, messages, options)
        outcome.add_done_callback(course.settle_batch)
        return outcome

    async def _submit_batch(
        self,
        topic: str,
        messages: Sequence[Body] | Sequence[OutgoingMessage],
        options: BatchOptions,
    ) -> asyncio.Future[BatchResult]:
        if type(messages) is list and options.keys() <= NAMES:
            properties = named(options)
            batch: asyncio.Future[BatchResult] | None
            batch = self._send_short(
                lambda put: self._exchange.put_batch(topic, messages, properties, put)
            )
            if batch is not None:
                return batch
        choice, shared = shared_outgoing(topic, messages, "send_batch", **options)
        queues = await self.write_queues(topic)
        messages = self._compressor.batch(messages, shared)

        def put(now: float, callback: Callback[BatchResult]) -> object:
            return self._sender.put_batch(
                choice, messages, shared, queues=queues, now=now, callback=callback
            )

        return await self._put(batch_size(messages), put)

    async def cancel(self, unique_id: str, *, group: str = "") -> None:
        """Take back a message that waits; see ``Producer.cancel``."""
        self._open_link()
        self.check_group(group)
        await self._requests.cancel_timer(unique_id)

    async def cluster(self) -> str:
        """Name of the cluster that the messages go to; see ``Producer.cluster``."""
        link = self._requests.requests.link
        if link.last_welcome is None:
            # Any answer shows that the broker has told what it is.
            await self._requests.run(ask("topics"))
        assert link.last_welcome is not None
        return link.last_welcome.cluster

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
        target = reply_target(request, properties, cluster=await self.cluster())
        return await self.send(
            target.topic,
            body,
            tag=target.tag,
            keys=keys,
            properties=target.properties,
            flag=flag,
        )

    async def flush(self, timeout: float | None = None) -> None:
        """Return when every message has its outcome.

        Raises:
            TimedOutError: some have none after ``timeout`` seconds; they stay under way.
        """
        until = None if timeout is None else time.monotonic() + timeout
        self._pipeline.flush()
        self._turn()
        while self._pipeline.unanswered_bytes:
            if not await self._wait_for_news(until):
                raise TimedOutError(
                    "messages without an outcome",
                    bytes=self._pipeline.unanswered_bytes,
                    waited_s=timeout,
                )

    async def close(self, timeout: float | None = None) -> None:
        """Flush, say goodbye to the node, close; what has no outcome after ``timeout`` fails."""
        link, self._link = self._link, None
        if link is None:
            return
        self._end_contact()
        if self._several is not None:
            await self._several.close(timeout)
            return
        # What is left fails, each message with its own error; also when this task is cancelled.
        try:
            with suppress(TimedOutError):
                await self.flush(timeout)
        finally:
            self._pipeline.abandon()
            self._deliver()
            self._close_connections()
            self._wake_waiters()

    def check_group(self, group: str) -> None:
        """Refuse a group that is none of those that are known; an empty one is any.

        Raises:
            ConfigError: it is none.
        """
        if group:
            check_only_group(group, self._requests.requests.link)

    async def contact(self) -> KnownGroups | None:
        """What is known of the cluster; see ``Producer.contact``."""
        return await self._make_contact()

    def _close_connections(self) -> None:
        self._watch.close()
        self._pipeline.link.close()
        self._requests.close()

    async def _ask_groups(self) -> KnownGroups | None:
        self._open_link()
        return await self._requests.run(contact_steps())

    def _leave_group(self) -> None:
        self._close_connections()

    async def _writer_link(self, broker: AnyLink) -> AnyLink:
        if not is_one_node(self._places):
            return writer_group(self._context, self._places, client=self._name)
        place = self._places[0]
        endpoint = place.produce
        if not endpoint:
            # Any answer shows that the broker has told what it is.
            await self._requests.run(ask("topics"))
            assert broker.last_welcome is not None
            endpoint = place.produce_endpoint(broker.last_welcome.produce)
        return Link(
            self._context, endpoint, client=self._name, keys=keys_of(place), is_writers=True
        )

    async def _put(
        self, size: int, put: Callable[[float, Callback[Result]], object]
    ) -> asyncio.Future[Result]:
        outcome: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        settle = partial(_settle, outcome)
        until = time.monotonic() + self.options.timeout_s
        while True:
            link = self._open_link()
            if link.failure is not None:
                # A name that is unknown is asked for again with who comes.
                self._turn()
                if (failure := link.failure) is not None:
                    raise failure
            if self._sender.has_room(size):
                put(time.monotonic(), settle)
                self._turn()
                return outcome
            if not await self._wait_for_news(until):
                raise self._pipeline.no_room()

    def _send_short(self, put: Callable[[Callback[Result]], bool]) -> asyncio.Future[Result] | None:
        """The way of most messages and batches, of no options but names; None: not this one's."""
        if self._link is None:
            return None
        loop, watch = asyncio.get_running_loop(), self._watch
        if loop is not watch.loop:
            return None
        outcome: asyncio.Future[Result] = loop.create_future()
        if not put(partial(_settle, outcome)):
            return None
        if self._pipeline.expire_at < watch.timer_at:
            watch.update()
        return outcome

    async def _wait_for_news(self, until: float | None) -> bool:
        """Return after the next turn that took an answer; false when there is none by ``until``."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room_waiters.append(waiter)
        try:
            left = None if until is None else max(0.0, until - time.monotonic())
            async with asyncio.timeout(left):
                await waiter
        except TimeoutError:
            return False
        finally:
            if waiter in self._room_waiters:
                self._room_waiters.remove(waiter)
        return True

    def _take(self) -> None:
        """Take what has come; mostly these are answers, and nothing else waits."""
        has_taken = self._exchange.take()
        if has_taken:
            self._wake_waiters()
        if has_taken and not self._pipeline.unanswered_bytes:
            self._deliver()
        else:
            self._turn()

    def _turn(self) -> None:
        before = self._pipeline.unanswered_bytes, self._pipeline.form
        self._pipeline.advance(time.monotonic())
        if (self._pipeline.unanswered_bytes, self._pipeline.form) != before:
            self._wake_waiters()
        self._deliver()
        self._watch.update()

    def _wake_waiters(self) -> None:
        waiters, self._room_waiters = self._room_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _deliver(self) -> None:
        futures, self._pipeline.callbacks = self._pipeline.callbacks, []
        for future in futures:
            assert future.callback is not None
            # Each kind of future has a callback of its own kind.
            future.callback(future)  # type: ignore[arg-type]

    async def write_queues(self, topic: str) -> int:
        """How many queues ``topic`` has; see ``Producer.write_queues``."""
        queues = self._routes.fresh(topic, time.monotonic())
        if queues is not None:
            return queues
        self._open_link()
        async with self._asking.setdefault(topic, asyncio.Lock()):
            wait_s = self._routes.wait_s(topic)
            return await self._requests.run(self._routes.look_up(topic), timeout_s=wait_s)

    def _open_link(self) -> AnyLink:
        if self._link is None:
            raise ConfigError("producer is not open: async with AsyncProducer(…)")
        return self._link


def _settle(outcome: asyncio.Future[Result], future: SendFuture[Result]) -> None:
    """Have the outcome of a message that is done."""
    if outcome.done():
        return
    error = future.exception()
    if error is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(future.result())


class _Awaited:
    """Futures of the pipeline are only looked at when they are done."""

    def wait_for(self, future: SendFuture[object], timeout: float | None) -> None:
        raise AssertionError("an asyncio producer never blocks")
