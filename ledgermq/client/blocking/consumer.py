"""``Consumer``: reads the queues of a topic, in the order of each queue."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cached_property

from ledgermq.client.blocking.broker import Broker, wait_for_link
from ledgermq.client.blocking.contact import WaitsForContact
from ledgermq.client.core.known_groups import KnownGroups
from ledgermq.client.core.link import NEVER
from ledgermq.client.core.read_traces import settling
from ledgermq.client.core.received import MessageBatch, ReceivedMessage, no_messages
from ledgermq.client.core.requests import Result, Steps
from ledgermq.client.core.wrong_calls import check_timeout
from ledgermq.client.errand import Errand
from ledgermq.client.first_contact import check_only_group, contact_steps
from ledgermq.client.reading.pull_pipeline import OffsetReset, pulled_batch
from ledgermq.client.reading.retries import GivenBack, Reading, give_back_requests, given_back
from ledgermq.client.reading.start_offsets import checked_group
from ledgermq.client.reading.topic_reader import TopicReader
from ledgermq.model.errors import ClosedError

ITERATION_POLL_S = 1.0


class Consumer(TopicReader, WaitsForContact):
    """Reads one topic; each consumer reads all queues that it is given, whoever else does.

    The first call that needs a node asks whether there is one group of nodes or a cluster. Of a
    cluster it reads each group that has the topic, by a consumer of its own: one that is dead or
    slow keeps nobody waiting. Groups that have messages take turns; those that come are read from
    then on. ``broker_group`` of a batch, and of each message, says where it is from.

    Order is that of each queue. Messages are given at least once: what was read is noted, in its
    group, by ``commit`` alone. One thread at a time may use a consumer.
    """

    IN_CLUSTER = "ledgermq.client.clusters.cluster_consumers:ConsumerOfGroups"

    _is_begun = False
    _is_closed = False
    _beginning: Errand[dict[int, int]] | None = None

    @cached_property
    def _broker(self) -> Broker:
        return Broker(self._link, timeout_s=self.options.timeout_s)

    @cached_property
    def _reading(self) -> Reading:
        return self._reading_of(self._broker.requests)

    def of(self, group: str) -> Consumer:
        """The consumer of one group of a cluster, which this one closes.

        What concerns one group alone is that one's, as ``seek`` and ``pull`` are.

        Raises:
            ConfigError: no such group is read now.
        """
        check_only_group(group, self._link)
        return self

    @property
    def resets(self) -> list[OffsetReset]:
        """Queues that did not hold what came next, the latest ones: messages were skipped."""
        if self._several is not None:
            return [reset for one in self._several.consumers() for reset in one.resets]
        return list(self._reading.own.resets)

    def poll(self, timeout: float | None = 1.0) -> MessageBatch:
        """The next messages of one queue; an empty batch when there are none within ``timeout``.

        They count as read: ``commit`` afterwards notes them.

        Args:
            timeout: seconds; without end when ``None``.

        Raises:
            NotLeaderError: no broker answers. Once one has, a group of a cluster that does not is
                waited out.
            TopicUnknownError: the topic does not exist.
            LedgerError: a group refused, and will again; in a cluster ``broker_group`` in its
                details says which one, and the next ``poll`` gives what the others have.
        """
        batch = self._next_batch(timeout)
        if len(batch):
            self._reading.set_position(batch)
        return batch

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """All messages, also those to come, until the consumer is closed.

        A message counts as read when it is given; in a cluster those of an answer when the first of
        them is. After ``seek`` it goes on there.
        """
        self._check_process()
        if self._make_contact() is not None:
            yield from self._several
        while not self._is_closed:
            yield from self._reading.messages_of(self._next_batch(ITERATION_POLL_S))

    def pull(
        self, queue_id: int, offset: int, *, messages_max: int | None = None, hold_ms: int = 0
    ) -> MessageBatch:
        """Messages of one queue from ``offset`` on, apart from what ``poll`` gives."""
        request = self._pull_request(queue_id, offset, messages_max, hold_ms)
        self._broker.wait(request)
        return pulled_batch(self.topic, queue_id, request)

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
        group = checked_group(self.group)
        requests = give_back_requests(
            (message, *more), group, delay_level=delay_level, times_max=times_max
        )
        settled = (message, *more)
        with settling(self._tracing, "retry_later", message.topic, self._reader, settled):
            self._broker.wait_all(requests)
            found = [given_back(request) for request in requests]
        if self._reading.retries is not None:
            self._reading.retries.look()
        return found

    def retry_steps(
        self, messages: Sequence[ReceivedMessage], *, delay_level: int, times_max: int | None
    ) -> Steps[list[GivenBack]]:
        """Steps of ``retry_later``, one message after the other, for an ``errand``."""
        group, found = checked_group(self.group), []
        for request in give_back_requests(
            messages, group, delay_level=delay_level, times_max=times_max
        ):
            yield request
            found.append(given_back(request))
        if self._reading.retries is not None:
            self._reading.retries.look()
        return found

    def run(self, steps: Steps[Result]) -> Result:
        """What ``steps`` come to; for the questions that both forms of consumer ask."""
        return self._broker.run(steps)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What to poll beside ``poll(0)``, by who reads several consumers in one thread."""
        return self._link.descriptors

    @property
    def deadline(self) -> float:
        """When ``poll(0)`` has work that no descriptor tells of; by ``time.monotonic``."""
        return self._broker.requests.deadline

    def has_begun(self) -> bool:
        """Whether it reads; asks where to begin, and waits for nothing.

        Raises:
            LedgerError: as from ``poll``; when it is asked for again, it begins anew.
        """
        if self._is_begun:
            return True
        if self._beginning is None:
            self._beginning = self.errand(self._starting_offsets())
        self.advance()
        if not self._beginning.is_done:
            return False
        beginning, self._beginning = self._beginning, None
        self._begin_reading(self._reading, beginning.result())
        self._is_begun = True
        return True

    def errand(self, steps: Steps[Result]) -> Errand[Result]:
        """Let ``steps`` go on with each ``advance``, and with each ``poll``."""
        return Errand(self._broker.requests, steps, timeout_s=self.options.timeout_s)

    def advance(self) -> None:
        """Take answers, and send questions; waits for nothing."""
        self._broker.requests.advance(time.monotonic())

    def close(self) -> None:
        """Say goodbye to the node and close; nothing is committed."""
        self._is_closed = True
        self._end_contact()
        if self._several is not None:
            self._several.close()
        self._link.close()

    def _ask_groups(self) -> KnownGroups | None:
        if self._is_closed:
            raise self._closed()
        return self._broker.run(contact_steps())

    def _leave_group(self) -> None:
        self._link.close()

    def _closed(self) -> ClosedError:
        return ClosedError("consumer is closed", topic=self.topic)

    def _check_free(self) -> None:
        with self._broker.one_thread:
            if self._several is not None:
                self._several._check_free()

    def _next_batch(self, timeout: float | None) -> MessageBatch:
        self._check_process()
        with self._broker.one_thread:
            return self._polled(timeout)

    def _polled(self, timeout: float | None) -> MessageBatch:
        pulls, requests = self._begun(), self._broker.requests
        since_ns = 0 if self._tracing is None else time.time_ns()
        check_timeout(timeout)
        until = NEVER if timeout is None else time.monotonic() + timeout
        while True:
            now = time.monotonic()
            pulls.advance(now)
            batch = pulls.take()
            if batch is not None:
                try:
                    # The next question leaves before the application works on this answer.
                    pulls.advance(now)
                    if self._tracing is not None:
                        self._tracing.received(batch, self._reader, since_ns)
                except BaseException:
                    # Interrupted: what comes next would pass over what nobody was given.
                    pulls.put_back(batch)
                    raise
                return batch
            if now >= until:
                return no_messages(self.topic)
            wait_for_link(requests.link, min(until, requests.deadline) - now)

    def _begin(self) -> None:
        if self._is_begun:
            return
        if self._is_closed:
            raise self._closed()
        self._begin_reading(self._reading, self._broker.run(self._starting_offsets()))
        self._is_begun = True

    def _begun(self) -> Reading:
        self._begin()
        return self._reading
