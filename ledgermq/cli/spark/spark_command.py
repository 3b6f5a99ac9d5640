"""``ledgermq spark JOB``; ``python -m ledgermq.pipeline JOB`` is the same for ``spark-submit``."""

from __future__ import annotations

import argparse
from pathlib import Path

from ledgermq.cli.arguments import LateCommand, add_size_options, takes
from ledgermq.cli.messages.receipt_command import add_key_option, add_since_option
from ledgermq.cli.spark.table_options import add_catalog_options
from ledgermq.model.units import MIB
from ledgermq.pipeline.job_defaults import LEVEL_DEFAULT, LEVELS, SPLIT_BYTES, TYPED


def add_job_options(parser: argparse.ArgumentParser) -> None:
    """Let ``parser`` take what all jobs take."""
    job = parser.add_argument_group("Spark")
    takes(job, "--master URL", "local[*], or that of spark-submit")
    takes(job, "--conf NAME=VALUE", "a setting of Spark", action="append", default=[])
    takes(
        job,
        "--split-mib N",
        "MiB of the log for one task (%(default)s)",
        default=SPLIT_BYTES // MIB,
    )
    takes(job, "--json", "print one JSON object")


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """Let ``parser`` take a store or a cluster, and topics."""
    takes(
        parser,
        "directories DIRECTORY",
        "storePathRootDir, as the workers see it, or those of several replicas; or --nodes",
        nargs="*",
    )
    takes(parser, "--nodes ADDRESSES", "of a running cluster, with commas between them")
    takes(parser, "--self-id SELF_ID", "whose DLedger log, where there are several")
    choice = parser.add_mutually_exclusive_group()
    takes(choice, "--topics NAMES", "with commas; all but the system's")
    takes(choice, "--pattern REGEX", "of whole names of topics")
    takes(
        parser, "--timeout SECONDS", "how long a cluster may be away (default: 120)", default=120.0
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
    takes(parser, "directory", "storePathRootDir, as the workers see it", type=Path)
    takes(parser, "--self-id SELF_ID", "whose DLedger log, where there are several")
    takes(
        parser, "--out DIR", "where to build; workers must see it, too (DIRECTORY/ledgermq/derived)"
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
    takes(
        parser,
        "directories DIRECTORY",
        "storePathRootDir of a replica, as the workers see it",
        type=Path,
        nargs="*",
    )
    takes(parser, "--out DIR", "for faults.parquet, audit.json, audit.html")
    for option, what in (("--pieces", "sealed pieces"), ("--archive", "an archive")):
        takes(
            parser,
            f"{option} PLACE",
            f"{what} of the same log, to be compared with what was signed; may come again",
            action="append",
            default=[],
        )
    add_key_option(parser, is_needed=False)
    add_since_option(parser)
    takes(parser, "--log-file-size BYTES", "mappedFileSizeCommitLog")
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
    takes(
        place,
        "--to DIR",
        "the archive; workers must see it: a directory, or s3a://BUCKET/PREFIX, gs://…, abfss://…",
        type=str,
    )
    takes(
        place,
        "--iceberg CATALOG.NAMESPACE.TABLE",
        "a table of Apache Iceberg, one snapshot a run; catalogs are those of PyIceberg",
    )
    add_catalog_options(parser)
    takes(
        parser,
        "--columns",
        "bodies are fields, too, by the schema of the one topic that is archived",
        choices=[TYPED],
    )
    takes(parser, "--subject NAME", "whose schema that is (default: the topic's)")
    takes(
        parser,
        "--stored-bodies",
        "keep compressed bodies as they are stored, and not as they were sent",
    )
    _add_level(parser)
    takes(parser, "--watermark NAME", "let retention wait for this archive, by this name")
    takes(parser, "--commit-to ADDRESSES", "who is told of it (default: those of --nodes)")
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
    takes(parser, "table CATALOG.NAMESPACE.TABLE", "as of archive --iceberg")
    add_catalog_options(parser)
    takes(
        parser, "--small-mib N", "files of less are put together (%(default)s)", default=SMALL_MIB
    )
    takes(
        parser,
        "--keep-days N",
        "snapshots, and files that none names, stay as long (%(default)s)",
        type=float,
        default=SNAPSHOT_DAYS,
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
    takes(parser, "--nodes ADDRESSES", "of the cluster, with commas", required=True)
    takes(parser, "--to-topic TOPIC", "instead of the message's own")
    takes(parser, "--topics NAMES", "only these, with commas between them")
    takes(parser, "--queues NUMBERS", "only these, with commas")
    takes(parser, "--from TIME", "stored then or later", dest="begin")
    takes(parser, "--to TIME", "stored before", dest="end")
    takes(parser, "--tag TAG", "only messages of this tag")
    takes(parser, "--key KEY", "only messages of this key")
    takes(
        parser,
        "--by-sink",
        "store each run of the archive as a whole, and know by its number that it is stored",
    )
    takes(
        parser,
        "--progress DIR",
        "a directory for notes of how far it is, which workers must see (default: in the "
        "archive, which must be a directory then)",
    )
    takes(parser, "--name NAME", "of the replay (%(default)s)", default="replay")
    takes(
        parser,
        "--timeout SECONDS",
        "how long the cluster may be away (default: 120)",
        default=120.0,
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
    takes(parser, "--out DIR", "for tables as Parquet, stats.json and stats.html")
    takes(parser, "--from TIME", "stored then or later", dest="begin")
    takes(parser, "--to TIME", "stored before", dest="end")
    takes(
        parser,
        "--bucket SECONDS",
        "how long a bucket of the rates is (%(default)s)",
        type=int,
        default=BUCKET_S,
    )
    add_job_options(parser)
    parser.set_defaults(func=LateCommand("spark.stats_jobs", "count_messages"))


def _add_level(parser: argparse.ArgumentParser) -> None:
    takes(
        parser,
        "--level N",
        f"of zstd, {LEVELS[0]} (fast) to {LEVELS[-1]} (small) (%(default)s)",
        default=LEVEL_DEFAULT,
    )


def _add_archive(parser: argparse.ArgumentParser) -> None:
    takes(
        parser, "directory DIR", "the archive, or s3a://BUCKET/PREFIX, gs://…, abfss://…", type=str
    )
