"""``ledgermq receive``: print the messages of a topic, up to now or for ever."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from datetime import datetime

from ledgermq.cli.arguments import NAME, add_node_options, takes
from ledgermq.cli.leader_hint import naming_the_leader
from ledgermq.cli.message_text import print_body
from ledgermq.cli.progress_line import ProgressLine
from ledgermq.client.blocking.consumer import Consumer
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.client.reading.received_json import received_as_json
from ledgermq.client.reading.start_offsets import Start
from ledgermq.model.errors import ConfigError
from ledgermq.model.message_filter import MessageFilter

POLL_S = 1.0
PULLED_AT_ONCE = 1_024
PLACES = ("first", "last", "stored")


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``receive``."""
    parser = subparsers.add_parser(
        "receive",
        help="print messages",
        description="Prints the bodies, a line each; with --json all that is known of each "
        "message. Ends where the queues ended when it began, unless --follow is given.",
    )
    takes(parser, "topic TOPIC")
    takes(parser, "--group GROUP", "begin where this group is, and note what was printed as read")
    takes(
        parser,
        "--from PLACE",
        "first, last, stored (where the group is), or a store time: epoch milliseconds, or "
        "as 2025-12-31T23:59 in local time (default: stored with --group, else first)",
        dest="place",
    )
    takes(parser, "--count N", "end after N messages")
    wanted = parser.add_mutually_exclusive_group()
    wanted.add_argument(
        "--tag",
        "--filter",
        dest="tag",
        metavar="TAGS",
        default="*",
        help="only messages with it; A||B for either",
    )
    takes(
        wanted,
        "--sql EXPRESSION",
        "only messages whose properties fulfil it, as \"price > 5 AND region = 'eu'\"",
    )
    takes(parser, "--queue N", "only this one; may be repeated", action="append")
    takes(parser, "--follow", "wait for messages to come")
    add_node_options(parser)
    parser.set_defaults(name=NAME, func=naming_the_leader(run))


def run(arguments: argparse.Namespace) -> int:
    """Print what the command line asks for."""
    count: int | None = arguments.count
    if count is not None and count < 1:
        raise ConfigError("--count is at least 1", count=count)
    options = ConsumerOptions(
        timeout_s=arguments.timeout, messages_max=min(count or PULLED_AT_ONCE, PULLED_AT_ONCE)
    )
    consumer = Consumer(
        arguments.address,
        topic=arguments.topic,
        group=arguments.group,
        queues=arguments.queue,
        start=_start(arguments),
        filter=MessageFilter.by_sql(arguments.sql)
        if arguments.sql is not None
        else MessageFilter.by_tags(arguments.tag),
        name=arguments.name,
        options=options,
        # What was given back comes at its own time: there is no end of it to stop at.
        retries=None if arguments.follow else False,
        one_group=True,
    )
    with consumer, ProgressLine("messages received") as progress:
        ends = None if arguments.follow else consumer.ends()
        _print_all(consumer, ends, arguments, progress)
        if ends is not None and arguments.group and count is None:
            # Also what the tags left out; not what was stored behind the ends meanwhile.
            offsets = consumer.offsets()
            consumer.commit({queue: min(offsets[queue], end) for queue, end in ends.items()})
    return 0


def _print_all(
    consumer: Consumer,
    ends: dict[int, int] | None,
    arguments: argparse.Namespace,
    progress: ProgressLine,
) -> None:
    count: int | None = arguments.count
    printed = 0
    for read in _batches(consumer, ends):
        messages = read if count is None else read[: count - printed]
        for message in messages:
            _print(message, as_json=arguments.json)
        # Noted as read only when it has left this process.
        sys.stdout.flush()
        printed += len(messages)
        if arguments.group:
            consumer.commit(messages[-1])
        if not sys.stdout.isatty():
            progress.show(printed, count)
        if printed == count:
            return


def _batches(consumer: Consumer, ends: dict[int, int] | None) -> Iterator[list[ReceivedMessage]]:
    """Messages of one queue at a time, before ``ends`` or without end; never none."""
    while ends is None or _is_before(consumer.offsets(), ends):
        batch = consumer.poll(POLL_S)
        messages = batch[:]
        if ends is not None:
            end = ends.get(batch.queue_id, 0)
            messages = [message for message in messages if message.queue_offset < end]
        if messages:
            yield messages


def _is_before(offsets: dict[int, int], ends: dict[int, int]) -> bool:
    return any(offsets[queue] < end for queue, end in ends.items())


def _start(arguments: argparse.Namespace) -> Start:
    """Where to begin.

    Raises:
        ConfigError: the place is none, or needs a group.
    """
    place: str | None = arguments.place
    if place is None:
        return "stored" if arguments.group else "first"
    if place == "stored" and not arguments.group:
        raise ConfigError("--from stored needs --group: whose place?")
    if place == "first":
        return "first"
    if place == "last":
        return "last"
    if place == "stored":
        return "stored"
    if place.isdecimal():
        return int(place)
    try:
        return int(datetime.fromisoformat(place).timestamp() * 1_000)
    except ValueError as error:
        raise ConfigError(
            "--from is no place to begin", given=place, allowed=f"{', '.join(PLACES)}, or a time"
        ) from error


def _print(message: ReceivedMessage, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.buffer.write(json.dumps(received_as_json(message)).encode() + b"\n")
    else:
        print_body(message)
