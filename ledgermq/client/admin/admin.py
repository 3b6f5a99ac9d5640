"""Administration of topics, groups and consumed offsets.

``Admin`` waits, ``AsyncAdmin`` is awaited; both have the same verbs. Every call goes to the leader,
and again to the next one when it changes; to ask twice for the same does no harm. When a change
returns, a majority has it in the log, and every later leader knows it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pkgutil import resolve_name
from typing import Any, Self, TypeVar

from ledgermq.client.admin.broker_admins import verb
from ledgermq.client.broker_connection import TIMEOUT_S, AsyncBrokerClient, BrokerClient
from ledgermq.client.core import questions
from ledgermq.client.core.address import DEFAULT_ADDRESS
from ledgermq.client.core.asked import asked, question
from ledgermq.client.core.questions import all_pages, asking
from ledgermq.client.core.requests import Steps
from ledgermq.client.first_contact import contact_steps, nodes_of, seeds
from ledgermq.model.errors import LedgerError
from ledgermq.verbs import groups as group_verbs
from ledgermq.verbs import offsets as offset_verbs
from ledgermq.verbs import shares as share_verbs
from ledgermq.verbs import topics as topic_verbs
from ledgermq.wire.session import SpokenFor

Result = TypeVar("Result")


class AdminOfGroups(BrokerClient):
    """The other groups are looked for when they are asked for; orders cost nothing more."""

    _several: Any | None = None

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        name: str | None = None,
        timeout_s: float = TIMEOUT_S,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        """An admin of the group of the address, which connects with the first question.

        Args:
            address: as a ``Consumer`` takes it. Orders go to that group, also where it is one of a
                cluster: topics, consumer groups and offsets are each group's own.
            name: of this client, as the node's operator sees it.
            timeout_s: for each question: so long no leader may be there.
            keys: file of keys for a group of a cluster, by its name; see ``Producer``.

        Raises:
            ConfigError: the address cannot be one.
        """
        super().__init__(nodes_of(address), name=name, timeout_s=timeout_s)
        self._given = address, self.NAME if name is None else name, timeout_s, keys

    def broker_groups(self) -> list[str]:
        """Names of all groups of nodes of the cluster.

        Raises:
            NotLeaderError: nobody has told them in ``timeout_s``.
        """
        found: list[str] = self._by_name().groups()
        return found

    def of(self, group: str) -> Self:
        """The admin of a group of nodes, which this one closes.

        Raises:
            ConfigError: there is no such group.
            NotLeaderError: nobody has told which there are.
        """
        admin: Self = self._by_name().of(group)
        return admin

    def each(self, order: Callable[[Self], Result]) -> dict[str, Result | LedgerError]:
        """What each group of nodes says to an order, by its name: a result, or why there is none.

        The groups are asked one after the other; those that do not answer are waited for once, 2 s.

        Raises:
            NotLeaderError: nobody has told which groups there are.
        """
        told: dict[str, Result | LedgerError] = self._by_name().each(order)
        return told

    def close(self) -> None:
        """Say goodbye to the nodes and close."""
        if self._several is not None:
            self._several.close()
        super().close()

    def _by_name(self) -> Any:
        if self._several is None:
            address, name, timeout_s, keys = self._given
            told = seeds(address, self.run(contact_steps()))
            kind = resolve_name("ledgermq.client.clusters.cluster_clients:GroupAdmins")
            self._several = kind(told, name=name, timeout_s=timeout_s, keys=keys)
        return self._several


class AsyncAdminOfGroups(AsyncBrokerClient):
    """The other groups are looked for when they are asked for, by a thread."""

    _several: Any | None = None

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        name: str | None = None,
        timeout_s: float = TIMEOUT_S,
        speaks_for: SpokenFor | None = None,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        """An admin, with the arguments of ``Admin``.

        Args:
            speaks_for: whose rights this has; at the unix socket of a node, where an operator alone
                may speak for others.
        """
        super().__init__(nodes_of(address), name=name, timeout_s=timeout_s, speaks_for=speaks_for)
        self._given = address, self.NAME if name is None else name, timeout_s, keys

    async def broker_groups(self) -> list[str]:
        """Names of all groups of nodes of the cluster.

        Raises:
            NotLeaderError: nobody has told them in ``timeout_s``.
        """
        found: list[str] = await (await self._by_name()).groups()
        return found

    async def of(self, group: str) -> Self:
        """The admin of a group of nodes, which this one closes.

        Raises:
            ConfigError: there is no such group.
            NotLeaderError: nobody has told which there are.
        """
        admin: Self = await (await self._by_name()).of(group)
        return admin

    async def each(
        self, order: Callable[[Self], Awaitable[Result]]
    ) -> dict[str, Result | LedgerError]:
        """What each group of nodes says to an order, by its name: a result, or why there is none.

        All are asked at once; see ``Admin.each``.
        """
        told: dict[str, Result | LedgerError] = await (await self._by_name()).each(order)
        return told

    def close(self) -> None:
        """Say goodbye to the nodes and close."""
        several, self._several = self._several, None
        if several is not None:
            several._close_at_once()
        super().close()

    async def _by_name(self) -> Any:
        if self._several is None:
            address, name, timeout_s, keys = self._given
            told = seeds(address, await self.run(contact_steps()))
            if self._several is None:
                kind = resolve_name("ledgermq.client.aio.cluster_clients:AsyncGroupAdmins")
                several = kind(told, name=name, timeout_s=timeout_s, keys=keys)
                self._several = await several.__aenter__()
        return self._several


class AdminVerbs:
    """What an operator may ask for, and order."""

    NAME = "admin"

    topics = question(questions.topics)
    topic = verb(topic_verbs.ShowTopic)
    create_topic = verb(topic_verbs.CreateTopic)
    alter_topic = verb(topic_verbs.AlterTopic)
    delete_topic = verb(topic_verbs.DeleteTopic)
    members = question(questions.members_of)
    group = verb(group_verbs.ShowGroup)
    delete_group = verb(group_verbs.DeleteGroup)
    lag = verb(group_verbs.ShowLag)
    reset_offsets = verb(offset_verbs.ResetOffsets)
    clone_offsets = verb(offset_verbs.CloneOffsets)
    receive_shared = verb(share_verbs.ReceiveShared)
    settle_shared = verb(share_verbs.SettleShared)
    shared_group = verb(share_verbs.ShowShared)
    end_shared = verb(share_verbs.EndShared)

    @asked
    def groups(self) -> Steps[list[group_verbs.GroupRow]]:
        """All groups by name, also those of which only offsets are known."""
        return (yield from all_pages(group_verbs.ListGroups, lambda row: row.group))

    @asked
    def create_group(self, /, group: str, **fields: bool | int) -> Steps[group_verbs.GroupRow]:
        """Create a group.

        Args:
            fields: RocketMQ's names: consumeEnable, consumeFromMinEnable, consumeBroadcastEnable,
                notifyConsumerIdsChangedEnable, consumeMessageOrderly, retryQueueNums,
                retryMaxTimes, brokerId, whichBrokerWhenConsumeSlowly. RocketMQ's defaults for those
                left out.

        Raises:
            MessageIllegalError: the name or a field breaks a rule, or there is another group.
            NoPermissionError: it is the broker's own.
        """
        return (yield from asking(group_verbs.CreateGroup(group, dict(fields))))

    @asked
    def alter_group(self, /, group: str, **fields: bool | int) -> Steps[group_verbs.GroupRow]:
        """Change the fields given, as ``create_group`` has them. ``consumeEnable=False`` stops its
        pulls.

        Raises:
            GroupUnknownError: there is no such group.
            MessageIllegalError: a field breaks a rule.
            NoPermissionError: it is the broker's own.
        """
        return (yield from asking(group_verbs.AlterGroup(group, dict(fields))))


class Admin(AdminVerbs, AdminOfGroups):
    """Orders that wait until they are carried out; one thread at a time may give them."""


class AsyncAdmin(AdminVerbs, AsyncAdminOfGroups):
    """Orders that are awaited: ``async with AsyncAdmin(…) as admin:``."""
