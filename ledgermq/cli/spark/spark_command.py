"""``ledgermq spark JOB``; ``python -m ledgermq.pipeline JOB`` is the same for ``spark-submit``."""

from __future__ import annotations

import argparse
from pathlib import Path

from ledgermq.cli.late_command import LateCommand
from ledgermq.cli.size_options import add_size_options
from ledgermq.cli.spark import (
    spark_archive_command,
    spark_replay_command,
    spark_stats_command,
    spark_table_command,
)
from ledgermq.cli.spark.spark_options import add_job_options


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``spark`` with its jobs."""
    parser = subparsers.add_parser(
        "spark", help="rebuild, audit, archive, replay and count on Spark"
    )
    # Archives, reports and notes of replays are the user's own data, for whom the shell says.
    parser.set_defaults(keeps_umask=True)
    jobs = parser.add_subparsers(title="jobs", metavar="JOB", required=True)
    _register_rebuild(jobs)
    _register_audit(jobs)
    spark_archive_command.register(jobs)
    spark_table_command.register(jobs)
    spark_replay_command.register(jobs)
    spark_stats_command.register(jobs)


def _register_rebuild(jobs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = jobs.add_parser(
        "rebuild",
        help="build queues and index from the log",
        description="Build consumequeue/ and index/ from the committed log, byte for byte as the "
        "dispatcher builds them, in a folder beside them. The store is only read; a stopped node "
        "takes them over with: ledgermq store install-derived.",
    )
    parser.add_argument("directory", type=Path, help="storePathRootDir, as the workers see it")
    parser.add_argument("--self-id", help="whose DLedger log, where there are several")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where to build; workers must see it, too (DIRECTORY/ledgermq/derived)",
    )
    add_size_options(parser)
    add_job_options(parser)
    # What it builds becomes a part of the store.
    parser.set_defaults(func=LateCommand("spark.store_jobs", "rebuild_store"), keeps_umask=False)


def _register_audit(jobs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = jobs.add_parser(
        "audit",
        help="compare the replicas of a group",
        description="Check every replica as ledgermq store check does, and compare their logs. "
        "Nothing in them is changed. Exit status: 0 nothing is wrong; 4 files that are made from "
        "the log differ from it; 5 a log is damaged, or not that of the others.",
    )
    parser.add_argument(
        "directories",
        type=Path,
        nargs="+",
        metavar="DIRECTORY",
        help="storePathRootDir of a replica, as the workers see it",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="for faults.parquet, audit.json, audit.html"
    )
    parser.add_argument(
        "--log-file-size", type=int, metavar="BYTES", help="mappedFileSizeCommitLog"
    )
    add_size_options(parser)
    add_job_options(parser)
    parser.set_defaults(func=LateCommand("spark.store_jobs", "audit_replicas"))
