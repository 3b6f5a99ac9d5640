"""``ledgermq dev``: a node, or a group of three, to develop against."""

from __future__ import annotations

import argparse
from pathlib import Path

from ledgermq.cli.late_command import LateCommand
from ledgermq.formats.records.host_address import PORT_MAX, UNPRIVILEGED_PORT_MIN

PORTS_MAX = 18
"""Lowest port, and how many there are of three nodes."""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``dev``."""
    parser = subparsers.add_parser(
        "dev",
        help="a node, or a group of three, to develop against",
        description="Runs in the foreground, on loopback, for the library's clients, RocketMQ's and"
        " browsers, and prints how each finds it. At its end, Ctrl-C or SIGTERM, nothing is left.",
    )
    parser.add_argument(
        "--nodes",
        type=int,
        choices=(1, 3),
        help="3: a group, with a key to kill its leader; default: 1, or what DIR has",
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="keep messages, settings and ports in DIR, and go on with them at the next start;"
        " else they are in a temporary folder",
    )
    parser.add_argument(
        "--port",
        type=port_number,
        metavar="N",
        help="take N and the five ports behind it, three nodes 18 in all; RocketMQ's clients"
        " connect to N; default: free ones",
    )
    parser.add_argument("--json", action="store_true", help="print what it prints as JSON")
    parser.add_argument(
        "--orders",
        action="store_true",
        help="for programs: JSON, obey `kill-leader` and `start`, lines of standard input, and end"
        " with that or with the program",
    )
    parser.set_defaults(func=LateCommand("node.dev_run", "run"))


def port_number(text: str) -> int:
    """The first port, as the command line has it.

    Raises:
        ArgumentTypeError: it is none, or too high for those behind it.
        ValueError: it is no number.
    """
    port = int(text)
    if not UNPRIVILEGED_PORT_MIN <= port <= PORT_MAX - PORTS_MAX:
        raise argparse.ArgumentTypeError(
            f"must be {UNPRIVILEGED_PORT_MIN} to {PORT_MAX - PORTS_MAX}: {port}"
        )
    return port
