"""``ledgermq store install-derived DIR``: installation of what ``ledgermq spark rebuild`` built."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from ledgermq.daemon.store_lock import stopped_store
from ledgermq.repair.install_derived import install_derived
from ledgermq.store.store_directory import open_directory


def run(arguments: argparse.Namespace) -> int:
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
