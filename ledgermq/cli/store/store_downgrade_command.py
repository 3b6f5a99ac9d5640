"""``ledgermq store downgrade``: a DLedger log becomes a plain CommitLog, as RocketMQ has."""

from __future__ import annotations

import argparse
from pathlib import Path

from ledgermq.cli.progress_line import ProgressLine
from ledgermq.cli.store.store_sizes import store_section
from ledgermq.cli.store.store_upgrade_command import checked, finish_conversion, say
from ledgermq.conversion.conversion_journal import ConversionKind, Phase, read_journal
from ledgermq.conversion.downgrade import Downgrade, downgrade, plan_downgrade, undo_downgrade
from ledgermq.daemon.store_lock import stopped_store
from ledgermq.model.config.settings import LogKind


def run(arguments: argparse.Namespace) -> int:
    """Make a DLedger log a plain one; go on with it, undo or finish it."""
    root: Path = arguments.directory
    if arguments.self_id is not None:
        checked("--self-id", "node.self_id", arguments.self_id)
    if arguments.dry_run:
        _report_plan(arguments)
        return 0
    with stopped_store(root):
        if arguments.undo:
            undo_downgrade(root)
        elif arguments.finish:
            finish_conversion(root, ConversionKind.DOWNGRADE)
        else:
            _report(arguments, _run(arguments))
            return 0
    say(arguments, {"directory": str(root), "done": "undo" if arguments.undo else "finish"})
    return 0


def _run(arguments: argparse.Namespace) -> Downgrade:
    root: Path = arguments.directory
    begun = read_journal(root)
    if begun is None or begun.phase is not Phase.SWITCHING:
        # Looks first: sizes are asked of a store that there is something to do with.
        plan_downgrade(root, self_id=arguments.self_id)
    store = store_section(arguments, root, LogKind.COMMITLOG)
    with ProgressLine("bytes") as line:
        return downgrade(
            root,
            store,
            self_id=arguments.self_id,
            progress=lambda _, count, total: line.show(count, total),
        )


def _report_plan(arguments: argparse.Namespace) -> None:
    plan = plan_downgrade(arguments.directory, self_id=arguments.self_id)
    say(
        arguments,
        {
            "directory": str(arguments.directory),
            "self_id": plan.directory.self_id,
            "begin": plan.begin,
            "end": plan.end,
            "last_index": plan.last,
            "last_term": plan.term,
            "committed_end": plan.committed_end,
            "needed_bytes": plan.needed,
            "free_bytes": plan.free,
            "downgraded": False,
        },
    )


def _report(arguments: argparse.Namespace, done: Downgrade) -> None:
    say(
        arguments,
        {
            "directory": str(done.root),
            "end": done.end,
            "messages": done.records,
            "entries_left_out": done.left_out,
            "queues_without_messages": done.kept_queues,
            "log_seconds": done.log_seconds,
            "log_megabytes_per_second": round(done.bytes / 1e6 / max(done.log_seconds, 0.001)),
            "queue_seconds": done.queue_seconds,
            "downgraded": True,
        },
    )
