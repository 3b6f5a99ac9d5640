"""``GroupConsumer``: shares the queues of topics with the other members of its consumer group."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cached_property

from ledgermq.client.blocking.broker import Broker, wait_for_link
from ledgermq.client.blocking.consumer import ITERATION_POLL_S
from ledgermq.client.blocking.contact import WaitsForContact
from ledgermq.client.blocking.heartbeat_thread import HeartbeatThread
from ledgermq.client.blocking.requester import RETRY_S
from ledgermq.client.core.known_groups import KnownGroups, groups_request
from ledgermq.client.core.link import NEVER
from ledgermq.client.core.read_traces import settling
from ledgermq.client.core.received import MessageBatch, ReceivedMessage, no_messages
from ledgermq.client.core.requests import Request, Result, Steps
from ledgermq.client.core.wrong_calls import check_timeout
from ledgermq.client.first_contact import contact_steps, told_by, told_groups
from ledgermq.client.groups.group_member import Course, GroupMember, Notice
from ledgermq.client.groups.heartbeats import GOODBYE_S
from ledgermq.client.groups.rebalance_listener import tell_at_once
from ledgermq.client.groups.subscriber import Subscriber
from ledgermq.client.reading.retries import GivenBack, given_back
from ledgermq.model.errors import (
    ClosedError,
    LedgerError,
    NotLeaderError,
    TimedOutError,
    UnreachableError,
)

CONTACT_S = 0.5
"""A first poll waits so long for a node's word, also where it is to wait for less."""


class GroupConsumer(Subscriber, WaitsForContact):
    """A member of a group: each queue is read by one member, and goes to others when it leaves.

    The first ``poll`` asks whether there is one group of nodes or a cluster. In a cluster it is a
    member in each group of nodes that has one of its topics, with the locks and offsets of that
    one: groups that come, and those that are dead or slow, change nothing for the queues of the
    others. Those that have messages take turns, and queues are ``ClusterQueue``s.

    Messages are given at least once: what was read is noted by ``commit``, and before a queue is
    given away. One thread at a time may use a consumer; its heartbeats have a thread of their own.
    """

    IN_CLUSTER = "ledgermq.client.clusters.cluster_consumers:GroupConsumerOfGroups"

    _question: Request | None = None
    _contact_until: float | None = None
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
            UnreachableError: nobody is there, or no node. A node that has answered once is waited
                for, and a group of a cluster.
            NoPermissionError: the group may not consume, or another consumer has this one's name.
            GroupActiveError: RocketMQ's clients consume for the group. Its consumer is not let in
                later, when they have gone; another one is.
            LedgerError: in a cluster ``broker_group`` in its details says which group of nodes
                refused; the next ``poll`` gives what the others have.
        """
        return self._next_batch(timeout)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """All messages, also those to come, until the consumer is closed.

        A message counts as read when it is given. After ``seek`` it goes on there.
        """
        self._check_process()
        while not self._is_closed:
            batch = self._next_batch(ITERATION_POLL_S)
            if self._several is not None:
                yield from self._several.messages_of(batch)
            elif len(batch):
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
        self._end_contact()
        try:
            if self._several is not None:
                self._several.close()
            elif self._member is not None:
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

    def _check_free(self) -> None:
        with self._broker.one_thread:
            return

    def _next_batch(self, timeout: float | None) -> MessageBatch:
        self._check_process()
        with self._broker.one_thread:
            return self._polled(timeout)

    def _polled(self, timeout: float | None) -> MessageBatch:
        if self._is_closed:
            raise self._closed()
        check_timeout(timeout)
        until = NEVER if timeout is None else time.monotonic() + timeout
        if self._is_asking:
            if self._contact_until is None:
                # It is a member from its first poll on, also where nobody polls a second time.
                self._contact_until = time.monotonic() + CONTACT_S
            if not self._is_told_by(max(until, self._contact_until)):
                return no_messages("")
        if self._several is not None:
            return self._poll_all(until)
        member, thread = self._begin()
        since_ns = 0 if self._tracing is None else time.time_ns()
        requests = self._broker.requests
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

    def _poll_all(self, until: float) -> MessageBatch:
        batch: MessageBatch = self._several.poll(max(0.0, until - time.monotonic()))
        return batch

    def _begin_contact(self, *, one_group: bool) -> None:
        super()._begin_contact(one_group=one_group)
        # It waits for no longer than it is told to, and gives nothing where nobody answers.
        vars(self).pop("poll", None)

    def _is_told_by(self, until: float) -> bool:
        """Whether it is known at ``until`` whether there is one group of nodes."""
        self._subscriptions.fixed()
        broker = self._broker
        if (told := told_by(self._addresses)) is not None:
            self._know(told)
            return True
        while True:
            now = time.monotonic()
            if self._question is None:
                self._question = groups_request(None, deadline=now + broker.timeout_s)
                broker.requests.ask(self._question)
            broker.requests.advance(now)
            if self._question.done():
                question, self._question = self._question, None
                try:
                    self._know(told_groups(question))
                    return True
                except (NotLeaderError, TimedOutError) as error:
                    # Else somebody may come to lead yet.
                    if isinstance(error, UnreachableError):
                        raise
            if now >= until:
                return False
            # What was answered with an error is asked again, but not at once.
            again_at = now + RETRY_S if self._question is None else broker.requests.deadline
            wait_for_link(broker.requests.link, min(until, again_at) - now)

    def _ask_groups(self) -> KnownGroups | None:
        return self._broker.run(contact_steps())

    def _leave_group(self) -> None:
        self._link.close()

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
            # A node that has answered is waited for.
            is_first = self._link.last_welcome is None
            heart = self._new_link(f"{self.name} heartbeats", is_watchful=is_first)
            thread.add(heart, member.heartbeats)
            thread.start()
        return member, thread

    def _begun(self) -> GroupMember:
        return self._begin()[0]

    def _closed(self) -> ClosedError:
        return ClosedError("consumer is closed", group=self.group)
