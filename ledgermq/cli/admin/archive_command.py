"""``ledgermq archive``: the archives that retention waits for.

Exit status: 0 done; 1 refused, or the command line.
"""

from __future__ import annotations

import argparse

from ledgermq.cli.arguments import takes
from ledgermq.cli.node_verbs import asks
from ledgermq.cli.output import tell, time_text
from ledgermq.client.blocking.broker import Broker
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.core.questions import asking
from ledgermq.verbs.upkeep import ListArchives, RemoveArchive


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``archive`` and its verbs."""
    parser = subparsers.add_parser("archive", help="show the archives that retention waits for")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="show how far each archive is")
    remove = verbs.add_parser("remove", help="let retention wait for an archive no more")
    takes(remove, "archive NAME")
    asks(listing, connect_broker, _list)
    asks(remove, connect_broker, _remove)


def _list(broker: Broker, arguments: argparse.Namespace) -> int:
    listing = ListArchives()
    rows = broker.run(asking(listing))
    none = "retention waits for no archive: ledgermq spark archive --watermark NAME"
    lines = [
        f"{row.archive}: has the log up to {row.position:,}, lacks {row.behind:,} bytes;"
        f" said so at {time_text(row.at_ms, unit='seconds')}"
        for row in rows
    ]
    return tell(arguments, listing.document(rows), "\n".join(lines) or none)


def _remove(broker: Broker, arguments: argparse.Namespace) -> int:
    remove = RemoveArchive(arguments.archive)
    told = remove.document(broker.run(asking(remove)))
    return tell(arguments, told, f"{arguments.archive}: is not waited for")
