"""``ledgermq send`` and ``receive``: messages by hand.

They need nothing of a node but its address. Exit status: 0 done; 1 the command line, or the node
refused, did not answer, or is not there.
"""

from __future__ import annotations

import argparse

from ledgermq.cli.leader_hint import naming_the_leader
from ledgermq.cli.messages import receive_command, send_command
from ledgermq.cli.node_options import NAME, add_node_options


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``send`` and ``receive``."""
    _add_common(send_command.add_parser(subparsers))
    _add_common(receive_command.add_parser(subparsers))


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_node_options(parser)
    parser.set_defaults(name=NAME, func=naming_the_leader(parser.get_default("func")))
