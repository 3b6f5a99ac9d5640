"""Enrolment of consumers in a group: they join with a heartbeat, and expire without one.

RocketMQ's ``ConsumerManager`` and ``ConsumerGroupInfo`` without its trap: each member has a
subscription of its own, and those that differ are told of, not overwritten. No clock, no socket:
the caller tells the time, and answers those who wait when the version of their group changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ledgermq.model.errors import NoPermissionError
from ledgermq.model.names.group_topics import RETRY_PREFIX

CLUSTERING = "clustering"
BROADCASTING = "broadcasting"
MODELS = (CLUSTERING, BROADCASTING)

REPLACED_MAX = 10_000
"""Members whose id another one has now, remembered."""

SHOWN_MAX = 200
"""Letters of what a member wants, where it is told to people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One consumer of a group, as its last heartbeat describes it.

    Attributes:
        client: id, unique in the group: what the members sort to share queues.
        instance: of the client object; two that have one id differ in it.
        host: where it runs, as it says itself.
        model: ``clustering`` or ``broadcasting``.
        start: where it begins to read a queue without a committed offset.
        ordered: whether it keeps the order of each queue, also when another member takes it over.
        strategy: how it shares queues.
        subscription: expression by topic.
    """

    client: str
    instance: str
    host: str
    model: str
    start: str
    ordered: bool
    strategy: str
    subscription: Mapping[str, str]

    @property
    def size(self) -> int:
        """Characters that it takes to say so."""
        texts = (self.client, self.instance, self.host, self.model, self.start, self.strategy)
        wanted = self.subscription.items()
        return sum(map(len, texts)) + sum(len(topic) + len(text) for topic, text in wanted)


class SubscriptionDifference(NamedTuple):
    """Two members of a group that do not want the same: one of them may miss messages.

    Attributes:
        client, other: their ids; ``client`` was there first.
        what: ``topics``, ``expression``, ``model``, ``ordered`` or ``strategy``.
        topic: which topic, where it is about one.
        wants, other_wants: what they say.
    """

    client: str
    other: str
    what: str
    topic: str
    wants: str
    other_wants: str

    def __str__(self) -> str:
        of_topic = f" of topic {self.topic}" if self.topic else ""
        return (
            f"members differ in {self.what}{of_topic}: {_short(self.client)} has"
            f" {_short(self.wants)}, {_short(self.other)} has {_short(self.other_wants)}"
        )


class _Place(NamedTuple):
    group: str
    client: str


class Enrolment:
    """The members of all groups.

    Invariants: a group without members is not kept; ``size`` is the sum of all members', and
    ``_topics`` has that of the topics that each group's members want;
    ``_replaced`` has at most ``REPLACED_MAX``; ``version`` changes with every change of a
    group's members or their subscriptions, and is never the same in two lives of this object.
    """

    def __init__(self, *, epoch: str, expiry_ms: int) -> None:
        """Nobody is a member yet.

        Args:
            epoch: a text that no other ``Enrolment`` had.
            expiry_ms: a member that was not heard of for so long is none any more.
        """
        self._epoch = epoch
        self._expiry_ms = expiry_ms
        self.size = 0
        self._groups: dict[str, dict[str, Member]] = {}
        self._versions: dict[str, int] = {}
        self._topics: Counter[str] = Counter()
        self._count = 0
        # Oldest heartbeat first.
        self._seen: dict[_Place, int] = {}
        self._replaced: dict[tuple[_Place, str], int] = {}

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def groups(self) -> list[str]:
        """Groups that have members."""
        return list(self._groups)

    def members(self, group: str) -> list[Member]:
        """The members of ``group``, in the order in which they came."""
        return list(self._groups.get(group, {}).values())

    def topics(self, group: str) -> int:
        """How many topics the members of ``group`` want, each counted for itself."""
        return self._topics[group] if group in self._groups else 0

    def version(self, group: str) -> str:
        """Names what ``group`` is now."""
        return f"{self._epoch}-{self._versions.get(group, 0)}"

    def member(self, group: str, client: str) -> Member | None:
        """The member of ``group`` with this id."""
        return self._groups.get(group, {}).get(client)

    def heartbeat(self, group: str, member: Member, now_ms: int) -> bool:
        """A member was heard of; true when the group is another one by that.

        Raises:
            NoPermissionError: another client came later with the same id, and has it now.
        """
        place = _Place(group, member.client)
        if (place, member.instance) in self._replaced:
            raise NoPermissionError(
                "another consumer of the group has this client id now; give each its own name",
                group=group,
                client=member.client,
            )
        members = self._groups.setdefault(group, {})
        known = members.get(member.client)
        if known is not None and known.instance != member.instance:
            if len(self._replaced) >= REPLACED_MAX:
                del self._replaced[next(iter(self._replaced))]
            self._replaced[place, known.instance] = now_ms
        self._seen.pop(place, None)
        self._seen[place] = now_ms
        if known == member:
            return False
        self.size += member.size - (0 if known is None else known.size)
        self._topics[group] += len(member.subscription)
        self._topics[group] -= 0 if known is None else len(known.subscription)
        members[member.client] = member
        self.changed(group)
        return True

    def leave(self, group: str, client: str, instance: str) -> bool:
        """A member says goodbye; true when it was one."""
        member = self._groups.get(group, {}).get(client)
        if member is None or member.instance != instance:
            return False
        self._forget(_Place(group, client))
        return True

    def expire(self, now_ms: int) -> list[tuple[str, str]]:
        """Let go of members that were not heard of for too long: their groups and ids."""
        late: list[tuple[str, str]] = []
        while (due_ms := self.next_expiry_ms()) is not None and due_ms <= now_ms:
            place = next(iter(self._seen))
            self._forget(place)
            late.append((place.group, place.client))
        # As long as its own heartbeat counts: afterwards it would be a member that comes anew.
        self._replaced = {
            key: at for key, at in self._replaced.items() if now_ms - at < 10 * self._expiry_ms
        }
        return late

    def next_expiry_ms(self) -> int | None:
        """When ``expire`` may have something to do; ``None`` without members."""
        oldest = next(iter(self._seen.values()), None)
        return None if oldest is None else oldest + self._expiry_ms

    def changed(self, group: str) -> None:
        """Give ``group`` another version: who reads which queue is another, for instance."""
        self._count += 1
        self._versions[group] = self._count

    def differences(self, group: str) -> Iterator[SubscriptionDifference]:
        """Differences of the members from the first one; none when all want the same."""
        members = iter(self.members(group))
        first = next(members, None)
        for other in members:
            assert first is not None
            if _wants(other) != _wants(first):
                yield from _compare(first, other)

    def _forget(self, place: _Place) -> None:
        del self._seen[place]
        members = self._groups[place.group]
        member = members.pop(place.client)
        self.size -= member.size
        self._topics[place.group] -= len(member.subscription)
        if members:
            self.changed(place.group)
        else:
            del self._groups[place.group], self._topics[place.group]
            self._versions.pop(place.group, None)


def _short(text: str) -> str:
    """Clients choose these texts, and each of them may be thousands of letters."""
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def _wants(member: Member) -> tuple[object, ...]:
    return member.subscription, member.model, member.strategy, member.ordered


def _compare(first: Member, other: Member) -> list[SubscriptionDifference]:
    said: list[tuple[str, str, str, str]] = []
    mine, its = _topics_of(first), _topics_of(other)
    if mine != its:
        said.append(("topics", "", ", ".join(mine) or "none", ", ".join(its) or "none"))
    for topic in first.subscription.keys() & other.subscription.keys():
        wants = first.subscription[topic], other.subscription[topic]
        said.append(("expression", topic, *wants))
    said.append(("model", "", first.model, other.model))
    said.append(("strategy", "", first.strategy, other.strategy))
    orders = ("any order", "the order of each queue")
    said.append(("ordered", "", orders[first.ordered], orders[other.ordered]))
    return [
        SubscriptionDifference(first.client, other.client, what, topic, wants, other_wants)
        for what, topic, wants, other_wants in said
        if wants != other_wants
    ]


def _topics_of(member: Member) -> list[str]:
    """What a member was told to read; the group's retry topic goes without saying."""
    return sorted(topic for topic in member.subscription if not topic.startswith(RETRY_PREFIX))
