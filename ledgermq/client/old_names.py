"""Old names of clients of all groups of a cluster, in whose place the ordinary ones are.

They are there for one release more. Each is an ordinary client that takes and gives what the old
one did; whoever imports one is warned, and told the new name.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ledgermq.client.aio.cluster_clients import AsyncGroupAdmins
from ledgermq.client.aio.consumer import AsyncConsumer
from ledgermq.client.aio.group_consumer import AsyncGroupConsumer
from ledgermq.client.aio.producer import AsyncProducer
from ledgermq.client.aio.requester import AsyncRequester
from ledgermq.client.aio.transactions import AsyncTransaction, AsyncTransactionalProducer
from ledgermq.client.blocking.consumer import Consumer
from ledgermq.client.blocking.group_consumer import GroupConsumer
from ledgermq.client.blocking.producer import Producer
from ledgermq.client.blocking.requester import Requester
from ledgermq.client.blocking.transactions import TransactionalProducer
from ledgermq.client.clusters.cluster_clients import GroupAdmins
from ledgermq.client.core.received import MessageBatch, ReceivedMessage
from ledgermq.client.core.results import SendResult
from ledgermq.client.groups.rebalance_listener import RebalanceListener
from ledgermq.client.reading.retries import GivenBack
from ledgermq.client.sending.outgoing import Body
from ledgermq.model.errors import ConfigError

__all__ = ["AsyncGroupAdmins", "GroupAdmins"]

WAITING: Mapping[str, str] = {
    "ClusterBatch": "MessageBatch, with broker_group",
    "ClusterConsumer": "Consumer",
    "ClusterGroupConsumer": "GroupConsumer",
    "ClusterProducer": "Producer",
    "ClusterRebalanceListener": "RebalanceListener",
    "ClusterRequester": "Requester",
    "ClusterTransactionalProducer": "TransactionalProducer",
    "GroupAdmins": "Admin, with broker_groups, of and each",
}
AWAITED: Mapping[str, str] = {
    "AsyncClusterConsumer": "AsyncConsumer",
    "AsyncClusterGroupConsumer": "AsyncGroupConsumer",
    "AsyncClusterProducer": "AsyncProducer",
    "AsyncClusterRequester": "AsyncRequester",
    "AsyncClusterTransactionalProducer": "AsyncTransactionalProducer",
    "AsyncGroupAdmins": "AsyncAdmin, with broker_groups, of and each",
}


class ClusterBatch(NamedTuple):
    """Messages of one queue of one group; no ``group``: there are none."""

    group: str
    messages: MessageBatch


class _ByGroups:
    """Takes addresses as before: in a list each text is another group's."""

    _several: Any

    def __init__(self, addresses: str | Sequence[str], **options: Any) -> None:
        if not isinstance(addresses, str):
            if not addresses:
                raise ConfigError("no address of a node")
            addresses = [f"{one}," for one in addresses]
        super().__init__(addresses, **options)  # type: ignore[call-arg]

    def _verb(self, name: str) -> Callable[..., Any]:
        """The ordinary verb of that name, in one group or in a cluster."""
        verb: Callable[..., Any]
        verb = getattr(super() if self._several is None else self._several, name)
        return verb


class _Batches(_ByGroups):
    """Gives the group beside the messages, and is told it with what is given back."""

    ASKS_NOBODY = GroupConsumer.ASKS_NOBODY | {"poll", "retry_later"}

    groups: Callable[[], list[str]]

    def _batch_of(self, batch: MessageBatch) -> ClusterBatch:
        """A batch as it was given before: also of the only group its name."""
        only = self.groups() if len(batch) and not batch.broker_group else []
        return ClusterBatch(batch.broker_group or "".join(only), batch)


class _WaitedBatches(_Batches):
    """Verbs of consumers that block."""

    def poll(self, timeout: float | None = 1.0) -> ClusterBatch:
        """The next messages of one queue, with their group; see ``Consumer.poll``."""
        return self._batch_of(self._verb("poll")(timeout))

    def retry_later(
        self, _group: str, message: ReceivedMessage, *more: ReceivedMessage, **how: Any
    ) -> list[GivenBack]:
        """Give messages back to a group; see ``Consumer.retry_later``."""
        given: list[GivenBack] = self._verb("retry_later")(message, *more, **how)
        return given


