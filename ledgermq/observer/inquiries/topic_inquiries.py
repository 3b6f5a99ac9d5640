"""Inquiries about topics: a list, one of them, and their changes."""

from __future__ import annotations

from ledgermq.observer.inquiries.inquirer import Inquirer
from ledgermq.observer.inquiries.row_pages import ROWS_DEFAULT, Json, checked_limit, named_page
from ledgermq.verbs.topics import ListTopics


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
            ListTopics, lambda row: row.topic,
            limit=count, after=after, all_=all_,
        )  # fmt: skip
        found, next_ = await self._inquirer.leader(lambda session: session.run(steps))
        return {"topics": [row._asdict() for row in found], "next": next_}
