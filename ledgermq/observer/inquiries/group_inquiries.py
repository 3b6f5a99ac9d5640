"""Inquiries about consumer groups: how far they are, who consumes, and their changes."""

from __future__ import annotations

from collections.abc import Collection

from ledgermq.client.admin.admin import Target
from ledgermq.client.admin.admin_results import OffsetMove, group_row
from ledgermq.observer.inquiries.inquirer import Inquirer
from ledgermq.observer.inquiries.row_pages import (
    ROWS_DEFAULT,
    Json,
    checked_limit,
    named_page,
    page_of,
)


class GroupInquiries:
    """The leader answers."""

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer

    async def list(self, *, all_: bool = False, limit: int = ROWS_DEFAULT, after: str = "") -> Json:
        """As ``ledgermq group list``, by name; ``next`` is the ``after`` of the next page, or None.

        Args:
            all_: those of the system, too.
            after: a name: those behind it.
        """
        count = checked_limit(limit)
        steps = named_page(
            "group_list", "groups", group_row, lambda row: row.group,
            limit=count, after=after, all_=all_,
        )  # fmt: skip
        found, next_ = await self._inquirer.leader(lambda session: session.run(steps))
        return {"groups": [row._asdict() for row in found], "next": next_}

    async def show(self, group: str) -> Json:
        """As ``ledgermq group show``."""
        return (await self._inquirer.leader(lambda session: session.group(group)))._asdict()

    async def members(self, group: str) -> Json:
        """As ``ledgermq group members``."""
        return (await self._inquirer.leader(lambda session: session.members(group))).to_fields()

    async def lag(
        self, group: str, topic: str | None = None, *, limit: int = ROWS_DEFAULT, after: str = ""
    ) -> Json:
        """As ``ledgermq group lag``: ``lag`` is of all queues, ``queues`` a page of them."""
        found = await self._inquirer.leader(lambda session: session.lag(group, topic))
        shown, next_ = page_of(found, after, limit)
        return {
            "group": group,
            "lag": sum(row.lag for row in found),
            "queues": [row._asdict() for row in shown],
            "next": next_,
        }

    async def create(self, group: str, fields: dict[str, bool | int]) -> Json:
        """As ``ledgermq group create``, by RocketMQ's names of fields; an admin may."""
        made = await self._inquirer.leader(lambda session: session.create_group(group, **fields))
        return made._asdict()

    async def alter(self, group: str, fields: dict[str, bool | int]) -> Json:
        """As ``ledgermq group alter``; an admin may."""
        altered = await self._inquirer.leader(lambda session: session.alter_group(group, **fields))
        return altered._asdict()

    async def delete(
        self, group: str, *, with_offsets: bool = False, with_topics: bool = False
    ) -> Json:
        """As ``ledgermq group delete``; an admin may."""
        await self._inquirer.leader(
            lambda session: session.delete_group(
                group, with_offsets=with_offsets, with_topics=with_topics
            )
        )
        return {"deleted": group}

    async def reset(
        self,
        group: str,
        topic: str,
        to: Target,
        value: int | None = None,
        *,
        queues: Collection[int] | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> Json:
        """As ``ledgermq offset reset``; ``Admin.reset_offsets`` explains it. An admin may."""
        moves = await self._inquirer.leader(
            lambda session: session.reset_offsets(
                group, topic, to, value, queues=queues, force=force, dry_run=dry_run
            )
        )
        return _moved(group, moves, dry_run=dry_run)

    async def clone(
        self,
        group: str,
        source: str,
        topic: str | None = None,
        *,
        force: bool = False,
        dry_run: bool = False,
    ) -> Json:
        """As ``ledgermq offset clone``: ``group`` becomes as far as ``source``. An admin may."""
        moves = await self._inquirer.leader(
            lambda session: session.clone_offsets(
                source, group, topic, force=force, dry_run=dry_run
            )
        )
        return _moved(group, moves, dry_run=dry_run)


def _moved(group: str, moves: list[OffsetMove], *, dry_run: bool) -> Json:
    return {"group": group, "done": not dry_run, "queues": [move._asdict() for move in moves]}
