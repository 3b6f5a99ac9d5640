"""Inquiries about consumer groups: how far they are, who consumes."""

from __future__ import annotations

from ledgermq.observer.inquiries.inquirer import Inquirer
from ledgermq.observer.inquiries.row_pages import (
    ROWS_DEFAULT,
    Json,
    checked_limit,
    named_page,
    page_of,
)
from ledgermq.verbs.groups import ListGroups


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
            ListGroups, lambda row: row.group,
            limit=count, after=after, all_=all_,
        )  # fmt: skip
        found, next_ = await self._inquirer.leader(lambda session: session.run(steps))
        return {"groups": [row._asdict() for row in found], "next": next_}

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
