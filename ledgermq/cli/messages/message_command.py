"""``ledgermq message``: messages shown without being consumed, and their consumers.

Exit status: 0 found; 1 nothing found, the command line, or the node refused or did not answer.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice

from ledgermq.cli.arguments import takes
from ledgermq.cli.message_text import preview, print_details
from ledgermq.cli.messages.query_command import (
    add_key_options,
    add_query,
    by_key,
    nothing_found,
    show_message,
)
from ledgermq.cli.output import print_table, tell, time_text
from ledgermq.cli.seen_text import shown
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.reading.message_life import MessageLife
from ledgermq.client.reading.message_track import Track
from ledgermq.client.reading.queries import Queries
from ledgermq.client.reading.received_json import life_as_json, received_as_json
from ledgermq.model.errors import ConfigError
from ledgermq.model.instants import parse_time
from ledgermq.model.limits import TIMESTAMP_MAX
from ledgermq.model.names.system_topics import TRACE_TOPIC

COUNT_DEFAULT = 32
PULLED_MAX = 256


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``message`` and its verbs."""
    parser = subparsers.add_parser(
        "message",
        help="show, find, browse and track messages",
        description="Only what is committed is shown, and nothing counts as consumed by it. With "
        "--json, one object.",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    show = add_query(verbs, "show", "all about one message", _show)
    track = add_query(
        verbs, "track", "which groups have consumed a message, and what has happened to it", _track
    )
    for verb in (show, track):
        takes(verb, "id ID", "an offset id, or with --topic a unique id")
        takes(verb, "--topic TOPIC", "where a producer's unique id is looked for")

    takes(
        track,
        "--trace-topic TOPIC",
        f"where clients write traces (default: {TRACE_TOPIC})",
        default=TRACE_TOPIC,
    )

    find = add_query(verbs, "find", "the messages of a topic with a key, or of a time", _find)
    takes(find, "topic TOPIC")
    takes(find, "--key KEY", "a key or a unique id (as ledgermq query key)")
    add_key_options(find)

    browse = add_query(verbs, "browse", "the messages of a queue, from some place on", _browse)
    takes(browse, "topic TOPIC")
    takes(browse, "--queue N", "default: 0", default=0)
    takes(browse, "--from OFFSET", dest="begin")
    takes(browse, "--time TIME", "from what was stored then")
    takes(browse, "--last", "the last ones instead of the first ones")
    takes(browse, "--count N", f"so many (default: {COUNT_DEFAULT})", default=COUNT_DEFAULT)


def _show(queries: Queries, arguments: argparse.Namespace) -> int:
    found = queries.message_by_id(arguments.id, topic=arguments.topic)
    return show_message(found, arguments, print_details)


def _track(queries: Queries, arguments: argparse.Namespace) -> int:
    message = queries.message_by_id(arguments.id, topic=arguments.topic)
    if message is None:
        return nothing_found(arguments, {"message": None})
    tracks = queries.track(message)
    groups = [one.group for one in tracks]
    life = queries.life(message, groups=groups, traces=arguments.trace_topic)
    document = None
    if arguments.json:
        document = {
            "message": received_as_json(message),
            "groups": [_track_json(one) for one in tracks],
            **life_as_json(life),
        }
    return tell(arguments, document, lambda: _print_track(message, tracks, life))


def _print_track(message: ReceivedMessage, tracks: list[Track], life: MessageLife) -> None:
    if tracks:
        print_table(
            ("group", "state", "consumed up to"),
            ((one.group, one.state, str(one.consumed_to)) for one in tracks),
        )
    else:
        print(f"no group has consumed anything of topic {shown(message.stored_topic)} yet")
    print()
    print_table(
        ("time", "what", "by or in", "told by", "ms", "given back"),
        (
            (
                time_text(one.time),
                one.stage,
                one.by,
                one.host,
                "-" if one.cost_ms is None else str(one.cost_ms),
                "-" if one.retries is None else str(one.retries),
            )
            for one in life.events
        ),
    )
    if life.traces_fault:
        print(f"traces not read: {shown(life.traces_fault)}")


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
    first = queries.offset_since(topic, queue_id, begin)
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
        first = queries.offset_since(topic, queue_id, parse_time(arguments.time, "--time"))
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
        return nothing_found(arguments, {"messages": []})
    rows = [received_as_json(message) for message in found] if arguments.json else []
    return tell(arguments, {"messages": rows}, lambda: _print_rows(found))


def _print_rows(found: list[ReceivedMessage]) -> None:
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


def _track_json(track: Track) -> dict[str, object]:
    return {"group": track.group, "state": track.state, "consumedTo": track.consumed_to}
