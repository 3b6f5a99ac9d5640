"""``ledgermq store accept-loss DIR``: go on without what a damaged log lost.

Exit status: 0 nothing is lost, or the loss was accepted; 1 something is lost, and ``--yes`` was not
said; otherwise as for all commands.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ledgermq.daemon.store_lock import stopped_store
from ledgermq.model.config.settings import LogKind
from ledgermq.repair.log_repair import Loss, accept_loss, find_loss
from ledgermq.store.store_directory import open_directory


def run(arguments: argparse.Namespace) -> int:
    """Say what a damaged log has lost; cut it there where that is accepted."""
    root: Path = arguments.directory
    with stopped_store(root):
        directory = open_directory(root, self_id=arguments.self_id)
        loss = accept_loss(directory) if arguments.yes else find_loss(directory)
    if arguments.json:
        print(json.dumps({"accepted": arguments.yes, "lost": _as_json(loss)}))
    elif loss is None:
        print("the log lacks nothing that it had")
    else:
        print(loss.damage.describe())
        unit = "entries" if directory.log is LogKind.DLEDGER else "bytes"
        if loss.entries is not None:
            print(f"the log ends at position {loss.end:,}: {loss.entries:,} {unit} are lost")
        if not arguments.yes:
            print("say --yes to go on without that, and without all that stands behind the damage")
    return 0 if loss is None or arguments.yes else 1


def _as_json(loss: Loss | None) -> dict[str, object] | None:
    if loss is None:
        return None
    damage = loss.damage
    return {
        "position": damage.position,
        "file": damage.file,
        "field": damage.field,
        "once_durable": {
            "position": damage.last_position,
            "index": damage.last_index,
            "term": damage.last_term,
        },
        "end": loss.end,
        "last_index": loss.last,
    }
