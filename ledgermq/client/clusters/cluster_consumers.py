"""Consumers in a cluster: those of one topic, and members of consumer groups."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cached_property

from ledgermq.client.blocking.broker import OneThread
from ledgermq.client.blocking.consumer import ITERATION_POLL_S
from ledgermq.client.closing import Closing
from ledgermq.client.clusters.cluster_group_reads import ClusterGroupReads
from ledgermq.client.clusters.cluster_reads import ClusterReads, Nap, Polled, Turns
from ledgermq.client.clusters.group_watch import LOOK_S
from ledgermq.client.core.received import MessageBatch, ReceivedMessage
from ledgermq.client.core.requests import Result
from ledgermq.client.groups.rebalance_listener import tell_cluster
from ledgermq.hosts.wake_bell import wait_for_descriptors
from ledgermq.model.errors import ConfigError


class NapsTaken(Polled, Closing):
    """Waits as the steps of its verbs say, and tells its listener what they say."""

    @cached_property
    def _one_thread(self) -> OneThread:
        return OneThread()

    def poll(self, timeout: float | None = 1.0) -> MessageBatch:
        """The next messages of one queue of one group; see ``Consumer.poll``."""
        return self.run(self._poll_steps(timeout))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """All messages, also those to come, until the consumer is closed."""
        while not self._is_closed:
            yield from self.messages_of(self.poll(ITERATION_POLL_S))

    def run(self, steps: Turns[Result]) -> Result:
        """What ``steps`` come to."""
        with self._one_thread:
            return self._run(steps)

    def _run(self, steps: Turns[Result]) -> Result:
        failure: BaseException | None = None
        while True:
            try:
                step = next(steps) if failure is None else steps.throw(failure)
            except StopIteration as end:
                result: Result = end.value
                return result
            failure = None
            if isinstance(step, Nap):
                # Groups that come are looked for meanwhile.
                seconds = min(step.until - time.monotonic(), LOOK_S / 2)
                wait_for_descriptors(step.descriptors, seconds)
                self._bell.clear()
                continue
            try:
                if tell_cluster(self._listener, step) is not None:
                    raise ConfigError("listener is asynchronous: use AsyncGroupConsumer")
            except BaseException as error:
                failure = error

    def _check_free(self) -> None:
        with self._one_thread:
            return

    def close(self) -> None:
        """Say goodbye to all nodes and close, once all has been done that is to be done before.

        Raises what a listener raises; the queues of a member are given away all the same.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.run(self._close_steps())
        finally:
            self._end()


class ConsumerOfGroups(ClusterReads, NapsTaken):
    """What a ``Consumer`` is in a cluster."""


class GroupConsumerOfGroups(ClusterGroupReads, NapsTaken):
    """What a ``GroupConsumer`` is in a cluster."""
