"""``ledgermq message``: messages shown without being consumed, and their consumers.

Exit status: 0 found; 1 nothing found, the command line, or the node refused or did not answer.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from itertools import islice

from ledgermq.cli.message_text import preview, print_details, print_table, time_text
from ledgermq.cli.node_options import add_node_options, parse_time
from ledgermq.cli.query_command import add_key_options, by_key
from ledgermq.cli.received_json import received_as_json
from ledgermq.client.message_track import Track
from ledgermq.client.queries import Queries
from ledgermq.client.received import ReceivedMessage
from ledgermq.model.errors import ConfigError
from ledgermq.wire.query_frame import TIMESTAMP_MAX

NAME = "ledgermq-cli"
COUNT_DEFAULT = 32
PULLED_MAX = 256

Ask = Callable[[Queries, argparse.Namespace], int]


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``message`` and its verbs."""
    parser = subparsers.add_parser(
        "message",
        help="show, find, browse and track messages",
        description="Only what is committed is shown, and nothing counts as consumed by it. With "
        "--json, one object.",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    show = _verb(verbs, "show", "all about one message", _show)
    track = _verb(verbs, "track", "which groups have consumed a message", _track)
    for verb in (show, track):
        verb.add_argument("id", metavar="ID", help="an offset id, or with --topic a unique id")
        verb.add_argument("--topic", help="where a producer's unique id is looked for")

    find = _verb(verbs, "find", "the messages of a topic with a key, or of a time", _find)
    find.add_argument("topic", metavar="TOPIC")
    find.add_argument("--key", help="a key or a unique id (as ledgermq query key)")
    add_key_options(find)

    browse = _verb(verbs, "browse", "the messages of a queue, from some place on", _browse)
    browse.add_argument("topic", metavar="TOPIC")
    browse.add_argument("--queue", type=int, default=0, metavar="N", help="default: 0")
    browse.add_argument("--from", dest="begin", type=int, metavar="OFFSET")
    browse.add_argument("--time", metavar="TIME", help="from what was stored then")
    browse.add_argument(
        "--last", action="store_true", help="the last ones instead of the first ones"
    )
    browse.add_argument(
        "--count", type=int, default=COUNT_DEFAULT, metavar="N",
        help=f"so many (default: {COUNT_DEFAULT})",
    )  # fmt: skip


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


def _show(queries: Queries, arguments: argparse.Namespace) -> int:
    message = queries.message_by_id(arguments.id, topic=arguments.topic)
    if message is None:
        return _nothing(arguments, {"message": None})
    if arguments.json:
        print(json.dumps({"message": received_as_json(message)}))
    else:
        print_details(message)
    return 0


def _track(queries: Queries, arguments: argparse.Namespace) -> int:
    message = queries.message_by_id(arguments.id, topic=arguments.topic)
    if message is None:
        return _nothing(arguments, {"message": None})
    tracks = queries.track(message)
    if arguments.json:
        rows = [_track_json(one) for one in tracks]
        print(json.dumps({"message": received_as_json(message), "groups": rows}))
    elif tracks:
        print_table(
            ("group", "state", "consumed up to"),
            ((one.group, one.state, str(one.consumed_to)) for one in tracks),
        )
    else:
        print(f"no group has consumed anything of topic {message.stored_topic} yet")
    return 0


def _find(queries: Queries, arguments: argparse.Namespace) -> int:
    if arguments.key is not None:
        return by_key(queries, arguments)
    if arguments.begin is None and arguments.end is None:
        raise ConfigError("nothing to find by: give --key, or --from and --to")
    begin = 0 if arguments.begin is None else parse_time(arguments.begin, "--from")
    end = TIMESTAMP_MAX if arguments.end is None else parse_time(arguments.end, "--to")
    count = _checked_count(arguments.max, "--max")
    found = [
        message
        for queue_id in range(queries.read_queues(arguments.topic))
        for message in islice(_of_time(queries, arguments.topic, queue_id, (begin, end)), count)
    ]
    found.sort(key=lambda message: message.physical_offset)
    return _show_all(found[:count], arguments)


def _of_time(
    queries: Queries, topic: str, queue_id: int, times: tuple[int, int]
) -> Iterator[ReceivedMessage]:
    """The messages of a queue that were stored between two times, both included."""
    begin, end = times
    # Of several messages of one time any may be found: so the time before is looked for.
    first = queries.offset_by_time(topic, queue_id, max(0, begin - 1))
    for message in _walk(queries, topic, queue_id, first):
        if message.store_timestamp > end:
            return
        if message.store_timestamp >= begin:
            yield message


def _browse(queries: Queries, arguments: argparse.Namespace) -> int:
    topic, queue_id = arguments.topic, arguments.queue
    count = _checked_count(arguments.count, "--count")
    if sum((arguments.begin is not None, arguments.time is not None, arguments.last)) > 1:
        raise ConfigError("--from, --time and --last exclude one another")
    begin, end = queries.offsets(topic, queue_id)
    first = begin if arguments.begin is None else arguments.begin
    if arguments.last:
        first = max(begin, end - count)
    elif arguments.time is not None:
        first = queries.offset_by_time(topic, queue_id, parse_time(arguments.time, "--time"))
    found = []
    for message in _walk(queries, topic, queue_id, first):
        found.append(message)
        if len(found) == count:
            break
    return _show_all(found, arguments)


def _walk(queries: Queries, topic: str, queue_id: int, first: int) -> Iterator[ReceivedMessage]:
    """All messages of a queue from an offset up to where it ends now."""
    begin, end = queries.offsets(topic, queue_id)
    offset = max(begin, first)
    while offset < end:
        batch = queries.browse(topic, queue_id, offset, messages_max=PULLED_MAX)
        yield from batch
        if batch.next_offset <= offset:
            return
        offset = batch.next_offset


def _checked_count(count: int, option: str) -> int:
    if count < 1:
        raise ConfigError(f"{option} is at least 1", given=count)
    return count


def _show_all(found: list[ReceivedMessage], arguments: argparse.Namespace) -> int:
    if not found:
        return _nothing(arguments, {"messages": []})
    if arguments.json:
        print(json.dumps({"messages": [received_as_json(message) for message in found]}))
        return 0
    print_table(
        ("queue", "offset", "stored", "tag", "id", "body"),
        (
            (
                str(message.queue_id),
                str(message.queue_offset),
                time_text(message.store_timestamp),
                message.tag or "-",
                message.unique_id or message.offset_message_id,
                preview(message),
            )
            for message in found
        ),
    )
    return 0


def _track_json(track: Track) -> dict[str, object]:
    return {"group": track.group, "state": track.state, "consumedTo": track.consumed_to}


def _nothing(arguments: argparse.Namespace, document: dict[str, object]) -> int:
    if arguments.json:
        print(json.dumps(document))
    else:
        print("ledgermq: no such message", file=sys.stderr)
    return 1
