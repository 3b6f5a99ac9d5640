"""``ledgermq access``: keys, certificates, the first admin and users, in one go.

``docs/operating/security.md`` tells how it is used, and how each of these is changed later.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path

from ledgermq.cli.arguments import takes
from ledgermq.cli.node_verbs import asks
from ledgermq.cli.output import tell
from ledgermq.cli.setup.user_import import left_over_line, take_users
from ledgermq.client.blocking.broker import Broker
from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.errors import ConfigError, NotLeaderError
from ledgermq.model.ids import NodeId
from ledgermq.rules.access.access import User
from ledgermq.sessions.keys.first_access import (
    CERTIFICATES,
    CLIENTS,
    AccessWish,
    NewNode,
    make_first_access,
    read_first_users,
    read_host,
)

_NODE = re.compile(r"(?P<name>[a-zA-Z][0-9]{1,8})=(?P<host>\S{1,255})")
_KINDS = {"topic": "topicPerms", "group": "groupPerms"}


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``access`` and its verbs."""
    parser = subparsers.add_parser("access", help="make keys, certificates and users in one go")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    init = verbs.add_parser(
        "init",
        help="make a folder of keys and settings for each node, and one for the clients",
        description="Makes DIR with a folder for each node, one for the clients, and the list of "
        "users that `ledgermq access apply` gives to the running node. Nothing is sent anywhere.",
    )
    takes(init, "directory DIR", "what is made")
    takes(init, "--nodes LIST", "node and address, as n0=10.0.0.1,n1=…", required=True)
    takes(init, "--admin USER", "may do everything", required=True)
    add_further_users(init)
    takes(init, "--certificates", "RocketMQ's clients come, too, over TLS")
    add_place(init)
    takes(init, "--json", "print JSON")
    init.set_defaults(func=_init)
    apply = verbs.add_parser("apply", help="give the users of such a folder to a running node")
    takes(apply, "directory DIR")
    asks(apply, connect_broker, _apply)


def add_further_users(init: argparse.ArgumentParser) -> None:
    """The option ``--user`` of what makes a folder: ``others`` of ``first_users``."""
    takes(
        init,
        "--user TEXT",
        "name and rights of a further one, as 'shop topic:orders=PUB|SUB group:billing=SUB'",
        action="append",
        default=[],
    )


def add_place(init: argparse.ArgumentParser) -> None:
    """The option ``--place`` of what makes a folder for each node."""
    takes(
        init,
        "--place DIR",
        "where a host has these files (default: %(default)s)",
        default=Path("/etc/ledgermq"),
    )


def first_users(admin: str, others: Sequence[str]) -> dict[str, dict[str, object]]:
    """Rights by user, as ``acl_set`` takes them.

    Args:
        others: a name and its rights each, as ``billing topic:orders=SUB group:billing=SUB``.

    Raises:
        ConfigError: a user stands there twice, or with what is no right.
    """
    users: dict[str, dict[str, object]] = {admin: {"admin": True}}
    for text in others:
        name, fields = _user(text)
        if name in users:
            raise ConfigError("a user stands twice in the list", user=name, setting="--user")
        users[name] = fields
    return users


def _init(arguments: argparse.Namespace) -> int:
    nodes = _nodes(arguments.nodes)
    users = first_users(arguments.admin, arguments.user)
    folder, place = arguments.directory, arguments.place
    wanted = AccessWish(nodes, users, place, has_remoting=arguments.certificates)
    make_first_access(folder, wanted)
    if arguments.json:
        print(json.dumps({"folder": str(folder), "users": sorted(users)}))
        return 0
    for node in nodes:
        print(
            f"{folder / node.name}: copy what is in it to {place} on {node.address}, for the"
            " account of the service alone, and put access.toml into the settings"
        )
    leads = "the one that leads" if len(nodes) > 1 else "it"
    print(f"start the nodes, then on {leads}: ledgermq access apply {folder}")
    for name in users:
        print(f"{folder / CLIENTS / name}.keys, .secret: for {name} alone")
    if arguments.certificates:
        print(f"{folder / CERTIFICATES}: for all clients of RocketMQ; it is no secret")
    print(f"then remove {folder}")
    return 0


def _apply(broker: Broker, arguments: argparse.Namespace) -> int:
    users = read_first_users(arguments.directory)
    welcome = broker.welcome()
    if welcome.leader not in ("", welcome.node):
        raise NotLeaderError(
            f"{welcome.leader} leads the group, and users are given to the node that does: type on"
            f" the host of {welcome.leader} `ledgermq raft transfer {welcome.node}`, and then here"
            " the same again"
        )
    whole = {name: User.read(name, fields).all_fields() for name, fields in users.items()}
    left_over = take_users(broker, whole)
    lines = [f"users: {', '.join(sorted(users))}"]
    lines += [left_over_line(left_over)] if left_over else []
    document = {"users": sorted(users), "left_over": left_over}
    return tell(arguments, document, "\n".join(lines))


def _nodes(text: str) -> list[NewNode]:
    nodes: list[NewNode] = []
    for part in text.split(","):
        match = _NODE.fullmatch(part.strip())
        if match is None:
            raise ConfigError(
                "not a node and its address, as n0=10.0.0.1", value=part, setting="--nodes"
            )
        host = read_host(match["host"], setting="--nodes")
        node = NewNode(NodeId(match["name"]), host)
        if node.name in {one.name for one in nodes}:
            raise ConfigError("a node stands twice in the list", value=part, setting="--nodes")
        nodes.append(node)
    return nodes


def _user(text: str) -> tuple[str, dict[str, object]]:
    name, *rights = text.split() or [""]
    perms: dict[str, list[str]] = {}
    for right in rights:
        kind, colon, named = right.partition(":")
        if not colon or kind not in _KINDS:
            raise ConfigError(
                "not a right, as topic:orders=PUB or group:billing=SUB",
                user=name,
                value=right,
                setting="--user",
            )
        perms.setdefault(_KINDS[kind], []).append(named)
    return name, dict(perms)
