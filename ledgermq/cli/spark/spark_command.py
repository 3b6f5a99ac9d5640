"""``ledgermq spark JOB``; ``python -m ledgermq.pipeline JOB`` is the same for ``spark-submit``."""

from __future__ import annotations

import argparse
from pathlib import Path

from ledgermq.cli.late_command import LateCommand
from ledgermq.cli.messages.receipt_command import add_key_option, add_since_option
from ledgermq.cli.size_options import add_size_options
from ledgermq.cli.spark.table_options import add_catalog_options
from ledgermq.model.units import MIB
from ledgermq.pipeline.job_defaults import LEVEL_DEFAULT, LEVELS, SPLIT_BYTES, TYPED


def add_job_options(parser: argparse.ArgumentParser) -> None:
    """Let ``parser`` take what all jobs take."""
    job = parser.add_argument_group("Spark")
    job.add_argument("--master", metavar="URL", help="local[*], or that of spark-submit")
    job.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark"
    )
    job.add_argument(
        "--split-mib",
        type=int,
        default=SPLIT_BYTES // MIB,
        metavar="N",
        help="MiB of the log for one task (%(default)s)",
    )
    job.add_argument("--json", action="store_true", help="print one JSON object")


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """Let ``parser`` take a store or a cluster, and topics."""
    parser.add_argument(
        "directories",
        nargs="*",
        metavar="DIRECTORY",
        help="storePathRootDir, as the workers see it, or those of several replicas; or --nodes",
    )
    parser.add_argument(
        "--nodes", metavar="ADDRESSES", help="of a running cluster, with commas between them"
    )
    parser.add_argument("--self-id", help="whose DLedger log, where there are several")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--topics", metavar="NAMES", help="with commas; all but the system's")
    choice.add_argument("--pattern", metavar="REGEX", help="of whole names of topics")
    parser.add_argument(
        "--timeout",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="how long a cluster may be away (default: 120)",
    )


SMALL_MIB = 32
SNAPSHOT_DAYS = 7.0
BUCKET_S = 60


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
    _register_archive(jobs)
    _register_tidy(jobs)
    _register_replay(jobs)
    _register_stats(jobs)


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
        "the log differ from it; 5 a log is damaged, or not that of the others, or not what was "
        "signed. With --key messages of topics with receipts are compared with what was signed: in "
        "logs, pieces and archives.",
    )
    parser.add_argument(
        "directories",
        type=Path,
        nargs="*",
        metavar="DIRECTORY",
        help="storePathRootDir of a replica, as the workers see it",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="for faults.parquet, audit.json, audit.html"
    )
    for option, what in (("--pieces", "sealed pieces"), ("--archive", "an archive")):
        parser.add_argument(
            option,
            action="append",
            default=[],
            metavar="PLACE",
            help=f"{what} of the same log, to be compared with what was signed; may come again",
        )
    add_key_option(parser, is_needed=False)
    add_since_option(parser)
    parser.add_argument(
        "--log-file-size", type=int, metavar="BYTES", help="mappedFileSizeCommitLog"
    )
    add_size_options(parser)
    add_job_options(parser)
    parser.set_defaults(func=LateCommand("spark.store_jobs", "audit_replicas"))


def _register_archive(jobs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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
    _add_level(parser)
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
    _add_archive(verify)
    add_job_options(verify)
    verify.set_defaults(func=LateCommand("spark.archive_jobs", "verify_archive"))


def _register_tidy(jobs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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
    _add_level(parser)
    add_job_options(parser)
    parser.set_defaults(func=LateCommand("spark.table_jobs", "tidy_table"))


def _register_replay(jobs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = jobs.add_parser(
        "replay",
        help="send an archive into topics",
        description="Send messages of an archive into the topic that they were in, or into another "
        "one, with body, tag, keys, properties and flag, and new offsets. A run that was stopped "
        "goes on by its name, and sends nothing twice.",
    )
    _add_archive(parser)
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


def _register_stats(jobs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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


def _add_level(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--level",
        type=int,
        default=LEVEL_DEFAULT,
        metavar="N",
        help=f"of zstd, {LEVELS[0]} (fast) to {LEVELS[-1]} (small) (%(default)s)",
    )


def _add_archive(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory", metavar="DIR", help="the archive, or s3a://BUCKET/PREFIX, gs://…, abfss://…"
    )
