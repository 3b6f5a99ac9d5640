"""``ledgermq store rebuild DIR``: a stopped store's queues, index and checkpoints from its log."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from ledgermq.cli.progress_line import ProgressLine
from ledgermq.cli.store.store_sizes import store_section
from ledgermq.daemon.store_lock import stopped_store
from ledgermq.repair.install_derived import install_derived
from ledgermq.repair.rebuild import Rebuilt, rebuild
from ledgermq.store.origin import refuse_strange
from ledgermq.store.store_directory import open_directory


def run(arguments: argparse.Namespace) -> int:
    """Build queues, index and checkpoints again."""
    root: Path = arguments.directory
    # Queues of RocketMQ 5's own are evidence, too, of what a node would lose.
    refuse_strange(root, self_id=arguments.self_id, is_start=False)
    with stopped_store(root):
        directory = open_directory(root, self_id=arguments.self_id)
        section = store_section(arguments, root, directory.log)
        with ProgressLine("MiB of the log dispatched") as line:
            rebuilt = rebuild(directory, section, told=line.show_bytes)
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


def install(arguments: argparse.Namespace) -> int:
    """Put what a job has built in the place of what the store has."""
    root: Path = arguments.directory
    folder: Path = arguments.folder or root / "ledgermq" / "derived"
    with stopped_store(root):
        directory = open_directory(root, self_id=arguments.self_id)
        staged, aside = install_derived(directory, folder)
    if arguments.json:
        print(json.dumps({**asdict(staged), "aside": [str(path) for path in aside]}))
        return 0
    print(
        f"queues and index of positions {staged.first:,} to {staged.end:,}:"
        f" {staged.units:,} queue units, {staged.keys:,} keys"
    )
    for path in aside:
        print(f"kept aside: {path}")
    return 0
