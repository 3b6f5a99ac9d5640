"""``ledgermq dev``: a node, or a group of three, to develop against."""

from __future__ import annotations

import argparse

from ledgermq.cli.arguments import LateCommand, takes
from ledgermq.formats.records.host_address import PORT_MAX, UNPRIVILEGED_PORT_MIN

PORTS_EACH = 8
"""Ports of a node in a row: RocketMQ's clients, producers, consumers, HTTP, members, direct
connections of members and of their writers, and gRPC."""

NODES_MAX = 3
PORT_LAST = PORT_MAX + 1 - NODES_MAX * PORTS_EACH
"""Highest first port that leaves room for those of all nodes."""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``dev``."""
    parser = subparsers.add_parser(
        "dev",
        help="a node, or a group of three, to develop against",
        description="Runs in the foreground, on loopback, for the library's clients, RocketMQ's and"
        " browsers, and prints how each finds it. At its end, Ctrl-C or SIGTERM, nothing is left.",
    )
    takes(
        parser,
        "--nodes",
        "3: a group, with a key to kill its leader; default: 1, or what DIR has",
        type=int,
        choices=(1, NODES_MAX),
    )
    takes(
        parser,
        "--keep DIR",
        "keep messages, settings and ports in DIR, and go on with them at the next start;"
        " else they are in a temporary folder",
    )
    takes(
        parser,
        "--port N",
        f"take N and the {PORTS_EACH - 1} ports behind it, three nodes"
        f" {NODES_MAX * PORTS_EACH} in all; RocketMQ's clients connect to N; default: free ones",
        type=port_number,
    )
    takes(parser, "--grpc", "serve RocketMQ 5's gRPC clients, too: ledgermq[grpc]")
    takes(parser, "--json", "print what it prints as JSON")
    takes(
        parser,
        "--orders",
        "for programs: JSON, obey `kill-leader` and `start`, lines of standard input, and end"
        " with that or with the program",
    )
    parser.set_defaults(func=LateCommand("node.dev_run", "run"))


def port_number(text: str) -> int:
    """The first port, as the command line has it.

    Raises:
        ArgumentTypeError: it is none, or too high for those behind it.
    """
    port = int(text) if text.isascii() and text.isdecimal() else 0
    if not UNPRIVILEGED_PORT_MIN <= port <= PORT_LAST:
        raise argparse.ArgumentTypeError(f"must be {UNPRIVILEGED_PORT_MIN} to {PORT_LAST}: {text}")
    return port
