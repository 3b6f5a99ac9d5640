"""``GroupAdmins``: an ``Admin`` of each group of a cluster, by its name."""

from __future__ import annotations

import time
from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

from ledgermq.client.admin.admin import Admin
from ledgermq.client.broker_connection import TIMEOUT_S
from ledgermq.client.calls import Calls, MakesCalls
from ledgermq.client.closing import Closing
from ledgermq.client.clusters.group_watch import GroupWatch, WatchedGroup, seeds_of
from ledgermq.client.core.asked import asked
from ledgermq.model.errors import ConfigError, LedgerError, NotLeaderError

Result = TypeVar("Result")

ANSWERS_S = 2.0
"""Connecting to a group that is there takes no longer, unless far more is wrong."""


One = TypeVar("One")


class AdminsByName(ABC, Generic[One]):
    """Verbs of both forms of admins, whose kind is ``One``."""

    _groups: Callable[[], object]
    _admin: Callable[[WatchedGroup], object]

    @asked
    def groups(self) -> Calls[list[str]]:
        """Names of all groups of the cluster."""
        groups: list[WatchedGroup] = yield self._groups
        return [group.name for group in groups]

    @asked
    def of(self, group: str) -> Calls[One]:
        """The admin of a group; see ``Admin.of``."""
        groups: list[WatchedGroup] = yield self._groups
        for found in groups:
            if found.name == group:
                admin: One = yield partial(self._admin, found)
                return admin
        known = [one.name for one in groups]
        raise ConfigError("no such group is known", group=group, known=known)


class GroupAdmins(AdminsByName[Admin], MakesCalls, Closing):
    """The admins of all groups of a cluster; one thread at a time may use them."""

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        name: str = "admin",
        timeout_s: float = TIMEOUT_S,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        """Admins, which are made as they are asked for.

        Args:
            addresses, keys: as a ``ProducerOfGroups`` takes them.
            timeout_s: for each question, and to learn which groups there are.

        Raises:
            ConfigError: an address cannot be one, or there is none.
        """
        seeds = seeds_of(addresses)
        self._name = name
        self._timeout_s = timeout_s
        self._admins: dict[str, tuple[WatchedGroup, Admin]] = {}
        self._watch = GroupWatch(seeds, client=name, keys=keys)

    def each(self, order: Callable[[Admin], Result]) -> dict[str, Result | LedgerError]:
        """What each group says to an order; see ``Admin.each``."""
        found: dict[str, Result | LedgerError] = {}
        groups, now = self._groups(), time.monotonic()
        self._watch.wait_for_answers(now + min(ANSWERS_S, self._timeout_s))
        for group in groups:
            if not group.answers:
                found[group.name] = NotLeaderError("group does not answer", group=group.name)
                continue
            try:
                found[group.name] = order(self._admin(group))
            except LedgerError as error:
                found[group.name] = error
        return found

    def close(self) -> None:
        """Say goodbye to all nodes."""
        self._watch.close()
        for _, admin in self._admins.values():
            admin.close()

    def _groups(self) -> list[WatchedGroup]:
        return self._watch.wait_for_groups(time.monotonic() + self._timeout_s)

    def _admin(self, group: WatchedGroup) -> Admin:
        known = self._admins.get(group.name)
        if known is not None and known[0] is group:
            return known[1]
        admin = Admin(group.address, name=self._name, timeout_s=self._timeout_s)
        self._admins[group.name] = group, admin
        if known is not None:
            known[1].close()
        return admin
