"""Inquiries about users, their rights, and quotas; no secret is ever told."""

from __future__ import annotations

from ledgermq.client.core.table_verbs import asking
from ledgermq.observer.inquiries.inquirer import Inquirer
from ledgermq.observer.inquiries.row_pages import ROWS_DEFAULT, Json, page_of
from ledgermq.verbs.access import ListQuotas, ListUsers


class UserInquiries:
    """The leader answers, an admin."""

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer

    async def list(self, *, limit: int = ROWS_DEFAULT, after: str = "") -> Json:
        """As ``ledgermq acl list``, a page of it."""
        found = await self._inquirer.leader(lambda session: session.run(asking(ListUsers())))
        shown, next_ = page_of(found, after, limit)
        return {"users": [row._asdict() for row in shown], "next": next_}


class QuotaInquiries:
    """The leader answers, an admin."""

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer

    async def list(self, *, limit: int = ROWS_DEFAULT, after: str = "") -> Json:
        """As ``ledgermq quota list``, a page of it."""
        found = await self._inquirer.leader(lambda session: session.run(asking(ListQuotas())))
        shown, next_ = page_of(found, after, limit)
        return {"quotas": [row._asdict() for row in shown], "next": next_}
