"""Remains of a topic that is closed in all groups of a cluster, as each tells of them itself.

They hold up a strict spread: docs/decisions/0087.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from ledgermq.client.core.questions import PERMIT_WRITE, ask, asking
from ledgermq.client.core.requests import Steps
from ledgermq.model.errors import GroupUnknownError, TopicUnknownError
from ledgermq.model.names.group_topics import retry_topic
from ledgermq.verbs.answers import integer, rows
from ledgermq.verbs.clusters import GroupRemains, ShowRemains, ShowTopicGroups, TopicShareView
from ledgermq.verbs.groups import ShowLag
from ledgermq.verbs.topics import ShowTopic
from ledgermq.verbs.waiting import ListTimers, ListTransactions

WITH_TOPICS_MAX = 1_000
"""Timers and transactions that a node lists at most, with their topics."""


class UnfinishedMessages(NamedTuple):
    """Messages of a topic that wait for something else than a consumer.

    Those whose topic is not told count: any delayed by a level, any part of a batch of a sink, and
    of timers and transactions what is behind the first ``WITH_TOPICS_MAX``.
    """

    timers: int = 0
    delayed: int = 0
    half_messages: int = 0
    packs: int = 0


class TopicRemains(NamedTuple):
    """What one group says of a topic.

    Attributes:
        knows_row: the cluster's row is the same here as at the home.
        has_share: the group is one of those that the topic is over.
        refused: why it does not follow the row; empty: it does.
        is_writable, queues: as its own table has the topic; without one there are no queues.
        wanted: how many queues the row gives it.
        is_known: what takes messages knows the topics as they are.
        lags: messages that consumer groups have not consumed, or have sent back, by group.
    """

    knows_row: bool
    has_share: bool = False
    refused: str = ""
    is_writable: bool = False
    queues: int = 0
    wanted: int = 0
    is_known: bool = True
    lags: Mapping[str, int] = {}
    waiting: UnfinishedMessages = UnfinishedMessages()

    @property
    def not_closed(self) -> list[str]:
        """Why it may take messages yet, each as a text; none: it takes none."""
        if not self.knows_row:
            return ["does not know yet that the topic is closed"]
        if not self.has_share:
            return []
        found = [f"does not follow: {self.refused}"] if self.refused else []
        if self.is_writable:
            found.append("has not closed the topic yet")
        return found if found or self.is_known else ["a writer that does not know its topics yet"]

    @property
    def not_followed(self) -> list[str]:
        """Why it does not have the queues of the row yet; none: it has."""
        if not self.knows_row:
            return ["does not know the cluster's row yet"]
        if self.refused:
            return [f"does not follow: {self.refused}"]
        if self.has_share and self.queues < self.wanted:
            return [f"has {self.queues:,} of {self.wanted:,} queues yet"]
        return []

    @property
    def left(self) -> list[str]:
        """What is not consumed, each as a text; none: it is drained."""
        counts = {
            "timers": self.waiting.timers,
            "delayed messages": self.waiting.delayed,
            "messages of open transactions": self.waiting.half_messages,
            "parts of batches of a sink": self.waiting.packs,
        }
        found = [f"{count:,} messages for {group}" for group, count in self.lags.items() if count]
        return found + [f"{count:,} {what}" for what, count in counts.items() if count]


def topic_remains(
    topic: str, row: Sequence[TopicShareView], *, with_delayed: bool
) -> Steps[TopicRemains]:
    """What is left of a topic in the group that is asked.

    Args:
        row: the shares as the home has them.
        with_delayed: timers and delay levels count.

    Raises:
        NoPermissionError: this client is no admin there.
        BusyError: it cannot be told at this moment.
    """
    try:
        told = yield from asking(ShowTopicGroups(topic))
    except TopicUnknownError:
        return TopicRemains(False)
    share = next((one for one in row if one.group == told.group), None)
    if told.groups != list(row) or share is None:
        return TopicRemains(told.groups == list(row))
    if told.refused or not told.follows:
        why = told.refused or "it has not made the topic yet"
        return TopicRemains(True, True, why, wanted=share.queues)
    shown = yield from asking(ShowTopic(topic))
    settings = shown.settings
    # From here on it stands behind a command of the group's log, and what was taken before in
    # front of it.
    remains = yield from asking(ShowRemains())
    lags: dict[str, int] = {}
    for group in shown.groups:
        lags[group] = yield from _lag(group, topic)
    return TopicRemains(
        True, True, "", bool(settings.perm & PERMIT_WRITE), settings.write_queues, share.queues,
        remains.is_known, lags,
        (yield from _waiting(topic, remains, with_delayed=with_delayed)),
    )  # fmt: skip


def _lag(group: str, topic: str) -> Steps[int]:
    """Messages that a consumer group lacks in the topic, and in that of what it has sent back."""
    try:
        found = yield from asking(ShowLag(group, topic))
    except GroupUnknownError:
        # It was deleted after it was listed, with what it had consumed.
        return 0
    with suppress(TopicUnknownError):
        found += yield from asking(ShowLag(group, retry_topic(group)))
    return sum(one.lag for one in found)


def _waiting(topic: str, remains: GroupRemains, *, with_delayed: bool) -> Steps[UnfinishedMessages]:
    timers = half_messages = 0
    if with_delayed and remains.timers:
        listed = yield from asking(ListTimers(WITH_TOPICS_MAX))
        timers = sum(one.topic == topic for one in listed.timers)
        timers += listed.waiting - len(listed.timers)
    if remains.half_messages:
        count, listed_rows = yield from asking(ListTransactions(WITH_TOPICS_MAX))
        others = sum(one.messages for one in listed_rows if topic not in one.topics)
        half_messages = count - others
    sinks = yield from ask("sinks")
    packs = sum(rows(sinks, "sinks", lambda row: integer(row, "packs_left")))
    delayed = remains.delayed if with_delayed else 0
    return UnfinishedMessages(timers, delayed, half_messages, packs)
