"""``ledgermq topic spread --strict``: closes a topic, drains it, spreads it and opens it.

Where it goes on stands in the cluster's row of the topic alone (docs/decisions/0087).

They hold up a strict spread: docs/decisions/0087.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from ledgermq.cli.arguments import NAME, takes
from ledgermq.client.admin.admin import Admin
from ledgermq.client.admin.broker_admins import ClusterAdmin
from ledgermq.client.blocking.broker import Broker
from ledgermq.client.clusters.told_topics import OPEN, ROW_GOOD_S
from ledgermq.client.core.questions import PERMIT_WRITE, ask, asking
from ledgermq.client.core.requests import Steps
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.model.errors import (
    BusyError,
    ConfigError,
    GroupUnknownError,
    LedgerError,
    NotLeaderError,
    TimedOutError,
    TopicUnknownError,
)
from ledgermq.model.limits import QUEUE_ID_MAX
from ledgermq.model.names.group_topics import retry_topic
from ledgermq.verbs.answers import integer, rows
from ledgermq.verbs.clusters import (
    GroupRemains,
    ShowRemains,
    ShowTopicGroups,
    TopicOverGroups,
    TopicShareView,
)
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


LOOK_S = 1.0

LOOKS_IN_A_ROW = 2
"""A writer may have handed something to the log in the moment in which it heard of the closing."""

DRAIN_S = 600.0

_TIMEOUT_S = ProducerOptions().timeout_s

CLOSED_S = ROW_GOOD_S + 2 * _TIMEOUT_S
"""After that no client sends by the row from before, nor has anything on its way: a message waits
for room as long as for its answer."""

LEFT_SIZE_MAX = 1_000

Reasons = dict[str, list[str]]
"""Reasons by the group that says them; a group that says none is not among them."""


def add_strict(spread: argparse.ArgumentParser) -> None:
    """Add ``--strict`` and what belongs to it."""
    takes(
        spread,
        "--strict",
        "keep the order of keys: close the topic, wait until all is consumed, give the groups"
        " of --over their queues, and open all; what was broken off is typed again",
    )
    takes(spread, "--reopen", "open the topic in all of its groups, as they are")
    takes(
        spread,
        "--wait SECONDS",
        f"with --strict: then open it as it was (default: {DRAIN_S:,.0f})",
        default=DRAIN_S,
    )
    takes(
        spread,
        "--closed-for SECONDS",
        "with --strict: it is closed for so long at least, in which producers hear of it"
        f" (default: {CLOSED_S:,.0f}, for a timeout_s of {_TIMEOUT_S:,.0f})",
        default=CLOSED_S,
    )
    takes(spread, "--leave-delayed", "with --strict: what waits for a time is no reason to wait")


def reopen(home: ClusterAdmin, topic: str) -> TopicOverGroups:
    """A topic takes messages again in all groups that it is over.

    Raises:
        ConfigError: the group that is asked is not the home.
        TopicUnknownError: the topic is over no groups.
    """
    return home.set_topic_phase(topic, is_open=True)


def spread_strictly(
    broker: Broker, arguments: argparse.Namespace, over: Sequence[str]
) -> TopicOverGroups:
    """A topic over these groups, too, and open in all, once all that it had was consumed.

    Args:
        over: by name; none: all that there are.

    Raises:
        ConfigError: the group that is asked is not the home, there is no such group, a number is
            out of range, or some groups have the topic open and others closed.
        TimedOutError: something was left; the topic is open as it was, or the text says what it is.
        LedgerError: the home refused, or did not answer.
    """
    home, topic = ClusterAdmin(broker), arguments.topic
    _check_times(arguments)
    there_are = _groups_of(home)
    unknown = [one for one in over if one not in there_are]
    if unknown:
        raise ConfigError(
            "no group of that name is in the cluster",
            group=unknown[0],
            groups=" ".join(there_are)[:LEFT_SIZE_MAX],
        )
    if arguments.queues is not None and not 1 <= arguments.queues <= QUEUE_ID_MAX:
        raise ConfigError("--queues out of range", queues=arguments.queues, limit=QUEUE_ID_MAX)
    found = home.topic_groups(topic)
    is_open = _is_open(found, there_are)
    lacks = _lacks(found, over or there_are, arguments.queues)
    with Admin(arguments.address, name=NAME, timeout_s=arguments.timeout) as admins:
        course = _Course(home, admins, arguments)
        if not is_open:
            _say(f"{topic} is closed already: going on")
        if lacks or not is_open:
            if is_open:
                found = home.set_topic_phase(topic, is_open=False)
                _say(f"{topic} takes no messages; --reopen opens it whatever happens")
            course.drain(found, may_open=lacks)
            if lacks:
                found = home.set_topic(
                    topic, over, queues=arguments.queues, spread=True, closed=True
                )
                _say(f"{topic} is drained, and has its queues in all groups")
            course.follow(found, "have the queues", lambda remains: remains.not_followed)
            found = reopen(home, topic)
        course.follow(found, "take messages", _not_open)
    return found


class _Course:
    """Waits for the groups of a cluster until ``--wait`` is over."""

    def __init__(
        self,
        home: ClusterAdmin,
        admins: Admin,
        arguments: argparse.Namespace,
    ) -> None:
        self._home = home
        self._admins = admins
        self._arguments = arguments
        self._deadline = time.monotonic() + arguments.wait
        self._told = ""

    def drain(self, row: TopicOverGroups, *, may_open: bool) -> None:
        """Return when nothing is left of the topic in any group, and it was closed for long enough.

        Args:
            may_open: too late, it is opened: it has its queues as they were.

        Raises:
            TimedOutError: that did not come.
        """
        closed_for, looks, closed_at = self._arguments.closed_for, 0, float("inf")
        while True:
            now = time.monotonic()
            said = self._look(row)
            reasons = _reasons(said, lambda remains: remains.not_closed)
            if reasons:
                closed_at = float("inf")
            else:
                closed_at = min(closed_at, now)
                reasons = _reasons(said, lambda remains: remains.left)
            looks = 0 if reasons else looks + 1
            if not reasons and now < closed_at + closed_for:
                reasons = {"producers": [f"may not have heard of it: {closed_for:,.0f} s"]}
            if looks >= LOOKS_IN_A_ROW and not reasons:
                return
            self._tell(reasons)
            if time.monotonic() >= self._deadline:
                raise self._too_late(reasons, may_open=may_open)
            time.sleep(LOOK_S)

    def follow(
        self, row: TopicOverGroups, what: str, why_not: Callable[[TopicRemains], list[str]]
    ) -> None:
        """Return when all groups have followed the row.

        Raises:
            TimedOutError: one has not.
        """
        while reasons := _reasons(self._look(row), why_not):
            self._tell(reasons)
            if time.monotonic() >= self._deadline:
                raise TimedOutError(
                    f"not all groups {what} yet: type it again, or --reopen",
                    topic=row.topic,
                    left=_text(reasons),
                    waited_s=self._arguments.wait,
                )
            time.sleep(LOOK_S)

    def _look(self, row: TopicOverGroups) -> Mapping[str, TopicRemains | LedgerError]:
        """What each group of the cluster says now, if the row is as it was.

        Raises:
            ConfigError: it is not.
        """
        try:
            fresh, groups = self._home.topic_groups(row.topic), _groups_of(self._home)
        except (BusyError, NotLeaderError, TimedOutError) as error:
            return {"the home": error}
        if fresh.groups != row.groups:
            raise ConfigError(
                "somebody else has changed the topic's groups meanwhile: see `ledgermq topic"
                " spread` without --over",
                topic=row.topic,
            )

        def ask(admin: Admin) -> TopicRemains:
            return admin.run(
                topic_remains(row.topic, row.groups, with_delayed=not self._arguments.leave_delayed)
            )

        silent: dict[str, TopicRemains | LedgerError] = {
            group: LedgerError("is not known yet") for group in groups
        }
        said = self._admins.each(ask)
        return silent | {group: one for group, one in said.items() if group in silent}

    def _tell(self, reasons: Reasons) -> None:
        text = _text(reasons)
        if text and text != self._told:
            self._told = text
            _say(f"left: {text}")

    def _too_late(self, reasons: Reasons, *, may_open: bool) -> TimedOutError:
        topic, left, waited_s = self._arguments.topic, _text(reasons), self._arguments.wait
        state = "takes no messages, and has its new queues: type it again, or --reopen"
        if may_open:
            state = "is open again as it was"
            try:
                reopen(self._home, topic)
            except LedgerError as error:
                state = f"takes no messages, and could not be opened ({error}): --reopen"
        return TimedOutError(
            f"topic is not drained in the time given (--wait), and {state}",
            topic=topic,
            left=left,
            waited_s=waited_s,
        )


def _check_times(arguments: argparse.Namespace) -> None:
    if arguments.closed_for < 0 or arguments.wait < arguments.closed_for:
        raise ConfigError(
            "--wait is shorter than --closed-for, or that is below 0",
            wait=arguments.wait,
            closed_for=arguments.closed_for,
        )


def _groups_of(home: ClusterAdmin) -> list[str]:
    found = home.cluster()
    if found is None:
        raise ConfigError("group belongs to no cluster")
    if not found.is_home:
        raise ConfigError("ask the cluster's home: --address", home=found.home, asked=found.group)
    return [one.group for one in found.groups]


def _is_open(found: TopicOverGroups, there_are: Sequence[str]) -> bool:
    """Whether the groups that there are take messages of a topic; all do, or none.

    Raises:
        ConfigError: some do.
    """
    shares = [one for one in found.groups if one.group in there_are]
    closed = [one.group for one in shares if one.phase != OPEN]
    if closed and len(closed) < len(shares):
        raise ConfigError(
            "topic is closed in some of its groups: end `ledgermq cluster drain` there first, or"
            " --reopen",
            topic=found.topic,
            closed=" ".join(closed)[:LEFT_SIZE_MAX],
        )
    return not closed


def _lacks(found: TopicOverGroups, over: Sequence[str], queues: int | None) -> bool:
    """Whether one of these groups is to get queues."""
    has = {one.group: one.queues for one in found.groups}
    return any(has.get(group, 0) < (queues or 1) for group in over)


def _not_open(remains: TopicRemains) -> list[str]:
    if reasons := remains.not_followed:
        return reasons
    is_open = not remains.has_share or (remains.is_writable and remains.is_known)
    return [] if is_open else ["has not opened the topic yet"]


def _reasons(
    said: Mapping[str, TopicRemains | LedgerError], why: Callable[[TopicRemains], list[str]]
) -> Reasons:
    found = {
        group: [str(one)] if isinstance(one, LedgerError) else why(one)
        for group, one in said.items()
    }
    return {group: texts for group, texts in found.items() if texts}


def _text(reasons: Reasons) -> str:
    text = "; ".join(f"{group}: {', '.join(texts)}" for group, texts in sorted(reasons.items()))
    return text[:LEFT_SIZE_MAX]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
