"""Options of the commands that ask a running node, wherever it is."""

from __future__ import annotations

import argparse

from ledgermq.cli.arguments import takes
from ledgermq.client.core.address import DEFAULT_ADDRESS

NAME = "ledgermq-cli"
"""What a node's operator sees of a command."""


def add_node_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--address``, ``--timeout`` and ``--json``."""
    takes(
        parser,
        "--address ADDRESS",
        "ipc:// and the node's runtime directory, or tcp://HOST:PORT of its consume socket; "
        f"of several nodes of a group, divided by commas (default: {DEFAULT_ADDRESS})",
        default=DEFAULT_ADDRESS,
    )
    takes(parser, "--timeout SECONDS", "how long the node may take (default: 15)", default=15.0)
    takes(parser, "--json", "print JSON")


def add_cluster_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--cluster``: what is changed is that of all groups."""
    takes(parser, "--cluster", "for all groups of the cluster; is asked of its home")
