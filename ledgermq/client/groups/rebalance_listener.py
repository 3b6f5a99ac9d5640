"""Rebalance listener: an application's callbacks when queues come and go."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import NamedTuple

from ledgermq.client.groups.allocation import ClusterQueue, TopicQueue
from ledgermq.client.groups.group_member import Notice
from ledgermq.model.errors import ConfigError


class RebalanceListener:
    """To be derived from. ``AsyncGroupConsumer`` awaits what a method returns, if it can be.

    The methods are called from within ``poll`` and ``close``, never beside them. In a cluster each
    queue is a ``ClusterQueue``, and one call is about queues of one group of nodes.
    """

    def on_assigned(self, queues: Sequence[TopicQueue]) -> Awaitable[None] | None:
        """These queues are this consumer's from now on; ``seek`` may change where it begins."""

    def on_revoked(self, queues: Sequence[TopicQueue]) -> Awaitable[None] | None:
        """These queues are given away next: what was done of them can be committed now."""

    def on_lost(self, queues: Sequence[TopicQueue]) -> Awaitable[None] | None:
        """Somebody else has these queues already, as after a long pause of this process.

        In a cluster their group may have moved, too, or be gone for good.
        """


def checked_listener(listener: RebalanceListener | None) -> RebalanceListener:
    """``listener``, or one that does nothing.

    Raises:
        ConfigError: it lacks a method, which would be found when queues come or go.
    """
    if listener is None:
        return RebalanceListener()
    methods = (name for name in vars(RebalanceListener) if name.startswith("on_"))
    missing = [name for name in methods if not callable(getattr(listener, name, None))]
    if missing or isinstance(listener, type):
        raise ConfigError("listener is no RebalanceListener", listener=listener, missing=missing)
    return listener


class GroupNotice(NamedTuple):
    """What a member in one of several groups of brokers is told."""

    group: str
    notice: Notice


def tell_cluster(listener: RebalanceListener, told: GroupNotice) -> Awaitable[None] | None:
    """Call the method that ``told`` is for."""
    queues = tuple(ClusterQueue(told.group, *one) for one in told.notice.queues)
    return tell(listener, told.notice._replace(queues=queues))


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
