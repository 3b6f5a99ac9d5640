"""``ledgermq spark table-tidy``: a table of Apache Iceberg that is archived to, put in order."""

from __future__ import annotations

import argparse

from ledgermq.cli.late_command import LateCommand
from ledgermq.cli.spark.spark_options import add_job_options
from ledgermq.cli.spark.table_options import add_catalog_options
from ledgermq.pipeline.job_defaults import LEVEL_DEFAULT, LEVELS

SMALL_MIB = 32
SNAPSHOT_DAYS = 7.0


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
    parser.set_defaults(func=LateCommand("spark.table_jobs", "tidy_table"))
