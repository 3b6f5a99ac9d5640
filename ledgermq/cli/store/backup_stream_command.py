"""``ledgermq backup stream``, and what ``verify`` and ``restore`` do with its repository."""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ledgermq.buckets.bucket_address import is_address
from ledgermq.cli.node_options import parse_time
from ledgermq.cli.output import tell
from ledgermq.cli.progress_line import ProgressLine
from ledgermq.conversion.backup_manifest import BackupManifest
from ledgermq.conversion.stream.sealed_piece import PIECE_KEY_SIZE
from ledgermq.conversion.stream.stream_places import places_at
from ledgermq.daemon.store_lock import stopped_store
from ledgermq.model.config.settings import NodeSection
from ledgermq.model.errors import ConfigError
from ledgermq.model.ids import NodeId
from ledgermq.model.units import MIB
from ledgermq.store.files.disk_sync import make_directories
from ledgermq.store.store_directory import open_directory

if TYPE_CHECKING:
    from ledgermq.conversion.stream.repository import Repository, StreamAbout

INTERVAL_S = 5.0
INTERVAL_MAX_S = 3_600.0
KEEP_DAYS_MAX = 36_500
DAY_MS = 86_400_000
_OF_PLAIN_LOG = "plain"
_STREAM_OPTIONS = ("member", "key_file", "to_time", "to_index", "scratch", "seed")


