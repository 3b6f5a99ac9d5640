"""``ledgermq send``: messages from the command line, from standard input, or made up."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from typing import NamedTuple

from ledgermq.cli.arguments import NAME, add_node_options, takes
from ledgermq.cli.leader_hint import naming_the_leader
from ledgermq.cli.progress_line import ProgressLine
from ledgermq.client.blocking.producer import Producer
from ledgermq.client.core.results import BatchResult, SendResult
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.model.errors import ConfigError, LedgerError
from ledgermq.model.instants import parse_time

UNDER_WAY_MAX = 4_096
"""Results kept while messages are under way; the producer's window bounds their bytes."""

Future = SendFuture[SendResult] | SendFuture[BatchResult]


class Bodies(NamedTuple):
    """What is to be sent; ``total`` is ``None`` for an input whose end is not known."""

    bodies: Iterable[bytes]
    total: int | None


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``send``."""
    parser = subparsers.add_parser(
        "send",
        help="send messages",
        description="Each BODY is a message; - stands for the lines of standard input. "
        "With --count the messages are not told one by one.",
    )
    takes(parser, "topic TOPIC")
    takes(parser, "body BODY", nargs="*")
    takes(parser, "--tag TAG", "tag of the messages")
    takes(parser, "--key KEY", "a key; may be repeated", action="append", default=[])
    takes(parser, "--property NAME=VALUE", "may be repeated", action="append", default=[])
    takes(parser, "--queue N", "queue; else they take turns")
    takes(
        parser,
        "--priority N",
        "share groups get the highest first, of a topic whose type is PRIORITY",
    )
    takes(
        parser,
        "--unique-id ID",
        "of the one message; a topic with a de-duplication window stores none twice",
    )
    takes(parser, "--count N", "send the bodies N times")
    takes(parser, "--size BYTES", "make a body of this size up")
    takes(parser, "--batch N", "store N together or not at all", default=1)
    when = parser.add_mutually_exclusive_group()
    takes(when, "--delay-level N", "deliver it after delay level N", default=0)
    takes(when, "--delay MS", "deliver it so many milliseconds from now")
    takes(when, "--deliver-at TIME", "deliver it then: epoch ms, or as 2025-12-31T23:59")
    add_node_options(parser)
    parser.set_defaults(name=NAME, func=naming_the_leader(run))


def run(arguments: argparse.Namespace) -> int:
    """Send what the command line asks for, and tell where it is stored."""
    given = _bodies(arguments)
    properties = dict(_property(text) for text in arguments.property)
    if arguments.batch < 1:
        raise ConfigError("--batch is at least 1", batch=arguments.batch)
    if arguments.unique_id is not None and (
        given.total != 1 or arguments.batch != 1 or arguments.count is not None
    ):
        raise ConfigError(
            "--unique-id is of one message: give one body", unique_id=arguments.unique_id
        )
    options = ProducerOptions(timeout_s=arguments.timeout)
    begun = time.monotonic()
    stored = 0
    with (
        Producer(
            arguments.address, name=arguments.name, options=options, one_group=True
        ) as producer,
        ProgressLine("messages stored") as progress,
    ):
        try:
            for result in _results(_send(producer, arguments, given.bodies, properties)):
                stored += 1
                if arguments.count is None:
                    _tell(result, as_json=arguments.json)
                progress.show(stored, given.total)
        except LedgerError as error:
            error.details["stored_before"] = stored
            raise
    if arguments.count is not None:
        size = sum(map(len, _once(arguments))) * arguments.count
        _tell_sum(stored, size, time.monotonic() - begun, as_json=arguments.json)
    return 0


def _bodies(arguments: argparse.Namespace) -> Bodies:
    words: list[str] = arguments.body
    if arguments.count is None and arguments.size is None:
        if words == ["-"] or (not words and not sys.stdin.isatty()):
            return Bodies(_lines(), None)
        if not words:
            raise ConfigError("nothing to send: give bodies, or - for the lines of standard input")
    if arguments.count is not None and arguments.count < 1:
        raise ConfigError("--count is at least 1", count=arguments.count)
    once = _once(arguments)
    count: int = arguments.count or 1
    return Bodies(chain.from_iterable(repeat(once, count)), count * len(once))


def _once(arguments: argparse.Namespace) -> Sequence[bytes]:
    """The bodies that ``--count`` repeats."""
    words: list[str] = arguments.body
    size: int | None = arguments.size
    if size is not None:
        if words or size < 0:
            raise ConfigError("--size makes a body up: give no other, and no negative size")
        text = b"0123456789abcdef"
        return [(text * (size // len(text) + 1))[:size]]
    if not words or "-" in words:
        raise ConfigError("--count repeats bodies of the command line: give some, or --size")
    return [os.fsencode(word) for word in words]


def _lines() -> Iterator[bytes]:
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n")


def _property(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise ConfigError("--property takes NAME=VALUE", given=text)
    return name, value


def _send(
    producer: Producer,
    arguments: argparse.Namespace,
    bodies: Iterable[bytes],
    properties: dict[str, str],
) -> Iterator[Future]:
    """Send as the results are asked for."""
    topic, tag, keys, queue_id = arguments.topic, arguments.tag, arguments.key, arguments.queue
    level, delay = arguments.delay_level, arguments.delay
    at = arguments.deliver_at
    deliver_at = None if at is None else parse_time(at, "--deliver-at")
    if arguments.batch == 1:
        for body in bodies:
            yield producer.send(
                topic, body, tag=tag, keys=keys, properties=properties, queue_id=queue_id,
                delay_level=level, delay=delay, deliver_at=deliver_at,
                unique_id=arguments.unique_id, priority=arguments.priority,
            )  # fmt: skip
        return
    rest = iter(bodies)
    while batch := list(islice(rest, arguments.batch)):
        yield producer.send_batch(
            topic, batch, tag=tag, keys=keys, properties=properties, queue_id=queue_id,
            delay_level=level, delay=delay, deliver_at=deliver_at, priority=arguments.priority,
        )  # fmt: skip


def _results(futures: Iterator[Future]) -> Iterator[SendResult]:
    """Results in the order of the messages; many may be under way."""
    under_way: deque[Future] = deque()
    for future in futures:
        under_way.append(future)
        while under_way and (under_way[0].done() or len(under_way) > UNDER_WAY_MAX):
            yield from _of_one(under_way.popleft())
    while under_way:
        yield from _of_one(under_way.popleft())


def _of_one(future: Future) -> Iterator[SendResult]:
    result = future.result()
    if isinstance(result, SendResult):
        yield result
    else:
        yield from result


def _tell(result: SendResult, *, as_json: bool) -> None:
    if as_json:
        row = {
            "topic": result.topic,
            "queue": result.queue_id,
            "queueOffset": result.queue_offset,
            "physicalOffset": result.physical_offset,
            "msgId": result.unique_id,
            "offsetMsgId": result.offset_message_id,
            "storeTimestamp": result.store_timestamp,
            "ack": result.ack.value,
            "duplicate": result.is_duplicate,
        }
        print(json.dumps(row))
    else:
        more = " duplicate" if result.is_duplicate else ""
        print(f"{result.topic}/{result.queue_id} {result.queue_offset} {result.unique_id}{more}")


def _tell_sum(stored: int, size: int, seconds: float, *, as_json: bool) -> None:
    rate = stored / seconds
    if as_json:
        print(json.dumps({"stored": stored, "bodyBytes": size, "seconds": round(seconds, 6)}))
    else:
        print(f"{stored:,} messages, {size:,} bytes, in {seconds:.3f} s: {rate:,.0f} a second")
