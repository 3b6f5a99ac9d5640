"""``ledgermq spark replay``: an archive, or a part of it, back into topics."""

from __future__ import annotations

import argparse
from pathlib import Path

from ledgermq.cli.late_command import LateCommand
from ledgermq.cli.spark.spark_options import add_job_options


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
    parser.set_defaults(func=LateCommand("spark.replay_jobs", "replay_archive"))
