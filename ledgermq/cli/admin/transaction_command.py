"""``ledgermq transaction``: pending transactions, shown, and ended by hand.

Exit status: 0 done; 1 there is none of that name, it has ended the other way, or the node refused
or did not answer.
"""

from __future__ import annotations

import argparse
import sys

from ledgermq.cli.arguments import takes
from ledgermq.cli.node_verbs import asks
from ledgermq.cli.output import print_table, tell, time_text
from ledgermq.client.blocking.broker import Broker
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.core.questions import asking
from ledgermq.model.names.transactions import MESSAGES_MAX, Decision
from ledgermq.verbs.waiting import EndTransaction, ListTransactions, TransactionRow

LISTED_DEFAULT = 100
COUNT_MAX = 1_000


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``transaction`` and its verbs."""
    parser = subparsers.add_parser(
        "transaction",
        help="look at transactions without an end, and end them",
        description="Messages of a transaction are stored, and nobody sees them before it is "
        "committed. The broker asks its producers how it ended when they do not tell.",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    listing = verbs.add_parser("list", help="those that wait for their end, the oldest first")
    takes(
        listing,
        "--max N",
        f"only N of them (default: {LISTED_DEFAULT})",
        type=_count,
        default=LISTED_DEFAULT,
    )

    commit = verbs.add_parser("commit", help="make the messages of one visible")
    rollback = verbs.add_parser("rollback", help="let the messages of one never be visible")
    for verb, decision in ((commit, Decision.COMMIT), (rollback, Decision.ROLLBACK)):
        takes(verb, "group GROUP", "of its producers")
        takes(verb, "id ID")
        verb.set_defaults(decision=decision)
    takes(
        commit,
        "messages MESSAGES",
        "how many it has: with more or fewer it is not committed",
        type=_messages,
    )
    for verb, answer in ((listing, _list), (commit, _end), (rollback, _end)):
        asks(verb, connect_broker, answer)


def _list(broker: Broker, arguments: argparse.Namespace) -> int:
    listing = ListTransactions(arguments.max)
    found = broker.run(asking(listing))
    document, (half_messages, rows) = listing.document(found), found
    none = "no transaction waits for its end"
    return tell(arguments, document, (lambda: _print_table(half_messages, rows)) if rows else none)


def _print_table(half_messages: int, rows: list[TransactionRow]) -> None:
    head = ("group", "id", "messages", "topics", "since", "asked")
    print_table(head, map(_row, rows))
    left = half_messages - sum(row.messages for row in rows)
    if left:
        print(f"{left:,} more messages, of others: a higher --max shows them", file=sys.stderr)


def _end(broker: Broker, arguments: argparse.Namespace) -> int:
    messages = getattr(arguments, "messages", 0)
    end = EndTransaction(arguments.group, arguments.id, arguments.decision.value, messages=messages)
    ended = broker.run(asking(end))
    done = f"{ended.messages:,} messages" if ended.messages else "it had ended so before"
    return tell(arguments, end.document(ended), f"{ended.decision.value}: {done}")


def _row(row: TransactionRow) -> tuple[str, ...]:
    return (
        row.group,
        row.transaction,
        f"{row.messages:,}",
        " ".join(row.topics),
        time_text(row.born),
        f"{row.checks:,}",
    )


def _count(text: str) -> int:
    return _between(text, COUNT_MAX)


def _messages(text: str) -> int:
    return _between(text, MESSAGES_MAX)


def _between(text: str, most: int) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not 1 to {most}")
    return int(text)
