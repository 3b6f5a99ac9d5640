"""``ledgermq spark JOB``; ``python -m ledgermq.pipeline JOB`` is the same for ``spark-submit``."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

from ledgermq.cli.progress_line import ProgressLine
from ledgermq.cli.store_sizes import add_size_options, store_section
from ledgermq.pipeline.job_session import opened_job
from ledgermq.pipeline.log_splits import SPLIT_BYTES
from ledgermq.pipeline.rebuild_job import RebuiltByJob, rebuild
from ledgermq.store.store_directory import open_directory

_MIB = 1 << 20


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``spark`` with its jobs."""
    parser = subparsers.add_parser("spark", help="rebuild and audit stores on Spark")
    jobs = parser.add_subparsers(title="jobs", metavar="JOB", required=True)
    _register_rebuild(jobs)


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
    parser.set_defaults(func=_rebuild)


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
        default=SPLIT_BYTES // _MIB,
        metavar="N",
        help="MiB of the log for one task (%(default)s)",
    )
    job.add_argument("--json", action="store_true", help="print one JSON object")


def _rebuild(arguments: argparse.Namespace) -> int:
    root: Path = arguments.directory.absolute()
    staging: Path = (arguments.out or root / "ledgermq" / "derived").absolute()
    directory = open_directory(root, self_id=arguments.self_id)
    section = store_section(arguments, root, directory.log)
    begun = time.monotonic()
    with (
        ProgressLine("tasks") as line,
        opened_job("rebuild", master=arguments.master, conf=arguments.conf, told=line.show) as job,
    ):
        rebuilt = rebuild(
            job, directory, section, staging, split_bytes=max(1, arguments.split_mib) * _MIB
        )
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


def _rebuilt_as_json(rebuilt: RebuiltByJob, staging: Path, seconds: float) -> dict[str, object]:
    counts = rebuilt._asdict()
    del counts["staged"]
    return {**asdict(rebuilt.staged), **counts, "out": str(staging), "seconds": round(seconds, 3)}
