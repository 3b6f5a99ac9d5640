"""``GroupConsumer``: shares the queues of topics with the other members of its consumer group."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cached_property

from ledgermq.client.blocking.broker import Broker, wait_for_link
from ledgermq.client.blocking.consumer import ITERATION_POLL_S
from ledgermq.client.blocking.heartbeat_thread import HeartbeatThread
from ledgermq.client.closing import Closing
from ledgermq.client.core.link import NEVER
from ledgermq.client.core.read_traces import settling
from ledgermq.client.core.received import MessageBatch, ReceivedMessage, no_messages
from ledgermq.client.core.requests import Result, Steps
from ledgermq.client.groups.group_member import Course, GroupMember, Notice
from ledgermq.client.groups.heartbeats import GOODBYE_S
from ledgermq.client.groups.rebalance_listener import tell_at_once
from ledgermq.client.groups.subscriber import Subscriber
from ledgermq.client.reading.retries import GivenBack, given_back
from ledgermq.model.errors import ConfigError, LedgerError


class GroupConsumer(Subscriber, Closing):
    """A member of a group: each queue is read by one member, and goes to others when it leaves.

    Messages are given at least once: what was read is noted by ``commit``, and before a queue is
    given away. One thread at a time may use a consumer; its heartbeats have a thread of their own.
    """

    _thread: HeartbeatThread | None = None
    _is_closed = False
    _has_left = False

    @cached_property
    def _broker(self) -> Broker:
        return Broker(self._link, timeout_s=self.options.timeout_s)

    def poll(self, timeout: float | None = 1.0) -> MessageBatch:
        """The next messages of one queue; an empty batch when there are none within ``timeout``.

        They count as read: ``commit`` afterwards notes them, and so does the next ``poll`` that
        gives their queue away. In ordered mode their queue gives no others before ``commit``.

        Args:
            timeout: seconds; without end when ``None``.

        Raises:
            NotLeaderError: no broker answers.
            NoPermissionError: the group may not consume, or another consumer has this one's name.
            GroupActiveError: RocketMQ's clients consume for the group. Its consumer is not let in
                later, when they have gone; another one is.
        """
        return self._next_batch(timeout)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """All messages, also those to come, until the consumer is closed.

        A message counts as read when it is given. After ``seek`` it goes on there.
        """
        while not self._is_closed:
            batch = self._next_batch(ITERATION_POLL_S)
            if len(batch):
                yield from self._begun().reader.messages_of(batch)

    def retry_later(
        self,
        message: ReceivedMessage,
        *more: ReceivedMessage,
        delay_level: int = 0,
        times_max: int | None = None,
    ) -> list[GivenBack]:
        """Give messages back that could not be processed: the group gets them again later.

        They come from the group's retry topic, whose queues the members share like those of any
        topic, under the topic that they were sent to. See ``Consumer.retry_later``.

        Raises:
            ConfigError: a number is out of range, or the consumer broadcasts.
        """
        member = self._begun()
        requests = member.give_back((message, *more), delay_level=delay_level, times_max=times_max)
        settled = (message, *more)
        with settling(self._tracing, "retry_later", message.topic, self._reader, settled):
            self._broker.wait_all(requests)
            return [given_back(request) for request in requests]

    def run(self, steps: Steps[Result]) -> Result:
        """What ``steps`` come to; for the questions that both forms of consumer ask."""
        return self._broker.run(steps)

    def close(self) -> None:
        """Give the queues away, and close; commit before, or in the listener: this does not.

        Raises what the listener raises; the queues are given away all the same.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._member is not None:
                self._say_goodbye(self._member)
        finally:
            self._has_left = True
            if self._thread is not None:
                self._thread.stop()
            self._link.close()

    def _say_goodbye(self, member: GroupMember) -> None:
        try:
            notice = member.last_notice()
            if notice is not None:
                tell_at_once(self._listener, notice)
        finally:
            self._broker.timeout_s = min(self._broker.timeout_s, GOODBYE_S)
            try:
                self._follow(member.leave())
            except LedgerError as error:
                # Nobody leads now: the next leader lets go of a member that it does not hear of.
                if not error.retriable:
                    raise

    def _next_batch(self, timeout: float | None) -> MessageBatch:
        self._check_process()
        if self._is_closed:
            raise self._closed()
        member, thread = self._begin()
        since_ns = 0 if self._tracing is None else time.time_ns()
        requests = self._broker.requests
        until = NEVER if timeout is None else time.monotonic() + timeout
        while True:
            thread.note_poll()
            news = member.news(time.monotonic())
            if news is not None:
                self._follow(member.rebalance(news))
            now = time.monotonic()
            member.reader.advance(now)
            batch = member.reader.take() if member.may_give(now) else None
            if batch is not None:
                try:
                    # The next question leaves before the application works on this answer.
                    member.reader.advance(now)
                    if self._tracing is not None:
                        self._tracing.received(batch, self._reader, since_ns)
                except BaseException:
                    # Interrupted: a commit would pass over what nobody was given.
                    member.reader.put_back(batch)
                    raise
                member.reader.note_given(batch)
                return batch
            if now >= until:
                return no_messages("")
            wait = min(until, requests.deadline) - now
            wait_for_link(requests.link, wait, also=(thread.news,))

    def _follow(self, course: Course) -> None:
        """Do what a member does next."""
        for step in course:
            if isinstance(step, Notice):
                tell_at_once(self._listener, step)
            else:
                step.deadline = time.monotonic() + self._broker.timeout_s
                self._broker.wait(step)

    def _begin(self) -> tuple[GroupMember, HeartbeatThread]:
        member, thread = self._member, self._thread
        # While it leaves, its listener may still commit.
        if self._has_left or (self._is_closed and member is None):
            raise self._closed()
        if member is None or thread is None:
            member = self._join(self._broker.requests)
            thread = self._thread = HeartbeatThread(
                poll_interval_max_s=self.group_options.poll_interval_max_s
            )
            thread.add(self._new_link(f"{self.name} heartbeats"), member.heartbeats)
            thread.start()
        return member, thread

    def _begun(self) -> GroupMember:
        return self._begin()[0]

    def _closed(self) -> ConfigError:
        return ConfigError("consumer is closed", group=self.group)
