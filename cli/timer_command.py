"""``ledgermq timer``: pending timers, listed and cancelled.

Exit status: 0 done; 1 none of that id waits, or the node refused or did not answer.
"""

from __future__ import annotations

import argparse
import json

from ledgermq.cli.message_text import print_table, time_text
from ledgermq.cli.node_options import add_node_options
from ledgermq.client.broker_connection import connect_broker

NAME = "ledgermq-cli"
LISTED_DEFAULT = 50


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``timer`` and its verbs."""
    parser = subparsers.add_parser(
        "timer",
        help="list and cancel messages that wait for their time",
        description="Messages that were sent with a time of delivery. Those of RocketMQ's delay "
        "levels are not among them: they cannot be taken back.",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    listing = verbs.add_parser("list", help="those that are due next")
    listing.add_argument(
        "--max", type=int, default=LISTED_DEFAULT, metavar="N",
        help=f"only N of them, at most 1,000 (default: {LISTED_DEFAULT})",
    )  # fmt: skip
    listing.set_defaults(func=_list)

    cancel = verbs.add_parser("cancel", help="take one back")
    cancel.add_argument("id", metavar="ID", help="unique id of the message, as send tells it")
    cancel.set_defaults(func=_cancel)
    for verb in (listing, cancel):
        add_node_options(verb)


def _list(arguments: argparse.Namespace) -> int:
    with connect_broker(arguments.address, name=NAME, timeout_s=arguments.timeout) as broker:
        found = broker.timers(arguments.max)
    if arguments.json:
        rows = [row._asdict() for row in found.timers]
        print(json.dumps({"waiting": found.waiting, "timers": rows}))
        return 0
    if not found.timers:
        print("no message waits for its time")
        return 0
    head = ("due", "topic", "queue", "size", "since", "id")
    print_table(
        head,
        (
            (
                time_text(row.due_ms),
                row.topic,
                str(row.queue_id),
                f"{row.size:,}",
                time_text(row.stored_ms),
                row.unique_id,
            )
            for row in found.timers
        ),
    )
    if found.waiting > len(found.timers):
        print(f"{found.waiting:,} wait in all")
    return 0


def _cancel(arguments: argparse.Namespace) -> int:
    with connect_broker(arguments.address, name=NAME, timeout_s=arguments.timeout) as broker:
        broker.cancel_timer(arguments.id)
    if arguments.json:
        print(json.dumps({"cancelled": arguments.id}))
    else:
        print(f"cancelled {arguments.id}")
    return 0
