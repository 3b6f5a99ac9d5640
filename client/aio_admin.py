"""Admin for asyncio."""

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
from ledgermq.client.broker_connection import AsyncBrokerClient
from ledgermq.client.group_members import GroupMembers, members_of

TIMEOUT_S = 15.0


class AsyncAdmin(AsyncBrokerClient):
    """See ``Admin``; used as ``async with AsyncAdmin(…) as admin:``."""

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        name: str = "admin",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        super().__init__(address, name=name, timeout_s=timeout_s)

    async def topics(self) -> list[TopicRow]:
        """See ``Admin.topics``."""
        return await self._open().run(steps.all_topics())

    async def topic(self, topic: str) -> TopicState:
        """See ``Admin.topic``."""
        return await self._open().run(steps.show_topic(topic))

    async def create_topic(
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
        """See ``Admin.create_topic``."""
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
        return await self._open().run(steps.change_topic("topic_create", wish))

    async def alter_topic(
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
        """See ``Admin.alter_topic``."""
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
        return await self._open().run(steps.change_topic("topic_alter", wish))

    async def delete_topic(self, topic: str) -> None:
        """See ``Admin.delete_topic``."""
        await self._open().run(steps.delete_topic(topic))

    async def groups(self) -> list[GroupRow]:
        """See ``Admin.groups``."""
        return await self._open().run(steps.all_groups())

    async def group(self, group: str) -> GroupState:
        """See ``Admin.group``."""
        return await self._open().run(steps.show_group(group))

    async def members(self, group: str) -> GroupMembers:
        """See ``Admin.members``."""
        return await self._open().run(members_of(group))

    async def create_group(self, group: str, **fields: bool | int) -> GroupRow:
        """See ``Admin.create_group``."""
        return await self._open().run(steps.change_group("group_create", group, fields))

    async def alter_group(self, group: str, **fields: bool | int) -> GroupRow:
        """See ``Admin.alter_group``."""
        return await self._open().run(steps.change_group("group_alter", group, fields))

    async def delete_group(
        self, group: str, *, with_offsets: bool = False, with_topics: bool = False
    ) -> None:
        """See ``Admin.delete_group``."""
        await self._open().run(
            steps.delete_group(group, with_offsets=with_offsets, with_topics=with_topics)
        )

    async def lag(self, group: str, topic: str | None = None) -> list[QueueLag]:
        """See ``Admin.lag``."""
        return await self._open().run(steps.group_lag(group, topic))

    async def reset_offsets(
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
        """See ``Admin.reset_offsets``."""
        return await self._open().run(
            steps.reset_offsets(
                group, topic, to, value, queues=queues, force=force, dry_run=dry_run
            )
        )

    async def clone_offsets(
        self,
        source: str,
        group: str,
        topic: str | None = None,
        *,
        force: bool = False,
        dry_run: bool = False,
    ) -> list[OffsetMove]:
        """See ``Admin.clone_offsets``."""
        return await self._open().run(
            steps.clone_offsets(source, group, topic, force=force, dry_run=dry_run)
        )
