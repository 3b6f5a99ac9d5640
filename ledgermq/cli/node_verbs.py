"""Verbs that ask a running node, wherever it is: its address, the connection, the answer.

Exit status: 0 done; 1 the command line, or the node refused, did not answer, or is not there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from ledgermq.cli.arguments import NAME, add_node_options
from ledgermq.cli.leader_hint import naming_the_leader
from ledgermq.client.admin.admin import Admin
from ledgermq.client.blocking.broker import Broker
from ledgermq.client.broker_connection import BrokerClient
from ledgermq.client.core.requests import AsOf
from ledgermq.model.errors import ConfigError

Client = TypeVar("Client")

ON_OFF = {"on": True, "off": False}


def asks(
    parser: argparse.ArgumentParser,
    connect: Callable[..., AbstractContextManager[Client]],
    answer: Callable[[Client, argparse.Namespace], int],
) -> argparse.ArgumentParser:
    """Let a verb ask the node at ``--address``, and add the options for that.

    Args:
        connect: makes a client of an address, a ``name`` and a ``timeout_s``.
        answer: asks and prints; gives the exit status.
    """
    add_node_options(parser)

    def run(arguments: argparse.Namespace) -> int:
        with connect(arguments.address, name=NAME, timeout_s=arguments.timeout) as client:
            status = answer(client, arguments)
            if isinstance(client, Broker | BrokerClient) and client.as_of is not None:
                print(_may_be_old(client.as_of), file=sys.stderr)
            return status

    parser.set_defaults(func=naming_the_leader(run))
    return parser


def _may_be_old(as_of: AsOf) -> str:
    leader = as_of.get("leader") or "nobody"
    return (
        f"ledgermq: told by a {as_of.get('role')} in term {as_of.get('term')}, as of position"
        f" {as_of.get('position')} of its log: it may be old. It knows {leader} as the leader"
    )


def add_command(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    text: str,
    description: str,
) -> argparse._SubParsersAction[argparse.ArgumentParser]:
    """A command with verbs."""
    parser = subparsers.add_parser(
        name,
        help=text,
        description=description,
        epilog=f"Each verb explains itself: ledgermq {name} VERB --help",
    )
    return parser.add_subparsers(title="verbs", metavar="VERB", required=True)


def add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    text: str,
    order: Callable[[Admin, argparse.Namespace], int],
    *,
    examples: Sequence[str],
    more: str = "",
) -> argparse.ArgumentParser:
    """A verb that gives an order to the node at ``--address``.

    Args:
        more: what ``--help`` says besides.
    """
    parser = verbs.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}. {more}".strip(),
        epilog="\n".join(["examples:", *(f"  ledgermq {example}" for example in examples)]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return asks(parser, Admin, order)


def confirm(arguments: argparse.Namespace, what: str) -> None:
    """Have the operator say yes, on the command line or at a terminal.

    Raises:
        ConfigError: that was not said.
    """
    if arguments.yes:
        return
    if sys.stdin.isatty() and not arguments.json:
        print(f"{what}? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return
        raise ConfigError("nothing was done")
    raise ConfigError(f"{what}: say so with --yes")
