"""``ledgermq backup``: what its verbs do, and what they print."""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import cast

from ledgermq.buckets.bucket_address import is_address, without_keys
from ledgermq.cli.output import tell
from ledgermq.cli.progress_line import ProgressLine
from ledgermq.cli.store.backup_stream_command import (
    INTERVAL_MAX_S,
    counted,
    is_repository,
    refuse_stream_options,
)
from ledgermq.cli.store.store_sizes import store_section
from ledgermq.conversion.backup_create import Backup, create_backup
from ledgermq.conversion.backup_manifest import (
    BackupManifest,
    read_manifest,
)
from ledgermq.conversion.backup_restore import restore_backup
from ledgermq.conversion.last_backup import LastBackup, write_last_backup
from ledgermq.conversion.stream.piece_folder import PIECES_MANIFEST, PiecePlace
from ledgermq.conversion.stream.repository import Repository, StreamAbout
from ledgermq.conversion.stream.sealed_piece import PIECE_KEY_SIZE
from ledgermq.conversion.stream.stream_places import places_at
from ledgermq.conversion.stream.stream_restore import (
    Wanted,
    drawn_point,
    find_point,
    prove_point,
    restore_point,
    verify_pieces,
)
from ledgermq.daemon.backup_source import (
    describe_running,
    describe_stopped,
    prepare_group,
    prepare_member,
)
from ledgermq.daemon.backup_streaming import BackupStreaming, StreamOrder
from ledgermq.daemon.store_lock import acting_as_owner, stopped_store
from ledgermq.members.peer_identity import cluster_id
from ledgermq.model.config.settings import NodeSection
from ledgermq.model.errors import ConfigError, StorageError, StoreLockedError
from ledgermq.model.ids import NodeId
from ledgermq.model.instants import parse_time
from ledgermq.model.units import MIB
from ledgermq.store.files.disk_sync import make_directories
from ledgermq.store.store_directory import open_directory

KEEP_DAYS_MAX = 36_500
DAY_MS = 86_400_000
_OF_PLAIN_LOG = "plain"


def stream_store(arguments: argparse.Namespace) -> int:
    """Put what a node commits into a repository, until it is stopped, or once."""
    root = arguments.directory
    if (arguments.target is None) == (arguments.to is None):
        raise ConfigError("say where the repository is, once: REPOSITORY, or --to REPOSITORY")
    given: str = arguments.target or arguments.to
    if not 0 < arguments.interval <= INTERVAL_MAX_S:
        raise ConfigError(
            "--interval is none", given=arguments.interval, allowed=f"0 < s <= {INTERVAL_MAX_S}"
        )
    days: int | None = arguments.keep_days
    if days is not None and not 1 <= days <= KEEP_DAYS_MAX:
        raise ConfigError("--keep-days is none", given=days, allowed=f"1 to {KEEP_DAYS_MAX}")
    if not is_address(given) and Path(given).resolve().is_relative_to(root.resolve()):
        raise ConfigError("a backup may not lie in the store itself", target=given)
    places = places_at(given)
    key = _key(arguments)

    def repository() -> Repository:
        self_id = open_directory(root, self_id=arguments.self_id).self_id
        return Repository(places.writable(self_id or _OF_PLAIN_LOG), key)

    order = StreamOrder(
        root=root,
        runtime=arguments.runtime_dir,
        self_id=arguments.self_id,
        keep_ms=None if days is None else days * DAY_MS,
    )
    if not arguments.once:
        logging.basicConfig(level=logging.INFO, format="%(message)s")
        BackupStreaming(order, repository).run(arguments.interval)
    with ProgressLine("MiB put") as line:
        done = BackupStreaming(order, repository, told=line.show_bytes).turn()
    text = f"{places.as_text()}: up to position {done.end:,}, {done.size / MIB:,.1f} MiB put"
    return tell(arguments, done._asdict(), text)


def list_streams(arguments: argparse.Namespace) -> int:
    """Tell how far each stream goes, by the names of its pieces: no key is asked for."""
    for name, place in sorted(places_at(arguments.target).streams().items()):
        repository = _opened(place, None)
        for run in repository.runs():
            told = {"stream": name, "first": run.start, "end": run.end, "pieces": len(run.pieces)}
            text = f"{name}  positions {run.start:,} to {run.end:,}  {len(run.pieces)} pieces"
            tell(arguments, told, text)
    return 0


