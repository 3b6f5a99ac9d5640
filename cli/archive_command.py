"""``ledgermq archive``: the archives that retention waits for.

Exit status: 0 done; 1 refused, or the command line.
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime

from ledgermq.cli.node_options import add_node_options
from ledgermq.client.archive_admin import ArchiveAdmin
from ledgermq.client.broker_connection import connect_broker

NAME = "ledgermq-cli"


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``archive`` and its verbs."""
    parser = subparsers.add_parser("archive", help="show the archives that retention waits for")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="show how far each archive is")
    listing.set_defaults(func=_list)
    remove = verbs.add_parser("remove", help="let retention wait for an archive no more")
    remove.add_argument("archive", metavar="NAME")
    remove.set_defaults(func=_remove)
    for verb in (listing, remove):
        add_node_options(verb)


def _list(arguments: argparse.Namespace) -> int:
    with connect_broker(arguments.address, name=NAME, timeout_s=arguments.timeout) as broker:
        rows = ArchiveAdmin(broker).archives()
    if arguments.json:
        print(json.dumps({"archives": [row._asdict() for row in rows]}))
    elif not rows:
        print("retention waits for no archive: ledgermq spark archive --watermark NAME")
    for row in () if arguments.json else rows:
        told = datetime.fromtimestamp(row.at_ms / 1_000, UTC).isoformat(timespec="seconds")
        print(
            f"{row.archive}: has the log up to {row.position:,}, lacks {row.behind:,} bytes;"
            f" said so at {told}"
        )
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    with connect_broker(arguments.address, name=NAME, timeout_s=arguments.timeout) as broker:
        ArchiveAdmin(broker).remove(arguments.archive)
    removed = {"removed": arguments.archive}
    print(json.dumps(removed) if arguments.json else f"{arguments.archive}: is not waited for")
    return 0
