"""``Consumer``: reads the queues of a topic, in the order of each queue."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self

import zmq

from ledgermq.client.address import DEFAULT_ADDRESS, parse_addresses
from ledgermq.client.broker import Broker, wait_for_link
from ledgermq.client.group import broker_link
from ledgermq.client.link import NEVER, Context
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

ITERATION_POLL_S = 1.0


class Consumer:
    """Reads one topic; each consumer reads all queues that it is given, whoever else does.

    Messages are given at least once: what was read is noted in the broker by ``commit`` alone. One
    thread at a time may use a consumer.
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
        """A consumer, which connects when it is first used.

        Args:
            address: ``ipc://`` and the node's runtime directory, or ``tcp://HOST:PORT``; of several
                nodes of a group, in a list or divided by commas, the leader is read.
            group: whose offsets ``start="stored"`` reads and ``commit`` writes.
            queues: which queues to read; all, also later ones, when left out.
            tags: ``*``, or tags divided by ``||``.
            filter: which messages are wanted, in place of ``tags``; also by SQL-92 expression.
            name: of this client, as the node's operator sees it.
            retries: whether to read what the group was given back, too (``retry_later``); when left
                out, a consumer with a group that reads all queues does. These messages come in
                batches of their own, whose topic is the group's retry topic; each has the topic
                that it was sent to. All members of a group had better read the same topics.

        Raises:
            ConfigError: an argument cannot be used.
            FilterIllegalError: there is no tag in ``tags``.
        """
        self.topic = topic
        self.group = group
        self.options = options or ConsumerOptions()
        context: Context = zmq.Context.instance()
        link = broker_link(context, parse_addresses(address), client=name, group=group or "")
        self._broker = Broker(link, timeout_s=self.options.timeout_s)
        requests = self._broker.requests
        self._pulls = PullPipeline(requests, topic, checked_filter(tags, filter), self.options)
        self._retries = (
            RetryPulls(requests, checked_group(group), self.options)
            if reads_retries(group, queues, retries)
            else None
        )
        self._reading = Reading(self._pulls, self._retries)
        self._queues = None if queues is None else list(queues)
        self._start = check_start(start)
        self._is_begun = False
        self._is_closed = False

    @property
    def resets(self) -> list[OffsetReset]:
        """Queues that did not hold what came next, the latest ones: messages were skipped."""
        return list(self._pulls.resets)

    def poll(self, timeout: float | None = 1.0) -> MessageBatch:
        """The next messages of one queue; an empty batch when there are none within ``timeout``.

        They count as read: ``commit`` afterwards notes them.

        Args:
            timeout: seconds; without end when ``None``.

        Raises:
            NotLeaderError: no broker answers.
            TopicUnknownError: the topic does not exist.
        """
        batch = self._next_batch(timeout)
        if len(batch):
            self._reading.set_position(batch)
        return batch

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """All messages, also those to come, until the consumer is closed.

        A message counts as read when it is given. After ``seek`` it goes on there.
        """
        while not self._is_closed:
            yield from self._reading.messages_of(self._next_batch(ITERATION_POLL_S))

    def pull(
        self, queue_id: int, offset: int, *, messages_max: int | None = None, hold_ms: int = 0
    ) -> MessageBatch:
        """Messages of one queue from ``offset`` on, apart from what ``poll`` gives."""
        options = self.options
        pull = Pull(
            0,
            self.topic,
            queue_id,
            offset,
            messages_max or options.messages_max,
            options.bytes_max,
            hold_ms,
        )
        until = time.monotonic() + hold_ms / 1_000 + options.timeout_s
        request = pull_request(pull, self._broker.requests.link, deadline=until)
        self._broker.wait(request)
        return pulled_batch(self.topic, queue_id, request)

    def seek(self, queue_id: int, offset: int) -> None:
        """Let ``poll`` go on at ``offset`` of a queue.

        Raises:
            TopicUnknownError: the queue is none of this consumer's.
            ConfigError: the offset is negative.
        """
        self._begin()
        self._pulls.seek(queue_id, offset)

    def offsets(self) -> dict[int, int]:
        """Queue offset of the next message to be given, by queue id."""
        self._begin()
        return self._pulls.positions()

    def committed(self) -> dict[int, int]:
        """The group's offsets in the broker, by queue id; queues never committed are left out.

        Raises:
            ConfigError: the consumer has no group.
        """
        return self._broker.group_offset(self._group(), self.topic)

    def commit(self, offsets: Marks = None) -> None:
        """Note in the broker what the group has read.

        Args:
            offsets: by queue id, of the consumer's topic; or a batch or a message, which is noted
                with all before it in its queue; when left out all that was given so far, of what
                was given back, too.

        Raises:
            ConfigError: the consumer has no group.
        """
        group = self._group()
        for topic, noted in marked(offsets, self.topic, self._begun).items():
            self._broker.group_commit(group, topic, noted)

    def retry_later(
        self,
        message: ReceivedMessage,
        *more: ReceivedMessage,
        delay_level: int = 0,
        times_max: int | None = None,
    ) -> list[GivenBack]:
        """Give messages back that could not be processed: the group gets them again later.

        When it returns, a majority has them, and they may be committed. They are stored once for
        each call, also when the answer is lost and the question is asked again; only when a leader
        dies while it stores them, or the broker has no memory of so long ago, one may come twice.

        Args:
            delay_level: after which of RocketMQ's delays (1 is the first); 0: the next in turn,
                from 10 seconds to two hours; -1: none, it becomes a dead letter at once.
            times_max: a message that was given back so often becomes a dead letter; the number of
                the group (16 unless it was set) when left out.

        Returns:
            what became of each.

        Raises:
            ConfigError: the consumer has no group, or a number is out of range.
            MessageIllegalError: the broker does not have the message (any more).
            TimedOutError: no answer; they may be stored.
        """
        group = self._group()
        requests = give_back_requests(
            (message, *more), group, delay_level=delay_level, times_max=times_max
        )
        self._broker.wait_all(requests)
        found = [given_back(request) for request in requests]
        if self._retries is not None:
            self._retries.look()
        return found

    def ends(self) -> dict[int, int]:
        """Queue offset behind the last message of each queue, now."""
        self._begin()
        return self._broker.run(ending_offsets(self.topic, self._pulls.positions()))

    def close(self) -> None:
        """Say goodbye to the node and close; nothing is committed."""
        self._is_closed = True
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

    def _next_batch(self, timeout: float | None) -> MessageBatch:
        pulls, requests = self._begun(), self._broker.requests
        until = NEVER if timeout is None else time.monotonic() + timeout
        while True:
            now = time.monotonic()
            pulls.advance(now)
            batch = pulls.take()
            if batch is not None:
                # The next question leaves before the application works on this answer.
                pulls.advance(now)
                return batch
            if now >= until:
                return no_messages(self.topic)
            wait_for_link(requests.link, min(until, requests.deadline) - now)

    def _begin(self) -> None:
        if self._is_begun:
            return
        if self._is_closed:
            raise ConfigError("consumer is closed", topic=self.topic)
        offsets = self._broker.run(
            starting_offsets(self.topic, self.group, self._queues, self._start)
        )
        self._pulls.begin(offsets, follows_route=self._queues is None, now=time.monotonic())
        self._is_begun = True

    def _begun(self) -> Reading:
        self._begin()
        return self._reading

    def _group(self) -> str:
        return checked_group(self.group)
