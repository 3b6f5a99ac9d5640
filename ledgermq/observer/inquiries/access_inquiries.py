"""Inquiries about users, their rights, and quotas; no secret is ever told."""

from __future__ import annotations

from collections.abc import Mapping

from ledgermq.client.admin.access_admin import Mode, UserRow
from ledgermq.observer.inquiries.inquirer import Inquirer
from ledgermq.observer.inquiries.row_pages import ROWS_DEFAULT, Json, page_of


class UserInquiries:
    """The leader answers, an admin."""

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer

    async def list(self, *, limit: int = ROWS_DEFAULT, after: str = "") -> Json:
        """As ``ledgermq acl list``, a page of it."""
        found = await self._inquirer.leader(lambda session: session.users())
        shown, next_ = page_of(found, after, limit)
        return {"users": [_as_json(row) for row in shown], "next": next_}

    async def set(self, user: str, fields: Mapping[str, object], *, mode: Mode) -> Json:
        """As ``ledgermq acl add`` and ``acl alter``; ``AccessAdmin.set_user`` explains it.

        Args:
            fields: as in ``plain_acl.yml``: topicPerms, groupPerms, defaultTopicPerm,
                defaultGroupPerm, publicKeys, whiteRemoteAddress, admin, secretKey.
        """
        row = await self._inquirer.leader(
            lambda session: session.set_user(user, dict(fields), mode=mode)
        )
        return _as_json(row)

    async def remove(self, user: str) -> Json:
        """As ``ledgermq acl delete``."""
        await self._inquirer.leader(lambda session: session.remove_user(user))
        return {"removed": user}


class QuotaInquiries:
    """The leader answers, an admin."""

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer

    async def list(self, *, limit: int = ROWS_DEFAULT, after: str = "") -> Json:
        """As ``ledgermq quota list``, a page of it."""
        found = await self._inquirer.leader(lambda session: session.quotas())
        shown, next_ = page_of(found, after, limit)
        return {"quotas": [row._asdict() for row in shown], "next": next_}

    async def set(
        self,
        owner: str,
        *,
        produce_bytes: int | None = None,
        produce_messages: int | None = None,
        consume_bytes: int | None = None,
        consume_messages: int | None = None,
    ) -> Json:
        """As ``ledgermq quota set``: a second, 0 without a limit; None stays as it is."""
        row = await self._inquirer.leader(
            lambda session: session.set_quota(
                owner,
                produce_bytes=produce_bytes,
                produce_messages=produce_messages,
                consume_bytes=consume_bytes,
                consume_messages=consume_messages,
            )
        )
        return row._asdict()

    async def remove(self, owner: str) -> Json:
        """As ``ledgermq quota remove``."""
        await self._inquirer.leader(lambda session: session.remove_quota(owner))
        return {"removed": owner}


def _as_json(row: UserRow) -> Json:
    return row._asdict()
