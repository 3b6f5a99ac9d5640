"""Client table: RocketMQ's clients connected to this node, by their heartbeats.

As in RocketMQ's ``ProducerManager`` and ``ConsumerManager`` this is known from heartbeats alone, is
kept in memory, and belongs to a connection: it goes with it. Otherwise than there each consumer has
a subscription of its own: members of a group that differ do not overwrite one another's. No clock:
the caller tells the time, in monotonic milliseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from ledgermq.broker.calls import CheckTopic, anybody
from ledgermq.gateway.transport.remoting_sockets import Connection
from ledgermq.model.config.settings import LimitsSection
from ledgermq.model.errors import BusyError, NoPermissionError
from ledgermq.model.rights import Right
from ledgermq.remoting.heartbeat import (
    ConsumerGroup,
    Heartbeat,
    MessageModel,
    Subscription,
)

ID_SHOWN_MAX = 100
EXPIRY_MS = 120_000
"""``CHANNEL_EXPIRED_TIMEOUT``: four heartbeats of a client."""


class Client(NamedTuple):
    """Who a connection says it is.

    Attributes:
        language: ``Language``, or another number.
        version: ``MQVersion``.
        check_topic: refuses topics that it may not use, by who has signed its last heartbeat.
    """

    client_id: str
    connection: Connection
    language: int
    version: int
    check_topic: CheckTopic = anybody

    def may_send(self, topic: str) -> bool:
        """Whether the client may send to ``topic``."""
        try:
            self.check_topic(topic, Right.PUB)
        except NoPermissionError:
            return False
        return True


class ConnectedConsumer(NamedTuple):
    """A member of a group, by its last heartbeat."""

    client_id: str
    connection: Connection
    group: ConsumerGroup


class Twins(NamedTuple):
    """Two consumers of a group that have one client id, and are there at the same time.

    RocketMQ's clients reckon their shares of queues from the ids: both take the same ones.
    """

    group: str
    client_id: str
    first: str
    second: str

    def __str__(self) -> str:
        return (
            f"two consumers have the client id {self.client_id[:ID_SHOWN_MAX]}, from {self.first}"
            f" and {self.second}: both get the same messages; give each its own instance name"
        )


class _Side(IntEnum):  # hashed with each heartbeat: an enum's own hash is a call of Python's
    PRODUCER = 0
    CONSUMER = 1


class _Place(NamedTuple):
    side: _Side
    group: str
    number: int


class ClientTable:
    """Who is connected, by connection and by group.

    Invariants: a group without members is not kept; who is in a group has a place in ``_seen``, the
    one that was heard of longest ago first, and in ``_places`` by connection and side. What ends
    costs what it had itself, however many groups there are.

    Attributes:
        limits: of the settings; may be replaced.
        producer_changes: grows when a client begins to produce for a group.
        consumer_changes: grows when another client consumes for a group, one does no more, wants
            other topics, or reads them otherwise.
    """

    def __init__(self, limits: LimitsSection, *, expiry_ms: int = EXPIRY_MS) -> None:
        self.limits = limits
        self.producer_changes = self.consumer_changes = 0
        self._opened: dict[str, str] = {}
        self._opened_by: Counter[str] = Counter()
        self._expiry_ms = expiry_ms
        self._clients: dict[int, Client] = {}
        self._producers: dict[str, dict[int, Client]] = {}
        self._producer_of: dict[str, Connection] = {}
        self._consumers: dict[str, dict[int, ConnectedConsumer]] = {}
        self._same: dict[tuple[str, str], dict[int, None]] = {}
        self._twins: dict[str, dict[str, Twins]] = {}
        self._seen: dict[_Place, int] = {}
        self._places: dict[tuple[int, _Side], dict[_Place, None]] = {}

    @property
    def producer_groups(self) -> list[str]:
        """Groups that somebody produces for."""
        return list(self._producers)

    @property
    def consumer_groups(self) -> list[str]:
        """Groups that somebody consumes for."""
        return list(self._consumers)

    def client(self, connection: Connection) -> Client | None:
        """Who that is; ``None`` before its first heartbeat."""
        return self._clients.get(connection.number)

    def clients_of(self, group: str) -> list[Client]:
        """Who produces for ``group``, in the order in which they came."""
        return list(self._producers.get(group, {}).values())

    def heard_ms(self, connection: Connection, *, producer_group: str) -> int:
        """When a producer of a group was heard of for the last time; 0 for none."""
        return self._seen.get(_Place(_Side.PRODUCER, producer_group, connection.number), 0)

    def producers(self, group: str) -> list[Connection]:
        """Connections of those who produce for ``group``, in the order in which they came."""
        return [client.connection for client in self._producers.get(group, {}).values()]

    def producer_of(self, client_id: str) -> Connection | None:
        """The connection of the producer that has this client id, the latest if several do."""
        return self._producer_of.get(client_id)

    def consumers(self, group: str) -> list[ConnectedConsumer]:
        """Who consumes for ``group``, in the order in which they came."""
        return list(self._consumers.get(group, {}).values())

    def consumer_ids(self, group: str) -> list[str]:
        """Client ids of those who consume for ``group``, each once.

        A client that has connected anew is there twice until its old connection is known to be
        gone, and would get two shares in RocketMQ.
        """
        return list(
            dict.fromkeys(
                consumer.client_id for consumer in self._consumers.get(group, {}).values()
            )
        )

    def consuming(self, topic: str) -> list[str]:
        """Groups of which a member subscribes to a topic now."""
        return [name for name in self._consumers if topic in (self.topics_of(name) or ())]

    def topics_of(self, group: str) -> set[str] | None:
        """Topics that the members of a group subscribe to; None when it has no member."""
        members = self._consumers.get(group)
        if members is None:
            return None
        return {one.topic for member in members.values() for one in member.group.subscriptions}

    def twins(self, group: str) -> list[Twins]:
        """Consumers of a group that have one client id."""
        return list(self._twins.get(group, {}).values())

    @property
    def groups_with_twins(self) -> list[str]:
        """Groups that have such consumers."""
        return list(self._twins)

    def subscription(self, connection: Connection, group: str, topic: str) -> Subscription | None:
        """What a consumer wants of a topic; the group's newest one when it has not said.

        So it goes on at once where it has connected anew and other members are there.
        """
        members = self._consumers.get(group)
        if members is None:
            return None
        own = members.get(connection.number)
        if own is not None:
            return _find(own.group.subscriptions, topic)
        found = (_find(one.group.subscriptions, topic) for one in members.values())
        return max((one for one in found if one is not None), key=_version, default=None)

    def model(self, connection: Connection, group: str) -> MessageModel | None:
        """How a consumer shares messages with its group; ``None`` when it has not said."""
        own = self._consumers.get(group, {}).get(connection.number)
        return None if own is None else own.group.model

    def heartbeat(
        self,
        connection: Connection,
        heartbeat: Heartbeat,
        now_ms: int,
        *,
        language: int = 0,
        version: int = 0,
        check_topic: CheckTopic = anybody,
    ) -> set[str]:
        """A client was heard of: the consumers' groups that are others by that.

        Those are where it is new, or wants other topics.

        Raises:
            BusyError: it would be in too many groups, or all clients in too many; nothing changed.
        """
        host = connection.peer[0]
        self._check_room(connection.number, host, heartbeat)
        client = Client(heartbeat.client_id, connection, language, version, check_topic)
        self._clients[connection.number] = client
        for group in heartbeat.producers:
            members_before = self._producers.setdefault(group, {})
            if not members_before:
                self._opened[group] = host
                self._opened_by[host] += 1
            self.producer_changes += connection.number not in members_before
            members_before[connection.number] = client
            self._producer_of[client.client_id] = connection
            self._see(_Place(_Side.PRODUCER, group, connection.number), now_ms)
        changed: set[str] = set()
        for wanted in heartbeat.consumers:
            members = self._consumers.setdefault(wanted.name, {})
            known = members.get(connection.number)
            is_other = known is None or _topics(known.group) != _topics(wanted)
            self.consumer_changes += (
                is_other
                or known is None
                or known.client_id != client.client_id
                or known.group.consume_type is not wanted.consume_type
            )
            members[connection.number] = ConnectedConsumer(client.client_id, connection, wanted)
            self._note_id(wanted.name, known, members[connection.number])
            self._see(_Place(_Side.CONSUMER, wanted.name, connection.number), now_ms)
            if is_other:
                changed.add(wanted.name)
        return changed

    def leave(self, connection: Connection, *, producer_group: str, consumer_group: str) -> bool:
        """A client says goodbye to these groups, empty for none; whether a consumer was there."""
        if producer_group:
            self._forget(_Place(_Side.PRODUCER, producer_group, connection.number))
        return bool(consumer_group) and self._forget(
            _Place(_Side.CONSUMER, consumer_group, connection.number)
        )

    def forget(self, connection: Connection) -> set[str]:
        """A connection has ended: the consumers' groups that lack a member by that."""
        if self._clients.pop(connection.number, None) is None:
            return set()
        producing, consuming = (
            list(self._places.get((connection.number, side), ())) for side in _Side
        )
        for place in (*producing, *consuming):
            self._forget(place)
        return {place.group for place in consuming}

    def expire(self, now_ms: int) -> list[ConnectedConsumer]:
        """Let go of who was not heard of for too long: the consumers among them."""
        late: list[ConnectedConsumer] = []
        while (due_ms := self.next_expiry_ms()) is not None and due_ms <= now_ms:
            place = next(iter(self._seen))
            if place.side is _Side.CONSUMER:
                late.append(self._consumers[place.group][place.number])
            self._forget(place)
        return late

    def next_expiry_ms(self) -> int | None:
        """When ``expire`` has something to do; ``None`` when nobody is here."""
        oldest = next(iter(self._seen.values()), None)
        return None if oldest is None else oldest + self._expiry_ms

    def _check_room(self, number: int, host: str, heartbeat: Heartbeat) -> None:
        """A client stays in its groups for a while; it may not name others again and again."""
        named = {
            _Side.PRODUCER: set(heartbeat.producers),
            _Side.CONSUMER: {one.name for one in heartbeat.consumers},
        }
        for side, groups in named.items():
            known = self._places.get((number, side), {})
            count = len(known) + sum(_Place(side, one, number) not in known for one in groups)
            if count > self.limits.groups_per_client:
                raise BusyError(
                    "client is in too many groups: it leaves those that it names no more after"
                    " two minutes",
                    groups=count,
                    limit=self.limits.groups_per_client,
                    setting="limits.groups_per_client",
                )
        fresh = {one for one in named[_Side.PRODUCER] if one not in self._producers}
        mine = self._opened_by[host] + len(fresh)
        if fresh and mine > self.limits.producer_groups_per_address:
            raise BusyError(
                "clients of one host produce for too many groups that only they have begun",
                address=host,
                groups=mine,
                limit=self.limits.producer_groups_per_address,
                setting="limits.producer_groups_per_address",
            )
        if len(self._producers) + len(fresh) > self.limits.producer_groups_max:
            raise BusyError(
                "all clients together produce for too many groups",
                groups=len(self._producers) + len(fresh),
                limit=self.limits.producer_groups_max,
                setting="limits.producer_groups_max",
            )

    def _note_id(
        self, group: str, known: ConnectedConsumer | None, consumer: ConnectedConsumer
    ) -> None:
        """Know by its id who was heard of; one that another has come behind is not the same client:
        who has connected anew is heard of there alone.
        """
        number, client_id = consumer.connection.number, consumer.client_id
        if known is not None and known.client_id != client_id:
            self._forget_id(group, known)
        same = self._same.setdefault((group, client_id), {})
        if number not in same:
            same[number] = None
            return
        last = next(reversed(same))
        if last != number:
            places = (
                f"{one.peer[0]}:{one.peer[1]}"
                for one in (consumer.connection, self._consumers[group][last].connection)
            )
            found = Twins(group, client_id, *places)
            self._twins.setdefault(group, {}).setdefault(client_id, found)

    def _forget_id(self, group: str, consumer: ConnectedConsumer) -> None:
        key = group, consumer.client_id
        same = self._same[key]
        del same[consumer.connection.number]
        if not same:
            del self._same[key]
        twins = self._twins.get(group, {})
        if len(same) < 2 and twins.pop(consumer.client_id, None) is not None and not twins:
            del self._twins[group]

    def _see(self, place: _Place, now_ms: int) -> None:
        self._seen.pop(place, None)
        self._seen[place] = now_ms
        self._places.setdefault((place.number, place.side), {})[place] = None

    def _forget(self, place: _Place) -> bool:
        if self._seen.pop(place, None) is None:
            return False
        left = self._places[place.number, place.side]
        del left[place]
        if not left:
            del self._places[place.number, place.side]
        if place.side is _Side.CONSUMER:
            members = self._consumers[place.group]
            self.consumer_changes += 1
            self._forget_id(place.group, members[place.number])
            del members[place.number]
            if not members:
                del self._consumers[place.group]
            return True
        producers = self._producers[place.group]
        client = producers.pop(place.number)
        if not producers:
            del self._producers[place.group]
            host = self._opened.pop(place.group)
            self._opened_by[host] -= 1
            if not self._opened_by[host]:
                del self._opened_by[host]
        if not left and self._producer_of.get(client.client_id) is client.connection:
            del self._producer_of[client.client_id]
        return True


def _find(subscriptions: Iterable[Subscription], topic: str) -> Subscription | None:
    return next((one for one in subscriptions if one.topic == topic), None)


def _version(subscription: Subscription) -> int:
    return subscription.version


def _topics(group: ConsumerGroup) -> set[str]:
    return {one.topic for one in group.subscriptions}
