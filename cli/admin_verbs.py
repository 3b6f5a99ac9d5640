"""Shared parts of the verbs of ``topic``, ``group`` and ``offset``: a node, JSON, examples.

Exit status: 0 done; 1 the command line, or the node refused, did not answer, or is not there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from ledgermq.cli.message_text import time_text
from ledgermq.cli.node_options import add_node_options
from ledgermq.client.admin import Admin
from ledgermq.model.errors import ConfigError

NAME = "ledgermq-cli"

Verbs = argparse._SubParsersAction  # generic in the stubs only; there is no public name
Order = Callable[[Admin, argparse.Namespace], int]

ON_OFF = {"on": True, "off": False}


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
    order: Order,
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
    add_node_options(parser)

    def run(arguments: argparse.Namespace) -> int:
        with Admin(arguments.address, name=NAME, timeout_s=arguments.timeout) as admin:
            return order(admin, arguments)

    parser.set_defaults(func=run)
    return parser


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


def when(timestamp_ms: int | None) -> str:
    """A time for a table, ``-`` when there is none."""
    return "-" if timestamp_ms is None else time_text(timestamp_ms)
