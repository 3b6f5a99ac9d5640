"""Consumers in a cluster, for asyncio: those of one topic, and members of consumer groups."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from ledgermq.client.blocking.consumer import ITERATION_POLL_S
from ledgermq.client.closing import AsyncClosing
from ledgermq.client.clusters.cluster_consumer import ClusterReads, Nap, Naps
from ledgermq.client.clusters.cluster_group_consumer import ClusterGroupReads, Turns
from ledgermq.client.clusters.group_watch import LOOK_S
from ledgermq.client.core.received import MessageBatch, ReceivedMessage
from ledgermq.client.core.requests import Result
from ledgermq.client.groups.rebalance_listener import tell_cluster
from ledgermq.client.loop_watch import is_readable_within


class AsyncConsumerOfGroups(ClusterReads, AsyncClosing):
    """What an ``AsyncConsumer`` is in a cluster.

    Groups are found by a thread; they are read in the loop.
    """

    async def poll(self, timeout: float | None = 1.0) -> MessageBatch:
        """The next messages of one queue of one group; see ``ConsumerOfGroups.poll``.

        Who is cancelled meanwhile has been given none: they come with the next ``poll``.
        """
        return await self.run(self._poll_steps(timeout))

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """All messages, also those to come, until the consumer is closed.

        The messages of an answer count as read when the first of them is given.
        """
        while not self._is_closed:
            for message in await self.poll(ITERATION_POLL_S):
                yield message

    def _close_at_once(self) -> None:
        """Close, where nothing can be awaited: the watch's thread ends within milliseconds."""
        if not self._is_closed:
            self._is_closed = True
            self._end()

    async def close(self) -> None:
        """Say goodbye to all nodes and close; nothing is committed."""
        if not self._is_closed:
            self._is_closed = True
            # The watch's thread is waited for.
            await asyncio.to_thread(self._end)

    async def run(self, steps: Naps[Result]) -> Result:
        """What ``steps`` come to."""
        while True:
            try:
                nap = next(steps)
            except StopIteration as end:
                result: Result = end.value
                return result
            await take_nap(nap)
            self._bell.clear()


async def take_nap(nap: Nap) -> None:
    """Return when there may be something to do; after ``LOOK_S / 2`` at most."""
    seconds = min(nap.until - time.monotonic(), LOOK_S / 2)
    await is_readable_within(nap.descriptors, seconds)


class AsyncGroupConsumerOfGroups(ClusterGroupReads, AsyncClosing):
    """What an ``AsyncGroupConsumer`` is in a cluster.

    Groups are found, and its heartbeats sent, by threads, so a task that blocks the loop costs it
    nothing; they are read in the loop.
    """

    async def poll(self, timeout: float | None = 1.0) -> MessageBatch:
        """The next messages of one queue of one group; see ``GroupConsumerOfGroups.poll``.

        Who is cancelled meanwhile has been given none: they come with the next ``poll``.
        """
        return await self.run(self._poll_steps(timeout))

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """All messages, also those to come; see ``GroupConsumerOfGroups.__iter__``."""
        while not self._is_closed:
            for message in self.messages_of(await self.poll(ITERATION_POLL_S)):
                yield message

    async def run(self, steps: Turns[Result]) -> Result:
        """What ``steps`` come to."""
        failure: BaseException | None = None
        while True:
            try:
                step = next(steps) if failure is None else steps.throw(failure)
            except StopIteration as end:
                result: Result = end.value
                return result
            failure = None
            if isinstance(step, Nap):
                await take_nap(step)
                self._bell.clear()
                continue
            try:
                answer = tell_cluster(self._listener, step)
                if answer is not None:
                    await answer
            except BaseException as error:
                failure = error

    async def close(self) -> None:
        """Give the queues away, and close; see ``GroupConsumerOfGroups.close``."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self.run(self._close_steps())
        finally:
            # The threads are waited for.
            await asyncio.to_thread(self._end)
