"""Looks at the groups of a cluster: who leads in each, who is silent, and what waits there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ledgermq.client.broker_connection import AsyncBrokerClient
from ledgermq.client.core.questions import ask
from ledgermq.model.errors import LedgerError
from ledgermq.verbs.answers import Fields, fields_of, integer, text, texts
from ledgermq.verbs.clusters import ClusterGroup

NAME = "ledgermq console"
KEYS_FILE = "cluster.keys"
"""A client's keys, beside the node's own: with them the other groups' members are asked."""

GROUP_ANSWER_S = 2.0
"""A member that does not answer for so long is silent."""

FRESH_S = 5.0
PATIENCE_S = 2.5
"""A page waits so long, and shows what is known by then."""

GROUPS_MAX = 50
MEMBERS_MAX = 9
AT_ONCE = 8
"""Groups that are looked at, members of one that are asked, and groups that are asked at once."""


class GroupLook(NamedTuple):
    """How a group was seen.

    Attributes:
        leader: the node that leads; empty: none of those that answer does.
        members: how many there are, as those that answer have it in their settings.
        silent: names of those that do not answer, addresses where nobody does.
        behind: bytes of the log that the last of the others lacks; None: nobody leads.
        lag: messages that wait for the consumer groups of the group; None: not told.
        why: why the last member that was asked gave nothing; empty: all gave what was asked for.
    """

    leader: str = ""
    members: int = 0
    silent: tuple[str, ...] = ()
    behind: int | None = None
    lag: int | None = None
    why: str = ""


class MemberSeen(NamedTuple):
    """What a member told of itself; ``peers``: all that a client can ask; ``written``: how far its
    log is, in bytes.
    """

    name: str
    peers: tuple[str, ...]
    leads: bool
    term: int
    written: int


class ClusterSurvey:
    """Owned by the observer's loop. Nobody is asked while no page wants to know."""

    def __init__(self, keys: Path) -> None:
        """Nobody is asked yet.

        Args:
            keys: the folder in which ``KEYS_FILE`` may be.
        """
        self._keys = keys / KEYS_FILE
        self._looks: dict[ClusterGroup, tuple[float, GroupLook]] = {}
        self._under_way: dict[ClusterGroup, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(AT_ONCE)

    async def look(self, groups: Sequence[ClusterGroup]) -> Mapping[str, GroupLook]:
        """The last look at each of the groups, by name; one that was not seen yet is missing."""
        wanted = groups[:GROUPS_MAX]
        self._looks = {one: self._looks[one] for one in wanted if one in self._looks}
        old = time.monotonic() - FRESH_S
        for one in wanted:
            at, _ = self._looks.get(one, (old, None))
            if at <= old and one not in self._under_way:
                self._under_way[one] = asyncio.create_task(self._look_at(one))
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=PATIENCE_S)
        return {one.group: look for one, (_, look) in self._looks.items()}

    def close(self) -> None:
        """Ask no more."""
        for task in self._under_way.values():
            task.cancel()

    async def _look_at(self, group: ClusterGroup) -> None:
        try:
            async with self._places:
                asked = (self._told(address) for address in group.nodes[:MEMBERS_MAX])
                told = dict(zip(group.nodes, await asyncio.gather(*asked), strict=False))
                found = seen(told)
                if found.leader:
                    found = await self._with_lag(found, told)
            self._looks[group] = time.monotonic(), found
        finally:
            del self._under_way[group]

    async def _told(self, address: str) -> MemberSeen | LedgerError:
        try:
            return member_seen(await self._ask(address, "node_report"))
        except LedgerError as error:
            return error

    async def _with_lag(
        self, found: GroupLook, told: Mapping[str, MemberSeen | LedgerError]
    ) -> GroupLook:
        """The same with what its leader says of all of its consumer groups."""
        address = next(
            address
            for address, one in told.items()
            if isinstance(one, MemberSeen) and one.name == found.leader and one.leads
        )
        try:
            return found._replace(lag=integer(await self._ask(address, "group_lags", 1), "lag"))
        except LedgerError as error:
            return found._replace(why=found.why or error.message)

    async def _ask(self, address: str, verb: str, count: int | None = None) -> Fields:
        has_keys = await asyncio.to_thread(self._keys.is_file)
        where = f"{address}?keys={self._keys}" if has_keys else address
        arguments = {} if count is None else {"count": count}
        async with AsyncBrokerClient(where, name=NAME, timeout_s=GROUP_ANSWER_S) as broker:
            return await broker.run(ask(verb, **arguments))


def member_seen(report: Fields) -> MemberSeen:
    """What a node's report says that is shown.

    Raises:
        ProtocolError: it is none.
    """
    node, raft = fields_of(report, "node"), fields_of(report, "raft")
    # Witnesses answer no client.
    bodiless = texts(report, "bodiless")
    named = (peer.partition("-")[0] for peer in texts(node, "peers"))
    return MemberSeen(
        text(node, "self_id"),
        tuple(name for name in named if name not in bodiless),
        text(raft, "role") == "leader",
        integer(raft, "term"),
        integer(fields_of(fields_of(report, "cursors"), "written"), "position"),
    )


def seen(told: Mapping[str, MemberSeen | LedgerError]) -> GroupLook:
    """A group, by what its members told, or why they did not, by their addresses."""
    members = [one for one in told.values() if isinstance(one, MemberSeen)]
    failures = [one.message for one in told.values() if isinstance(one, LedgerError)]
    why = failures[-1] if failures else ""
    if not members:
        return GroupLook(members=len(told), silent=tuple(told), why=why)
    names = {name for one in members for name in (*one.peers, one.name)}
    silent = sorted(names - {one.name for one in members})
    leaders = [one for one in members if one.leads]
    leader = max(leaders, key=lambda one: one.term) if leaders else None
    behind = None
    if leader is not None:
        behind = max(0, *(leader.written - one.written for one in members), 0)
    return GroupLook(leader.name if leader else "", len(names), tuple(silent), behind, None, why)
