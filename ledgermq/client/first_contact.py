"""Clients that learn with their first question whether there is one group of nodes, or a cluster.

    class Client(WaitsForContact):
        IN_CLUSTER = "ledgermq.client.clusters.cluster_client:ClientOfGroups"

        def __init__(self, …):
            …
            self._begin_contact(one_group=one_group)

What asks stands in the place of the client's verbs in the client itself, as what refuses does once
it is closed (``closing``). Where there is one group it is taken away, and the verbs are the class's
own: a call pays nothing for groups that are not there. In a cluster the verbs of a client of all of
its groups are put there instead, and those that one group alone can answer say so. That client is
made of ordinary ones, and so is imported by its name, when one has learned of a cluster; it is told
nothing but the client in whose place it is.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from pkgutil import resolve_name
from typing import Any, ClassVar, NoReturn

from ledgermq.client.closing import Ending, verbs_of
from ledgermq.client.core.address import address_texts, parse_addresses
from ledgermq.client.core.known_groups import KnownGroups, groups_request, known_groups
from ledgermq.client.core.link import NEVER
from ledgermq.client.core.nodes import AnyLink
from ledgermq.client.core.requests import Request, Steps
from ledgermq.model.errors import ConfigError, NoPermissionError, ProtocolError


def contact_steps() -> Steps[KnownGroups | None]:
    """What a node tells of its cluster; None: its group belongs to none.

    Raises:
        LedgerError: nobody has told it.
    """
    request = groups_request(None, deadline=NEVER)
    yield request
    return told_groups(request)


def told_groups(request: Request) -> KnownGroups | None:
    """The answer to a ``groups_request``; None: the node's group belongs to no cluster.

    Raises:
        LedgerError: there is none.
    """
    try:
        told = known_groups(request)
    except (ProtocolError, NoPermissionError):
        # A node from before there were clusters, or one that tells this client nothing.
        return None
    return told if told.cluster else None


def several_groups(addresses: str | Sequence[str]) -> list[str] | None:
    """Addresses of a group each, where they say so themselves: a list in which one has a comma.

    A comma may stand behind the last node of a group. None: they are nodes, of one group as far as
    is known.
    """
    if isinstance(addresses, str) or not any("," in one for one in address_texts(addresses)):
        return None
    return [one.strip(" ,") for one in addresses]


def told_by(addresses: str | Sequence[str]) -> KnownGroups | None:
    """What is known without a question: that there are several groups, where addresses say so.

    Groups that belong to no cluster can be used in no other way.
    """
    return None if several_groups(addresses) is None else KnownGroups("", "", 0, None)


def nodes_of(addresses: str | Sequence[str]) -> str | list[str]:
    """All nodes of ``addresses``, as clients of one group take them."""
    groups = several_groups(addresses)
    if groups is None:
        return addresses if isinstance(addresses, str) else list(addresses)
    return [node for one in groups for node in one.split(",")]


def by_group(addresses: str | Sequence[str], told: KnownGroups) -> list[str]:
    """Addresses of a cluster's groups, a text each, of which at least one is asked for the others.

    Args:
        told: says which of the nodes belong to which group; those of which it says nothing are
            taken for nodes of one more.
    """
    groups = several_groups(addresses)
    if groups is not None:
        return groups
    nodes = addresses.split(",") if isinstance(addresses, str) else list(addresses)
    group_of = {node: group.name for group in told.groups or () for node in group.nodes}
    found: dict[str, list[str]] = {}
    for node in nodes:
        (place,) = parse_addresses(node)
        found.setdefault(group_of.get(place.consume, ""), []).append(node.strip())
    return [",".join(one) for one in found.values()]


def seeds(addresses: str | Sequence[str], told: KnownGroups | None) -> list[str]:
    """Addresses of groups, a text each, also where there is one."""
    if told is not None:
        return by_group(addresses, told)
    nodes = nodes_of(addresses)
    return [nodes if isinstance(nodes, str) else ",".join(nodes)]


class FirstContact(Ending):
    """A client whose verbs are those of one group, or of a cluster; see the module."""

    ASKS_NOBODY: ClassVar[frozenset[str]] = frozenset({"run"})
    """Verbs that are the client's own before anything is known, and in a cluster, too."""

    IN_CLUSTER: ClassVar[str]
    """The kind of client of all groups, which takes this one, and what was told of the cluster."""

    _several: Any = None
    """The client of all groups of a cluster, which this one closes; None: there is one group."""

    _addresses: str | Sequence[str] = ""
    _is_asking = False
    _told: KnownGroups | None = None

    @abstractmethod
    def _begin_contact(self, *, one_group: bool) -> None:
        """Ask with the first verb; with ``one_group`` nobody is ever asked."""

    def _ask_first(self, ask: Callable[..., Any]) -> None:
        """Have each verb begin with ``ask``, which is given its name and its arguments."""
        self._is_asking = True
        vars(self).update({verb: partial(ask, verb) for verb in self._own_verbs()})

    def _know(self, told: KnownGroups | None) -> None:
        """Do what the verbs say from now on: in one group, or in a cluster."""
        self._told = told
        if told is None:
            for verb in self._own_verbs():
                vars(self).pop(verb, None)
        else:
            several: Ending = resolve_name(self.IN_CLUSTER)(self, told)
            self._leave_group()
            self._several = several
            theirs = verbs_of(type(several))
            for verb in self._own_verbs():
                is_theirs = verb in theirs
                vars(self)[verb] = getattr(several, verb) if is_theirs else _of_one_group(verb)
        self._is_asking = False

    def _leave_group(self) -> None:
        """End what it has of one group: a client of all groups has come into its place."""

    def _seeds(self, told: KnownGroups) -> list[str]:
        """Its addresses as those of a cluster's groups; see ``by_group``."""
        return by_group(self._addresses, told)

    def _own_verbs(self) -> frozenset[str]:
        return verbs_of(type(self)) - self.ASKS_NOBODY


def link_group(link: AnyLink) -> list[str]:
    """The name of the group of nodes that a link is to, as far as it is known."""
    welcome = link.last_welcome
    return [] if welcome is None else [welcome.broker]


def check_only_group(group: str, link: AnyLink) -> None:
    """Refuse the name of a group where there is one, and that has another name.

    Raises:
        ConfigError: it has.
    """
    known = link_group(link)
    if known and group not in known:
        raise ConfigError("no such group is known", group=group, known=known)


def _of_one_group(verb: str) -> Callable[..., NoReturn]:
    """In the place of a verb that a cluster has no answer to."""

    def refuse(*_args: object, **_kwargs: object) -> NoReturn:
        raise ConfigError("this is of one group of nodes: ask a client of that alone", verb=verb)

    return refuse
