"""``ledgermq store downgrade``: a DLedger log becomes a plain CommitLog, as RocketMQ has."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ledgermq.cli.progress_line import ProgressLine
from ledgermq.cli.store.store_sizes import add_size_options, store_section
from ledgermq.cli.store.store_upgrade_command import checked, finish_conversion, say
from ledgermq.conversion.conversion_journal import ConversionKind, Phase, read_journal
from ledgermq.daemon.store_lock import stopped_store
from ledgermq.model.config.settings import LogKind

if TYPE_CHECKING:
    from ledgermq.conversion.downgrade import Downgrade

DESCRIPTION = """\
Write the messages of a member's log as a plain CommitLog, with queues and index, and put it in the
place of the DLedger log, which is kept until --finish. Messages keep their queue offsets. Take the
member whose last entry has the highest term and index (--dry-run tells): it has all that was
acknowledged. A crash in the middle is gone on with by the same command, or undone.
"""


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb ``downgrade``."""
    parser = verbs.add_parser(
        "downgrade", help="make a plain store of a group's member", description=DESCRIPTION
    )
    parser.add_argument("directory", type=Path, help="storePathRootDir")
    parser.add_argument("--self-id", help="whose DLedger log, where there are several")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")
    parser.add_argument("--undo", action="store_true", help="give the DLedger store back")
    parser.add_argument(
        "--finish", action="store_true", help="delete the DLedger log: there is no way back"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_size_options(parser)
    parser.set_defaults(func=_downgrade)


def _downgrade(arguments: argparse.Namespace) -> int:
    from ledgermq.conversion.downgrade import undo_downgrade

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
    from ledgermq.conversion.downgrade import downgrade, plan_downgrade

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
    from ledgermq.conversion.downgrade import plan_downgrade

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
