"""Cluster plans: the commands that a wanted change needs, refused before they are in the log.

Each is made from a table that has all of the log, so what holds here holds where it is applied.

It is noted in the group's log, so that a member that begins to lead does not begin to count anew,
and all members refuse alike. Of a home nothing is noted: what it knows is what holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ledgermq.formats.ed25519 import PUBLIC_SIZE
from ledgermq.model.errors import BusyError, ConfigError
from ledgermq.model.names.clusters import CLUSTER_GROUPS_MAX
from ledgermq.rules.cluster.certificates import Certificate, certify
from ledgermq.rules.cluster.cluster_commands import (
    ClusterCommand,
    ClusterJoined,
    ClusterLeft,
    HomeCertified,
    HomeHandedOver,
    RightsAged,
    RowChanged,
    TombstonesForgotten,
)
from ledgermq.rules.cluster.cluster_document import check_size
from ledgermq.rules.cluster.cluster_table import GROUP_KIND, ClusterTable
from ledgermq.rules.cluster.document_desk import DocumentRequest
from ledgermq.rules.cluster.json_objects import Object
from ledgermq.rules.cluster.numbered_rows import RowKey
from ledgermq.rules.cluster.signatures import SigningKey

NOTES_PER_AGE = 4
"""A confirmation is noted when it is so much of the bound younger than the one of before: the next
leader knows of it within that time."""


class RightsAge(NamedTuple):
    """What has to be done about the age of the rights.

    Attributes:
        note: is to be proposed; None: what is noted holds.
        left_ms: after so long they are too old, if nobody confirms them; None: they are, or are
            never.
    """

    note: RightsAged | None
    left_ms: int | None


def rights_age(
    table: ClusterTable, *, current_ms: int | None, now_ms: int, max_ms: int
) -> RightsAge:
    """The age as a leader knows it that has all of the log.

    Args:
        current_ms: when the rows were all that the home had committed, as this leader was told,
            by the clock of ``now_ms`` (epoch ms); None: it was not told yet.
        max_ms: what is older is refused; 0: nothing is.
    """
    if table.chain is None or table.is_home:
        return RightsAge(None, None)
    if not max_ms:
        note = RightsAged(table.confirmed_ms, False) if table.rights_too_old else None
        return RightsAge(note, None)
    confirmed_ms = table.confirmed_ms if current_ms is None else current_ms
    # Another leader's clock may have been ahead of this one's.
    age_ms = abs(now_ms - confirmed_ms)
    is_over = age_ms > max_ms
    is_news = abs(confirmed_ms - table.confirmed_ms) >= max_ms // NOTES_PER_AGE
    note = RightsAged(confirmed_ms, is_over)
    holds = is_over == table.rights_too_old and not is_news
    return RightsAge(None if holds else note, None if is_over else max_ms + 1 - age_ms)


_NODE = re.compile(r"tcp://(\[[0-9a-fA-F:.]+\]|[a-zA-Z0-9._-]+):[0-9]{1,5}")

Plan = list[ClusterCommand]


def plan_beginning(
    table: ClusterTable, joined: ClusterJoined, chain: Sequence[bytes], nodes: Sequence[str]
) -> Plan:
    """A cluster whose first group, and home, is this one.

    Args:
        chain: has its certificate.
        nodes: addresses of its members.

    Raises:
        ConfigError: it belongs to another cluster, or the certificate is another's.
    """
    begun = _plan_joined(table, joined, chain)
    copy = _applied(table, begun)
    if not copy.is_home:
        raise ConfigError(
            "certificate names another home", home=copy.home, group=copy.group, at=copy.at.number
        )
    return [*begun, *plan_group(copy, joined.group, nodes, user="")]


def plan_joining(table: ClusterTable, joined: ClusterJoined, chain: Sequence[bytes]) -> Plan:
    """This group belongs to a cluster whose home is another one.

    Raises:
        ConfigError: it belongs to another cluster, or is the home; or the chain is another's.
    """
    check_nodes(joined.nodes)
    begun = _plan_joined(table, joined, chain)
    copy = _applied(table, begun)
    if copy.home in ("", joined.group):
        raise ConfigError(
            "the cluster's home is no other group: each group needs a name of its own"
            " (node.broker_name)",
            home=copy.home,
        )
    return begun


def plan_leaving(table: ClusterTable) -> Plan:
    """This group belongs to no cluster any more.

    Raises:
        ConfigError: it belongs to none, or is the home of others.
    """
    if table.chain is None:
        raise ConfigError("group belongs to no cluster")
    return _checked(table, [ClusterLeft()])


def plan_handing_over(
    table: ClusterTable,
    signer: Callable[[bytes], SigningKey],
    group: str,
    asked: Iterable[DocumentRequest],
) -> Plan:
    """``group`` is the home from now on, in the place of this one; nothing where it is.

    A home that has handed over signs nothing any more, so the next one has to have all rows before:
    its leader says so itself, with the question that it has just asked.

    Args:
        signer: key of this home, by its public half.
        asked: questions of other groups' leaders that wait for something new.

    Raises:
        ConfigError: this is not the home, the group is not in the cluster, or has no key.
        BusyError: it does not ask, or has not all rows yet.
    """
    if table.home == group:
        return []
    table.check_home()
    if not table.nodes_of(group):
        raise ConfigError("no group of that name is in the cluster", group=group)
    keys = {one.key for one in asked if one.group == group and has_all_rows(table, one)}
    if not keys:
        raise BusyError(
            "group does not ask for the cluster's rows now, or has not all of them yet: see"
            " `ledgermq cluster status` there",
            group=group,
            number=table.at.number,
        )
    key = keys.pop()
    if keys or len(key) != PUBLIC_SIZE:
        raise ConfigError(
            "members of the group have no key in common, by which it could sign as the home: give"
            " each of them the same users.key",
            group=group,
        )
    assert table.chain is not None and table.chain.greatest is not None, "checked by check_home"
    mine = table.chain.greatest
    wanted = Certificate(mine.cluster, mine.epoch + 1, False, group, key, table.at.number, b"")
    chain = [*table.chain.signed(), certify(signer(mine.key), wanted).signed]
    return _checked(table, [HomeHandedOver(chain)])


def has_all_rows(table: ClusterTable, asked: DocumentRequest) -> bool:
    """Whether whoever asks has all rows of this home, and knows that they are this home's."""
    return asked.at == table.at and asked.rank == table.rows_rank


