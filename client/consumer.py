"""``Consumer``: reads the queues of a topic, in the order of each queue."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

import zmq

from ledgermq.client.address import DEFAULT_ADDRESS, parse_addresses
from ledgermq.client.broker import Broker, wait_for_link
from ledgermq.client.group import broker_link
from ledgermq.client.link import Context
from ledgermq.client.pull_pipeline import (
    ConsumerOptions,
    OffsetReset,
    PullPipeline,
    checked_filter,
    pull_request,
    pulled_batch,
)
from ledgermq.client.received import MessageBatch, ReceivedMessage, no_messages
from ledgermq.client.start_offsets import Start, check_start, checked_group, starting_offsets
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
        self._pulls = PullPipeline(
            self._broker.requests, topic, checked_filter(tags, filter), self.options
        )
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
            self._pulls.set_position(batch.queue_id, batch.next_offset)
        return batch

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """All messages, also those to come, until the consumer is closed.

        A message counts as read when it is given. After ``seek`` it goes on there.
        """
        while not self._is_closed:
            yield from self._pulls.messages_of(self._next_batch(ITERATION_POLL_S))

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

    def commit(self, offsets: Mapping[int, int] | None = None) -> None:
        """Note in the broker what the group has read: ``offsets``, or all that was given so far.

        Raises:
            ConfigError: the consumer has no group.
        """
        self._broker.group_commit(
            self._group(), self.topic, self.offsets() if offsets is None else offsets
        )

    def ends(self) -> dict[int, int]:
        """Queue offset behind the last message of each queue, now."""
        self._begin()
        return {
            queue: self._broker.queue(self.topic, queue).end for queue in self._pulls.positions()
        }

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
        self._begin()
        pulls, requests = self._pulls, self._broker.requests
        until = float("inf") if timeout is None else time.monotonic() + timeout
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

    def _group(self) -> str:
        return checked_group(self.group)
