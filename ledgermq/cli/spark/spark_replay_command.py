"""``ledgermq spark replay``: an archive, or a part of it, back into topics."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from ledgermq.cli.node_options import parse_time
from ledgermq.cli.spark.spark_options import add_job_options, job_of
from ledgermq.model.errors import ConfigError
from ledgermq.pipeline.archive.replay_layout import ReplayChoice


def register(jobs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the job."""
    parser = jobs.add_parser(
        "replay",
        help="send an archive into topics",
        description="Send messages of an archive into the topic that they were in, or into another "
        "one, with body, tag, keys, properties and flag, and new offsets. A run that was stopped "
        "goes on by its name, and sends nothing twice.",
    )
    parser.add_argument(
        "directory", metavar="DIR", help="the archive, or s3a://BUCKET/PREFIX, gs://…, abfss://…"
    )
    parser.add_argument(
        "--nodes", required=True, metavar="ADDRESSES", help="of the cluster, with commas"
    )
    parser.add_argument("--to-topic", metavar="TOPIC", help="instead of the message's own")
    parser.add_argument("--topics", metavar="NAMES", help="only these, with commas between them")
    parser.add_argument("--queues", metavar="NUMBERS", help="only these, with commas")
    parser.add_argument("--from", dest="begin", metavar="TIME", help="stored then or later")
    parser.add_argument("--to", dest="end", metavar="TIME", help="stored before")
    parser.add_argument("--tag", help="only messages of this tag")
    parser.add_argument("--key", help="only messages of this key")
    parser.add_argument(
        "--by-sink",
        action="store_true",
        help="store each run of the archive as a whole, and know by its number that it is stored",
    )
    parser.add_argument(
        "--progress",
        type=Path,
        metavar="DIR",
        help="a directory for notes of how far it is, which workers must see (default: in the "
        "archive, which must be a directory then)",
    )
    parser.add_argument("--name", default="replay", help="of the replay (%(default)s)")
    parser.add_argument(
        "--timeout",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="how long the cluster may be away (default: 120)",
    )
    add_job_options(parser)
    parser.set_defaults(func=_replay)


def _replay(arguments: argparse.Namespace) -> int:
    from ledgermq.pipeline.archive.archive_folder import store_at
    from ledgermq.pipeline.archive.replay_job import replay

    choice = ReplayChoice(
        topics=_names(arguments.topics),
        queues=_numbers(arguments.queues),
        begin_ms=None if arguments.begin is None else parse_time(arguments.begin, "--from"),
        end_ms=None if arguments.end is None else parse_time(arguments.end, "--to"),
        tag=arguments.tag,
        key=arguments.key,
        to_topic=arguments.to_topic,
        by_sink=arguments.by_sink,
    )
    begun = time.monotonic()
    with job_of(arguments, "replay") as job:
        found = replay(
            job,
            store_at(arguments.directory),
            _names(arguments.nodes) or (),
            choice,
            name=arguments.name,
            timeout_s=arguments.timeout,
            progress=None if arguments.progress is None else arguments.progress.absolute(),
        )
    seconds = time.monotonic() - begun
    if arguments.json:
        print(json.dumps({**found._asdict(), "name": arguments.name, "seconds": round(seconds, 3)}))
        return 0
    print(
        f"{found.sent:,} messages of {found.topics:,} topics sent; {found.tasks:,} tasks,"
        f" {seconds:.1f} s"
    )
    if found.found:
        print(f"{found.found:,} more were stored by a run that was stopped")
    if found.duplicates:
        print(f"{found.duplicates:,} not stored: the topic has their unique ids within its window")
    if found.damaged:
        print(f"{found.damaged:,} left out: their bodies are not what was sent (crcOk is false)")
    return 0


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _numbers(text: str | None) -> tuple[int, ...] | None:
    names = _names(text)
    if names is None:
        return None
    if not all(name.isascii() and name.isdigit() for name in names):
        raise ConfigError("not numbers of queues", option="--queues", value=text)
    return tuple(int(name) for name in names)
