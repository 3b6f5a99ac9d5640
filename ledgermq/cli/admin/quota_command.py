"""``ledgermq quota``: how much topics, users and clients may send and read a second.

Exit status: 0 done; 1 refused, or the command line.
"""

from __future__ import annotations

import argparse

from ledgermq.cli.node_options import add_cluster_option
from ledgermq.cli.node_verbs import asks
from ledgermq.cli.output import tell
from ledgermq.client.admin.access_admin import AccessAdmin, QuotaRow
from ledgermq.client.blocking.broker import Broker
from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.errors import ConfigError

_NUMBERS = ("produce_bytes", "produce_messages", "consume_bytes", "consume_messages")


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``quota`` and its verbs."""
    parser = subparsers.add_parser("quota", help="say how much may be sent and read a second")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="show the quotas that are no settings")
    change = verbs.add_parser("set", help="give an owner a quota of its own")
    for number in _NUMBERS:
        option = f"--{number.replace('_', '-')}"
        change.add_argument(option, type=int, metavar="N", help="a second; 0: no limit")
    remove = verbs.add_parser("remove", help="let the settings hold for an owner again")
    for verb in (change, remove):
        add_cluster_option(verb)
        verb.add_argument("owner", metavar="OWNER", help="topic:NAME, user:NAME or client:NAME")
    for verb, answer in ((listing, _list), (change, _set), (remove, _remove)):
        asks(verb, connect_broker, answer)


def _list(broker: Broker, arguments: argparse.Namespace) -> int:
    rows = AccessAdmin(broker).quotas()
    none = "no quotas yet: ledgermq quota set topic:NAME --produce-bytes N"
    document = {"quotas": [row._asdict() for row in rows]}
    return tell(arguments, document, (lambda: _print_table(rows)) if rows else none)


def _set(broker: Broker, arguments: argparse.Namespace) -> int:
    numbers = {name: getattr(arguments, name) for name in _NUMBERS}
    given = {name: number for name, number in numbers.items() if number is not None}
    if not given:
        raise ConfigError("nothing to change: name a number, as --produce-bytes 1048576")
    row = AccessAdmin(broker).set_quota(arguments.owner, **given, cluster=arguments.cluster)
    return tell(arguments, row._asdict(), lambda: _print_table([row]))


def _remove(broker: Broker, arguments: argparse.Namespace) -> int:
    AccessAdmin(broker).remove_quota(arguments.owner, cluster=arguments.cluster)
    return tell(arguments, {"removed": arguments.owner}, f"{arguments.owner}: as the settings say")


def _print_table(rows: list[QuotaRow]) -> None:
    width = max(7, *(len(row.owner) for row in rows)) + 2
    heads = ("sends bytes", "messages", "reads bytes", "messages")
    print(f"{'owner':<{width}}" + "".join(f"{head:>16}" for head in heads) + "  of")
    for row in rows:
        found = (getattr(row, name) for name in _NUMBERS)
        numbers = (f"{number:>16,}" if number else f"{'-':>16}" for number in found)
        print(f"{row.owner:<{width}}{''.join(numbers)}  {'cluster' if row.cluster else 'group'}")
