"""``ledgermq send``, ``receive`` and ``topic``: what a client of a node does, by hand.

They need nothing of a node but its address. Exit status: 0 done; 1 the command line, or the node
refused, did not answer, or is not there.
"""

from __future__ import annotations

import argparse
import json

from ledgermq.cli import receive_command, send_command
from ledgermq.cli.node_options import add_node_options
from ledgermq.client.broker import Route, TopicRow
from ledgermq.client.broker_connection import connect_broker

NAME = "ledgermq-cli"


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``send``, ``receive`` and ``topic``."""
    _add_common(send_command.add_parser(subparsers))
    _add_common(receive_command.add_parser(subparsers))

    topic = subparsers.add_parser("topic", help="list and create topics")
    verbs = topic.add_subparsers(title="verbs", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="show the topics and what they hold")
    listing.add_argument("--all", action="store_true", help="those of the system too")
    listing.set_defaults(func=_list)
    create = verbs.add_parser("create", help="create a topic, or give one more queues")
    create.add_argument("topic", metavar="TOPIC")
    create.add_argument("--queues", type=int, default=8, metavar="N", help="default: 8")
    create.set_defaults(func=_create)
    for verb in (listing, create):
        _add_common(verb)


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_node_options(parser)
    parser.set_defaults(name=NAME)


def _list(arguments: argparse.Namespace) -> int:
    with connect_broker(arguments.address, name=NAME, timeout_s=arguments.timeout) as broker:
        rows = broker.topics()
    rows = sorted(row for row in rows if arguments.all or not row.system)
    if arguments.json:
        print(json.dumps({"topics": [row._asdict() for row in rows]}))
    elif rows:
        _print_table(rows)
    else:
        print("no topics yet: send to one, or ledgermq topic create TOPIC")
    return 0


def _create(arguments: argparse.Namespace) -> int:
    with connect_broker(arguments.address, name=NAME, timeout_s=arguments.timeout) as broker:
        route: Route = broker.create_topic(arguments.topic, arguments.queues)
    if arguments.json:
        print(json.dumps(route._asdict()))
    else:
        print(f"{route.topic}: {route.write_queues} queues")
    return 0


def _print_table(rows: list[TopicRow]) -> None:
    width = max(5, *(len(row.topic) for row in rows))
    print(f"{'topic':<{width}}{'queues':>10}{'messages':>16}")
    for row in rows:
        queues = f"{row.write_queues}"
        if row.read_queues != row.write_queues:
            queues = f"{row.read_queues}r/{row.write_queues}w"
        print(f"{row.topic:<{width}}{queues:>10}{row.messages:>16,}")
