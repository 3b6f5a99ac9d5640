"""Administration of topics, groups and consumed offsets.

``Admin`` waits, ``AsyncAdmin`` is awaited; both have the same verbs. Every call goes to the leader,
and again to the next one when it changes; to ask twice for the same does no harm. When a change
returns, a majority has it in the log, and every later leader knows it.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from typing import Literal, TypedDict, Unpack

from ledgermq.client.admin.admin_results import (
    GroupRow,
    GroupState,
    OffsetMove,
    QueueLag,
    TopicSettings,
    TopicState,
    group_row,
    group_state,
    offset_move,
    queue_lag,
    topic_settings,
    topic_state,
)
from ledgermq.client.clusters.admin_of_groups import AdminOfGroups, AsyncAdminOfGroups
from ledgermq.client.core import questions
from ledgermq.client.core.answers import rows
from ledgermq.client.core.asked import asked, question
from ledgermq.client.core.questions import PAGE, ask
from ledgermq.client.core.requests import Steps
from ledgermq.client.groups.group_members import members_of
from ledgermq.client.sending.message_options import check_options
from ledgermq.model.errors import ConfigError

TOKEN_BYTES = 8

Target = Literal["first", "last", "time", "number"]


class TopicFields(TypedDict, total=False):
    """What can be said of a topic (``create_topic`` explains it); ``None`` is as left out."""

    queues: int | None
    read_queues: int | None
    write_queues: int | None
    perm: int | None
    order: bool | None
    filter_type: str | None
    sys_flag: int | None
    deduplication_window_ms: int | None


class AdminVerbs:
    """What an operator may ask for, and order."""

    NAME = "admin"

    topics = question(questions.topics)
    members = question(members_of)

    @asked
    def topic(self, topic: str) -> Steps[TopicState]:
        """One topic: its settings, its queues, who has consumed of it.

        Raises:
            TopicUnknownError: there is none.
        """
        return topic_state((yield from ask("topic_show", topic=topic)))

    @asked
    def create_topic(self, topic: str, **fields: Unpack[TopicFields]) -> Steps[TopicSettings]:
        """Create a topic; producers can send to it on return. One that is there already grows.

        Args:
            queues: for reading and writing; 8 when nothing is given.
            perm: RocketMQ's bits: 4 read, 2 write, 1 inherit. 6 when left out.
            order: an order topic.
            filter_type: ``SINGLE_TAG`` or ``MULTI_TAG``.
            sys_flag: RocketMQ's ``topicSysFlag``.
            deduplication_window_ms: for so long a message is not stored a second time that has the
                unique id of one that is; 0, as when left out: it always is.

        Raises:
            MessageIllegalError: the name or a number breaks a rule, or there is another topic.
            NoPermissionError: the name is reserved for the broker.
        """
        told = yield from ask("topic_create", topic=topic, **_given(fields))
        return topic_settings(told)

    @asked
    def alter_topic(
        self, topic: str, *, force: bool = False, **fields: Unpack[TopicFields]
    ) -> Steps[TopicSettings]:
        """Change what is given. Fewer queues: first ``write_queues``, then ``read_queues``.

        Args:
            force: take queues from readers although they hold messages that are not consumed.

        Raises:
            TopicUnknownError: there is no such topic.
            MessageIllegalError: a number breaks a rule, or messages would be out of reach.
            NoPermissionError: it is the broker's own.
        """
        told = yield from ask("topic_alter", topic=topic, **_given(fields), force=force)
        return topic_settings(told)

    @asked
    def delete_topic(self, topic: str) -> Steps[None]:
        """Delete a topic, and what groups have consumed of it; it takes no messages on return.

        Raises:
            TopicUnknownError: there is no such topic.
            NoPermissionError: it is the broker's own.
        """
        yield from ask("topic_delete", topic=topic)

    @asked
    def groups(self) -> Steps[list[GroupRow]]:
        """All groups by name, also those of which only offsets are known."""
        found: list[GroupRow] = []
        while True:
            after = found[-1].group if found else None
            page = yield from ask("group_list", limit=PAGE, after=after)
            found += rows(page, "groups", group_row)
            if not page.get("more"):
                return found

    @asked
    def group(self, group: str) -> Steps[GroupState]:
        """One group: its settings, its lag, its members.

        Raises:
            GroupUnknownError: there is none.
        """
        return group_state((yield from ask("group_show", group=group)))

    @asked
    def create_group(self, /, group: str, **fields: bool | int) -> Steps[GroupRow]:
        """Create a group.

        Args:
            fields: RocketMQ's names: consumeEnable, consumeFromMinEnable, consumeBroadcastEnable,
                notifyConsumerIdsChangedEnable, retryQueueNums, retryMaxTimes, brokerId,
                whichBrokerWhenConsumeSlowly. RocketMQ's defaults for those left out.

        Raises:
            MessageIllegalError: the name or a field breaks a rule, or there is another group.
            NoPermissionError: it is the broker's own.
        """
        return group_row((yield from ask("group_create", group=group, fields=fields)))

    @asked
    def alter_group(self, /, group: str, **fields: bool | int) -> Steps[GroupRow]:
        """Change the fields given; see ``create_group``. ``consumeEnable=False`` stops its pulls.

        Raises:
            GroupUnknownError: there is no such group.
            MessageIllegalError: a field breaks a rule.
            NoPermissionError: it is the broker's own.
        """
        return group_row((yield from ask("group_alter", group=group, fields=fields)))

    @asked
    def delete_group(
        self, group: str, *, with_offsets: bool = False, with_topics: bool = False
    ) -> Steps[None]:
        """Delete a group.

        Args:
            with_offsets: forget what it has consumed; else a group of that name goes on there.
            with_topics: delete its retry topic, and that of its dead letters, too.

        Raises:
            GroupUnknownError: there is no such group.
            NoPermissionError: it is the broker's own.
        """
        # Asked again of the next leader it is the same act, by its token.
        yield from ask(
            "group_delete",
            group=group,
            with_offsets=with_offsets,
            with_topics=with_topics,
            token=secrets.token_hex(TOKEN_BYTES),
        )

    @asked
    def lag(self, group: str, topic: str | None = None) -> Steps[list[QueueLag]]:
        """How far a group is, queue by queue: in all topics that it has consumed, or in one.

        Raises:
            GroupUnknownError: there is no such group.
            TopicUnknownError: there is no such topic.
        """
        told = yield from ask("group_lag", group=group, topic=topic)
        return rows(told, "queues", queue_lag)

    @asked
    def reset_offsets(
        self,
        group: str,
        topic: str,
        to: Target,
        value: int | None = None,
        *,
        queues: Collection[int] | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> Steps[list[OffsetMove]]:
        """Let a group go on elsewhere; what was moved, queue by queue.

        Args:
            to: ``first``, ``last``, the first message of a ``time`` or later, or a ``number``.
            value: epoch ms with ``time``, a queue offset with ``number``.
            queues: only these.
            force: although members of the group consume now; a group that is not there is made.
            dry_run: only tell.

        Raises:
            GroupActiveError: members consume now.
            GroupUnknownError: there is no such group.
            MessageIllegalError: a queue does not have that offset.
            TopicUnknownError: there is no such topic or queue.
            ConfigError: ``time`` or ``number`` without a value, or a value that nothing asks for.
        """
        if (value is not None) != (to in ("time", "number")):
            raise ConfigError("a value belongs to 'time' and 'number', and only to them", to=to)
        told = yield from ask(
            "offset_reset",
            group=group,
            topic=topic,
            to=to,
            value=value,
            queues=None if queues is None else sorted(queues),
            force=force,
            dry_run=dry_run,
        )
        return rows(told, "queues", offset_move)

    @asked
    def clone_offsets(
        self,
        source: str,
        group: str,
        topic: str | None = None,
        *,
        force: bool = False,
        dry_run: bool = False,
    ) -> Steps[list[OffsetMove]]:
        """Let ``group`` be as far as ``source``, in one topic or in all that ``source`` consumed.

        A group that is not there is made.

        Raises:
            GroupActiveError: members of ``group`` consume now.
            GroupUnknownError: ``source`` has consumed nothing there.
        """
        told = yield from ask(
            "offset_clone", source=source, group=group, topic=topic, force=force, dry_run=dry_run
        )
        return rows(told, "queues", offset_move)


class Admin(AdminVerbs, AdminOfGroups):
    """Orders that wait until they are carried out; one thread at a time may give them."""


class AsyncAdmin(AdminVerbs, AsyncAdminOfGroups):
    """Orders that are awaited: ``async with AsyncAdmin(…) as admin:``."""


def _given(fields: TopicFields) -> dict[str, object]:
    """What goes over the wire of ``fields``.

    Raises:
        TypeError: a topic has no such field.
    """
    check_options(fields, TopicFields)
    values: dict[str, object] = {name: fields.get(name) for name in TopicFields.__annotations__}
    return {name: value for name, value in values.items() if value is not None}
