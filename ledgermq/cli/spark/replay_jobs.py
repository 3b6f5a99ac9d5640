"""``ledgermq spark replay``: what it does, and what it prints."""

from __future__ import annotations

import argparse
import json
import time

from ledgermq.cli.spark.job_options import job_of, look_for_nodes
from ledgermq.model.errors import ConfigError
from ledgermq.model.instants import parse_time
from ledgermq.pipeline.archive.archive_folder import store_at
from ledgermq.pipeline.archive.replay_job import replay
from ledgermq.pipeline.archive.replay_layout import ReplayChoice


def replay_archive(arguments: argparse.Namespace) -> int:
    """Send messages of an archive into topics."""
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
    if arguments.nodes is not None:
        look_for_nodes(arguments.nodes, timeout_s=arguments.timeout)
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
