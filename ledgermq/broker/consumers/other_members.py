"""Group members of the other protocol: a group is consumed by one kind at a time.

Ours share its queues by locks, RocketMQ's reckon their shares from the list of members: together
they would read some queues twice, and others not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from ledgermq.rules.consumers.enrolment import Member

OTHER_OWNER_PREFIX = "rocketmq/"
"""Prefix of the client ids of members that own queues and are not our own."""


TWINS_LINE = (
    "two consumers of a group have one client id: group=%s client=%s hosts=%s and %s;"
    " the first one is refused: give each its own name"
)
"""Log line about two members of our own kind that are both there."""


class MemberSource(Protocol):
    """Who knows members of another kind."""

    def counts(self) -> Mapping[str, int]:
        """How many there are of each group that has some."""
        ...

    def members(self, group: str) -> list[Member]:
        """Those of a group, in the order in which they came."""
        ...

    def queue_by_queue(self, group: str) -> list[str]:
        """Client ids of those of a group that do not take messages singly."""
        ...

    def warnings(self) -> Mapping[str, list[str]]:
        """What is wrong with groups, by group."""
        ...


def _nobody(_group: str) -> list[str]:
    return []


class OtherMembers:
    """Where those who know the members of each kind find one another.

    Attributes:
        own: client ids of our own kind that consume for a group, or own queues of it.
        locked: groups of which our own kind owns queues, by the log, be the owners there or not.
    """

    def __init__(self) -> None:
        self.own: Callable[[str], Collection[str]] = _nobody
        self.locked: Callable[[], Collection[str]] = tuple
        self._source: MemberSource | None = None

    def join(self, source: MemberSource) -> None:
        """Ask ``source``, too."""
        assert self._source is None
        self._source = source

    def counts(self) -> Mapping[str, int]:
        """How many members of another kind each group has; groups without any are left out."""
        return {} if self._source is None else self._source.counts()

    def warnings(self) -> Mapping[str, list[str]]:
        """What is wrong with groups that have members of another kind, by group."""
        return {} if self._source is None else self._source.warnings()

    def members(self, group: str) -> list[Member]:
        """Members of another kind."""
        return [] if self._source is None else self._source.members(group)

    def queue_by_queue(self, group: str) -> list[str]:
        """Client ids of members of another kind that do not take messages singly."""
        return [] if self._source is None else self._source.queue_by_queue(group)
