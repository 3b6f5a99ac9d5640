"""``ledgermq explain``: what a group had and had not consumed of a topic at a moment."""

from __future__ import annotations

import argparse

from ledgermq.cli.arguments import LateCommand, add_live_options, takes
from ledgermq.cli.spark.piece_command import PLACE


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``explain``."""
    parser = subparsers.add_parser(
        "explain",
        help="tell what a group had and had not consumed of a topic at a moment",
        description="By sealed pieces, and by a store's log behind them: topics, groups and offsets"
        " are those of that very entry, and a queue ends where it ended then.",
        epilog="examples:\n"
        "  ledgermq explain billing orders --as-of 2026-11-29T14:05 --from s3://archive/orders-a\n"
        "  ledgermq explain billing orders --as-of index=1840233 --from /srv/pieces \\\n"
        "      --store /var/lib/ledgermq --runtime-dir /run/ledgermq",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    takes(parser, "group GROUP")
    takes(parser, "topic TOPIC")
    takes(parser, "--as-of WHEN", "a time, or index=N", required=True)
    takes(parser, "--from PLACE", PLACE, dest="place", required=True)
    add_live_options(parser)
    takes(parser, "--json", "print JSON")
    parser.set_defaults(func=LateCommand("spark.explained", "explain_group"))
