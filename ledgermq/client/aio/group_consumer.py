"""``AsyncGroupConsumer``: ``GroupConsumer`` for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import cached_property
from typing import Self

from ledgermq.client.aio.contact import AwaitsContact
from ledgermq.client.blocking.requester import RETRY_S
from ledgermq.client.closing import AsyncClosing
from ledgermq.client.core.known_groups import KnownGroups
from ledgermq.client.core.read_traces import settling
from ledgermq.client.core.received import MessageBatch, ReceivedMessage, no_messages
from ledgermq.client.core.requests import Result, Steps
from ledgermq.client.core.wrong_calls import check_timeout
from ledgermq.client.first_contact import contact_steps
from ledgermq.client.groups.group_member import Course, GroupMember, Notice
from ledgermq.client.groups.heartbeats import GOODBYE_S
from ledgermq.client.groups.rebalance_listener import tell
from ledgermq.client.groups.subscriber import Subscriber
from ledgermq.client.loop_watch import AsyncRequests, is_set_within
from ledgermq.client.reading.retries import GivenBack, given_back
from ledgermq.model.errors import (
    ConfigError,
    LedgerError,
    NotLeaderError,
    TimedOutError,
    UnreachableError,
)


class AsyncGroupConsumer(Subscriber, AwaitsContact, AsyncClosing):
    """A member of a group; see ``GroupConsumer``, which has the same arguments and methods.

    Used as ``async with AsyncGroupConsumer(…) as consumer:``, before or after ``subscribe``, by one
    task at a time. It joins once it is open and has a topic; one that subscribes later, with its
    first call. Its heartbeats need the loop: a task that blocks it for longer than the broker waits
    loses the queues. In a cluster groups are found, and heartbeats sent, by threads.
    """

    IN_CLUSTER = "ledgermq.client.aio.cluster_consumers:AsyncGroupConsumerOfGroups"
    OPENS_AGAIN = False

    _requests: AsyncRequests | None = None
    _finding: asyncio.Task[None] | None = None
    _refused: LedgerError | None = None
    _polled_at = 0.0
    _is_silent = False
    _is_closing = False

    @cached_property
    def _arrived(self) -> asyncio.Event:
        return asyncio.Event()

    async def __aenter__(self) -> Self:
        requests = AsyncRequests(self._link, timeout_s=self.options.timeout_s)
        try:
            if not self._asks and self._subscriptions.are_there:
                self._join(requests.requests)
        except BaseException:
            requests.close()
            raise
        self._requests, self._is_closing = requests, False
        self._polled_at = time.monotonic()
        requests.on_turn = self._turn
        self._open_contact()
        # It waits for no longer than it is told to, and gives nothing where nobody answers.
        vars(self).pop("poll", None)
        self._finding = None
        if self._asks and self._subscriptions.are_there:
            self._begin_to_find()
        requests.turn()
        return self

    def _begin_to_find(self) -> None:
        self._subscriptions.fixed()
        self._finding = asyncio.create_task(self._find())

    async def _find(self) -> None:
        """Come to be a member, in one group of nodes or in all of a cluster."""
        while True:
            try:
                await self._make_contact()
            except LedgerError as error:
                waits = isinstance(error, NotLeaderError | TimedOutError)
                if waits and not isinstance(error, UnreachableError):
                    await asyncio.sleep(RETRY_S)
                    continue
                self._refused = error
            self._arrived.set()
            return

    def _know(self, told: KnownGroups | None) -> None:
        if told is None and self._requests is not None and not self._is_closing:
            self._join(self._requests.requests)
            self._polled_at = time.monotonic()
        super()._know(told)
        if self._requests is not None and self._several is None:
            self._requests.turn()

    async def poll(self, timeout: float | None = 1.0) -> MessageBatch:
        """The next messages of one queue; see ``GroupConsumer.poll``."""
        return await self._next_batch(timeout)

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """All messages, also those to come; see ``GroupConsumer.__iter__``."""
        while self._requests is not None and not self._is_closing:
            batch = await self._next_batch(None)
            if self._several is not None:
                for message in self._several.messages_of(batch):
                    yield message
            elif len(batch):
                for message in self._begun().reader.messages_of(batch):
                    yield message

    async def retry_later(
        self,
        message: ReceivedMessage,
        *more: ReceivedMessage,
        delay_level: int = 0,
        times_max: int | None = None,
    ) -> list[GivenBack]:
        """Give messages back that could not be processed; see ``GroupConsumer.retry_later``."""
        member = self._begun()
        requests = member.give_back((message, *more), delay_level=delay_level, times_max=times_max)
        settled = (message, *more)
        with settling(self._tracing, "retry_later", message.topic, self._reader, settled):
            await self._open().ask_all(requests)
            return [given_back(request) for request in requests]

    async def run(self, steps: Steps[Result]) -> Result:
        """What ``steps`` come to; for the questions that both forms of consumer ask."""
        return await self._open().run(steps)

    async def close(self) -> None:
        """Give the queues away, and close; see ``GroupConsumer.close``. Who polls gets nothing."""
        requests = self._requests
        if requests is None or self._is_closing:
            return
        # Its listener may still commit: only then it is not open any more.
        self._is_closing = True
        self._end_contact()
        self._arrived.set()
        if self._finding is not None:
            self._finding.cancel()
        try:
            if self._several is not None:
                await self._several.close()
            elif self._member is not None:
                await self._say_goodbye(requests, self._member)
        finally:
            self._requests = None
            requests.close()
            self._arrived.set()

    async def _say_goodbye(self, requests: AsyncRequests, member: GroupMember) -> None:
        try:
            notice = member.last_notice()
            if notice is not None:
                await self._tell(notice)
        finally:
            requests.timeout_s = min(requests.timeout_s, GOODBYE_S)
            try:
                await self._follow(requests, member.leave())
            except LedgerError as error:
                # Nobody leads now: the next leader lets go of a member that it does not hear of.
                if not error.retriable:
                    raise

    async def _next_batch(self, timeout: float | None) -> MessageBatch:
        since_ns = 0 if self._tracing is None else time.time_ns()
        check_timeout(timeout)
        until = None if timeout is None else time.monotonic() + timeout
        if self._is_asking and not await self._is_told_by(until):
            return no_messages("")
        if self._several is not None:
            left = None if until is None else max(0.0, until - time.monotonic())
            given: MessageBatch = await self._several.poll(left)
            return given
        member = self._begun()
        while (requests := self._requests) is not None and not self._is_closing:
            self._polled_at = time.monotonic()
            self._arrived.clear()
            requests.turn()
            news = member.news(time.monotonic())
            if news is not None:
                await self._follow(requests, member.rebalance(news))
                if self._is_closing:
                    break
                requests.turn()
            batch = member.reader.take() if member.may_give(time.monotonic()) else None
            if batch is not None:
                # The next question leaves before the application works on this answer.
                requests.turn()
                if self._tracing is not None:
                    self._tracing.received(batch, self._reader, since_ns)
                member.reader.note_given(batch)
                return batch
            if self._arrived.is_set():
                continue
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                break
            if not await is_set_within(self._arrived, left):
                break
        return no_messages("")

    async def _is_told_by(self, until: float | None) -> bool:
        """Whether it is known at ``until`` whether there is one group of nodes."""
        if self._finding is None:
            self._begin_to_find()
        while self._is_asking and not self._is_closing:
            if self._refused is not None:
                error, self._refused = self._refused, None
                self._finding = asyncio.create_task(self._find())
                raise error
            self._arrived.clear()
            left = None if until is None else until - time.monotonic()
            if not await is_set_within(self._arrived, left):
                return False
        return not self._is_closing

    async def _ask_groups(self) -> KnownGroups | None:
        return await self._open().run(contact_steps())

    def _leave_group(self) -> None:
        self._open().close()

    async def _follow(self, requests: AsyncRequests, course: Course) -> None:
        """Do what a member does next."""
        for step in course:
            if isinstance(step, Notice):
                await self._tell(step)
            else:
                step.deadline = time.monotonic() + requests.timeout_s
                await requests.ask(step)

    async def _tell(self, notice: Notice) -> None:
        answer = tell(self._listener, notice)
        if answer is not None:
            await answer

    def _turn(self) -> None:
        member, requests = self._member, self._requests
        if member is None:
            # It is not known yet of which group of nodes it is a member.
            return
        now = time.monotonic()
        if requests is not None:
            is_silent = now >= self._polled_at + self.group_options.poll_interval_max_s
            if is_silent != self._is_silent:
                self._is_silent = is_silent
                member.heartbeats.fall_silent(is_silent)
        member.reader.advance(now)
        while requests is not None and member.heartbeats.is_due:
            member.heartbeats.advance(requests.requests, now)
            member.reader.advance(now)
        has_batch = member.reader.has_news and member.may_give(now)
        if has_batch or member.has_news(now):
            self._arrived.set()

    def _open(self) -> AsyncRequests:
        if self._requests is None:
            raise ConfigError("consumer is not open: async with AsyncGroupConsumer(…)")
        return self._requests

    def _begun(self) -> GroupMember:
        if self._member is None:
            requests = self._open()
            if not self._asks:
                return self._join(requests.requests)
            raise ConfigError("consumer has not joined its group yet: poll first")
        return self._member
