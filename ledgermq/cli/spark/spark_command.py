"""``ledgermq spark JOB``; ``python -m ledgermq.pipeline JOB`` is the same for ``spark-submit``."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ledgermq.cli.spark import (
    spark_archive_command,
    spark_replay_command,
    spark_stats_command,
    spark_table_command,
)
from ledgermq.cli.spark.spark_options import add_job_options, job_of, local_directory, split_bytes
from ledgermq.cli.store.store_check_command import EXIT_OF_SEVERITY
from ledgermq.cli.store.store_sizes import add_size_options, index_layout, store_section
from ledgermq.formats.findings import Severity
from ledgermq.model.units import MIB
from ledgermq.store.store_directory import open_directory

if TYPE_CHECKING:
    from ledgermq.pipeline.jobs.rebuild_job import RebuiltByJob


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
    parser.set_defaults(func=_rebuild, keeps_umask=False)


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
    parser.set_defaults(func=_audit)


def _rebuild(arguments: argparse.Namespace) -> int:
    from ledgermq.pipeline.jobs.rebuild_job import rebuild

    root = local_directory(arguments.directory)
    staging: Path = (arguments.out or root / "ledgermq" / "derived").absolute()
    directory = open_directory(root, self_id=arguments.self_id)
    section = store_section(arguments, root, directory.log)
    begun = time.monotonic()
    with job_of(arguments, "rebuild") as job:
        rebuilt = rebuild(job, directory, section, staging, split_bytes=split_bytes(arguments))
    seconds = time.monotonic() - begun
    if arguments.json:
        print(json.dumps(_rebuilt_as_json(rebuilt, staging, seconds)))
        return 0
    staged = rebuilt.staged
    print(
        f"{staged.messages:,} messages of positions {staged.first:,} to {staged.end:,}:"
        f" {staged.units:,} units of {rebuilt.queues:,} queues, {staged.keys:,} keys in"
        f" {rebuilt.index_files:,} index files; {rebuilt.tasks:,} tasks, {seconds:.1f} s"
    )
    if staged.skipped:
        print(f"{staged.skipped:,} messages cannot be parsed and were passed over")
    if rebuilt.ordered:
        print(f"{rebuilt.ordered:,} queues have numbers that repeat or are left out")
    print(f"to put them in place: ledgermq store install-derived {root} --from {staging}")
    return 0


def _audit(arguments: argparse.Namespace) -> int:
    from ledgermq.pipeline.jobs.audit_job import audit
    from ledgermq.pipeline.jobs.audit_report import audit_as_json, write_report
    from ledgermq.repair.check.check_store import CheckOptions

    roots = [local_directory(path) for path in arguments.directories]
    has_layout = arguments.hash_slots is not None or arguments.index_items is not None
    options = CheckOptions(
        log_file_size=arguments.log_file_size,
        queue_file_size=arguments.queue_file_size,
        index_layout=index_layout(arguments, roots[0] / "index") if has_layout else None,
        message_delay_level=arguments.delay_levels,
    )
    begun = time.monotonic()
    with job_of(arguments, "audit") as job:
        audited = audit(job, roots, options, split_bytes=split_bytes(arguments))
    seconds = time.monotonic() - begun
    written = write_report(audited, arguments.out) if arguments.out else []
    kinds = {fault.kind for fault in audited.faults}
    status = EXIT_OF_SEVERITY[Severity.NOTE]
    if kinds:
        only_derived = kinds == {Severity.DERIVED.value}
        status = EXIT_OF_SEVERITY[Severity.DERIVED if only_derived else Severity.DAMAGE]
    if arguments.json:
        document = audit_as_json(audited)
        print(json.dumps({"exit_status": status, "seconds": round(seconds, 3), **document}))
        return status
    for fault in audited.faults:
        print(fault.as_text())
    size = sum(replica.checked.log_bytes for replica in audited.replicas)
    print(
        f"{len(audited.replicas)} replicas, positions {audited.first:,} to {audited.end:,}:"
        f" {len(audited.faults)} faults; {size / MIB:,.0f} MiB in {seconds:.1f} s"
    )
    for path in written:
        print(f"written: {path}")
    return status


def _rebuilt_as_json(rebuilt: RebuiltByJob, staging: Path, seconds: float) -> dict[str, object]:
    counts = rebuilt._asdict()
    del counts["staged"]
    return {**asdict(rebuilt.staged), **counts, "out": str(staging), "seconds": round(seconds, 3)}
