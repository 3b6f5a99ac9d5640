"""Options of the commands that ask a running node, wherever it is."""

from __future__ import annotations

import argparse

from ledgermq.client.core.address import DEFAULT_ADDRESS

NAME = "ledgermq-cli"
"""What a node's operator sees of a command."""


def add_node_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--address``, ``--timeout`` and ``--json``."""
    parser.add_argument(
        "--address",
        default=DEFAULT_ADDRESS,
        metavar="ADDRESS",
        help="ipc:// and the node's runtime directory, or tcp://HOST:PORT of its consume socket; "
        f"of several nodes of a group, divided by commas (default: {DEFAULT_ADDRESS})",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=15.0,
        metavar="SECONDS",
        help="how long the node may take (default: 15)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_cluster_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--cluster``: what is changed is that of all groups."""
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="for all groups of the cluster; is asked of its home",
    )