def plan_taking_over(table: ClusterTable, chain: Sequence[bytes]) -> Plan:
    """This group is the home from now on, for the root key says so: the one before it is lost.

    Raises:
        ConfigError: it belongs to no cluster, or the certificate is another's.
    """
    if table.chain is None:
        raise ConfigError("group belongs to no cluster: join it first")
    plan: Plan = [] if table.chain.signed() == [*chain] else [HomeCertified(chain)]
    copy = _applied(table, plan)
    if not copy.is_home or (copy.chain is not None and copy.chain.signed() != [*chain]):
        raise ConfigError(
            "certificate makes this group no home: another one, or a later epoch, is known",
            home=copy.home,
            group=copy.group,
            at=copy.at.number,
        )
    return plan


def plan_group(table: ClusterTable, group: str, nodes: Sequence[str], *, user: str) -> Plan:
    """The home's row of a group: where its members are, and which user asks for documents.

    Raises:
        ConfigError: this is not the home, there are too many groups, or another one has the name.
    """
    known, of_others = table.nodes_of(group), dict(table.rows.of_kind(GROUP_KIND))
    if known and not {*known} & {*nodes}:
        raise ConfigError(
            "another group has that name: each needs one of its own (node.broker_name), or remove"
            " the other one first",
            group=group,
            nodes=" ".join(known),
        )
    check_nodes(nodes)
    if group not in of_others and len(of_others) >= CLUSTER_GROUPS_MAX:
        raise ConfigError(
            "too many groups in a cluster", groups=len(of_others), limit=CLUSTER_GROUPS_MAX
        )
    value: dict[str, object] = {"nodes": [*nodes], **({"user": user} if user else {})}
    return plan_row(table, RowKey(GROUP_KIND, group), value)


def plan_without_group(table: ClusterTable, group: str) -> Plan:
    """The home has no row of a group any more.

    Raises:
        ConfigError: this is not the home, there is no such group, or it is the home itself.
    """
    if group == table.home:
        raise ConfigError("the home itself leaves as the last group", group=group)
    if table.chain is None or table.rows.value(RowKey(GROUP_KIND, group)) is None:
        raise ConfigError("no group of that name is in the cluster", group=group)
    return plan_row(table, RowKey(GROUP_KIND, group), None)


def plan_row(table: ClusterTable, key: RowKey, value: Object | None) -> Plan:
    """The home's row is so from now on; see ``plan_rows``."""
    return plan_rows(table, {key: value})


def plan_rows(table: ClusterTable, values: Mapping[RowKey, Object | None]) -> Plan:
    """The home's rows are so from now on, without a value removed; nothing where they are.

    Tombstones go that no group can ask for: who is not at one of the last points takes all rows.

    Raises:
        ConfigError: this is not the home, or there would be more than a document can carry.
    """
    rows = table.rows
    differing = [
        key for key, value in values.items() if not table.is_home or rows.value(key) != value
    ]
    if not differing:
        return []
    change: Plan = [
        RowChanged(key, table.at.number + 1 + number, values[key])
        for number, key in enumerate(differing)
    ]
    oldest = rows.points()[0].number
    if rows.has_tombstones(oldest):
        change.insert(0, TombstonesForgotten(oldest))
    check_size(_applied(table, change).rows.above(0))
    return change


def check_nodes(nodes: Sequence[str]) -> None:
    """Refuse what no other group could ask.

    Raises:
        ConfigError: there are none, or one is no address.
    """
    wrong = [one for one in nodes if _NODE.fullmatch(one) is None]
    if wrong or not nodes:
        raise ConfigError(
            "a group's members are named by their consume sockets, as tcp://10.0.0.1:10912",
            found=wrong[0] if wrong else "none",
        )


def _plan_joined(table: ClusterTable, joined: ClusterJoined, chain: Sequence[bytes]) -> Plan:
    mine = table.chain
    is_same = (
        mine is not None
        and (mine.cluster, mine.root, table.group) == (joined.cluster, joined.root, joined.group)
        and [*table.first_nodes] == [*joined.nodes]
    )
    plan: Plan = [] if is_same else [joined]
    if mine is None or not is_same or mine.signed() != [*chain]:
        plan.append(HomeCertified(chain))
    return _checked(table, plan)


def _checked(table: ClusterTable, plan: Plan) -> Plan:
    _applied(table, plan)
    return plan


def _applied(table: ClusterTable, plan: Plan) -> ClusterTable:
    """A copy of the table that has the plan's commands.

    Raises:
        ConfigError: one of them would change nothing; says why.
    """
    copy = ClusterTable.read(table.to_document())
    for command in plan:
        copy.apply(command)
        if copy.refused:
            raise ConfigError(copy.refused)
    return copy
