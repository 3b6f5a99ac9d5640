"""Inquiries about topics: a list, one of them, and their changes."""

from __future__ import annotations

from typing import Unpack

from ledgermq.client.admin.admin import TopicFields
from ledgermq.client.core.questions import topic_row
from ledgermq.observer.inquiries.inquirer import Inquirer
from ledgermq.observer.inquiries.row_pages import ROWS_DEFAULT, Json, checked_limit, named_page


class TopicInquiries:
    """The leader answers."""

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer

    async def list(self, *, all_: bool = False, limit: int = ROWS_DEFAULT, after: str = "") -> Json:
        """As ``ledgermq topic list``, by name; ``next`` is the ``after`` of the next page, or None.

        Args:
            all_: those of the system, too.
            after: a name: those behind it.
        """
        count = checked_limit(limit)
        steps = named_page(
            "topics", "topics", topic_row, lambda row: row.topic,
            limit=count, after=after, all_=all_,
        )  # fmt: skip
        found, next_ = await self._inquirer.leader(lambda session: session.run(steps))
        return {"topics": [row._asdict() for row in found], "next": next_}

    async def show(self, topic: str) -> Json:
        """As ``ledgermq topic show``."""
        state = await self._inquirer.leader(lambda session: session.topic(topic))
        return {
            **state.settings._asdict(),
            "system": state.system,
            "queues": [queue._asdict() for queue in state.queues],
            "groups": list(state.groups),
        }

    async def create(self, topic: str, **fields: Unpack[TopicFields]) -> Json:
        """As ``ledgermq topic create``; an admin may."""
        made = await self._inquirer.leader(lambda session: session.create_topic(topic, **fields))
        return made._asdict()

    async def alter(
        self, topic: str, *, force: bool = False, **fields: Unpack[TopicFields]
    ) -> Json:
        """As ``ledgermq topic alter``; an admin may."""
        altered = await self._inquirer.leader(
            lambda session: session.alter_topic(topic, force=force, **fields)
        )
        return altered._asdict()

    async def delete(self, topic: str) -> Json:
        """As ``ledgermq topic delete``; an admin may."""
        await self._inquirer.leader(lambda session: session.delete_topic(topic))
        return {"deleted": topic}
