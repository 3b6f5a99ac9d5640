"""``ledgermq quota``: how much topics, users and clients may send and read a second.

Exit status: 0 done; 1 refused, or the command line.
"""

from __future__ import annotations

import argparse
import json

from ledgermq.cli.node_options import add_node_options
from ledgermq.client.access_admin import AccessAdmin, QuotaRow
from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.errors import ConfigError

NAME = "ledgermq-cli"
_NUMBERS = ("produce_bytes", "produce_messages", "consume_bytes", "consume_messages")


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``quota`` and its verbs."""
    parser = subparsers.add_parser("quota", help="say how much may be sent and read a second")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="show the quotas that are no settings")
    listing.set_defaults(func=_list)
    change = verbs.add_parser("set", help="give an owner a quota of its own")
    for number in _NUMBERS:
        option = f"--{number.replace('_', '-')}"
        change.add_argument(option, type=int, metavar="N", help="a second; 0: no limit")
    change.set_defaults(func=_set)
    remove = verbs.add_parser("remove", help="let the settings hold for an owner again")
    remove.set_defaults(func=_remove)
    for verb in (change, remove):
        verb.add_argument("owner", metavar="OWNER", help="topic:NAME, user:NAME or client:NAME")
    for verb in (listing, change, remove):
        add_node_options(verb)


def _list(arguments: argparse.Namespace) -> int:
    with connect_broker(arguments.address, name=NAME, timeout_s=arguments.timeout) as broker:
        rows = AccessAdmin(broker).quotas()
    if arguments.json:
        print(json.dumps({"quotas": [row._asdict() for row in rows]}))
    elif rows:
        _print_table(rows)
    else:
        print("no quotas yet: ledgermq quota set topic:NAME --produce-bytes N")
    return 0


def _set(arguments: argparse.Namespace) -> int:
    numbers = {name: getattr(arguments, name) for name in _NUMBERS}
    given = {name: number for name, number in numbers.items() if number is not None}
    if not given:
        raise ConfigError("nothing to change: name a number, as --produce-bytes 1048576")
    with connect_broker(arguments.address, name=NAME, timeout_s=arguments.timeout) as broker:
        row = AccessAdmin(broker).set_quota(arguments.owner, **given)
    if arguments.json:
        print(json.dumps(row._asdict()))
    else:
        _print_table([row])
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    with connect_broker(arguments.address, name=NAME, timeout_s=arguments.timeout) as broker:
        AccessAdmin(broker).remove_quota(arguments.owner)
    removed = {"removed": arguments.owner}
    print(json.dumps(removed) if arguments.json else f"{arguments.owner}: as the settings say")
    return 0


def _print_table(rows: list[QuotaRow]) -> None:
    width = max(7, *(len(row.owner) for row in rows)) + 2
    heads = ("sends bytes", "messages", "reads bytes", "messages")
    print(f"{'owner':<{width}}" + "".join(f"{head:>16}" for head in heads))
    for row in rows:
        numbers = (f"{number:,}" if number else "-" for number in row[1:])
        print(f"{row.owner:<{width}}" + "".join(f"{number:>16}" for number in numbers))
