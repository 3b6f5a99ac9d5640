"""``ledgermq spark rebuild`` and ``audit``: what they do, and what they print."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, replace
from pathlib import Path

from ledgermq.cli.messages.receipt_command import kept_checkpoint, keys_of
from ledgermq.cli.output import time_text
from ledgermq.cli.spark.job_options import job_of, local_directory, split_bytes
from ledgermq.cli.store.store_check_command import EXIT_OF_SEVERITY
from ledgermq.cli.store.store_sizes import index_layout, store_section
from ledgermq.formats.findings import Severity
from ledgermq.model.errors import ConfigError
from ledgermq.model.units import MIB
from ledgermq.pipeline.jobs.audit_job import audit
from ledgermq.pipeline.jobs.job_reports import audit_as_json, write_report
from ledgermq.pipeline.jobs.rebuild_job import RebuiltByJob, rebuild
from ledgermq.pipeline.jobs.receipt_faults import AuditedReceipts
from ledgermq.pipeline.receipt_audit import SignedCopy, audit_receipts
from ledgermq.repair.check.check_store import CheckOptions
from ledgermq.store.store_directory import open_directory


def rebuild_store(arguments: argparse.Namespace) -> int:
    """Build queues and index in a folder beside those of the store."""
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


def audit_replicas(arguments: argparse.Namespace) -> int:
    """Check the replicas of a group, and compare their logs."""
    roots = [local_directory(path) for path in arguments.directories]
    has_layout = arguments.hash_slots is not None or arguments.index_items is not None
    options = CheckOptions(
        log_file_size=arguments.log_file_size,
        queue_file_size=arguments.queue_file_size,
        index_layout=index_layout(arguments, roots[0] / "index") if has_layout and roots else None,
        message_delay_level=arguments.delay_levels,
    )
    places = [*roots, *arguments.pieces, *arguments.archive]
    keys = keys_of(arguments)
    since = kept_checkpoint(arguments, keys)
    if not places:
        raise ConfigError("say what to audit: DIRECTORY, --pieces or --archive")
    if not keys and len(places) > len(roots):
        raise ConfigError(
            "--pieces and --archive need --key: they are compared with what it signed"
        )
    begun = time.monotonic()
    with job_of(arguments, "audit") as job:
        audited = audit(job, roots, options, split_bytes=split_bytes(arguments))
        if keys:
            stores = [
                SignedCopy(one.name, str(one.root), is_store=True, self_id=options.self_id)
                for one in audited.replicas
            ]
            pieces = [SignedCopy(place, place, is_store=False) for place in arguments.pieces]
            receipts = audit_receipts(
                job,
                [*stores, *pieces],
                arguments.archive,
                keys,
                since=since,
                split_bytes=split_bytes(arguments),
            )
            audited = replace(audited, receipts=receipts)
    seconds = time.monotonic() - begun
    written = write_report(audited, arguments.out) if arguments.out else []
    kinds = {fault.kind for fault in audited.faults}
    status = EXIT_OF_SEVERITY[Severity.NOTE]
    if kinds:
        only_derived = kinds == {Severity.DERIVED.value}
        status = EXIT_OF_SEVERITY[Severity.DERIVED if only_derived else Severity.DAMAGE]
    if audited.receipts is not None and audited.receipts.faults:
        status = EXIT_OF_SEVERITY[Severity.DAMAGE]
    if arguments.json:
        document = audit_as_json(audited)
        print(json.dumps({"exit_status": status, "seconds": round(seconds, 3), **document}))
        return status
    for fault in audited.faults:
        print(fault.as_text())
    if roots:
        size = sum(replica.checked.log_bytes for replica in audited.replicas)
        print(
            f"{len(roots)} replicas, positions {audited.first:,} to {audited.end:,}:"
            f" {len(audited.faults)} faults; {size / MIB:,.0f} MiB in {seconds:.1f} s"
        )
    if audited.receipts is not None:
        _print_receipts(audited.receipts)
    for path in written:
        print(f"written: {path}")
    return status


def _print_receipts(found: AuditedReceipts) -> None:
    for fault in found.faults:
        print(fault.as_text())
    for copy in found.copies:
        lacking = f"; {copy.lacking:,} stretches are not all there" if copy.lacking else ""
        print(f"{copy.name}: {copy.messages:,} messages are those that were signed{lacking}")
    print(
        f"{found.checkpoints:,} checkpoints, up to {time_text(found.at_ms)}:"
        f" {len(found.faults) + found.untold:,} faults"
    )


def _rebuilt_as_json(rebuilt: RebuiltByJob, staging: Path, seconds: float) -> dict[str, object]:
    counts = rebuilt._asdict()
    del counts["staged"]
    return {**asdict(rebuilt.staged), **counts, "out": str(staging), "seconds": round(seconds, 3)}
