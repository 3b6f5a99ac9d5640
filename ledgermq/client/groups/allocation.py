"""Allocation of queues to the members of a group, which each member computes for itself.

All members compute from the same view, so that each queue is wanted by exactly one of them. Where
the views differ for a moment, the locks of the queues in the broker decide.

Members that share the queues of all groups of brokers of a cluster do so in each of them by itself,
by what that group alone says: what one knew of other groups, another one might not know. But who
gets one queue more is another member in each group; see ``_ordered``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Self, get_args

from ledgermq.formats.java_hash import java_hash
from ledgermq.model.errors import ConfigError

OF_ALL_GROUPS = "@cluster"
"""Ends the id of a member that shares queues in all groups of brokers: where all of a group's
members are such, they take turns. A member of one group alone knows of no turns."""

Strategy = Literal["average", "sticky"]


class TopicQueue(NamedTuple):
    """One queue of one topic."""

    topic: str
    queue_id: int

    @property
    def group(self) -> str:
        """The group of nodes that it is in, in a cluster; empty elsewhere."""
        return ""


class ClusterQueue(TopicQueue):
    """One queue of one topic in one group of nodes of a cluster."""

    _group: str

    def __new__(cls, group: str, topic: str, queue_id: int) -> Self:
        made = super().__new__(cls, topic, queue_id)
        made._group = group
        return made

    @property
    def group(self) -> str:
        """The group of nodes that it is in."""
        return self._group

    @property
    def in_group(self) -> TopicQueue:
        """The queue as its own group knows it."""
        return TopicQueue(self.topic, self.queue_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterQueue) and (self.group, *self) == (other.group, *other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.group, *self))

    def __repr__(self) -> str:
        return f"ClusterQueue({self.group!r}, {self.topic!r}, {self.queue_id})"

    def __getnewargs__(self) -> tuple[str, str, int]:
        return self.group, self.topic, self.queue_id


class GroupView(NamedTuple):
    """A group as its broker sees it.

    Attributes:
        members: topics that each wants, by client id.
        owners: client id of whoever has the queue locked, by queue.
        queues: number of readable queues by topic.
    """

    members: Mapping[str, Sequence[str]]
    owners: Mapping[TopicQueue, str]
    queues: Mapping[str, int]


def check_strategy(strategy: str) -> None:
    """Refuse a strategy that is none.

    Raises:
        ConfigError: it is not.
    """
    if strategy not in get_args(Strategy):
        raise ConfigError("not a strategy", value=strategy, allowed=get_args(Strategy))


def share_of(
    client: str, view: GroupView, strategy: Strategy, broker_group: str = ""
) -> frozenset[TopicQueue]:
    """The queues that ``client`` is to read.

    Whoever owns a queue counts as a member, although the broker may not have heard of it yet: a new
    leader learns of members one by one.

    Args:
        broker_group: name of the group of brokers that the queues are in.
    """
    if strategy == "sticky":
        return _sticky(client, view, broker_group)
    share: set[TopicQueue] = set()
    for topic, count in view.queues.items():
        members = _readers(topic, view)
        if client in members:
            own = averagely(range(count), members, client, turn=topic + broker_group)
            share |= {TopicQueue(topic, one) for one in own}
    return frozenset(share)


def averagely(
    queues: Sequence[int], members: Iterable[str], client: str, *, turn: str = ""
) -> list[int]:
    """RocketMQ's ``AllocateMessageQueueAveragely``: neighbouring queues, the first get one more.

    Args:
        queues: of one topic, ascending.
        members: client ids, in any order; ``client`` is one of them.
        turn: see ``_ordered``.
    """
    ordered = _ordered(members, len(queues), turn)
    place = ordered.index(client)
    each, more = divmod(len(queues), len(ordered))
    begin = place * each + min(place, more)
    return list(queues[begin : begin + each + (place < more)])


def _sticky(client: str, view: GroupView, turn: str) -> frozenset[TopicQueue]:
    """Who has a queue keeps it, as long as nobody has two more than somebody who could have it."""
    found = {topic: _readers(topic, view) for topic in view.queues}
    queues = sorted(
        TopicQueue(topic, queue_id)
        for topic, count in view.queues.items()
        for queue_id in range(count)
        if found[topic]
    )
    members = _ordered(frozenset().union(*found.values()), len(queues), turn)
    readers = {topic: [name for name in members if name in found[topic]] for topic in found}
    shares: dict[str, set[TopicQueue]] = {name: set() for name in members}
    free: list[TopicQueue] = []
    for queue in queues:
        owner = view.owners.get(queue)
        if owner in readers[queue.topic]:
            shares[owner].add(queue)
        else:
            free.append(queue)
    for queue in free:
        least = min(readers[queue.topic], key=lambda name: len(shares[name]))
        shares[least].add(queue)
    while (move := _move(shares, readers)) is not None:
        queue, source, target = move
        shares[source].discard(queue)
        shares[target].add(queue)
    return frozenset(shares.get(client, ()))


def _move(
    shares: Mapping[str, set[TopicQueue]], readers: Mapping[str, Sequence[str]]
) -> tuple[TopicQueue, str, str] | None:
    """A queue that makes shares more even when another member gets it; ``None``: they are even."""
    by_size = sorted(shares, key=lambda name: len(shares[name]))
    for source in reversed(by_size):
        for target in by_size:
            if len(shares[source]) < len(shares[target]) + 2:
                break
            movable = [queue for queue in shares[source] if target in readers[queue.topic]]
            if movable:
                return max(movable), source, target
    return None


def _readers(topic: str, view: GroupView) -> set[str]:
    members = {client for client, topics in view.members.items() if topic in topics}
    # A known member that owns what it does not want any more is about to give it away.
    return members | {
        owner
        for queue, owner in view.owners.items()
        if queue.topic == topic and owner not in view.members
    }


def _ordered(members: Iterable[str], queues: int, turn: str) -> list[str]:
    """Members in the order in which they are given queues: the first ones get those left over.

    Where all share queues in all groups of brokers, the members behind those that get more by one
    turn's name get more by the next one's. The hash of RocketMQ's keys counts up with a name's last
    character: so loads are even over groups that are called ``orders-1``, ``orders-2`` and so on.
    """
    ordered = sorted(members, key=java_order)
    if queues and ordered and all(name.endswith(OF_ALL_GROUPS) for name in ordered):
        first = java_hash(turn) * (queues % len(ordered)) % len(ordered)
        ordered = ordered[first:] + ordered[:first]
    return ordered


def java_order(text: str) -> bytes:
    """Sorts as Java's ``String.compareTo`` does."""
    return text.encode("utf-16-be", "surrogatepass")
