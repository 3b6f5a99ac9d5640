"""Rebalance listener: an application's callbacks when queues come and go."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import NamedTuple

from ledgermq.client.groups.allocation import TopicQueue
from ledgermq.client.groups.group_member import Notice
from ledgermq.model.errors import ConfigError


class RebalanceListener:
    """To be derived from. ``AsyncGroupConsumer`` awaits what a method returns, if it can be.

    The methods are called from within ``poll`` and ``close``, never beside them.
    """

    def on_assigned(self, queues: Sequence[TopicQueue]) -> Awaitable[None] | None:
        """These queues are this consumer's from now on; ``seek`` may change where it begins."""

    def on_revoked(self, queues: Sequence[TopicQueue]) -> Awaitable[None] | None:
        """These queues are given away next: what was done of them can be committed now."""

    def on_lost(self, queues: Sequence[TopicQueue]) -> Awaitable[None] | None:
        """Somebody else has these queues already, as after a long pause of this process."""


class ClusterQueue(NamedTuple):
    """One queue of one topic in one group of brokers."""

    group: str
    topic: str
    queue_id: int

    @property
    def in_group(self) -> TopicQueue:
        """The queue as its own group knows it."""
        return TopicQueue(self.topic, self.queue_id)


class ClusterRebalanceListener:
    """The same of all groups of brokers; one call is about queues of one group.

    ``AsyncClusterGroupConsumer`` awaits what a method returns, if it can be.
    """

    def on_assigned(self, queues: Sequence[ClusterQueue]) -> Awaitable[None] | None:
        """See ``RebalanceListener.on_assigned``."""

    def on_revoked(self, queues: Sequence[ClusterQueue]) -> Awaitable[None] | None:
        """See ``RebalanceListener.on_revoked``; a ``commit`` is of all groups."""

    def on_lost(self, queues: Sequence[ClusterQueue]) -> Awaitable[None] | None:
        """See ``RebalanceListener.on_lost``; or their group has moved, or is gone for good."""


class GroupNotice(NamedTuple):
    """What a member in one of several groups of brokers is told."""

    group: str
    notice: Notice


def tell_cluster(listener: ClusterRebalanceListener, told: GroupNotice) -> Awaitable[None] | None:
    """Call the method that ``told`` is for."""
    methods = {
        "assigned": listener.on_assigned,
        "revoked": listener.on_revoked,
        "lost": listener.on_lost,
    }
    queues = [ClusterQueue(told.group, *one) for one in told.notice.queues]
    return methods[told.notice.change](queues)


def tell(listener: RebalanceListener, notice: Notice) -> Awaitable[None] | None:
    """Call the method that ``notice`` is for."""
    methods = {
        "assigned": listener.on_assigned,
        "revoked": listener.on_revoked,
        "lost": listener.on_lost,
    }
    return methods[notice.change](notice.queues)


def tell_at_once(listener: RebalanceListener, notice: Notice) -> None:
    """The same where nobody can await.

    Raises:
        ConfigError: the method is a coroutine.
    """
    if tell(listener, notice) is not None:
        raise ConfigError("listener is asynchronous: use AsyncGroupConsumer")
