"""Old names of asyncio clients of all groups of a cluster; see ``clusters.old_names``."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from ledgermq.client.aio.consumer import AsyncConsumer
from ledgermq.client.aio.group_admins import AsyncGroupAdmins
from ledgermq.client.aio.group_consumer import AsyncGroupConsumer
from ledgermq.client.aio.producer import AsyncProducer
from ledgermq.client.aio.requester import AsyncRequester
from ledgermq.client.aio.transactions import AsyncTransaction, AsyncTransactionalProducer
from ledgermq.client.clusters.old_names import ClusterBatch, batch_of, by_groups
from ledgermq.client.core.received import MessageBatch, ReceivedMessage
from ledgermq.client.core.results import SendResult
from ledgermq.client.reading.retries import GivenBack
from ledgermq.client.sending.outgoing import Body

__all__ = ["AsyncGroupAdmins"]

NEW_NAMES: Mapping[str, str] = {
    "AsyncClusterConsumer": "AsyncConsumer",
    "AsyncClusterGroupConsumer": "AsyncGroupConsumer",
    "AsyncClusterProducer": "AsyncProducer",
    "AsyncClusterRequester": "AsyncRequester",
    "AsyncClusterTransactionalProducer": "AsyncTransactionalProducer",
    "AsyncGroupAdmins": "AsyncAdmin, with broker_groups, of and each",
}


class AsyncClusterProducer(AsyncProducer):
    """An ``AsyncProducer`` whose ``reply`` and ``cancel`` begin with the group."""

    def __init__(self, addresses: str | Sequence[str], **options: Any) -> None:
        super().__init__(by_groups(addresses), **options)

    ASKS_NOBODY = AsyncProducer.ASKS_NOBODY | {"cancel", "reply"}

    async def reply(  # type: ignore[override]
        self, group: str, request: ReceivedMessage, body: Body, *, keys: Sequence[str] = ()
    ) -> SendResult:
        """Reply to a request of a group; see ``AsyncProducer.reply``."""
        await self._make_contact()
        request.broker_group = group
        several: AsyncProducer | None = self._several
        reply = super().reply if several is None else several.reply
        return await reply(request, body, keys=keys)

    async def cancel(self, group: str, unique_id: str) -> None:  # type: ignore[override]
        """Take back a message that waits in a group; see ``AsyncProducer.cancel``."""
        await self._make_contact()
        several: AsyncProducer | None = self._several
        cancel = super().cancel if several is None else several.cancel
        await cancel(unique_id, group=group)


class AsyncClusterConsumer(AsyncConsumer):
    """An ``AsyncConsumer`` that has the group beside the messages, and is closed by ``await``."""

    def __init__(self, addresses: str | Sequence[str], **options: Any) -> None:
        super().__init__(by_groups(addresses), **options)

    ASKS_NOBODY = AsyncConsumer.ASKS_NOBODY | {"poll", "retry_later"}

    async def poll(self, timeout: float | None = 1.0) -> ClusterBatch:  # type: ignore[override]
        """The next messages of one queue, with their group; see ``AsyncConsumer.poll``."""
        poll: Callable[[float | None], Coroutine[Any, Any, MessageBatch]]
        poll = super().poll if self._several is None else self._several.poll
        return batch_of(await poll(timeout), self.groups())

    async def retry_later(  # type: ignore[override]
        self, _group: str, message: ReceivedMessage, *more: ReceivedMessage, **how: Any
    ) -> list[GivenBack]:
        """Give messages back to a group; see ``AsyncConsumer.retry_later``."""
        several: AsyncConsumer | None = self._several
        give_back = super().retry_later if several is None else several.retry_later
        return await give_back(message, *more, **how)

    async def close(self) -> None:  # type: ignore[override]
        """Say goodbye and close; see ``AsyncConsumer.close``."""
        super().close()

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncClusterGroupConsumer(AsyncGroupConsumer):
    """An ``AsyncGroupConsumer`` that has the group beside the messages."""

    def __init__(self, addresses: str | Sequence[str], **options: Any) -> None:
        super().__init__(by_groups(addresses), **options)

    ASKS_NOBODY = AsyncGroupConsumer.ASKS_NOBODY | {"poll", "retry_later"}

    async def poll(self, timeout: float | None = 1.0) -> ClusterBatch:  # type: ignore[override]
        """The next messages of one queue, with their group; see ``AsyncGroupConsumer.poll``."""
        return batch_of(await super().poll(timeout), self.groups())

    async def retry_later(  # type: ignore[override]
        self, _group: str, message: ReceivedMessage, *more: ReceivedMessage, **how: Any
    ) -> list[GivenBack]:
        """Give messages back to a group; see ``AsyncGroupConsumer.retry_later``."""
        several: AsyncGroupConsumer | None = self._several
        give_back = super().retry_later if several is None else several.retry_later
        return await give_back(message, *more, **how)


class AsyncClusterRequester(AsyncRequester):
    """An ``AsyncRequester``."""

    def __init__(self, addresses: str | Sequence[str], **options: Any) -> None:
        super().__init__(by_groups(addresses), **options)


class AsyncClusterTransactionalProducer(AsyncTransactionalProducer):
    """An ``AsyncTransactionalProducer`` whose ``transaction`` is awaited."""

    def __init__(self, addresses: str | Sequence[str], **options: Any) -> None:
        super().__init__(by_groups(addresses), **options)

    async def transaction(  # type: ignore[override]
        self, topic: str, *, group: str = ""
    ) -> AsyncTransaction:
        """Begin a transaction in a group that has the topic."""
        return super().transaction(topic, group=group)
