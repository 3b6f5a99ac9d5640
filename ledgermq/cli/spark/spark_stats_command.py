"""``ledgermq spark stats``: rates, sizes, latencies and keys of messages."""

from __future__ import annotations

import argparse
from pathlib import Path

from ledgermq.cli.late_command import LateCommand
from ledgermq.cli.spark.spark_options import (
    add_job_options,
    add_source_options,
)

BUCKET_S = 60


def register(jobs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the job."""
    parser = jobs.add_parser(
        "stats",
        help="rates, sizes, latencies, keys and lags",
        description="Count the messages of a store or a running cluster: rates by topic and tag, "
        "sizes, the time from born to stored, the most frequent keys, and how far groups are "
        "behind. Nothing in it is changed.",
    )
    add_source_options(parser)
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="for tables as Parquet, stats.json and stats.html"
    )
    parser.add_argument("--from", dest="begin", metavar="TIME", help="stored then or later")
    parser.add_argument("--to", dest="end", metavar="TIME", help="stored before")
    parser.add_argument(
        "--bucket",
        type=int,
        default=BUCKET_S,
        metavar="SECONDS",
        help="how long a bucket of the rates is (%(default)s)",
    )
    add_job_options(parser)
    parser.set_defaults(func=LateCommand("spark.stats_jobs", "count_messages"))