class _AwaitedBatches(_Batches):
    """Verbs of consumers for asyncio."""

    async def poll(self, timeout: float | None = 1.0) -> ClusterBatch:
        """The next messages of one queue, with their group; see ``AsyncConsumer.poll``."""
        return self._batch_of(await self._verb("poll")(timeout))

    async def retry_later(
        self, _group: str, message: ReceivedMessage, *more: ReceivedMessage, **how: Any
    ) -> list[GivenBack]:
        """Give messages back to a group; see ``AsyncConsumer.retry_later``."""
        given: list[GivenBack] = await self._verb("retry_later")(message, *more, **how)
        return given


class ClusterProducer(_ByGroups, Producer):
    """A ``Producer``."""


class ClusterConsumer(_WaitedBatches, Consumer):  # type: ignore[misc]
    """A ``Consumer`` whose ``poll`` and ``retry_later`` have the group beside the messages."""

    def _verb(self, name: str) -> Callable[..., Any]:
        self._make_contact()
        return super()._verb(name)


class ClusterGroupConsumer(_WaitedBatches, GroupConsumer):  # type: ignore[misc]
    """A ``GroupConsumer`` whose ``poll`` and ``retry_later`` have the group beside the messages."""


class ClusterRebalanceListener(RebalanceListener):
    """A ``RebalanceListener``."""


class ClusterRequester(_ByGroups, Requester):
    """A ``Requester``."""


class ClusterTransactionalProducer(_ByGroups, TransactionalProducer):
    """A ``TransactionalProducer``."""


class AsyncClusterProducer(_ByGroups, AsyncProducer):
    """An ``AsyncProducer`` whose ``reply`` and ``cancel`` begin with the group."""

    ASKS_NOBODY = AsyncProducer.ASKS_NOBODY | {"cancel", "reply"}

    async def reply(  # type: ignore[override]
        self, group: str, request: ReceivedMessage, body: Body, *, keys: Sequence[str] = ()
    ) -> SendResult:
        """Reply to a request of a group; see ``AsyncProducer.reply``."""
        await self._make_contact()
        request.broker_group = group
        sent: SendResult = await self._verb("reply")(request, body, keys=keys)
        return sent

    async def cancel(self, group: str, unique_id: str) -> None:  # type: ignore[override]
        """Take back a message that waits in a group; see ``AsyncProducer.cancel``."""
        await self._make_contact()
        await self._verb("cancel")(unique_id, group=group)


class AsyncClusterConsumer(_AwaitedBatches, AsyncConsumer):  # type: ignore[misc]
    """An ``AsyncConsumer`` that has the group beside the messages, and is closed by ``await``."""

    async def close(self) -> None:  # type: ignore[override]
        """Say goodbye and close; see ``AsyncConsumer.close``."""
        super().close()

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncClusterGroupConsumer(_AwaitedBatches, AsyncGroupConsumer):  # type: ignore[misc]
    """An ``AsyncGroupConsumer`` that has the group beside the messages."""


class AsyncClusterRequester(_ByGroups, AsyncRequester):
    """An ``AsyncRequester``."""


class AsyncClusterTransactionalProducer(_ByGroups, AsyncTransactionalProducer):
    """An ``AsyncTransactionalProducer`` whose ``transaction`` is awaited."""

    async def transaction(  # type: ignore[override]
        self, topic: str, *, group: str = ""
    ) -> AsyncTransaction:
        """Begin a transaction in a group that has the topic."""
        return super().transaction(topic, group=group)


def old_name(module: str, name: str, names: Mapping[str, str]) -> Any:
    """What an old name of ``module`` stands for; ``names`` are the new ones.

    Raises:
        AttributeError: it is none.
    """
    if name not in names:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    warnings.warn(
        f"{module}.{name} is {names[name]} now: the old name goes with the next release",
        DeprecationWarning,
        stacklevel=3,
    )
    return globals()[name]
