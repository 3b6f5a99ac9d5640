"""``ledgermq spark archive`` and ``archive-verify``: messages as Parquet files."""

from __future__ import annotations

import argparse

from ledgermq.cli.late_command import LateCommand
from ledgermq.cli.spark.spark_options import (
    add_job_options,
    add_source_options,
)
from ledgermq.cli.spark.table_options import add_catalog_options
from ledgermq.pipeline.job_defaults import LEVEL_DEFAULT, LEVELS, TYPED


def register(jobs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add both jobs."""
    parser = jobs.add_parser(
        "archive",
        help="write what is new as Parquet files",
        description="Add what a store or a running cluster has beyond the archive to it: Parquet "
        "files by topic and day of the store time, and a manifest, or a snapshot of a table. A run "
        "that is repeated, or was killed, adds nothing twice.",
    )
    add_source_options(parser)
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument(
        "--to",
        metavar="DIR",
        help="the archive; workers must see it: a directory, or s3a://BUCKET/PREFIX, gs://…, abfss://…",
    )
    place.add_argument(
        "--iceberg",
        metavar="CATALOG.NAMESPACE.TABLE",
        help="a table of Apache Iceberg, one snapshot a run; catalogs are those of PyIceberg",
    )
    add_catalog_options(parser)
    parser.add_argument(
        "--columns",
        choices=[TYPED],
        help="bodies are fields, too, by the schema of the one topic that is archived",
    )
    parser.add_argument(
        "--subject", metavar="NAME", help="whose schema that is (default: the topic's)"
    )
    parser.add_argument(
        "--stored-bodies",
        action="store_true",
        help="keep compressed bodies as they are stored, and not as they were sent",
    )
    parser.add_argument(
        "--level",
        type=int,
        default=LEVEL_DEFAULT,
        metavar="N",
        help=f"of zstd, {LEVELS[0]} (fast) to {LEVELS[-1]} (small) (%(default)s)",
    )
    parser.add_argument(
        "--watermark", metavar="NAME", help="let retention wait for this archive, by this name"
    )
    parser.add_argument(
        "--commit-to", metavar="ADDRESSES", help="who is told of it (default: those of --nodes)"
    )
    add_job_options(parser)
    parser.set_defaults(func=LateCommand("spark.archive_jobs", "archive_messages"))
    verify = jobs.add_parser(
        "archive-verify",
        help="compare the files of an archive with its manifest",
        description="Read all files of an archive, and compare them with its manifest. Exit status:"
        " 0 they are the same, 5 they are not.",
    )
    verify.add_argument(
        "directory", metavar="DIR", help="the archive, or s3a://BUCKET/PREFIX, gs://…, abfss://…"
    )
    add_job_options(verify)
    verify.set_defaults(func=LateCommand("spark.archive_jobs", "verify_archive"))
