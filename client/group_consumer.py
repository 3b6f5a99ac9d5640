"""``GroupConsumer``: shares the queues of topics with the other members of its consumer group."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

import zmq

from ledgermq.client.address import DEFAULT_ADDRESS, parse_addresses
from ledgermq.client.allocation import TopicQueue
from ledgermq.client.broker import Broker, wait_for_link
from ledgermq.client.group import broker_link
from ledgermq.client.group_member import (
    Course,
    GroupMember,
    GroupOptions,
    Notice,
    Subscriptions,
    client_id,
)
from ledgermq.client.heartbeat_thread import HeartbeatThread
from ledgermq.client.link import NEVER, Context
from ledgermq.client.pull_pipeline import ConsumerOptions, OffsetReset
from ledgermq.client.rebalance_listener import RebalanceListener, tell_at_once
from ledgermq.client.received import MessageBatch, ReceivedMessage, no_messages
from ledgermq.client.retries import GivenBack, given_back
from ledgermq.client.start_offsets import checked_group
from ledgermq.model.errors import ConfigError, LedgerError
from ledgermq.model.message_filter import ALL_TAGS, MessageFilter

ITERATION_POLL_S = 1.0
GOODBYE_S = 2.0


class GroupConsumer:
    """A member of a group: each queue is read by one member, and goes to others when it leaves.

    Messages are given at least once: what was read is noted by ``commit``, and before a queue is
    given away. One thread at a time may use a consumer; its heartbeats have a thread of their own.
    """

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        group: str,
        name: str | None = None,
        listener: RebalanceListener | None = None,
        group_options: GroupOptions | None = None,
        options: ConsumerOptions | None = None,
    ) -> None:
        """A member that joins with its first ``poll``; ``subscribe`` before.

        Args:
            address: as a ``Consumer`` takes it.
            group: whose queues it shares.
            name: unique in the group; one that is started anew under its name goes on with its
                queues at once. Made up when left out.
            listener: is told when queues come and go.

        Raises:
            ConfigError: an argument cannot be used.
        """
        self.group = checked_group(group)
        self.group_options = group_options or GroupOptions()
        self.options = options or ConsumerOptions()
        places = parse_addresses(address)
        self.name = client_id(name, self.group_options.model, places)
        context: Context = zmq.Context.instance()
        self._broker = Broker(
            broker_link(context, places, client=self.name), timeout_s=self.options.timeout_s
        )
        self._heartbeat_link = broker_link(context, places, client=f"{self.name} heartbeats")
        self._listener = listener or RebalanceListener()
        self._subscriptions = Subscriptions()
        self._member: GroupMember | None = None
        self._thread: HeartbeatThread | None = None
        self._is_closed = False

    def subscribe(
        self, topics: str | Sequence[str], expression: str | MessageFilter = ALL_TAGS
    ) -> None:
        """Read ``topics``, too.

        Args:
            expression: ``*``, tags divided by ``||``, or a filter, also one by SQL-92 expression.
                All members should want the same.

        Raises:
            ConfigError: the consumer has begun already.
            FilterIllegalError: there is no tag in ``expression``.
        """
        self._subscriptions.add(topics, expression)

    @property
    def assignment(self) -> frozenset[TopicQueue]:
        """The queues that it reads now."""
        return frozenset() if self._member is None else self._member.reader.queues

    @property
    def resets(self) -> list[tuple[str, OffsetReset]]:
        """Queues that did not hold what came next, with their topics: messages were skipped."""
        return [] if self._member is None else self._member.reader.resets

    @property
    def warnings(self) -> tuple[str, ...]:
        """Members of the group that do not want the same, as the broker says."""
        news = None if self._member is None else self._member.heartbeats.news
        return () if news is None else news.warnings

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

    def commit(self, offsets: Mapping[TopicQueue, int] | None = None) -> None:
        """Note what the group has read: ``offsets``, or all that was given so far.

        Durable in the group's log on return; of a broadcasting consumer in its own file.

        Raises:
            MessageIllegalError: an offset is below the committed one, or outside of its queue.
        """
        self._broker.run(self._begun().commit(offsets))

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
        self._broker.wait_all(requests)
        return [given_back(request) for request in requests]

    def positions(self) -> dict[TopicQueue, int]:
        """Queue offset of the next message to be given, by queue."""
        return self._begun().reader.positions()

    def seek(self, queue: TopicQueue, offset: int) -> None:
        """Go on at ``offset`` of a queue.

        Raises:
            TopicUnknownError: the queue is not this consumer's now.
        """
        self._begun().reader.seek(queue, offset)

    def pause(self, queue: TopicQueue) -> None:
        """Give nothing of a queue until ``resume``; others get it only if the group changes.

        Raises:
            TopicUnknownError: the queue is not this consumer's now.
        """
        self._begun().reader.pause(queue)

    def resume(self, queue: TopicQueue) -> None:
        """Go on with a queue where it was paused.

        Raises:
            TopicUnknownError: the queue is not this consumer's now.
        """
        self._begun().reader.resume(queue)

    def close(self) -> None:
        """Give the queues away, and close; commit before, or in the listener: this does not."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._member is not None:
                self._say_goodbye(self._member)
        finally:
            if self._thread is not None:
                self._thread.stop()
            self._broker.requests.link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _say_goodbye(self, member: GroupMember) -> None:
        self._broker.timeout_s = min(self._broker.timeout_s, GOODBYE_S)
        try:
            self._follow(member.leave())
        except LedgerError as error:
            # Nobody leads now: the next leader lets go of a member that it does not hear of.
            if not error.retriable:
                raise

    def _next_batch(self, timeout: float | None) -> MessageBatch:
        member, thread = self._begin()
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
                # The next question leaves before the application works on this answer.
                member.reader.advance(now)
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
        if self._is_closed:
            raise ConfigError("consumer is closed", group=self.group)
        if self._member is None or self._thread is None:
            member = self._member = GroupMember(
                self._broker.requests,
                self.group_options,
                self.options,
                group=self.group,
                client=self.name,
                subscription=self._subscriptions.fixed(),
            )
            self._thread = HeartbeatThread(
                self._heartbeat_link,
                member.heartbeats,
                poll_interval_max_s=self.group_options.poll_interval_max_s,
            )
            self._thread.start()
        return self._member, self._thread

    def _begun(self) -> GroupMember:
        return self._begin()[0]
