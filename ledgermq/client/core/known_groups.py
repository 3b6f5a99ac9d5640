"""Groups of a cluster, as any node of any group tells a client."""

from __future__ import annotations

import re
from typing import NamedTuple

from ledgermq.client.core.requests import Request, call_request, call_result
from ledgermq.model.errors import ProtocolError
from ledgermq.verbs.answers import Fields, integer, rows, text, texts

GROUPS_TOLD_MAX = 1_000
NODES_TOLD_MAX = 64
"""What a cluster has at most; a node that tells of more is not believed."""

_NODE = re.compile(r"tcp://[^?,\s]+")
"""Without options: which keys are shown to whom is not for others to say. Unix sockets are another
host's."""


class NamedGroup(NamedTuple):
    """A group, and the consume sockets of its members, as far as a client can reach them."""

    name: str
    nodes: tuple[str, ...]


class KnownGroups(NamedTuple):
    """What a node knows of its cluster.

    Attributes:
        group: the node's own.
        cluster: empty where the group belongs to none.
        number: of the last change of the rows that the node has.
        groups: None: as they were at the number that was asked with.
    """

    group: str
    cluster: str
    number: int
    groups: tuple[NamedGroup, ...] | None


def groups_request(known: int | None, *, deadline: float) -> Request:
    """The question for the groups; ``known``: the number of the rows that are here."""
    arguments: dict[str, object] = {} if known is None else {"known": known}
    return call_request("cluster_groups", arguments, deadline=deadline)


def known_groups(request: Request) -> KnownGroups:
    """The answer to ``groups_request``.

    Raises:
        LedgerError: there is none, or it is not one.
    """
    told = call_result(request)
    groups = None
    if told.get("groups") is not None:
        groups = tuple(rows(told, "groups", _group))
        if len(groups) > GROUPS_TOLD_MAX:
            raise ProtocolError("too many groups", groups=len(groups), limit=GROUPS_TOLD_MAX)
    return KnownGroups(text(told, "group"), text(told, "cluster"), integer(told, "number"), groups)


def _group(row: Fields) -> NamedGroup:
    nodes = texts(row, "nodes")
    if len(nodes) > NODES_TOLD_MAX:
        raise ProtocolError("too many nodes of a group", nodes=len(nodes), limit=NODES_TOLD_MAX)
    return NamedGroup(text(row, "group"), tuple(filter(_NODE.fullmatch, nodes)))
