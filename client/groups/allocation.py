"""Allocation of queues to the members of a group, which each member computes for itself.

All members compute from the same view, so that each queue is wanted by exactly one of them. Where
the views differ for a moment, the locks of the queues in the broker decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from ledgermq.model.errors import ConfigError

Strategy = Literal["average", "sticky"]


class TopicQueue(NamedTuple):
    """One queue of one topic."""

    topic: str
    queue_id: int


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


def share_of(client: str, view: GroupView, strategy: Strategy) -> frozenset[TopicQueue]:
    """The queues that ``client`` is to read.

    Whoever owns a queue counts as a member, although the broker may not have heard of it yet: a new
    leader learns of members one by one.
    """
    if strategy == "sticky":
        return _sticky(client, view)
    share: set[TopicQueue] = set()
    for topic, count in view.queues.items():
        members = _readers(topic, view)
        if client in members:
            share |= {TopicQueue(topic, one) for one in averagely(range(count), members, client)}
    return frozenset(share)


def averagely(queues: Sequence[int], members: Iterable[str], client: str) -> list[int]:
    """RocketMQ's ``AllocateMessageQueueAveragely``: neighbouring queues, the first get one more.

    Args:
        queues: of one topic, ascending.
        members: client ids, in any order; ``client`` is one of them.
    """
    ordered = sorted(members, key=_java_order)
    place = ordered.index(client)
    each, more = divmod(len(queues), len(ordered))
    begin = place * each + min(place, more)
    return list(queues[begin : begin + each + (place < more)])


def _sticky(client: str, view: GroupView) -> frozenset[TopicQueue]:
    """Who has a queue keeps it, as long as nobody has two more than somebody who could have it."""
    readers = {topic: sorted(_readers(topic, view), key=_java_order) for topic in view.queues}
    shares: dict[str, set[TopicQueue]] = {
        name: set() for names in readers.values() for name in names
    }
    queues = sorted(
        TopicQueue(topic, queue_id)
        for topic, count in view.queues.items()
        for queue_id in range(count)
        if readers[topic]
    )
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
    by_size = sorted(shares, key=lambda name: (len(shares[name]), _java_order(name)))
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


def _java_order(text: str) -> bytes:
    """Sorts as Java's ``String.compareTo`` does."""
    return text.encode("utf-16-be", "surrogatepass")
