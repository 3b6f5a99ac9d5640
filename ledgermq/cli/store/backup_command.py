"""``ledgermq backup``: of a running node or a stopped one, and back into an empty folder."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from ledgermq.cli.arguments import LateCommand, add_size_options, takes
from ledgermq.cli.output import tell, time_text
from ledgermq.cli.progress_line import ProgressLine
from ledgermq.cli.store.backup_stream_command import (
    add_restore_options,
    add_stream_verb,
    add_verify_options,
    counted,
    is_repository,
    refuse_stream_options,
)
from ledgermq.conversion.backup_manifest import backups_in, read_manifest, verify_backup
from ledgermq.model.config.settings import NodeSection
from ledgermq.model.units import MIB


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``backup`` with its verbs."""
    parser = subparsers.add_parser("backup", help="back a store up, and restore it")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    create = verbs.add_parser(
        "create",
        help="make a backup",
        description="Takes what is committed now. Log files that are full are hard links, to the "
        "backup before or to the store where that is on the same disk; the others are copied.",
    )
    takes(create, "directory", "storePathRootDir", type=Path)
    takes(create, "target DIR", "folder of all backups of this store", type=str)
    takes(create, "--runtime-dir DIR", "listen.runtime_dir of the running node")
    takes(create, "--self-id SELF_ID", "whose DLedger log, where there are several")
    add_size_options(create)
    create.set_defaults(func=LateCommand("store.backups", "create_whole"))

    add_stream_verb(verbs)

    list_ = verbs.add_parser("list", help="list the backups, or streams, in a folder")
    takes(list_, "target REPOSITORY", "folder of all backups of a store, or repository")
    list_.set_defaults(func=_list)

    verify = verbs.add_parser(
        "verify",
        help="compare all files of a backup with its manifest, or prove a stream",
        description="Of a stream all pieces are read and all records compared, and then a point "
        "that chance takes is restored into a folder that is removed again.",
    )
    takes(
        verify,
        "backup BACKUP",
        "one backup, or the repository of streams: a folder, or s3://BUCKET/PREFIX, gs://…, abfss://…",
    )
    add_verify_options(verify)
    verify.set_defaults(func=_verify)

    restore = verbs.add_parser(
        "restore",
        help="restore a backup into an empty folder",
        description="Without --group the store is that of the same member, with a new disk: the "
        "others refuse it until each was told to forget the old one. With --group it begins a new "
        "group, on each member from the same backup. Of a stream any point is restored: the last "
        "one, or by --to-time or --to-index.",
    )
    takes(
        restore,
        "backup BACKUP",
        "one backup, or the repository of streams: a folder, or s3://BUCKET/PREFIX, gs://…, abfss://…",
    )
    takes(restore, "directory", "storePathRootDir: an empty folder", type=Path)
    takes(restore, "--group GROUP", "node.group of the group that is to begin")
    takes(
        restore,
        "--cluster-name CLUSTER_NAME",
        "its node.broker_cluster_name",
        default=NodeSection().broker_cluster_name,
    )
    takes(restore, "--self-id SELF_ID", "node.self_id of this member, with --group")
    add_restore_options(restore)
    restore.set_defaults(func=LateCommand("store.backups", "restore_any"))
    for verb in (create, list_, verify, restore):
        takes(verb, "--json", "print JSON")


def _list(arguments: argparse.Namespace) -> int:
    """Print the backups in a folder, or the streams of a repository."""
    if is_repository(arguments.target):
        return LateCommand("store.backups", "list_streams")(arguments)
    for folder, manifest in backups_in(Path(arguments.target)):
        if arguments.json:
            print(json.dumps({"backup": str(folder), **asdict(manifest)}))
            continue
        moment = time_text(manifest.created_ms, unit="seconds")
        size = manifest.content_size
        print(
            f"{folder.name}  {moment}  {manifest.self_id or '-'}"
            f"  positions {manifest.first:,} to {manifest.end:,}  {size / MIB:,.1f} MiB"
        )
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    """Read a backup, or a repository of streams, and compare it with what was written."""
    if is_repository(arguments.backup):
        return LateCommand("store.backups", "verify_stream")(arguments)
    refuse_stream_options(arguments)
    backup = Path(arguments.backup)
    size = read_manifest(backup).content_size
    with ProgressLine("MiB read") as line:
        manifest = verify_backup(backup, told=counted(line, size))
    text = f"{len(manifest.files)} files are what was backed up"
    return tell(arguments, {"backup": arguments.backup, **asdict(manifest)}, text)
