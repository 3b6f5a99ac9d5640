"""Changes of the broker's tables, a class a kind; ``state_commands`` has their bytes.

Those of moves, sinks, clusters and share groups stand with their tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ledgermq.rules.cluster.cluster_commands import ClusterCommand
from ledgermq.rules.given_back import MessageGivenBack
from ledgermq.rules.tables.moves import Moved, MoveEnded
from ledgermq.rules.tables.share_changes import ShareChange
from ledgermq.rules.tables.sinks import SinkMoved, SinkSet

Fields = Mapping[str, object]


class Lock(NamedTuple):
    """Who alone may read a queue for its group.

    Attributes:
        owner: client id of the member.
        lease_ms: the lock ends so long after the owner was heard of for the last time.
    """

    owner: str
    lease_ms: int


class TopicSet(NamedTuple):
    """The topic is so from now on; without ``fields`` there is none of that name."""

    name: str
    fields: Fields | None


class GroupSet(NamedTuple):
    """The subscription group is so from now on; without ``fields`` there is none of that name."""

    name: str
    fields: Fields | None


class OffsetsSet(NamedTuple):
    """How far a group has consumed these queues; without ``offsets`` none is known any more."""

    group: str
    topic: str
    offsets: Mapping[int, int] | None


class LocksSet(NamedTuple):
    """Who owns these queues in a group from now on; ``None``: nobody."""

    group: str
    topic: str
    locks: Mapping[int, Lock | None]


class UserSet(NamedTuple):
    """The user is so from now on; without ``fields`` there is none of that name."""

    name: str
    fields: Fields | None


class QuotaSet(NamedTuple):
    """The quota is so from now on; without ``fields`` what the settings say holds."""

    owner: str
    fields: Fields | None


class ArchiveSet(NamedTuple):
    """The archive is so far from now on; without ``fields`` nothing waits for it."""

    name: str
    fields: Fields | None


class NamesSet(NamedTuple):
    """The namespace has these texts from now on; without ``fields`` it has none."""

    name: str
    fields: Fields | None


class SchemaSet(NamedTuple):
    """The subject has this version or rule from now on, or a version no more; without ``fields``
    there is none of that name.
    """

    name: str
    fields: Fields | None


class LevelSet(NamedTuple):
    """This feature level is in force from now on, if none above it is."""

    level: int


NamedSet = TopicSet | GroupSet | UserSet | QuotaSet | SinkSet | ArchiveSet | NamesSet | SchemaSet
TableChange = (
    NamedSet
    | OffsetsSet
    | LocksSet
    | SinkMoved
    | Moved
    | MoveEnded
    | LevelSet
    | ClusterCommand
    | ShareChange
)
Change = TableChange | MessageGivenBack
