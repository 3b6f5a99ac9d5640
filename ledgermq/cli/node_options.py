"""Options of the commands that ask a running node, wherever it is."""

from __future__ import annotations

import argparse
from datetime import datetime

from ledgermq.client.core.address import DEFAULT_ADDRESS
from ledgermq.model.errors import ConfigError

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


def parse_time(text: str, option: str) -> int:
    """A time of the command line as epoch milliseconds.

    Args:
        text: those as a number, or ISO 8601, in local time unless it says another.
        option: what it was given for.

    Raises:
        ConfigError: it is no time.
    """
    if text.isdecimal():
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1_000)
    except ValueError as error:
        raise ConfigError(
            f"{option} is no time", given=text, allowed="epoch ms, or as 2025-12-31T23:59"
        ) from error
