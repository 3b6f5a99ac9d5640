"""Options that several of Spark's jobs take."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ledgermq.cli.progress_line import ProgressLine
from ledgermq.model.errors import ConfigError
from ledgermq.model.units import MIB
from ledgermq.pipeline.job_defaults import SPLIT_BYTES

if TYPE_CHECKING:
    from ledgermq.pipeline.jobs.job_session import Job
    from ledgermq.pipeline.source_options import SourceOptions


_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/")


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


@contextmanager
def job_of(arguments: argparse.Namespace, name: str) -> Iterator[Job]:
    """A job as the options say, with a line that shows how many of its tasks are done."""
    from ledgermq.pipeline.jobs.job_session import opened_job

    with (
        ProgressLine("tasks") as line,
        opened_job(name, master=arguments.master, conf=arguments.conf, told=line.show) as job,
    ):
        yield job


def split_bytes(arguments: argparse.Namespace) -> int:
    """Bytes of the log for one task."""
    mib: int = arguments.split_mib
    return max(1, mib) * MIB


def local_directory(path: Path) -> Path:
    """A store's directory, absolute.

    Raises:
        ConfigError: it is an address: files of a store are mapped, and cannot be in a bucket.
    """
    scheme = _ADDRESS.match(str(path))
    if scheme and not path.exists():
        # What stands behind it may have keys in it.
        raise ConfigError(
            "stores are read from directories that the workers see; only archives may be in "
            "buckets (spark archive, archive-verify, replay), and a backup stream that is in one "
            "becomes a store by backup restore",
            value=f"{scheme[1]}://...",
        )
    return path.absolute()


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


def source_options(arguments: argparse.Namespace, **more: str) -> SourceOptions:
    """Options of the Spark source for what was said on the command line.

    Args:
        more: options besides, as the source names them.

    Raises:
        ConfigError: neither or both of directory and nodes, or a value is wrong.
    """
    from ledgermq.pipeline.source_options import parse_options

    given = {
        "path": ",".join(str(local_directory(Path(one))) for one in arguments.directories) or None,
        "nodes": arguments.nodes,
        "selfId": arguments.self_id,
        "subscribe": arguments.topics,
        "subscribePattern": arguments.pattern,
        "timeoutMs": str(int(arguments.timeout * 1_000)),
        **more,
    }
    options = {name: value for name, value in given.items() if value is not None}
    return parse_options(options, streaming=False)
