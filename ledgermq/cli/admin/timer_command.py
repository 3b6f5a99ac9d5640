"""``ledgermq timer``: pending timers, listed and cancelled.

Exit status: 0 done; 1 none of that id waits, or the node refused or did not answer.
"""

from __future__ import annotations

import argparse

from ledgermq.cli.arguments import takes
from ledgermq.cli.node_verbs import asks
from ledgermq.cli.output import print_table, tell, time_text
from ledgermq.client.blocking.broker import Broker
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.core.questions import asking
from ledgermq.verbs.waiting import CancelTimer, ListTimers, TimerList

TIMERS_LISTED = 50


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
    takes(
        listing,
        "--max N",
        f"only N of them, at most 1,000 (default: {TIMERS_LISTED})",
        default=TIMERS_LISTED,
    )

    cancel = verbs.add_parser("cancel", help="take one back")
    takes(cancel, "id ID", "unique id of the message, as send tells it")
    asks(listing, connect_broker, _list)
    asks(cancel, connect_broker, _cancel)


def _list(broker: Broker, arguments: argparse.Namespace) -> int:
    due = ListTimers(arguments.max)
    found = broker.run(asking(due))
    document = due.document(found)
    none = "no message waits for its time"
    return tell(arguments, document, (lambda: _print_table(found)) if found.timers else none)


def _print_table(found: TimerList) -> None:
    print_table(
        ("due", "topic", "queue", "size", "since", "id"),
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


def _cancel(broker: Broker, arguments: argparse.Namespace) -> int:
    cancel = CancelTimer(arguments.id)
    told = cancel.document(broker.run(asking(cancel)))
    return tell(arguments, told, f"cancelled {arguments.id}")
