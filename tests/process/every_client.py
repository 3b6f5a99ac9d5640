"""Every kind of client: how it is made, and something that it can do at any node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ledgermq import client
from ledgermq.client import (
    Admin,
    Consumer,
    DeadLetters,
    GroupConsumer,
    Producer,
    Queries,
    Requester,
    ShareConsumer,
    TraceTopic,
    TransactionalProducer,
    aio,
)
from ledgermq.client.aio import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncDeadLetters,
    AsyncGroupConsumer,
    AsyncProducer,
    AsyncQueries,
    AsyncRequester,
    AsyncShareConsumer,
    AsyncTransactionalProducer,
)
from ledgermq.client.closing import Ending
from ledgermq.client.core.asked import AskedVerb
from ledgermq.client.old_names import AWAITED as AWAITED_BEFORE
from ledgermq.client.old_names import WAITING as WAITING_BEFORE
from ledgermq.client.old_names import (
    AsyncClusterConsumer,
    AsyncClusterGroupConsumer,
    AsyncClusterProducer,
    AsyncClusterRequester,
    AsyncClusterTransactionalProducer,
    AsyncGroupAdmins,
    ClusterConsumer,
    ClusterGroupConsumer,
    ClusterProducer,
    ClusterRequester,
    ClusterTransactionalProducer,
    GroupAdmins,
)
from ledgermq.client.staging import SinkClient
from ledgermq.model.names.transactions import Decision

TOPIC = "everything"
POLL_S = 5.0

Table = dict[type[Any], tuple[Callable[[str], Any], Callable[[Any], object]]]


def commits(_: str) -> Decision:
    """The local part of a transaction."""
    return Decision.COMMIT


async def nothing(_: Any) -> None:
    """Being opened is enough."""


def grouped(consumer: Any) -> Any:
    """A member of a group that has subscribed."""
    consumer.subscribe(TOPIC)
    return consumer


BLOCKING: Table = {
    Producer: (Producer, lambda one: one.send(TOPIC, b"x").result()),
    Consumer: (lambda at: Consumer(at, topic=TOPIC), lambda one: one.poll(POLL_S)),
    GroupConsumer: (
        lambda at: grouped(GroupConsumer(at, group="members")),
        lambda one: one.poll(POLL_S),
    ),
    Admin: (Admin, lambda one: one.topics()),
    Queries: (Queries, lambda one: one.by_key(TOPIC, "x")),
    DeadLetters: (lambda at: DeadLetters(at, group="members"), lambda one: one.queues()),
    SinkClient: (SinkClient, lambda _: None),
    Requester: (Requester, lambda _: None),
    ShareConsumer: (
        lambda at: ShareConsumer(at, group="sharers", topic=TOPIC),
        lambda one: one.poll(POLL_S),
    ),
    TraceTopic: (TraceTopic, lambda one: one.flush()),
    TransactionalProducer: (
        lambda at: TransactionalProducer(at, group="producers"),
        lambda one: one.send(TOPIC, b"x", commits),
    ),
    ClusterProducer: (lambda at: ClusterProducer([at]), lambda one: one.send(TOPIC, b"x").result()),
    ClusterConsumer: (
        lambda at: ClusterConsumer([at], topic=TOPIC),
        lambda one: one.poll(POLL_S),
    ),
    ClusterGroupConsumer: (
        lambda at: grouped(ClusterGroupConsumer([at], group="others")),
        lambda one: one.poll(POLL_S),
    ),
    ClusterRequester: (lambda at: ClusterRequester([at]), lambda one: one.groups()),
    ClusterTransactionalProducer: (
        lambda at: ClusterTransactionalProducer([at], group="producers"),
        lambda one: one.send(TOPIC, b"x", commits),
    ),
    GroupAdmins: (GroupAdmins, lambda one: one.groups()),
}

AWAITED: Table = {
    AsyncProducer: (AsyncProducer, lambda one: one.send(TOPIC, b"x")),
    AsyncConsumer: (lambda at: AsyncConsumer(at, topic=TOPIC), lambda one: one.poll(POLL_S)),
    AsyncGroupConsumer: (
        lambda at: grouped(AsyncGroupConsumer(at, group="members")),
        lambda one: one.poll(POLL_S),
    ),
    AsyncAdmin: (AsyncAdmin, lambda one: one.topics()),
    AsyncQueries: (AsyncQueries, lambda one: one.by_key(TOPIC, "x")),
    AsyncDeadLetters: (lambda at: AsyncDeadLetters(at, group="members"), lambda one: one.queues()),
    AsyncRequester: (AsyncRequester, nothing),
    AsyncShareConsumer: (
        lambda at: AsyncShareConsumer(at, group="sharers", topic=TOPIC),
        lambda one: one.poll(POLL_S),
    ),
    AsyncTransactionalProducer: (
        lambda at: AsyncTransactionalProducer(at, group="producers"),
        lambda one: one.transaction().leave_open(),
    ),
    AsyncClusterProducer: (
        lambda at: AsyncClusterProducer([at]),
        lambda one: one.send(TOPIC, b"x"),
    ),
    AsyncClusterConsumer: (
        lambda at: AsyncClusterConsumer([at], topic=TOPIC),
        lambda one: one.poll(POLL_S),
    ),
    AsyncClusterGroupConsumer: (
        lambda at: grouped(AsyncClusterGroupConsumer([at], group="others")),
        lambda one: one.poll(POLL_S),
    ),
    AsyncClusterRequester: (lambda at: AsyncClusterRequester([at]), nothing),
    AsyncClusterTransactionalProducer: (
        lambda at: AsyncClusterTransactionalProducer([at], group="producers"),
        nothing,
    ),
    AsyncGroupAdmins: (AsyncGroupAdmins, lambda one: one.groups()),
}


def verbs_of(kind: type[Any]) -> list[str]:
    """The public methods of a client, but ``close``."""
    names = {name for one in kind.__mro__ if one is not object for name in vars(one)}
    told = (name for name in names if not name.startswith("_") and not hasattr(Ending, name))
    return sorted(name for name in told if name != "close" and is_verb(kind, name))


def is_verb(kind: type[Any], name: str) -> bool:
    """Whether it is a method, and no property."""
    found = next(vars(one)[name] for one in kind.__mro__ if name in vars(one))
    return isinstance(found, AskedVerb) or callable(found)


OF_CLUSTERS = ("ledgermq.client.clusters.cluster_", "ledgermq.client.aio.cluster_")
"""Modules of what the clients of applications have in a cluster."""


def kinds(of: type[Any] = Ending) -> Iterator[type[Any]]:
    """Every client class that applications make."""
    for kind in of.__subclasses__():
        is_public = kind.__name__ in (
            *client.__all__,
            *aio.__all__,
            *WAITING_BEFORE,
            *AWAITED_BEFORE,
        )
        is_inner = bool(kind.__subclasses__()) or kind.__module__.startswith(OF_CLUSTERS)
        if kind.__module__.startswith("ledgermq.client.") and (is_public or not is_inner):
            yield kind
        yield from kinds(kind)
