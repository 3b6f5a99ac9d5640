"""``ledgermq keys``: keys of a group's members."""

from __future__ import annotations

import argparse
import re

from ledgermq.cli.arguments import takes
from ledgermq.cli.output import tell
from ledgermq.model.errors import ConfigError
from ledgermq.model.ids import NodeId
from ledgermq.sessions.keys.peer_keys import init_keys

_MEMBER = re.compile(r"[a-zA-Z][0-9]{1,8}")


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``keys`` and its verb."""
    parser = subparsers.add_parser("keys", help="make the keys of a group's members")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    init = verbs.add_parser(
        "init",
        help="make a folder of keys for each member",
        description="Makes DIR/NODE for each node, with its own secret key and the public keys of "
        "all. Copy each folder to its node's raft.keys_dir (by default ledgermq/keys in the store's"
        " directory), to which only the node's user has access, and remove it here.",
    )
    takes(init, "directory DIR", "where the folders are made")
    takes(init, "--nodes LIST", "all members, as n0,n1,n2", required=True)
    takes(init, "--json", "print JSON")
    init.set_defaults(func=_init)


def _init(arguments: argparse.Namespace) -> int:
    nodes = _nodes(arguments.nodes)
    folders = init_keys(arguments.directory, nodes)
    made = {node: str(folder) for node, folder in zip(nodes, folders, strict=True)}
    lines = (f"{folder}: copy to raft.keys_dir of {node}" for node, folder in made.items())
    return tell(arguments, {"folders": made}, "\n".join(lines))


def _nodes(text: str) -> list[NodeId]:
    nodes = [NodeId(name.strip()) for name in text.split(",")]
    for node in nodes:
        if not _MEMBER.fullmatch(node):
            raise ConfigError(
                "not the id of a member: one letter and a whole number, as n0",
                value=node,
                setting="--nodes",
            )
        if nodes.count(node) > 1:
            raise ConfigError("a member stands twice in the list", value=node, setting="--nodes")
    return nodes
