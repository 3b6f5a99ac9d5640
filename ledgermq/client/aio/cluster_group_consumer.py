"""``AsyncGroupConsumerOfGroups``: ``GroupConsumerOfGroups`` for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ledgermq.client.aio.cluster_consumer import take_nap
from ledgermq.client.blocking.consumer import ITERATION_POLL_S
from ledgermq.client.closing import AsyncClosing
from ledgermq.client.clusters.cluster_consumer import Nap
from ledgermq.client.clusters.cluster_group_consumer import ClusterGroupReads, Turns
from ledgermq.client.core.received import MessageBatch, ReceivedMessage
from ledgermq.client.core.requests import Result
from ledgermq.client.groups.rebalance_listener import tell_cluster


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
