"""Admin: topics, groups and consumed offsets, as an operator orders them.

Every call goes to the leader, and again to the next one when it changes; to ask twice for the same
does no harm. When a change returns, a majority has it in the log, and every later leader knows it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ledgermq.client import admin_steps as steps
from ledgermq.client.address import DEFAULT_ADDRESS
from ledgermq.client.admin_results import (
    GroupRow,
    GroupState,
    OffsetMove,
    QueueLag,
    TopicSettings,
    TopicState,
)
from ledgermq.client.broker import TopicRow
from ledgermq.client.broker_connection import BrokerClient
from ledgermq.client.group_members import GroupMembers, members_of

TIMEOUT_S = 15.0


class Admin(BrokerClient):
    """Orders that wait until they are carried out; one thread at a time may give them."""

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        name: str = "admin",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """A connection, which is made with the first order.

        Args:
            address: as a ``Consumer`` takes it.
            name: of this client, as the node's operator sees it.
            timeout_s: for each order.

        Raises:
            ConfigError: the address cannot be one.
        """
        super().__init__(address, name=name, timeout_s=timeout_s)

    def topics(self) -> list[TopicRow]:
        """All topics by name, those of the system too, with the messages that they hold."""
        return self._broker.run(steps.all_topics())

    def topic(self, topic: str) -> TopicState:
        """One topic: its settings, its queues, who has consumed of it.

        Raises:
            TopicUnknownError: there is none.
        """
        return self._broker.run(steps.show_topic(topic))

    def create_topic(
        self,
        topic: str,
        *,
        queues: int | None = None,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
        order: bool | None = None,
        filter_type: str | None = None,
        sys_flag: int | None = None,
        deduplication_window_ms: int | None = None,
    ) -> TopicSettings:
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
        wish = steps.TopicWish(
            topic,
            queues=queues,
            read_queues=read_queues,
            write_queues=write_queues,
            perm=perm,
            order=order,
            filter_type=filter_type,
            sys_flag=sys_flag,
            deduplication_window_ms=deduplication_window_ms,
        )
        return self._broker.run(steps.change_topic("topic_create", wish))

    def alter_topic(
        self,
        topic: str,
        *,
        queues: int | None = None,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
        order: bool | None = None,
        filter_type: str | None = None,
        sys_flag: int | None = None,
        deduplication_window_ms: int | None = None,
        force: bool = False,
    ) -> TopicSettings:
        """Change what is given. Fewer queues: first ``write_queues``, then ``read_queues``.

        Args:
            force: take queues from readers although they hold messages that are not consumed.

        Raises:
            TopicUnknownError: there is no such topic.
            MessageIllegalError: a number breaks a rule, or messages would be out of reach.
            NoPermissionError: it is the broker's own.
        """
        wish = steps.TopicWish(
            topic,
            queues=queues,
            read_queues=read_queues,
            write_queues=write_queues,
            perm=perm,
            order=order,
            filter_type=filter_type,
            sys_flag=sys_flag,
            deduplication_window_ms=deduplication_window_ms,
            force=force,
        )
        return self._broker.run(steps.change_topic("topic_alter", wish))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and what groups have consumed of it; it takes no messages on return.

        Raises:
            TopicUnknownError: there is no such topic.
            NoPermissionError: it is the broker's own.
        """
        self._broker.run(steps.delete_topic(topic))

    def groups(self) -> list[GroupRow]:
        """All groups by name, also those of which only offsets are known."""
        return self._broker.run(steps.all_groups())

    def group(self, group: str) -> GroupState:
        """One group: its settings, its lag, its members.

        Raises:
            GroupUnknownError: there is none.
        """
        return self._broker.run(steps.show_group(group))

    def members(self, group: str) -> GroupMembers:
        """Who consumes for a group now, and which queues each member has."""
        return self._broker.run(members_of(group))

    def create_group(self, group: str, **fields: bool | int) -> GroupRow:
        """Create a group.

        Args:
            fields: RocketMQ's names: consumeEnable, consumeFromMinEnable, consumeBroadcastEnable,
                notifyConsumerIdsChangedEnable, retryQueueNums, retryMaxTimes, brokerId,
                whichBrokerWhenConsumeSlowly. RocketMQ's defaults for those left out.

        Raises:
            MessageIllegalError: the name or a field breaks a rule, or there is another group.
            NoPermissionError: it is the broker's own.
        """
        return self._broker.run(steps.change_group("group_create", group, fields))

    def alter_group(self, group: str, **fields: bool | int) -> GroupRow:
        """Change the fields given; see ``create_group``. ``consumeEnable=False`` stops its pulls.

        Raises:
            GroupUnknownError: there is no such group.
            MessageIllegalError: a field breaks a rule.
            NoPermissionError: it is the broker's own.
        """
        return self._broker.run(steps.change_group("group_alter", group, fields))

    def delete_group(
        self, group: str, *, with_offsets: bool = False, with_topics: bool = False
    ) -> None:
        """Delete a group.

        Args:
            with_offsets: forget what it has consumed; else a group of that name goes on there.
            with_topics: delete its retry topic, and that of its dead letters, too.

        Raises:
            GroupUnknownError: there is no such group.
            NoPermissionError: it is the broker's own.
        """
        self._broker.run(
            steps.delete_group(group, with_offsets=with_offsets, with_topics=with_topics)
        )

    def lag(self, group: str, topic: str | None = None) -> list[QueueLag]:
        """How far a group is, queue by queue: in all topics that it has consumed, or in one.

        Raises:
            GroupUnknownError: there is no such group.
            TopicUnknownError: there is no such topic.
        """
        return self._broker.run(steps.group_lag(group, topic))

    def reset_offsets(
        self,
        group: str,
        topic: str,
        to: steps.Target,
        value: int | None = None,
        *,
        queues: Collection[int] | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> list[OffsetMove]:
        """Let a group go on elsewhere; what was moved, queue by queue.

        Args:
            to: ``first``, ``last``, the first message of a ``time`` or later, or a ``number``.
            value: epoch ms with ``time``, a queue offset with ``number``.
            queues: only these.
            force: although members of the group consume now.
            dry_run: only tell.

        Raises:
            GroupActiveError: members consume now.
            MessageIllegalError: a queue does not have that offset.
            TopicUnknownError: there is no such topic or queue.
        """
        return self._broker.run(
            steps.reset_offsets(
                group, topic, to, value, queues=queues, force=force, dry_run=dry_run
            )
        )

    def clone_offsets(
        self,
        source: str,
        group: str,
        topic: str | None = None,
        *,
        force: bool = False,
        dry_run: bool = False,
    ) -> list[OffsetMove]:
        """Let ``group`` be as far as ``source``, in one topic or in all that ``source`` consumed.

        Raises:
            GroupActiveError: members of ``group`` consume now.
            GroupUnknownError: ``source`` has consumed nothing there.
        """
        return self._broker.run(
            steps.clone_offsets(source, group, topic, force=force, dry_run=dry_run)
        )
