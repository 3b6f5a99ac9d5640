"""``ledgermq store check DIR``: check of a store directory, with remedies.

| exit status | meaning |
|---|---|
| 0 | nothing is wrong; there may be notes |
| 4 | files that are made from the log differ from it: ``ledgermq store rebuild``, or a start |
| 5 | the log, or what nothing else tells, is damaged |
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from ledgermq.cli.progress_line import ProgressLine
from ledgermq.cli.store.store_sizes import index_layout
from ledgermq.daemon.directory_check import check_own_files
from ledgermq.formats.findings import Finding, Severity, worst
from ledgermq.model.config.settings import StoreSection
from ledgermq.model.units import MIB
from ledgermq.repair.check.check_store import CheckedStore, CheckOptions, check_store
from ledgermq.store.origin import origin_of
from ledgermq.store.store_directory import dledger_folder, names_in

EXIT_OF_SEVERITY = {Severity.NOTE: 0, Severity.DERIVED: 4, Severity.DAMAGE: 5}


def run(arguments: argparse.Namespace) -> int:
    """Check a store directory, and print what was found."""
    root: Path = arguments.directory
    has_layout = arguments.hash_slots is not None or arguments.index_items is not None
    options = CheckOptions(
        self_id=arguments.self_id,
        log_file_size=arguments.log_file_size,
        queue_file_size=arguments.queue_file_size,
        index_layout=index_layout(arguments, root / "index") if has_layout else None,
        message_delay_level=arguments.delay_levels or StoreSection().message_delay_level,
        jobs=max(1, arguments.jobs),
    )
    begun = time.monotonic()
    with ProgressLine("MiB of the log read") as line:
        checked = check_store(root, options, told=line.show_bytes)
    checked.findings += check_own_files(
        root, dledger_folder(root, names_in(root), arguments.self_id)
    )
    checked.findings += _of_rocketmq_5(root, arguments.self_id)
    seconds = time.monotonic() - begun
    status = EXIT_OF_SEVERITY[worst(checked.findings)]
    if arguments.json:
        print(json.dumps(_as_json(checked, seconds, status), default=str))
        return status
    for finding in checked.findings:
        print(finding.as_text())
    print(_summary(checked, seconds))
    return status


def _of_rocketmq_5(root: Path, self_id: str | None) -> list[Finding]:
    """What a node would lose of the store: nothing is wrong with it, and it would not be taken."""
    return [
        Finding(Severity.NOTE, ".", None, f"of RocketMQ 5, refused: {use.what}", remedy=use.remedy)
        for use in origin_of(root, self_id=self_id).refused
    ]


def _as_json(checked: CheckedStore, seconds: float, status: int) -> dict[str, object]:
    counts = {name: getattr(checked, name) for name in checked.__slots__ if name != "findings"}
    return {
        "exit_status": status,
        "seconds": round(seconds, 3),
        **counts,
        "findings": [finding.as_json() for finding in checked.findings],
    }


def _summary(checked: CheckedStore, seconds: float) -> str:
    rate = checked.log_bytes / MIB / seconds if seconds else 0.0
    severities = [finding.severity for finding in checked.findings]
    found = ", ".join(
        f"{severities.count(severity)} {severity.value}"
        for severity in (Severity.DAMAGE, Severity.DERIVED, Severity.NOTE)
    )
    return (
        f"log: {checked.records:,} records in {checked.log_files} files, {checked.unprotected:,}"
        f" of RocketMQ without CRCs of the entry; positions {checked.first:,} to {checked.end:,}\n"
        f"queues: {checked.units:,} units in {checked.queues} queues, {checked.stale_units:,} of"
        " deleted messages\n"
        f"index: {checked.keys:,} keys in {checked.index_files} files\n"
        f"found: {found}; {checked.log_bytes / MIB:,.0f} MiB in {seconds:.1f} s"
        f" ({rate:,.0f} MiB/s)"
    )
