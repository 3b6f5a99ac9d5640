"""``ledgermq quota``: how much topics, users and clients may send and read a second.

Exit status: 0 done; 1 refused, or the command line.
"""

from __future__ import annotations

import argparse

from ledgermq.cli.arguments import add_cluster_option, takes
from ledgermq.cli.node_verbs import asks
from ledgermq.cli.output import tell
from ledgermq.cli.verb_options import add_options, given
from ledgermq.client.blocking.broker import Broker
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.core.questions import asking
from ledgermq.model.errors import ConfigError
from ledgermq.verbs.access import ListQuotas, QuotaRow, RemoveQuota, SetQuota

_NUMBERS = ("produce_bytes", "produce_messages", "consume_bytes", "consume_messages")


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``quota`` and its verbs."""
    parser = subparsers.add_parser("quota", help="say how much may be sent and read a second")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="show the quotas that are no settings")
    change = verbs.add_parser("set", help="give an owner a quota of its own")
    add_options(change, SetQuota, only=(*_NUMBERS, "ahead"))
    remove = verbs.add_parser("remove", help="let the settings hold for an owner again")
    for verb in (change, remove):
        add_cluster_option(verb)
        takes(verb, "owner OWNER", "topic:NAME, user:NAME or client:NAME")
    for verb, answer in ((listing, _list), (change, _set), (remove, _remove)):
        asks(verb, connect_broker, answer)


def _list(broker: Broker, arguments: argparse.Namespace) -> int:
    listing = ListQuotas()
    rows = broker.run(asking(listing))
    none = "no quotas yet: ledgermq quota set topic:NAME --produce-bytes N"
    document = listing.document(rows)
    return tell(arguments, document, (lambda: _print_table(rows)) if rows else none)


def _set(broker: Broker, arguments: argparse.Namespace) -> int:
    numbers = given(arguments, SetQuota)
    if all(numbers[name] is None for name in _NUMBERS):
        raise ConfigError("nothing to change: name a number, as --produce-bytes 1048576")
    change = SetQuota(arguments.owner, **numbers)
    row = broker.run(asking(change))
    return tell(arguments, change.document(row), lambda: _print_table([row]))


def _remove(broker: Broker, arguments: argparse.Namespace) -> int:
    remove = RemoveQuota(arguments.owner, cluster=arguments.cluster)
    told = remove.document(broker.run(asking(remove)))
    return tell(arguments, told, f"{arguments.owner}: as the settings say")


def _print_table(rows: list[QuotaRow]) -> None:
    width = max(7, *(len(row.owner) for row in rows)) + 2
    heads = ("sends bytes", "messages", "reads bytes", "messages")
    print(f"{'owner':<{width}}" + "".join(f"{head:>16}" for head in heads) + "  of")
    for row in rows:
        found = (getattr(row, name) for name in _NUMBERS)
        numbers = (f"{number:>16,}" if number else f"{'-':>16}" for number in found)
        print(f"{row.owner:<{width}}{''.join(numbers)}  {'cluster' if row.cluster else 'group'}")
