"""Feature levels: what a version adds to the log and to what members say, by number.

A group has one level in force, which is state in its log and never goes down; what a level adds
stays off below it. Each member tells the others the highest level that it knows
(``wire/peer_preamble.py``), and a level can be put in force once all of them know it.
docs/decisions/0060.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, TypedDict


class FeatureLevel(NamedTuple):
    """One level.

    Attributes:
        adds: what it brings, in a sentence.
        version: the first version that knows it.
        changes: kinds of changes of the broker's tables that it brings, by their key in a command
            of the log (``rules/state/state_commands.py``).
        tables: tables that it brings, by the name of their file.
    """

    number: int
    adds: str
    version: str
    changes: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()


class MemberLevel(TypedDict):
    """What one member has told, learners and witnesses included.

    ``level``: the highest that it knows; None: it was not heard of since the raft process began.
    ``away``: this node leads, and has not heard of it for a while.
    """

    node: str
    level: int | None
    away: bool


LEVELS = (
    FeatureLevel(
        0,
        "all that 0.1.0 writes and says",
        "0.1.0",
        (
            *("topic", "group", "consumed", "user", "quota", "archive", "names", "owned"),
            *("moved", "ended", "sink", "sink_moved", "given_back"),
        ),
        (
            *("topics.json", "subscriptionGroup.json", "consumerOffset.json", "queue-locks.json"),
            *("access.json", "quotas.json", "delayOffset.json", "moves.json", "sinks.json"),
            *("archives.json", "name-values.json"),
        ),
    ),
    FeatureLevel(
        1,
        "the level itself in the log: members that know less are not let in",
        "0.2.0",
        ("level",),
        ("features.json",),
    ),
    FeatureLevel(
        2, "direct connections between members, between any two that know of them", "0.3.0"
    ),
    FeatureLevel(
        3,
        "clusters of several groups: who is the home, and its signed documents",
        "0.3.0",
        ("cluster", "cluster_document"),
        ("cluster.json",),
    ),
    FeatureLevel(4, "witnesses without bodies, and what is said to them", "0.3.0"),
    FeatureLevel(5, "schemas of topics", "0.3.0", ("schema",), ("schemas.json",)),
    FeatureLevel(
        6, "topics over the groups of a cluster: rows of its home that each group follows", "0.3.0"
    ),
    FeatureLevel(
        7,
        "share groups: any number of consumers on one queue",
        "0.4.0",
        ("shared", "unshared"),
        ("share-groups.json",),
    ),
)
"""Each kind of change and each table stands at one of them: below that it does not come into the
log. What a level adds otherwise, as a field of a row, whoever writes it asks for the level."""

LEVEL = LEVELS[-1].number
"""The highest level that this version knows."""

_NUMBERS = re.compile(r"(?:[0-9]+:)?([0-9]+(?:\.[0-9]+)*)")

LEVEL_OF_DIRECT = 2
"""Members that know less are not told of direct connections; nothing else depends on it."""

LEVEL_OF_BODILESS = 4
"""From then on a group may have witnesses without bodies: who knows less takes one for a member
that holds everything."""

LEVEL_OF_SPREAD = 6
"""From then on a home has rows of topics, and a group follows them."""

LEVEL_MAX = 255
"""A member tells its level in one byte."""

LEVEL_OF_CHANGE = {change: level.number for level in LEVELS for change in level.changes}
LEVEL_OF_TABLE = {table: level.number for level in LEVELS for table in level.tables}

assert [level.number for level in LEVELS] == list(range(len(LEVELS)))
assert len(LEVEL_OF_CHANGE) == sum(len(level.changes) for level in LEVELS)
assert len(LEVEL_OF_TABLE) == sum(len(level.tables) for level in LEVELS)


def version_of(level: int) -> str:
    """The first version that knows ``level``, for people; of later ones nobody knows it here."""
    return LEVELS[level].version if level <= LEVEL else f"one newer than {LEVELS[LEVEL].version}"


def level_of(version: str) -> int:
    """The highest level that ``version`` knows; of a newer one than this, what this one knows.

    Args:
        version: as ``0.1.0``, or a package's: what follows the three numbers does not count.

    Raises:
        ValueError: it does not begin with numbers.
    """
    wanted = _numbers(version)
    known = (level.number for level in LEVELS if _numbers(level.version) <= wanted)
    return max(known, default=0)


def described(members: Sequence[MemberLevel]) -> str:
    """All members with what each knows, for people: ``n0 1, n1 0, n2 not heard of``."""
    return ", ".join(
        f"{one['node']} {'not heard of' if one['level'] is None else one['level']}"
        f"{' (away)' if one['away'] else ''}"
        for one in members
    )


def holding_back(members: Sequence[MemberLevel], level: int) -> list[str]:
    """Who keeps ``level`` from being put in force, each with the reason."""
    return [
        f"{one['node']} was not heard of"
        if one["level"] is None
        else f"{one['node']} knows level {one['level']}, and needs version {version_of(level)}"
        for one in members
        if one["level"] is None or one["level"] < level
    ]


def _numbers(version: str) -> tuple[int, ...]:
    # Of a package: an epoch before it, a revision or a suite behind it.
    found = _NUMBERS.match(version)
    if found is None:
        raise ValueError(f"no version: {version}")
    return tuple(int(number) for number in found[1].split("."))