def add_stream_verb(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``backup stream``."""
    stream = verbs.add_parser(
        "stream",
        help="put what is committed into a repository, for ever",
        description="Puts what a running node commits into a repository, from which any point can "
        "be restored: every few seconds what came at the log's end, and full log files at once. "
        "It goes on where it was, however it ended. Several may go to one repository.",
    )
    stream.add_argument("directory", type=Path, help="storePathRootDir")
    stream.add_argument(
        "target", nargs="?", metavar="REPOSITORY",
        help="the repository: a folder, or s3://BUCKET/PREFIX, gs://…, abfss://…",
    )  # fmt: skip
    stream.add_argument("--to", metavar="REPOSITORY", help="the same, as spark archive has it")
    stream.add_argument(
        "--runtime-dir", type=Path, metavar="DIR", required=True,
        help="listen.runtime_dir of the running node",
    )  # fmt: skip
    stream.add_argument("--self-id", help="whose DLedger log, where there are several")
    stream.add_argument(
        "--interval", type=float, default=INTERVAL_S, metavar="SECONDS",
        help=f"how often, 5 when left out, at most {INTERVAL_MAX_S:.0f}",
    )  # fmt: skip
    stream.add_argument(
        "--keep-days", type=int, metavar="N",
        help="delete log files whose messages are all older; without it all is kept",
    )  # fmt: skip
    stream.add_argument("--once", action="store_true", help="put what is there now, and end")
    _add_key_option(stream)
    stream.add_argument("--json", action="store_true", help="print JSON, with --once")
    stream.set_defaults(func=_stream)


def add_verify_options(verify: argparse.ArgumentParser) -> None:
    """Let ``backup verify`` take what it needs of a stream."""
    of_stream = verify.add_argument_group("of a stream")
    _add_key_option(of_stream)
    _add_member_option(of_stream)
    of_stream.add_argument(
        "--scratch", type=Path, metavar="DIR",
        help="where a point is restored to; the folder of temporary files when left out",
    )  # fmt: skip
    of_stream.add_argument(
        "--seed", type=int, metavar="N", help="take the point that an earlier call has told"
    )


def add_restore_options(restore: argparse.ArgumentParser) -> None:
    """Let ``backup restore`` take what it needs of a stream."""
    of_stream = restore.add_argument_group("of a stream")
    _add_key_option(of_stream)
    _add_member_option(of_stream)
    which = of_stream.add_mutually_exclusive_group()
    which.add_argument(
        "--to-time", metavar="TIME",
        help="the last entry before the first that was stored later: epoch ms, or ISO 8601",
    )  # fmt: skip
    which.add_argument("--to-index", type=int, metavar="N", help="the entry with this index")


def is_repository(text: str) -> bool:
    """Whether ``text`` is the place of streams, or of one; what is in a bucket is nothing else.

    Raises:
        ConfigError: it is an address of something else, or the store's client is not installed.
        StorageError: the place refused.
    """
    return is_address(text) or bool(places_at(text).streams())


def refuse_stream_options(arguments: argparse.Namespace) -> None:
    """Refuse what only a stream can do, for a backup.

    Raises:
        ConfigError: names the option.
    """
    for name in _STREAM_OPTIONS:
        if getattr(arguments, name, None) is not None:
            raise ConfigError(
                f"--{name.replace('_', '-')} is for streams, which is none there",
                directory=arguments.backup,
            )


def counted(line: ProgressLine) -> Callable[[int], None]:
    """What shows on ``line`` how many bytes it was told of."""
    done = 0

    def told(count: int) -> None:
        nonlocal done
        done += count
        line.show(done // MIB)

    return told


def _stream(arguments: argparse.Namespace) -> int:
    from ledgermq.conversion.stream.repository import Repository
    from ledgermq.daemon.backup_streaming import BackupStreaming, StreamOrder

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
        done = BackupStreaming(order, repository, told=counted(line)).turn()
    text = f"{places.as_text()}: up to position {done.end:,}, {done.size / MIB:,.1f} MiB put"
    return tell(arguments, done._asdict(), text)


def list_streams(arguments: argparse.Namespace) -> int:
    """Tell how far each stream goes, by the names of its pieces: no key is asked for."""
    from ledgermq.conversion.stream.repository import Repository

    for name, place in sorted(places_at(arguments.target).streams().items()):
        repository = Repository(place, None)
        for run in repository.runs():
            told = {"stream": name, "first": run.start, "end": run.end, "pieces": len(run.pieces)}
            text = f"{name}  positions {run.start:,} to {run.end:,}  {len(run.pieces)} pieces"
            tell(arguments, told, text)
    return 0


def verify_stream(arguments: argparse.Namespace) -> int:
    """Read a repository as a whole, and restore a point of each stream in it."""
    from ledgermq.conversion.stream.stream_verify import prove_point, verify_pieces
    from ledgermq.daemon.backup_source import prepare_member

    repository, about = _repository(arguments)
    seed = random.SystemRandom().getrandbits(32) if arguments.seed is None else arguments.seed
    # It is nothing secret: which point it is can be told again.
    chance = random.Random(seed)  # noqa: S311
    scratch = tempfile.mkdtemp(prefix="ledgermq-verify-", dir=arguments.scratch)
    try:
        with ProgressLine("MiB read") as line:
            found = verify_pieces(repository, told=counted(line))
            point, messages = prove_point(
                repository, about, Path(scratch),
                chance=chance, prepare=prepare_member, told=counted(line),
            )  # fmt: skip
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
    from ledgermq.conversion.stream.stream_restore import Wanted, find_point, restore_point
    from ledgermq.daemon.backup_source import prepare_group, prepare_member
    from ledgermq.members.peer_identity import cluster_id

    time_text: str | None = arguments.to_time
    wanted = Wanted(
        index=arguments.to_index,
        time_ms=None if time_text is None else parse_time(time_text, "--to-time"),
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
    elif about.cluster is not None:
        raise ConfigError(
            "a group goes not back to a point while members of it may remember more: begin one of"
            " another name by --group"
        )
    root: Path = arguments.directory
    point = find_point(repository, wanted)
    make_directories(root, mode=0o700)
    with stopped_store(root, as_owner=False), ProgressLine("MiB copied") as line:
        manifest, messages = restore_point(
            repository, about, point, root,
            self_id=self_id, cluster=cluster, prepare=prepare, told=counted(line),
        )  # fmt: skip
    told = {"directory": str(root), "index": point.index, "end": point.end, "messages": messages}
    text = (
        f"{root}: positions {manifest.first:,} to {point.end:,}, index {point.index:,},"
        f" {messages:,} messages"
    )
    return tell(arguments, told, text)


def _repository(arguments: argparse.Namespace) -> tuple[Repository, StreamAbout]:
    """The stream that is asked for."""
    from ledgermq.conversion.stream.repository import Repository

    streams = places_at(arguments.backup).streams()
    member: str | None = arguments.member
    found = sorted(streams)
    if member is None and len(streams) == 1:
        (member,) = streams
    if member not in streams:
        raise ConfigError(
            "say which stream: --member", repository=arguments.backup, given=member,
            found=found,
        )  # fmt: skip
    repository = Repository(streams[member], _key(arguments))
    about = repository.about()
    assert about is not None
    return repository, about


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


def _add_key_option(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--key-file", type=Path, metavar="FILE",
        help="64 hexadecimal digits that pieces are encrypted with (AES-256-GCM)",
    )  # fmt: skip


def _add_member_option(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--member", help="whose stream, where there are several")
