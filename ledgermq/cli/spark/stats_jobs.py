"""``ledgermq spark stats``: what it does, and what it prints."""

from __future__ import annotations

import argparse
import json
import time

from ledgermq.cli.spark.job_options import job_of, source_options, split_bytes
from ledgermq.model.instants import parse_time
from ledgermq.pipeline.jobs.job_reports import stats_as_json, topic_rows, write_stats
from ledgermq.pipeline.jobs.stats_job import stats


def count_messages(arguments: argparse.Namespace) -> int:
    """Count the messages of a store or a running cluster."""
    times = {
        name: str(parse_time(text, option))
        for name, text, option in (
            ("startingTimestamp", arguments.begin, "--from"),
            ("endingTimestamp", arguments.end, "--to"),
        )
        if text is not None
    }
    options = source_options(arguments, failOnDataLoss="false", **times)
    begun = time.monotonic()
    with job_of(arguments, "stats") as job:
        found = stats(
            job,
            options,
            bucket_ms=arguments.bucket * 1_000,
            split_bytes=split_bytes(arguments),
        )
    seconds = time.monotonic() - begun
    written = write_stats(found, arguments.out) if arguments.out else []
    if arguments.json:
        print(json.dumps({"seconds": round(seconds, 3), **stats_as_json(found)}))
        return 0
    for row in topic_rows(found):
        print(
            f"{row['topic']}: {row['messages']:,} messages; bodies of {row['size_p50']:,} bytes,"
            f" 1% above {row['size_p99']:,}; born to stored {row['latency_ms_p50']:,} ms, 1% above"
            f" {row['latency_ms_p99']:,} ms"
        )
    behind = [lag for lag in found.lags if lag.lag]
    for lag in sorted(behind, key=lambda one: -one.lag)[:10]:
        print(f"{lag.group} is {lag.lag:,} behind in queue {lag.queue_id} of {lag.topic}")
    print(f"{found.messages:,} messages of {len(found.topics):,} topics; {seconds:.1f} s")
    for path in written:
        print(f"written: {path}")
    return 0
