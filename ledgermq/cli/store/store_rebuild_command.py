"""``ledgermq store rebuild DIR``: a stopped store's queues, index and checkpoints from its log."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ledgermq.cli.progress_line import ProgressLine
from ledgermq.cli.store.store_sizes import add_size_options, store_section
from ledgermq.daemon.store_lock import stopped_store
from ledgermq.model.units import MIB
from ledgermq.store.store_directory import open_directory

if TYPE_CHECKING:
    from ledgermq.repair.rebuild import Rebuilt

DESCRIPTION = """\
Build consumequeue/, index/ and the checkpoints again from the log of a store that nobody has open,
as the dispatcher builds them, byte for byte. What was there is kept in ledgermq/set-aside/. The log
itself is not changed. Killed in the middle, it is run again; a node that is started instead builds
the same.
"""


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb ``rebuild``."""
    parser = verbs.add_parser(
        "rebuild", help="build queues and index again from the log", description=DESCRIPTION
    )
    parser.add_argument("directory", type=Path, help="storePathRootDir")
    parser.add_argument("--self-id", help="whose DLedger log, where there are several")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_size_options(parser)
    parser.set_defaults(func=_rebuild)


def _rebuild(arguments: argparse.Namespace) -> int:
    from ledgermq.repair.rebuild import rebuild

    root: Path = arguments.directory
    with stopped_store(root):
        directory = open_directory(root, self_id=arguments.self_id)
        section = store_section(arguments, root, directory.log)
        with ProgressLine("MiB of the log dispatched") as line:
            rebuilt = rebuild(
                directory,
                section,
                told=lambda done, all_: line.show(done // MIB, all_ // MIB),
            )
    if arguments.json:
        print(json.dumps(_as_json(rebuilt)))
    else:
        print(
            f"{rebuilt.messages:,} messages of positions {rebuilt.first:,} to {rebuilt.end:,}:"
            f" {rebuilt.units:,} queue units, {rebuilt.keys:,} keys"
        )
        if rebuilt.skipped:
            print(f"{rebuilt.skipped:,} messages cannot be parsed and were passed over")
        for path in rebuilt.aside:
            print(f"kept aside: {path}")
    return 0


def _as_json(rebuilt: Rebuilt) -> dict[str, object]:
    return {**rebuilt._asdict(), "aside": [str(path) for path in rebuilt.aside]}
