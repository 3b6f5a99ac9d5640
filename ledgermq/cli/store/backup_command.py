"""``ledgermq backup``: of a running node or a stopped one, and back into an empty folder."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from ledgermq.buckets.bucket_address import is_address, without_keys
from ledgermq.cli.output import tell, time_text
from ledgermq.cli.progress_line import ProgressLine
from ledgermq.cli.store.backup_stream_command import (
    add_restore_options,
    add_stream_verb,
    add_verify_options,
    counted,
    is_repository,
    list_streams,
    refuse_stream_options,
    restore_stream,
    verify_stream,
)
from ledgermq.cli.store.store_sizes import add_size_options, store_section
from ledgermq.conversion.backup_create import Backup, create_backup
from ledgermq.conversion.backup_manifest import (
    BackupManifest,
    backups_in,
    read_manifest,
    verify_backup,
)
from ledgermq.conversion.last_backup import LastBackup, write_last_backup
from ledgermq.daemon.store_lock import acting_as_owner, stopped_store
from ledgermq.model.config.settings import NodeSection
from ledgermq.model.errors import ConfigError, StorageError, StoreLockedError
from ledgermq.model.ids import NodeId
from ledgermq.model.units import MIB
from ledgermq.store.files.disk_sync import make_directories
from ledgermq.store.store_directory import open_directory


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
    create.add_argument("directory", type=Path, help="storePathRootDir")
    create.add_argument("target", metavar="DIR", help="folder of all backups of this store")
    create.add_argument(
        "--runtime-dir", type=Path, metavar="DIR", help="listen.runtime_dir of the running node"
    )
    create.add_argument("--self-id", help="whose DLedger log, where there are several")
    add_size_options(create)
    create.set_defaults(func=_create)

    add_stream_verb(verbs)

    list_ = verbs.add_parser("list", help="list the backups, or streams, in a folder")
    list_.add_argument(
        "target", metavar="REPOSITORY", help="folder of all backups of a store, or repository"
    )
    list_.set_defaults(func=_list)

    verify = verbs.add_parser(
        "verify",
        help="compare all files of a backup with its manifest, or prove a stream",
        description="Of a stream all pieces are read and all records compared, and then a point "
        "that chance takes is restored into a folder that is removed again.",
    )
    verify.add_argument(
        "backup", metavar="BACKUP",
        help="one backup, or the repository of streams: a folder, or s3://BUCKET/PREFIX, gs://…, abfss://…",
    )  # fmt: skip
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
    restore.add_argument(
        "backup", metavar="BACKUP",
        help="one backup, or the repository of streams: a folder, or s3://BUCKET/PREFIX, gs://…, abfss://…",
    )  # fmt: skip
    restore.add_argument("directory", type=Path, help="storePathRootDir: an empty folder")
    restore.add_argument("--group", help="node.group of the group that is to begin")
    restore.add_argument(
        "--cluster-name",
        default=NodeSection().broker_cluster_name,
        help="its node.broker_cluster_name",
    )
    restore.add_argument("--self-id", help="node.self_id of this member, with --group")
    add_restore_options(restore)
    restore.set_defaults(func=_restore)
    for verb in (create, list_, verify, restore):
        verb.add_argument("--json", action="store_true", help="print JSON")


def _create(arguments: argparse.Namespace) -> int:
    from ledgermq.daemon.backup_source import describe_running, describe_stopped

    root: Path = arguments.directory
    runtime: Path | None = arguments.runtime_dir
    if is_address(arguments.target):
        raise ConfigError(
            "a whole backup is made in a folder; into a bucket goes a stream: backup stream --to",
            target=without_keys(arguments.target),
        )
    target = Path(arguments.target)

    def made(describe_now: Callable[[], BackupManifest], line: ProgressLine) -> Backup:
        directory = open_directory(root, self_id=arguments.self_id)
        return create_backup(directory, target, describe=describe_now, told=counted(line))

    def describe() -> BackupManifest:
        directory = open_directory(root, self_id=arguments.self_id)
        if runtime is not None:
            return describe_running(directory, runtime)
        return describe_stopped(directory, store_section(arguments, root, directory.log))

    with ProgressLine("MiB read") as line:
        if runtime is not None:
            backup = made(describe, line)
        else:
            try:
                # The folder of backups is whose it is who asks.
                with stopped_store(root, as_owner=False):
                    backup = made(describe, line)
            except StoreLockedError as error:
                raise StoreLockedError(
                    f"{error.message}: say --runtime-dir to back up a running node",
                    **error.details,
                ) from error
    _note(root, backup)
    text = (
        f"{backup.folder}: positions {backup.manifest.first:,} to {backup.manifest.end:,},"
        f" {backup.linked / MIB:,.1f} MiB linked, {backup.copied / MIB:,.1f} MiB copied"
    )
    return tell(arguments, {"backup": str(backup.folder), **_as_json(backup.manifest)}, text)


def _note(root: Path, backup: Backup) -> None:
    """Have the store know when it was backed up; without that the backup is whole all the same."""
    manifest = backup.manifest
    try:
        with acting_as_owner(root):
            write_last_backup(root, LastBackup(manifest.created_ms, manifest.end))
    except StorageError as error:
        print(f"ledgermq: the backup is made, and its time not noted: {error}", file=sys.stderr)


def _list(arguments: argparse.Namespace) -> int:
    if is_repository(arguments.target):
        return list_streams(arguments)
    for folder, manifest in backups_in(Path(arguments.target)):
        if arguments.json:
            print(json.dumps({"backup": str(folder), **_as_json(manifest)}))
            continue
        moment = time_text(manifest.created_ms, unit="seconds")
        size = sum(file.used for file in manifest.files.values())
        print(
            f"{folder.name}  {moment}  {manifest.self_id or '-'}"
            f"  positions {manifest.first:,} to {manifest.end:,}  {size / MIB:,.1f} MiB"
        )
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    if is_repository(arguments.backup):
        return verify_stream(arguments)
    refuse_stream_options(arguments)
    with ProgressLine("MiB read") as line:
        manifest = verify_backup(Path(arguments.backup), told=counted(line))
    text = f"{len(manifest.files)} files are what was backed up"
    return tell(arguments, {"backup": arguments.backup, **_as_json(manifest)}, text)


def _restore(arguments: argparse.Namespace) -> int:
    from ledgermq.conversion.backup_restore import restore_backup
    from ledgermq.daemon.backup_source import prepare_group, prepare_member
    from ledgermq.members.peer_identity import cluster_id

    if is_repository(arguments.backup):
        return restore_stream(arguments)
    refuse_stream_options(arguments)
    root: Path = arguments.directory
    backup = Path(arguments.backup)
    found = read_manifest(backup)
    self_id: str | None = arguments.self_id
    prepare: Callable[[Path, BackupManifest], None] = prepare_member
    cluster: str | None = None
    if arguments.group is not None:
        node = NodeSection(
            broker_cluster_name=arguments.cluster_name,
            group=arguments.group,
            self_id=NodeId(self_id or found.self_id or NodeSection().self_id),
        )
        prepare, cluster = prepare_group(node), cluster_id(node).hex()
    elif self_id not in (None, found.self_id):
        raise ConfigError(
            "another member's store cannot become this one's: say --group for a new group",
            self_id=self_id,
            found=found.self_id,
        )
    make_directories(root, mode=0o700)
    # The backup may be one that the store's owner cannot read.
    with stopped_store(root, as_owner=False), ProgressLine("MiB copied") as line:
        manifest, messages = restore_backup(
            backup, root,
            self_id=self_id, cluster=cluster, prepare=prepare, told=counted(line),
        )  # fmt: skip
    if arguments.json:
        print(json.dumps({"directory": str(root), **_as_json(manifest)}))
        return 0
    print(f"{root}: positions {manifest.first:,} to {manifest.end:,}, {messages:,} messages")
    if manifest.cluster is not None and arguments.group is None:
        print(
            f"before it is started: on every other member, `ledgermq raft forget"
            f" {manifest.self_id}`; they refuse its new disk until then"
        )
    return 0


def _as_json(manifest: BackupManifest) -> dict[str, object]:
    return asdict(manifest)
