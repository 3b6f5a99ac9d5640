"""``ledgermq spark table-tidy``: a table of Apache Iceberg that is archived to, put in order."""

from __future__ import annotations

import argparse
import json
import time
from datetime import timedelta

from ledgermq.cli.spark.spark_options import add_job_options, job_of
from ledgermq.cli.spark.table_options import add_catalog_options, opened_table
from ledgermq.model.errors import ConfigError
from ledgermq.model.units import MIB
from ledgermq.pipeline.job_defaults import LEVEL_DEFAULT, LEVELS

SMALL_MIB = 32
SNAPSHOT_DAYS = 7.0
SNAPSHOT_DAYS_MAX = 36_500


def register(jobs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the job."""
    parser = jobs.add_parser(
        "table-tidy",
        help="put the files of a table in order",
        description="Put small files of a table together, let old snapshots expire, and delete "
        "files that no snapshot names. Rows stay as they are, and so does how far the table has "
        "the log.",
    )
    parser.add_argument("table", metavar="CATALOG.NAMESPACE.TABLE", help="as of archive --iceberg")
    add_catalog_options(parser)
    parser.add_argument(
        "--small-mib",
        type=int,
        default=SMALL_MIB,
        metavar="N",
        help="files of less are put together (%(default)s)",
    )
    parser.add_argument(
        "--keep-days",
        type=float,
        default=SNAPSHOT_DAYS,
        metavar="N",
        help="snapshots, and files that none names, stay as long (%(default)s)",
    )
    parser.add_argument(
        "--level",
        type=int,
        default=LEVEL_DEFAULT,
        metavar="N",
        help=f"of zstd, {LEVELS[0]} (fast) to {LEVELS[-1]} (small) (%(default)s)",
    )
    add_job_options(parser)
    parser.set_defaults(func=_tidy)


def _tidy(arguments: argparse.Namespace) -> int:
    from ledgermq.pipeline.archive.archive_job import check_level

    check_level(arguments.level)
    if not 0 < arguments.keep_days <= SNAPSHOT_DAYS_MAX:
        raise ConfigError(
            "must be longer than any run takes, and no more than a hundred years",
            option="--keep-days",
            value=arguments.keep_days,
            allowed=f"more than 0, up to {SNAPSHOT_DAYS_MAX}",
        )
    table = opened_table(arguments.table, arguments, may_make=False)
    from ledgermq.pipeline.tables.table_tidy_job import tidy

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
