"""``ledgermq spark table-tidy``: what it does, and what it prints."""

from __future__ import annotations

import argparse
import json
import time
from datetime import timedelta

from ledgermq.cli.spark.job_options import job_of
from ledgermq.cli.spark.table_options import opened_table
from ledgermq.model.errors import ConfigError
from ledgermq.model.units import MIB
from ledgermq.pipeline.archive.archive_job import check_level
from ledgermq.pipeline.tables.table_tidy_job import tidy

SNAPSHOT_DAYS_MAX = 36_500


def tidy_table(arguments: argparse.Namespace) -> int:
    """Put the files of a table in order."""
    check_level(arguments.level)
    if not 0 < arguments.keep_days <= SNAPSHOT_DAYS_MAX:
        raise ConfigError(
            "must be longer than any run takes, and no more than a hundred years",
            option="--keep-days",
            value=arguments.keep_days,
            allowed=f"more than 0, up to {SNAPSHOT_DAYS_MAX}",
        )
    table = opened_table(arguments.table, arguments, may_make=False)

    begun = time.monotonic()
    with job_of(arguments, "table-tidy") as job:
        found = tidy(
            job,
            table,
            small_bytes=arguments.small_mib * MIB,
            keep=timedelta(days=arguments.keep_days),
            level=arguments.level,
        )
    seconds = time.monotonic() - begun
    if arguments.json:
        print(json.dumps({**found._asdict(), "seconds": round(seconds, 3)}))
        return 0
    print(
        f"{found.merged:,} files put together into {found.into:,}; {found.expired:,} snapshots"
        f" expired; {found.deleted:,} files deleted, {found.bytes / MIB:,.1f} MiB; {seconds:.1f} s"
    )
    return 0
