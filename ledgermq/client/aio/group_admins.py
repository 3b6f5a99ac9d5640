"""``AsyncGroupAdmins``: ``GroupAdmins`` for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Self, TypeVar

from ledgermq.client.admin.admin import AsyncAdmin
from ledgermq.client.broker_connection import TIMEOUT_S
from ledgermq.client.calls import AwaitsCalls
from ledgermq.client.closing import AsyncClosing
from ledgermq.client.clusters.group_admins import ANSWERS_S, AdminsByName
from ledgermq.client.clusters.group_watch import GroupWatch, WatchedGroup, seeds_of
from ledgermq.model.errors import ConfigError, LedgerError, NotLeaderError

Result = TypeVar("Result")


class AsyncGroupAdmins(AdminsByName[AsyncAdmin], AwaitsCalls, AsyncClosing):
    """The admins of all groups of a cluster; see ``GroupAdmins``."""

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        name: str = "admin",
        timeout_s: float = TIMEOUT_S,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        """Admins, with the arguments of ``GroupAdmins``.

        Raises:
            ConfigError: there is no address.
        """
        self._seeds = seeds_of(addresses)
        self._name = name
        self._timeout_s = timeout_s
        self._keys = keys
        self._admins: dict[str, tuple[WatchedGroup, AsyncAdmin]] = {}
        self._begun: GroupWatch | None = None

    async def __aenter__(self) -> Self:
        self._begun = GroupWatch(self._seeds, client=self._name, keys=self._keys)
        return self

    async def each(
        self, order: Callable[[AsyncAdmin], Awaitable[Result]]
    ) -> dict[str, Result | LedgerError]:
        """What each group says to an order; see ``AsyncAdmin.each``."""

        async def ask(group: WatchedGroup) -> Result | LedgerError:
            if not group.answers:
                return NotLeaderError("group does not answer", group=group.name)
            try:
                return await order(await self._admin(group))
            except LedgerError as error:
                return error

        groups = await self._groups()
        until = time.monotonic() + min(ANSWERS_S, self._timeout_s)
        await asyncio.to_thread(self._watch.wait_for_answers, until)
        answers = await asyncio.gather(*map(ask, groups))
        return {group.name: answer for group, answer in zip(groups, answers, strict=True)}

    async def close(self) -> None:
        """Say goodbye to all nodes."""
        if self._begun is not None:
            await asyncio.to_thread(self._begun.close)
        self._close_at_once()

    def _close_at_once(self) -> None:
        """Close, where nothing can be awaited: the watch's thread ends within milliseconds."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.close()
        for _, admin in self._admins.values():
            admin.close()
        self._admins.clear()

    @property
    def _watch(self) -> GroupWatch:
        if self._begun is None:
            raise ConfigError("not open: async with AsyncGroupAdmins(…)")
        return self._begun

    async def _groups(self) -> list[WatchedGroup]:
        until = time.monotonic() + self._timeout_s
        return await asyncio.to_thread(self._watch.wait_for_groups, until)

    async def _admin(self, group: WatchedGroup) -> AsyncAdmin:
        known = self._admins.get(group.name)
        if known is not None and known[0] is group:
            return known[1]
        admin = AsyncAdmin(group.address, name=self._name, timeout_s=self._timeout_s)
        # Nothing is waited for in it: no other task makes a second one meanwhile.
        await admin.__aenter__()
        self._admins[group.name] = group, admin
        if known is not None:
            known[1].close()
        return admin
