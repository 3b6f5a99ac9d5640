"""Old names of clients of all groups of a cluster, in whose place the ordinary ones are.

They are there for one release more. Each does what it did; whoever imports one is warned, and told
the new name.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from ledgermq.client.blocking.consumer import Consumer
from ledgermq.client.blocking.group_consumer import GroupConsumer
from ledgermq.client.blocking.producer import Producer
from ledgermq.client.blocking.requester import Requester
from ledgermq.client.blocking.transactions import TransactionalProducer
from ledgermq.client.clusters.group_admins import GroupAdmins
from ledgermq.client.core.received import MessageBatch, ReceivedMessage
from ledgermq.client.groups.rebalance_listener import RebalanceListener
from ledgermq.client.reading.retries import GivenBack
from ledgermq.model.errors import ConfigError

__all__ = ["GroupAdmins"]

NEW_NAMES: Mapping[str, str] = {
    "ClusterBatch": "MessageBatch, with broker_group",
    "ClusterConsumer": "Consumer",
    "ClusterGroupConsumer": "GroupConsumer",
    "ClusterProducer": "Producer",
    "ClusterRebalanceListener": "RebalanceListener",
    "ClusterRequester": "Requester",
    "ClusterTransactionalProducer": "TransactionalProducer",
    "GroupAdmins": "Admin, with broker_groups, of and each",
}


class ClusterBatch(NamedTuple):
    """Messages of one queue of one group; no ``group``: there are none."""

    group: str
    messages: MessageBatch


class ClusterProducer(Producer):
    """A ``Producer``."""

    def __init__(self, addresses: str | Sequence[str], **options: Any) -> None:
        super().__init__(by_groups(addresses), **options)


class ClusterConsumer(Consumer):
    """A ``Consumer`` whose ``poll`` and ``retry_later`` have the group beside the messages."""

    def __init__(self, addresses: str | Sequence[str], **options: Any) -> None:
        super().__init__(by_groups(addresses), **options)

    ASKS_NOBODY = Consumer.ASKS_NOBODY | {"poll", "retry_later"}

    def poll(self, timeout: float | None = 1.0) -> ClusterBatch:  # type: ignore[override]
        """The next messages of one queue, with their group; see ``Consumer.poll``."""
        self._make_contact()
        poll: Callable[[float | None], MessageBatch]
        poll = super().poll if self._several is None else self._several.poll
        return batch_of(poll(timeout), self.groups())

    def retry_later(  # type: ignore[override]
        self, _group: str, message: ReceivedMessage, *more: ReceivedMessage, **how: Any
    ) -> list[GivenBack]:
        """Give messages back to a group; see ``Consumer.retry_later``."""
        self._make_contact()
        several: Consumer | None = self._several
        give_back = super().retry_later if several is None else several.retry_later
        return give_back(message, *more, **how)


class ClusterGroupConsumer(GroupConsumer):
    """A ``GroupConsumer`` whose ``poll`` and ``retry_later`` have the group beside the messages."""

    def __init__(self, addresses: str | Sequence[str], **options: Any) -> None:
        super().__init__(by_groups(addresses), **options)

    ASKS_NOBODY = GroupConsumer.ASKS_NOBODY | {"poll", "retry_later"}

    def poll(self, timeout: float | None = 1.0) -> ClusterBatch:  # type: ignore[override]
        """The next messages of one queue, with their group; see ``GroupConsumer.poll``."""
        return batch_of(super().poll(timeout), self.groups())

    def retry_later(  # type: ignore[override]
        self, _group: str, message: ReceivedMessage, *more: ReceivedMessage, **how: Any
    ) -> list[GivenBack]:
        """Give messages back to a group; see ``GroupConsumer.retry_later``."""
        several: GroupConsumer | None = self._several
        give_back = super().retry_later if several is None else several.retry_later
        return give_back(message, *more, **how)


class ClusterRebalanceListener(RebalanceListener):
    """A ``RebalanceListener``."""


class ClusterRequester(Requester):
    """A ``Requester``."""

    def __init__(self, addresses: str | Sequence[str], **options: Any) -> None:
        super().__init__(by_groups(addresses), **options)


class ClusterTransactionalProducer(TransactionalProducer):
    """A ``TransactionalProducer``."""

    def __init__(self, addresses: str | Sequence[str], **options: Any) -> None:
        super().__init__(by_groups(addresses), **options)


def by_groups(addresses: str | Sequence[str]) -> str | list[str]:
    """Addresses as they were given before: in a list each text is another group's."""
    if isinstance(addresses, str):
        return addresses
    if not addresses:
        raise ConfigError("no address of a node")
    return [f"{one}," for one in addresses]


def batch_of(batch: MessageBatch, groups: list[str]) -> ClusterBatch:
    """A batch as it was given before: also of the only group its name."""
    only = groups[0] if len(batch) and groups else ""
    return ClusterBatch(batch.broker_group or only, batch)


def old_name(module: str, name: str, names: Mapping[str, str], where: ModuleType) -> object:
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
    found: object = getattr(where, name)
    return found
