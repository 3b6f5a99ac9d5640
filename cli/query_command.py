"""``ledgermq query``: find messages of a running node by id, key, position or time.

Exit status: 0 found; 1 nothing found, the command line, or the node refused or did not answer.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence

from ledgermq.cli.message_text import time_text
from ledgermq.cli.node_options import add_node_options, parse_time
from ledgermq.cli.received_json import received_as_json
from ledgermq.client.queries import Queries
from ledgermq.client.received import ReceivedMessage
from ledgermq.wire.query_frame import MESSAGES_DEFAULT, TIMESTAMP_MAX

NAME = "ledgermq-cli"

Ask = Callable[[Queries, argparse.Namespace], int]


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``query`` and its verbs."""
    parser = subparsers.add_parser(
        "query",
        help="find messages of a running node",
        description="Only what is committed is found. With --json, one object.",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    by_id = _verb(verbs, "id", "the message with an id", _by_id)
    by_id.add_argument("id", metavar="ID", help="an offset id, or with --topic a unique id")
    by_id.add_argument("--topic", help="where a producer's unique id is looked for")

    key = _verb(verbs, "key", "the messages that have a key", by_key)
    key.add_argument("topic", metavar="TOPIC")
    key.add_argument("key", metavar="KEY")
    add_key_options(key)

    at = _verb(verbs, "position", "the message at a position of the log", _at)
    at.add_argument("position", type=int, metavar="PHYSICAL_OFFSET")

    offset = _verb(verbs, "offset", "what a queue holds: its first and last offset", _offsets)
    time = _verb(verbs, "time", "the queue offset of a time", _by_time)
    for verb in (offset, time):
        verb.add_argument("topic", metavar="TOPIC")
        verb.add_argument("queue", type=int, metavar="QUEUE")
    time.add_argument("time", metavar="TIME", help="epoch milliseconds, or as 2025-12-31T23:59")


def add_key_options(parser: argparse.ArgumentParser) -> None:
    """Add what ``by_key`` looks at beside topic and key."""
    parser.add_argument(
        "--max", type=int, default=MESSAGES_DEFAULT, metavar="N",
        help=f"only N (default: {MESSAGES_DEFAULT}); of those with a key the newest",
    )  # fmt: skip
    parser.add_argument("--from", dest="begin", metavar="TIME", help="stored then or later")
    parser.add_argument("--to", dest="end", metavar="TIME", help="stored then or before")


def _verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str, ask: Ask
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=text, description=f"Shows {text}.")
    add_node_options(parser)

    def run(arguments: argparse.Namespace) -> int:
        with Queries(arguments.address, name=NAME, timeout_s=arguments.timeout) as queries:
            return ask(queries, arguments)

    parser.set_defaults(func=run)
    return parser


def _by_id(queries: Queries, arguments: argparse.Namespace) -> int:
    return _show_one(queries.message_by_id(arguments.id, topic=arguments.topic), arguments)


def _at(queries: Queries, arguments: argparse.Namespace) -> int:
    return _show_one(queries.message_at(arguments.position), arguments)


def by_key(queries: Queries, arguments: argparse.Namespace) -> int:
    """Show the messages that have a key; the exit status."""
    begin = 0 if arguments.begin is None else parse_time(arguments.begin, "--from")
    end = TIMESTAMP_MAX if arguments.end is None else parse_time(arguments.end, "--to")
    found = queries.by_key(
        arguments.topic, arguments.key, messages_max=arguments.max, begin=begin, end=end
    )
    if arguments.json:
        rows = [received_as_json(message) for message in found.messages]
        index = {"timestamp": found.index_timestamp, "physicalOffset": found.index_position}
        print(json.dumps({"messages": rows, "more": found.has_more, "index": index}))
    else:
        _print_all(found.messages)
        if found.has_more:
            print("there may be older ones: ask with --max or --to", file=sys.stderr)
    return 0 if found.messages else _nothing(arguments)


def _offsets(queries: Queries, arguments: argparse.Namespace) -> int:
    begin, end = queries.offsets(arguments.topic, arguments.queue)
    earliest = queries.earliest_time(arguments.topic, arguments.queue)
    if arguments.json:
        print(json.dumps({"min": begin, "max": end, "earliestStoreTimestamp": earliest}))
    else:
        since = "" if earliest is None else f", the first one stored at {time_text(earliest)}"
        print(f"min {begin}, max {end}: {end - begin} messages{since}")
    return 0


def _by_time(queries: Queries, arguments: argparse.Namespace) -> int:
    timestamp = parse_time(arguments.time, "TIME")
    offset = queries.offset_by_time(arguments.topic, arguments.queue, timestamp)
    print(json.dumps({"offset": offset}) if arguments.json else offset)
    return 0


def _show_one(message: ReceivedMessage | None, arguments: argparse.Namespace) -> int:
    if message is None:
        if arguments.json:
            print(json.dumps({"message": None}))
        return _nothing(arguments)
    if arguments.json:
        print(json.dumps({"message": received_as_json(message)}))
    else:
        _print_all([message])
    return 0


def _nothing(arguments: argparse.Namespace) -> int:
    if not arguments.json:
        print("ledgermq: no such message", file=sys.stderr)
    return 1


def _print_all(messages: Sequence[ReceivedMessage]) -> None:
    for message in messages:
        print(
            f"{message.topic} queue {message.queue_id} offset {message.queue_offset},"
            f" position {message.physical_offset}, stored {time_text(message.store_timestamp)},"
            f" id {message.unique_id or message.offset_message_id}"
        )
        sys.stdout.flush()
        sys.stdout.buffer.write(message.body)
        sys.stdout.buffer.write(b"\n")
