"""Remains of a group of a cluster that is drained, as it tells of them itself.

The home is asked for nothing of it (docs/decisions/0087).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from ledgermq.client.core.questions import PERMIT_WRITE, all_pages, ask, asking
from ledgermq.client.core.requests import Steps
from ledgermq.model.errors import TopicUnknownError
from ledgermq.model.names.group_topics import retry_topic
from ledgermq.verbs.answers import integer, rows
from ledgermq.verbs.clusters import OwnTopic, ShowRemains
from ledgermq.verbs.dead_letters import ShowDeadLetters
from ledgermq.verbs.groups import GroupRow, ListGroups, ShowLag
from ledgermq.verbs.topics import AlterTopic


class Remains(NamedTuple):
    """What keeps a group from being drained.

    Attributes:
        group: the group of the cluster.
        open: how many topics take messages.
        own: some of them that are the group's own.
        is_known: what takes messages knows the topics as they are.
        timers, delayed, half_messages: messages that wait for a time, and for their transaction.
        packs: parts of batches of Spark's sink that are committed, and on their way to topics.
        lags: messages that consumer groups have not consumed, by group.
        dead_letters: those that were not replayed, by consumer group.
    """

    group: str
    open: int
    own: list[OwnTopic]
    is_known: bool
    timers: int
    delayed: int
    half_messages: int
    packs: int
    lags: Mapping[str, int]
    dead_letters: Mapping[str, int]

    @property
    def reasons(self) -> list[str]:
        """Each as a text; none: the group is drained."""
        counts = {
            "topics that take messages": self.open,
            "timers": self.timers,
            "delayed messages": self.delayed,
            "messages of open transactions": self.half_messages,
            "parts of batches of a sink": self.packs,
        }
        found = [f"{count:,} {what}" for what, count in counts.items() if count]
        found += [f"{count:,} messages for {group}" for group, count in self.lags.items()]
        found += [
            f"{count:,} dead letters of {group}" for group, count in self.dead_letters.items()
        ]
        return found if found or self.is_known else ["a writer that does not know its topics yet"]


def remains() -> Steps[Remains]:
    """What is left in the group that is asked.

    Raises:
        NoPermissionError: this client is no admin there.
        BusyError: it cannot be told at this moment.
    """
    told = yield from asking(ShowRemains())
    sinks = yield from ask("sinks")
    groups = yield from all_pages(ListGroups, lambda row: row.group)
    lags, dead_letters = {}, {}
    for group in (one for one in groups if not one.system):
        lags[group.group] = yield from _lag(group)
        queues = yield from asking(ShowDeadLetters(group.group))
        dead_letters[group.group] = sum(one.end - one.begin - one.replayed_count for one in queues)
    return Remains(
        *told,
        sum(rows(sinks, "sinks", lambda row: integer(row, "packs_left"))),
        {group: lag for group, lag in lags.items() if lag},
        {group: count for group, count in dead_letters.items() if count},
    )


def close_topic(own: OwnTopic) -> Steps[None]:
    """A topic of the group's own takes no messages any more.

    Raises:
        NoPermissionError: this client is no admin there.
    """
    yield from asking(AlterTopic(own.topic, perm=own.perm & ~PERMIT_WRITE))


def _lag(group: GroupRow) -> Steps[int]:
    """In all topics that it has consumed, and in that of what it has sent back."""
    found = yield from asking(ShowLag(group.group))
    own = retry_topic(group.group)
    if own not in group.topics:
        with suppress(TopicUnknownError):
            found += yield from asking(ShowLag(group.group, own))
    return sum(one.lag for one in found)
