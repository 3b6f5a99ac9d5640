"""Table of the brokers that have registered at this node, by the rules of RocketMQ's name servers.

It is in the memory of the process that answers for routes, and nowhere else: brokers register again
within half a minute.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.registration import (
    RegisteredBroker,
    Registration,
    TableVersion,
    TopicShape,
)
from ledgermq.remoting.routes import LEADER_ID, BrokerAddresses
from ledgermq.rules.tables.topics import READ_WRITE, Permission

logger = logging.getLogger(__name__)

SILENT_MS = 120_000
"""A broker that has said nothing for so long is dropped (``BROKER_CHANNEL_EXPIRED_TIME``)."""

BROKER_NAMES_MAX = 1_024
ADDRESSES_PER_NAME_MAX = 64
CLUSTERS_PER_NAME_MAX = 16
TOPIC_ROWS_MAX = 200_000
"""Topics of all broker names together, one that is at two of them counted twice."""


@dataclass(slots=True)
class _Live:
    """A broker that lives: what its address has told last.

    Attributes:
        connection: number of the one over which it has.
        version: of its topics, as they were taken; None: they are to be told whole.
        ha_address: where its slaves get the log.
        digest: of all that it has told.
    """

    name: str
    id: int
    connection: int
    heard_ms: int
    version: TableVersion | None
    ha_address: str
    digest: bytes


@dataclass(slots=True)
class _Name:
    """A broker name; ``clusters`` are those under which it was registered, the first one its own.

    Invariants: there is an address, and each is in ``RegisteredBrokers._live`` with its id;
    ``topics`` are those that have the name in ``RegisteredBrokers._topics``, so that what one
    broker tells costs nothing for what all others have told.
    """

    clusters: list[str]
    addresses: dict[int, str] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)


class RegisteredBrokers:
    """Owned by the port; times are monotonic ms.

    Invariants: ``_live`` has whoever was heard of longest ago first; a topic is in ``_topics`` with
    the names, of those in ``_names``, that have it, and ``_rows`` counts these; ``_connections``
    counts those that live by each.
    """

    def __init__(self) -> None:
        self._live: OrderedDict[str, _Live] = OrderedDict()
        self._connections: Counter[int] = Counter()
        self._names: dict[str, _Name] = {}
        self._topics: dict[str, dict[str, TopicShape]] = {}
        self._rows = 0

    def __len__(self) -> int:
        return len(self._live)

    def repeats(self, broker: RegisteredBroker, digest: bytes) -> bool:
        """Whether a broker has told that already, and nothing of it was taken away since."""
        live = self._live.get(broker.address)
        if live is None or live.version is None or live.digest != digest:
            return False
        name = self._names[live.name]
        return (live.name, live.id) == (broker.name, broker.id) and broker.cluster in name.clusters

    def register(
        self,
        broker: RegisteredBroker,
        told: Registration,
        *,
        connection: int,
        now_ms: int,
        digest: bytes = b"",
    ) -> None:
        """Take what a broker tells; topics of the one with id 0 alone, if they are news.

        Args:
            connection: its number; when that has ended, so has the broker.
            digest: of all that it tells; see ``repeats``.

        Raises:
            ProtocolError: there would be too many; nothing has changed.
        """
        self._check(broker, told)
        live = self._live.get(broker.address)
        if live is not None and live.name != broker.name:
            self._drop(broker.address, f"is {broker.name} now")
            live = None
        name = self._names.setdefault(broker.name, _Name([]))
        if live is not None and live.id != broker.id:
            # It has another role now. The topics stay, whether somebody leads or not.
            del name.addresses[live.id]
        if broker.cluster not in name.clusters:
            if name.clusters:
                logger.warning(
                    "broker is registered in two clusters: name=%s address=%s first=%s other=%s",
                    broker.name,
                    broker.address,
                    name.clusters[0],
                    broker.cluster,
                )
            name.clusters.append(broker.cluster)
        before = name.addresses.get(broker.id)
        is_first = before != broker.address
        if is_first:
            self._place(name, broker, before)
        if broker.id == LEADER_ID and (is_first or live is None or live.version != told.version):
            self._merge(broker.name, name, told)
        version: TableVersion | None = told.version
        if is_first and len(told.topics) == 1 and not told.is_whole:
            # RocketMQ's brokers tell of a changed topic alone, with the version of all: they may
            # not have been asked yet for the others.
            version = None
        self._end(broker.address)
        self._live[broker.address] = _Live(
            broker.name, broker.id, connection, now_ms, version, told.ha_address, digest
        )
        self._connections[connection] += 1

    def unregister(self, broker: RegisteredBroker) -> None:
        """Forget an address, if it has that name.

        By its address, and not by its id: the farewell of one that led may come after the next one
        has registered.
        """
        live = self._live.get(broker.address)
        if live is not None and live.name == broker.name:
            self._drop(broker.address, "has said goodbye")

    def hear(self, address: str, *, connection: int, now_ms: int) -> None:
        """A broker has said that it lives, and that nothing is new."""
        live = self._end(address)
        if live is not None:
            live.heard_ms, live.connection = now_ms, connection
            self._live[address] = live
            self._connections[connection] += 1

    def version_of(self, address: str) -> TableVersion | None:
        """That of what a broker has told; None when it has to tell it, perhaps again."""
        live = self._live.get(address)
        return None if live is None else live.version

    def forget(self, connection: int) -> None:
        """A connection has ended, and the brokers with it that were heard over it."""
        if connection not in self._connections:
            return
        for address in [one for one, live in self._live.items() if live.connection == connection]:
            self._drop(address, "connection has ended")

    def next_deadline_ms(self) -> int | None:
        """When the first one has been silent for too long."""
        first = next(iter(self._live.values()), None)
        return None if first is None else first.heard_ms + SILENT_MS

    def expire(self, now_ms: int) -> None:
        """Drop who is silent."""
        while (due_ms := self.next_deadline_ms()) is not None and due_ms <= now_ms:
            self._drop(next(iter(self._live)), f"has been silent for {SILENT_MS // 1_000} s")

    def brokers(self, names: Iterable[str] | None = None) -> list[BrokerAddresses]:
        """Broker names with their addresses: those that are asked for, or all."""
        found = self._names if names is None else names
        return [
            BrokerAddresses(one.clusters[0], name, dict(one.addresses))
            for name in sorted(found)
            if (one := self._names.get(name)) is not None
        ]

    def master_of(self, name: str) -> tuple[str, str] | None:
        """Address of the broker with id 0, and where slaves get its log; None: there is none."""
        one = self._names.get(name)
        address = None if one is None else one.addresses.get(LEADER_ID)
        return None if address is None else (address, self._live[address].ha_address)

    def clusters(self) -> Iterator[tuple[str, str]]:
        """Clusters, each with a name that was registered in it."""
        for name, one in self._names.items():
            for cluster in one.clusters:
                yield cluster, name

    def topics(self) -> Mapping[str, Mapping[str, TopicShape]]:
        """All topics, each as the broker names have it that have it."""
        return self._topics

    def of_topic(self, topic: str) -> Mapping[str, TopicShape]:
        """A topic as the broker names have it."""
        return self._topics.get(topic, {})

    def order_of(self, topic: str) -> list[str]:
        """Where which queues of a topic are for ever, as ``orderTopicConf`` has it, by name.

        Clients send to all of these queues, whatever the permission: a broker that takes nothing is
        not among them, or its keys would be refused for as long as it has them.
        """
        return [
            f"{name}:{shape.write_queues}"
            for name, shape in sorted(self.of_topic(topic).items())
            if shape.is_ordered and shape.perm & Permission.WRITE
        ]

    def of_cluster(self, cluster: str) -> set[str]:
        """Topics of the broker names of a cluster."""
        return {
            topic
            for name in self._names.values()
            if cluster in name.clusters
            for topic in name.topics
        }

    def close_writes(self, name: str) -> int | None:
        """Show a broker's topics as closed for producers; how many, None: there is no such one.

        Each of them until the broker tells of another version, as with RocketMQ's name servers.
        """
        return self._permit(name, lambda perm: perm & ~int(Permission.WRITE))

    def open_writes(self, name: str) -> int | None:
        """Show them as open; see ``close_writes``."""
        return self._permit(name, lambda _perm: int(READ_WRITE))

    def delete_topic(self, topic: str, cluster: str = "") -> bool:
        """Forget a topic, or what brokers of a cluster have of it; whether there was something.

        A broker that has it nevertheless will be asked for all that it has.
        """
        at = self._topics.get(topic, {})
        names = [one for one in at if not cluster or cluster in self._names[one].clusters]
        for name in names:
            self._forget_topic(topic, name)
            for live in self._live.values():
                if live.name == name:
                    live.version = None
        return bool(names)

    def _check(self, broker: RegisteredBroker, told: Registration) -> None:
        name = self._names.get(broker.name)
        if name is None:
            _check_count("broker names that are registered", len(self._names), BROKER_NAMES_MAX)
        else:
            if broker.id not in name.addresses:
                _check_count("brokers of a name", len(name.addresses), ADDRESSES_PER_NAME_MAX)
            if broker.cluster not in name.clusters:
                _check_count("clusters of a broker", len(name.clusters), CLUSTERS_PER_NAME_MAX)
        if broker.id == LEADER_ID:
            known = set() if name is None else name.topics
            new = len(told.topics.keys() - known)
            if new:
                _check_count("topics of other brokers", self._rows + new - 1, TOPIC_ROWS_MAX)

    def _place(self, name: _Name, broker: RegisteredBroker, before: str | None) -> None:
        """Give an address its id; who had it may register under another one."""
        name.addresses[broker.id] = broker.address
        if before is not None:
            self._end(before)
        logger.info(
            "broker registered: name=%s cluster=%s id=%d address=%s before=%s",
            broker.name,
            broker.cluster,
            broker.id,
            broker.address,
            before or "none",
        )

    def _merge(self, broker_name: str, name: _Name, told: Registration) -> None:
        if told.is_whole:
            for topic in name.topics - told.topics.keys():
                self._forget_topic(topic, broker_name)
        for topic, shape in told.topics.items():
            self._topics.setdefault(topic, {})[broker_name] = shape
        self._rows += len(told.topics.keys() - name.topics)
        name.topics.update(told.topics)

    def _permit(self, name: str, change: Callable[[int], int]) -> int | None:
        if name not in self._names:
            return None
        topics = self._names[name].topics
        for topic in topics:
            at = self._topics[topic]
            at[name] = at[name]._replace(perm=change(at[name].perm))
        return len(topics)

    def _forget_topic(self, topic: str, name: str) -> None:
        """What a name has of a topic, which is in ``_names`` yet."""
        at = self._topics[topic]
        del at[name]
        self._names[name].topics.remove(topic)
        self._rows -= 1
        if not at:
            del self._topics[topic]

    def _end(self, address: str) -> _Live | None:
        """Know no more whether an address lives."""
        live = self._live.pop(address, None)
        if live is not None:
            self._connections[live.connection] -= 1
            if not self._connections[live.connection]:
                del self._connections[live.connection]
        return live

    def _drop(self, address: str, reason: str) -> None:
        live = self._end(address)
        assert live is not None, address
        name = self._names[live.name]
        del name.addresses[live.id]
        logger.info(
            "broker dropped: name=%s id=%d address=%s reason=%s",
            live.name,
            live.id,
            address,
            reason,
        )
        if not name.addresses:
            for topic in list(name.topics):
                self._forget_topic(topic, live.name)
            del self._names[live.name]


def _check_count(what: str, count: int, limit: int) -> None:
    """Refuse one more.

    Raises:
        ProtocolError: there are as many as there may be.
    """
    if count >= limit:
        raise ProtocolError(f"too many {what}", found=count, limit=limit)
