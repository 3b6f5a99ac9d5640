"""``ledgermq store install-derived DIR``: installation of what ``ledgermq spark rebuild`` built."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from ledgermq.daemon.store_lock import stopped_store
from ledgermq.store.store_directory import open_directory

DESCRIPTION = """\
Put consumequeue/, index/ and the checkpoints that ledgermq spark rebuild has built in place of
those of a store that nobody has open. They must be of this log; what came to the log since is
dispatched by the next start. What was there is kept in ledgermq/set-aside/. Killed in the middle,
a node that is started builds everything from the log.
"""


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb ``install-derived``."""
    parser = verbs.add_parser(
        "install-derived",
        help="take over queues and index that ledgermq spark rebuild has built",
        description=DESCRIPTION,
    )
    parser.add_argument("directory", type=Path, help="storePathRootDir")
    parser.add_argument("--self-id", help="whose DLedger log, where there are several")
    parser.add_argument(
        "--from",
        dest="folder",
        type=Path,
        metavar="DIR",
        help="where they were built (DIRECTORY/ledgermq/derived)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(func=_install)


def _install(arguments: argparse.Namespace) -> int:
    from ledgermq.repair.install_derived import install_derived

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
