"""Consumers in a cluster, for asyncio: those of one topic, and members of consumer groups.

Groups are found, and heartbeats sent, by threads, so a task that blocks the loop costs a member
nothing; groups are read in the loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from ledgermq.client.blocking.consumer import ITERATION_POLL_S
from ledgermq.client.closing import AsyncClosing
from ledgermq.client.clusters.cluster_group_reads import ClusterGroupReads
from ledgermq.client.clusters.cluster_reads import ClusterReads, Nap, Polled, Turns
from ledgermq.client.clusters.group_watch import LOOK_S
from ledgermq.client.core.received import MessageBatch, ReceivedMessage
from ledgermq.client.core.requests import Result
from ledgermq.client.groups.rebalance_listener import tell_cluster
from ledgermq.client.loop_watch import is_readable_within


class NapsAwaited(Polled, AsyncClosing):
    """Awaits what the steps of its verbs say, and tells its listener what they say."""

    async def poll(self, timeout: float | None = 1.0) -> MessageBatch:
        """The next messages of one queue of one group; see ``AsyncConsumer.poll``.

        Who is cancelled meanwhile has been given none: they come with the next ``poll``.
        """
        return await self.run(self._poll_steps(timeout))

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """All messages, also those to come, until the consumer is closed."""
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
                # Groups that come are looked for meanwhile.
                seconds = min(step.until - time.monotonic(), LOOK_S / 2)
                await is_readable_within(step.descriptors, seconds)
                self._bell.clear()
                continue
            try:
                answer = tell_cluster(self._listener, step)
                if answer is not None:
                    await answer
            except BaseException as error:
                failure = error

    async def close(self) -> None:
        """Say goodbye to all nodes and close; see ``NapsTaken.close``."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self.run(self._close_steps())
        finally:
            # The threads are waited for.
            await asyncio.to_thread(self._end)


class AsyncConsumerOfGroups(ClusterReads, NapsAwaited):
    """What an ``AsyncConsumer`` is in a cluster."""

    def _close_at_once(self) -> None:
        """Close, where nothing can be awaited: the watch's thread ends within milliseconds."""
        if not self._is_closed:
            self._is_closed = True
            self._end()


class AsyncGroupConsumerOfGroups(ClusterGroupReads, NapsAwaited):
    """What an ``AsyncGroupConsumer`` is in a cluster."""
