"""``ledgermq store upgrade``: a plain CommitLog becomes the old part of a DLedger log, in place."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

from ledgermq.cli.progress_line import ProgressLine
from ledgermq.cli.store.store_sizes import store_section
from ledgermq.conversion import conversion_journal, log_manifest
from ledgermq.conversion.conversion_journal import ConversionKind, Phase
from ledgermq.conversion.log_manifest import LogManifest
from ledgermq.conversion.upgrade import Upgrade, check_upgradable, planned, undo_upgrade, upgrade
from ledgermq.daemon.store_lock import stopped_store
from ledgermq.model.config.settings import LogKind
from ledgermq.model.config.settings_rules import RULES
from ledgermq.model.errors import ConfigError
from ledgermq.model.ids import NodeId
from ledgermq.store.origin import OTHER_QUEUES, origin_of, refuse_strange


def run(arguments: argparse.Namespace) -> int:
    """Make a plain log the old part of a DLedger log; go on with it, undo or finish it."""
    root: Path = arguments.directory
    if arguments.undo or arguments.finish:
        with stopped_store(root):
            if arguments.undo:
                undo_upgrade(root)
            else:
                finish_conversion(root, ConversionKind.UPGRADE)
        say(arguments, {"directory": str(root), "done": "undo" if arguments.undo else "finish"})
        return 0
    group = checked("--group", "node.group", arguments.group)
    self_id = NodeId(checked("--self-id", "node.self_id", arguments.self_id))
    looks_only = bool(arguments.dry_run or arguments.manifest) and not arguments.compare
    if arguments.dry_run or arguments.manifest or arguments.compare:
        manifest = _verified(arguments, group=group, self_id=self_id)
        if arguments.dry_run or looks_only:
            plan = planned(root, manifest.end, group=group, self_id=self_id)
            _report(arguments, plan, manifest, done=False)
            return 0
    refuse_strange(root, uses=OTHER_QUEUES, is_start=False)
    for use in origin_of(root).refused:
        print(f"{root}: of RocketMQ 5, and the node will refuse it: {use.text}", file=sys.stderr)
    with stopped_store(root):
        store = store_section(arguments, root, LogKind.COMMITLOG)
        with ProgressLine("bytes") as line:
            done = upgrade(
                root,
                store,
                group=group,
                self_id=self_id,
                progress=lambda _, count, total: line.show(count, total),
            )
    _report(arguments, done, None, done=True)
    return 0


def finish_conversion(root: Path, kind: ConversionKind) -> None:
    """Delete what an undo of the store's conversion would need; nothing when that is gone already.

    It may have been deleted by this very command, of which a power failure has swallowed the end.

    Raises:
        ConfigError: there is no such conversion that is done.
    """
    if conversion_journal.is_finished(root, kind):
        return
    found = conversion_journal.read_journal(root)
    if (
        found is None
        or found.kind is not kind
        or found.phase not in (Phase.SWITCHED, Phase.FINISHING)
    ):
        raise ConfigError(f"there is no {kind} to finish", directory=str(root))
    conversion_journal.finish(root, found)


def checked(option: str, setting: str, value: str | None) -> str:
    """``value``, which the rule of ``setting`` takes.

    Raises:
        ConfigError: it is missing, or the rule does not take it.
    """
    rule = RULES[setting]
    if value is None:
        raise ConfigError(f"{option} is missing: {rule.allowed}", setting=setting)
    if not rule.takes(value):
        raise ConfigError(f"{option} must be {rule.allowed}", value=value, setting=setting)
    return value


def say(arguments: argparse.Namespace, facts: dict[str, object]) -> None:
    """Print what was done: a JSON object, or a line for each fact."""
    if arguments.json:
        print(json.dumps(facts, default=str))
        return
    for name, value in facts.items():
        print(f"{name.replace('_', ' ')}: {_worded(value)}")


def _worded(value: object) -> str:
    """A fact as people say it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return "; ".join(map(_worded, value))
    return str(value)


def _verified(arguments: argparse.Namespace, *, group: str, self_id: NodeId) -> LogManifest:
    """The manifest of the old log, written and compared as asked for."""
    root: Path = arguments.directory
    if conversion_journal.read_journal(root) is None:
        check_upgradable(root)
    # What was carried here is read first: to find it broken after an hour would be a pity.
    others = [log_manifest.read_manifest(path) for path in arguments.compare or ()]
    with ProgressLine("bytes verified") as line:
        manifest = log_manifest.make_manifest(
            root / "commitlog", group=group, self_id=self_id, progress=line.show
        )
    if arguments.manifest is not None:
        log_manifest.write_manifest(arguments.manifest, manifest)
    log_manifest.compare([replace(manifest, tail=0), *others])
    return manifest


def _report(
    arguments: argparse.Namespace, plan: Upgrade, manifest: LogManifest | None, *, done: bool
) -> None:
    facts: dict[str, object] = asdict(plan)
    facts["directory"] = facts.pop("root")
    facts["upgraded"] = done
    if manifest is not None:
        facts["bytes_behind_the_last_record"] = manifest.tail
    if arguments.manifest is not None:
        facts["manifest"] = arguments.manifest
    if arguments.compare:
        facts["same_as"] = [str(path) for path in arguments.compare]
    say(arguments, facts)