def verify_stream(arguments: argparse.Namespace) -> int:
    """Read a repository as a whole, and restore a point of each stream in it."""
    repository, about = _repository(arguments)
    seed = random.SystemRandom().getrandbits(32) if arguments.seed is None else arguments.seed
    # It is nothing secret: which point it is can be told again.
    chance = random.Random(seed)  # noqa: S311
    scratch = tempfile.mkdtemp(prefix="ledgermq-verify-", dir=arguments.scratch)
    try:
        with ProgressLine("MiB read") as line:
            size = sum(piece.end - piece.start for piece in repository.log)
            found = verify_pieces(repository, told=counted(line, size))
            point = drawn_point(repository, chance)
            messages = prove_point(
                repository,
                about,
                point,
                Path(scratch),
                prepare=prepare_member,
                told=counted(line, point.size),
            )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    gaps = "".join(f"; nothing from {begin:,} to {end:,}" for begin, end in found.gaps)
    text = (
        f"{found.pieces} pieces with {found.records:,} records and {found.tables} tables are what"
        f" was written{gaps}\nindex {point.index:,} was restored, with {messages:,} messages"
        f" (--seed {seed})"
    )
    told = {**found._asdict(), "restored_index": point.index, "messages": messages, "seed": seed}
    return tell(arguments, told, text)


def restore_stream(arguments: argparse.Namespace) -> int:
    """Restore a point of a stream."""
    time_text: str | None = arguments.to_time
    wanted = Wanted(
        index=arguments.to_index,
        time_ms=None if time_text is None else parse_time(time_text, "--to-time"),
        position=arguments.to_position,
    )
    repository, about = _repository(arguments)
    prepare: Callable[[Path, BackupManifest], None] = prepare_member
    cluster, self_id = None, about.self_id
    if arguments.group is not None:
        node = NodeSection(
            broker_cluster_name=arguments.cluster_name,
            group=arguments.group,
            self_id=NodeId(arguments.self_id or about.self_id or NodeSection().self_id),
        )
        prepare, cluster, self_id = prepare_group(node), cluster_id(node).hex(), node.self_id
    root: Path = arguments.directory
    point = find_point(repository, wanted)
    if arguments.group is None and point.tables.manifest.cluster is not None:
        raise ConfigError(
            "a group goes not back to a point while members of it may remember more: begin one of"
            " another name by --group"
        )
    make_directories(root, mode=0o700)
    with stopped_store(root, as_owner=False), ProgressLine("MiB copied") as line:
        manifest, messages = restore_point(
            repository, about, point, root,
            self_id=self_id, cluster=cluster, prepare=prepare, told=counted(line, point.size),
        )  # fmt: skip
    told = {"directory": str(root), "index": point.index, "end": point.end, "messages": messages}
    text = (
        f"{root}: positions {manifest.first:,} to {point.end:,}, index {point.index:,},"
        f" {messages:,} messages"
    )
    return tell(arguments, told, text)


def _repository(arguments: argparse.Namespace) -> tuple[Repository, StreamAbout]:
    """The stream that is asked for."""
    streams = places_at(arguments.backup).streams()
    member: str | None = arguments.member
    found = sorted(streams)
    if member is None and len(streams) == 1:
        (member,) = streams
    if member not in streams:
        raise ConfigError(
            "say which stream: --member",
            repository=arguments.backup,
            given=member,
            found=found,
        )
    repository = _opened(streams[member], _key(arguments))
    about = repository.about()
    assert about is not None
    return repository, about


def _opened(place: PiecePlace, key: bytes | None) -> Repository:
    """A stream, or a place of sealed pieces."""
    if PIECES_MANIFEST not in place.names(""):
        return Repository(place, key)
    # With it come the libraries that read pieces, which streams do without.
    pieces = importlib.import_module("ledgermq.cli.spark.cold_tables")
    return cast("Repository", pieces.repository_at(place.as_text(), key))


def _key(arguments: argparse.Namespace) -> bytes | None:
    path: Path | None = arguments.key_file
    if path is None:
        return None
    try:
        text = path.read_text("ascii", errors="replace").strip()
        is_open = path.stat().st_mode & 0o077
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if is_open:
        raise ConfigError("others than its owner may read the key", file=str(path), allowed="0600")
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != PIECE_KEY_SIZE:
        raise ConfigError("not a key: 64 hexadecimal digits", file=str(path))
    return key


def create_whole(arguments: argparse.Namespace) -> int:
    """Back up a store as a whole."""
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
        return create_backup(directory, target, describe=describe_now, told=line.show_bytes)

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


def restore_any(arguments: argparse.Namespace) -> int:
    """Make a store of a backup, or of a point of a stream."""
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
            backup,
            root,
            self_id=self_id,
            cluster=cluster,
            prepare=prepare,
            told=counted(line, found.content_size),
        )
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
