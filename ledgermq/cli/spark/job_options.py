"""Options of a command line as a job takes them: the job, its source, its directories."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ledgermq.cli.progress_line import ProgressLine
from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.errors import ConfigError
from ledgermq.model.units import MIB
from ledgermq.pipeline.jobs.job_session import Job, opened_job
from ledgermq.pipeline.source_options import SourceOptions, parse_options

_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/")


@contextmanager
def job_of(arguments: argparse.Namespace, name: str) -> Iterator[Job]:
    """A job as the options say, with a line that shows how many of its tasks are done."""
    with ProgressLine("tasks") as line:
        line.note("Spark starts")
        with opened_job(name, master=arguments.master, conf=arguments.conf, told=line.show) as job:
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


def source_options(arguments: argparse.Namespace, **more: str) -> SourceOptions:
    """Options of the Spark source for what was said on the command line.

    Args:
        more: options besides, as the source names them.

    Raises:
        ConfigError: neither or both of directory and nodes, or a value is wrong.
        UnreachableError: no node is there: told before Spark is begun.
    """
    given = {
        "path": ",".join(str(local_directory(Path(one))) for one in arguments.directories) or None,
        "nodes": arguments.nodes,
        "selfId": arguments.self_id,
        "subscribe": arguments.topics,
        "subscribePattern": arguments.pattern,
        "timeoutMs": str(int(arguments.timeout * 1_000)),
        **more,
    }
    options = parse_options(
        {name: value for name, value in given.items() if value is not None}, streaming=False
    )
    if arguments.nodes is not None:
        look_for_nodes(arguments.nodes, timeout_s=arguments.timeout)
    return options


def look_for_nodes(addresses: str, *, timeout_s: float) -> None:
    """Return when a node has answered.

    Raises:
        UnreachableError: none is there.
        LedgerError: none has answered in time.
    """
    with connect_broker(addresses, name="spark", timeout_s=timeout_s) as broker:
        broker.welcome()
