"""``ledgermq spark archive`` and ``archive-verify``: what they do, and what they print."""

from __future__ import annotations

import argparse
import json
import time

from ledgermq.cli.spark.job_options import job_of, source_options, split_bytes
from ledgermq.cli.spark.table_options import opened_table
from ledgermq.cli.store.store_check_command import EXIT_OF_SEVERITY
from ledgermq.client.admin.broker_admins import ArchiveAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.formats.findings import Severity
from ledgermq.model.errors import ConfigError
from ledgermq.model.units import MIB
from ledgermq.pipeline.archive.archive_folder import check_archive, store_at
from ledgermq.pipeline.archive.archive_job import Archived, archive, archive_into, check_level
from ledgermq.pipeline.source_options import SourceOptions


def archive_messages(arguments: argparse.Namespace) -> int:
    """Add what is new to the archive, or to the table."""
    if arguments.catalog_property and not arguments.iceberg:
        raise ConfigError("only of the catalog of --iceberg", option="--catalog-property")
    if arguments.subject and not arguments.columns:
        raise ConfigError("only of --columns typed", option="--subject")
    more = {"columns": arguments.columns, "subject": arguments.subject}
    options = source_options(
        arguments,
        inflateBodies=str(not arguments.stored_bodies).lower(),
        **{name: value for name, value in more.items() if value},
    )
    addresses = (arguments.commit_to or arguments.nodes or "").split(",")
    if arguments.watermark and not addresses[0]:
        raise ConfigError("nobody to tell of the watermark", option="--commit-to")
    begun = time.monotonic()
    if arguments.iceberg:
        place, found = _archive_to_table(arguments, options)
    else:
        place, found = _archive_to_store(arguments, options)
    seconds = time.monotonic() - begun
    if arguments.watermark:
        _commit(arguments.watermark, found.position, addresses, timeout_s=arguments.timeout)
    if arguments.json:
        print(json.dumps(_archived_as_json(found, place, seconds)))
        return 0
    _print_archived(found, place, seconds)
    return 0


def _archive_to_store(
    arguments: argparse.Namespace, options: SourceOptions
) -> tuple[str, Archived]:
    """A run into a directory or a bucket."""
    store = store_at(arguments.to)
    with job_of(arguments, "archive") as job:
        found = archive(
            job,
            options,
            store,
            split_bytes=split_bytes(arguments),
            level=arguments.level,
        )
    return store.as_text(), found


def _archive_to_table(
    arguments: argparse.Namespace, options: SourceOptions
) -> tuple[str, Archived]:
    """A run into a table."""
    check_level(arguments.level)
    table = opened_table(arguments.iceberg, arguments, may_make=True)
    with job_of(arguments, "archive") as job:
        found = archive_into(
            job,
            options,
            table,
            split_bytes=split_bytes(arguments),
            level=arguments.level,
        )
    return table.as_text(), found


def _commit(name: str, position: int | None, addresses: list[str], *, timeout_s: float) -> None:
    """Tell the cluster up to where the archive has the log."""
    if position is None:
        raise ConfigError(
            "source does not tell up to where its queues have the log", option="--watermark"
        )
    with connect_broker(addresses, name="spark", timeout_s=timeout_s) as broker:
        ArchiveAdmin(broker).commit(name, position)


def _print_archived(found: Archived, place: str, seconds: float) -> None:
    if found.run is None:
        print(f"nothing new: {place} has {found.runs:,} runs")
        return
    size = sum(file.bytes for file in found.run.files)
    print(
        f"{found.rows:,} messages of {len(found.run.marks):,} queues in"
        f" {len(found.run.files):,} files, {size / MIB:,.1f} MiB; run {found.run.number:,},"
        f" {found.tasks:,} tasks, {seconds:.1f} s"
    )
    for gap in found.run.gaps:
        print(
            f"missing: {gap.end - gap.first:,} messages of queue {gap.queue_id} of {gap.topic},"
            f" from {gap.first:,} on: deleted before they were archived"
        )
    for topic, queue_id in found.made_anew:
        print(f"made anew: queue {queue_id} of {topic} has been numbered from its beginning again")
    if found.damaged:
        print(f"damaged: {found.damaged:,} bodies are not what was sent (crcOk is false)")
    if found.unparsed:
        print(f"unparsed: {found.unparsed:,} bodies are no fields (unparsedWhy says why)")
    if found.position is not None:
        print(f"archived up to position {found.position:,} of the log")


def _archived_as_json(found: Archived, place: str, seconds: float) -> dict[str, object]:
    run = found.run
    return {
        "to": place,
        "runs": found.runs,
        "run": None if run is None else run.number,
        "messages": found.rows,
        "missing": found.missing,
        "damaged": found.damaged,
        "unparsed": found.unparsed,
        "made_anew": [list(queue) for queue in found.made_anew],
        "gaps": [] if run is None else [gap._asdict() for gap in run.gaps],
        "files": [] if run is None else [file.path for file in run.files],
        "bytes": 0 if run is None else sum(file.bytes for file in run.files),
        "position": found.position,
        "tasks": found.tasks,
        "seconds": round(seconds, 3),
    }


def verify_archive(arguments: argparse.Namespace) -> int:
    """Compare the files of an archive with its manifest."""
    store = store_at(arguments.directory)
    begun = time.monotonic()
    with job_of(arguments, "verify") as job:
        checked = check_archive(job, store, split_bytes=split_bytes(arguments))
    seconds = time.monotonic() - begun
    status = EXIT_OF_SEVERITY[Severity.DAMAGE if checked.faults else Severity.NOTE]
    if arguments.json:
        document = {**checked._asdict(), "faults": [fault._asdict() for fault in checked.faults]}
        print(json.dumps({"exit_status": status, "seconds": round(seconds, 3), **document}))
        return status
    for fault in checked.faults:
        print(fault.as_text())
    print(
        f"{checked.files:,} files, {checked.rows:,} messages, {checked.bytes / MIB:,.1f} MiB of"
        f" {checked.runs:,} runs: {len(checked.faults)} faults; {checked.missing:,} messages were"
        f" deleted before they were archived; {seconds:.1f} s"
    )
    return status
