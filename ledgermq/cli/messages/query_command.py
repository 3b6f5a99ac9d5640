"""``ledgermq query``: find messages of a running node by id, key, position or time.

Exit status: 0 found; 1 nothing found, the command line, or the node refused or did not answer.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from ledgermq.cli.arguments import takes
from ledgermq.cli.message_text import print_body
from ledgermq.cli.node_verbs import asks
from ledgermq.cli.output import tell, time_text
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.reading.queries import KeyedMessages, Queries
from ledgermq.client.reading.received_json import received_as_json
from ledgermq.model.instants import parse_time
from ledgermq.model.limits import TIMESTAMP_MAX
from ledgermq.wire.query_frame import MESSAGES_DEFAULT

EXIT_NOTHING = 1
NO_MESSAGE = "ledgermq: no such message"


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``query`` and its verbs."""
    parser = subparsers.add_parser(
        "query",
        help="find messages of a running node",
        description="Only what is committed is found. With --json, one object.",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    by_id = add_query(verbs, "id", "the message with an id", _by_id)
    takes(by_id, "id ID", "an offset id, or with --topic a unique id")
    takes(by_id, "--topic TOPIC", "where a producer's unique id is looked for")

    key = add_query(verbs, "key", "the messages that have a key", by_key)
    takes(key, "topic TOPIC")
    takes(key, "key KEY")
    add_key_options(key)

    at = add_query(verbs, "position", "the message at a position of the log", _at)
    takes(at, "position PHYSICAL_OFFSET", type=int)

    offset = add_query(verbs, "offset", "what a queue holds: its first and last offset", _offsets)
    time = add_query(verbs, "time", "the queue offset of a time", _by_time)
    for verb in (offset, time):
        takes(verb, "topic TOPIC")
        takes(verb, "queue QUEUE")
    takes(time, "time TIME", "epoch milliseconds, or as 2025-12-31T23:59")


def add_key_options(parser: argparse.ArgumentParser) -> None:
    """Add what ``by_key`` looks at beside topic and key."""
    takes(
        parser,
        "--max N",
        f"only N (default: {MESSAGES_DEFAULT}); of those with a key the newest",
        default=MESSAGES_DEFAULT,
    )
    takes(parser, "--from TIME", "stored then or later", dest="begin")
    takes(parser, "--to TIME", "stored then or before", dest="end")


def add_query(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    text: str,
    answer: Callable[[Queries, argparse.Namespace], int],
) -> argparse.ArgumentParser:
    """Add a verb that asks for messages, and shows them."""
    parser = verbs.add_parser(name, help=text, description=f"Shows {text}.")
    return asks(parser, Queries, answer)


def _by_id(queries: Queries, arguments: argparse.Namespace) -> int:
    found = queries.message_by_id(arguments.id, topic=arguments.topic)
    return show_message(found, arguments, _print)


def _at(queries: Queries, arguments: argparse.Namespace) -> int:
    return show_message(queries.message_at(arguments.position), arguments, _print)


def by_key(queries: Queries, arguments: argparse.Namespace) -> int:
    """Show the messages that have a key; the exit status."""
    begin = 0 if arguments.begin is None else parse_time(arguments.begin, "--from")
    end = TIMESTAMP_MAX if arguments.end is None else parse_time(arguments.end, "--to")
    found = queries.by_key(
        arguments.topic, arguments.key, messages_max=arguments.max, begin=begin, end=end
    )
    index = {"timestamp": found.index_timestamp, "physicalOffset": found.index_position}
    rows = [received_as_json(message) for message in found.messages] if arguments.json else []
    document = {"messages": rows, "more": found.has_more, "index": index}
    tell(arguments, document, lambda: _print_found(found))
    return 0 if found.messages else EXIT_NOTHING


def _print_found(found: KeyedMessages) -> None:
    for message in found.messages:
        _print(message)
    if found.has_more:
        print("there may be older ones: ask with --max or --to", file=sys.stderr)
    if not found.messages:
        print(NO_MESSAGE, file=sys.stderr)


def show_message(
    message: ReceivedMessage | None,
    arguments: argparse.Namespace,
    print_it: Callable[[ReceivedMessage], None],
) -> int:
    """Show the message that was asked for, or that there is none; the exit status."""
    if message is None:
        return nothing_found(arguments, {"message": None})
    found = message
    document = {"message": received_as_json(found)} if arguments.json else None
    return tell(arguments, document, lambda: print_it(found))


def nothing_found(arguments: argparse.Namespace, document: object) -> int:
    """Say that there is no such message; the exit status."""
    tell(arguments, document, lambda: print(NO_MESSAGE, file=sys.stderr))
    return EXIT_NOTHING


def _offsets(queries: Queries, arguments: argparse.Namespace) -> int:
    begin, end = queries.offsets(arguments.topic, arguments.queue)
    earliest = queries.earliest_time(arguments.topic, arguments.queue)
    since = "" if earliest is None else f", the first one stored at {time_text(earliest)}"
    text = f"min {begin}, max {end}: {end - begin} messages{since}"
    document = {"min": begin, "max": end, "earliestStoreTimestamp": earliest}
    return tell(arguments, document, text)


def _by_time(queries: Queries, arguments: argparse.Namespace) -> int:
    timestamp = parse_time(arguments.time, "TIME")
    offset = queries.offset_by_time(arguments.topic, arguments.queue, timestamp)
    return tell(arguments, {"offset": offset}, str(offset))


def _print(message: ReceivedMessage) -> None:
    print(
        f"{message.topic} queue {message.queue_id} offset {message.queue_offset},"
        f" position {message.physical_offset}, stored {time_text(message.store_timestamp)},"
        f" id {message.unique_id or message.offset_message_id}"
    )
    print_body(message)
