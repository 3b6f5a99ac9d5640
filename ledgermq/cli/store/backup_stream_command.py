"""``ledgermq backup stream``, and what ``verify`` and ``restore`` do with its repository."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from ledgermq.buckets.bucket_address import is_address
from ledgermq.cli.late_command import LateCommand
from ledgermq.cli.progress_line import ProgressLine
from ledgermq.conversion.stream.stream_places import places_at
from ledgermq.model.errors import ConfigError

INTERVAL_S = 5.0
INTERVAL_MAX_S = 3_600.0


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
        "target",
        nargs="?",
        metavar="REPOSITORY",
        help="the repository: a folder, or s3://BUCKET/PREFIX, gs://…, abfss://…",
    )
    stream.add_argument("--to", metavar="REPOSITORY", help="the same, as spark archive has it")
    stream.add_argument(
        "--runtime-dir",
        type=Path,
        metavar="DIR",
        required=True,
        help="listen.runtime_dir of the running node",
    )
    stream.add_argument("--self-id", help="whose DLedger log, where there are several")
    stream.add_argument(
        "--interval",
        type=float,
        default=INTERVAL_S,
        metavar="SECONDS",
        help=f"how often, 5 when left out, at most {INTERVAL_MAX_S:.0f}",
    )
    stream.add_argument(
        "--keep-days",
        type=int,
        metavar="N",
        help="delete log files whose messages are all older; without it all is kept",
    )
    stream.add_argument("--once", action="store_true", help="put what is there now, and end")
    _add_key_option(stream)
    stream.add_argument("--json", action="store_true", help="print JSON, with --once")
    stream.set_defaults(func=LateCommand("store.backups", "stream_store"))


def add_verify_options(verify: argparse.ArgumentParser) -> None:
    """Let ``backup verify`` take what it needs of a stream."""
    of_stream = verify.add_argument_group("of a stream")
    _add_key_option(of_stream)
    _add_member_option(of_stream)
    of_stream.add_argument(
        "--scratch",
        type=Path,
        metavar="DIR",
        help="where a point is restored to; the folder of temporary files when left out",
    )
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
        "--to-time",
        metavar="TIME",
        help="the last entry before the first that was stored later: epoch ms, or ISO 8601",
    )
    which.add_argument("--to-index", type=int, metavar="N", help="the entry with this index")
    which.add_argument(
        "--to-position",
        type=int,
        metavar="N",
        help="the last entry that ends at this position of the log or before",
    )


def _add_key_option(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--key-file",
        type=Path,
        metavar="FILE",
        help="64 hexadecimal digits that pieces are encrypted with (AES-256-GCM)",
    )


def _add_member_option(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--member", help="whose stream, where there are several")


_STREAM_OPTIONS = ("member", "key_file", "to_time", "to_index", "to_position", "scratch", "seed")


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


def counted(line: ProgressLine, size: int) -> Callable[[int], None]:
    """What shows on ``line`` how many bytes it was told of, of ``size``."""
    done = 0

    def told(count: int) -> None:
        nonlocal done
        done += count
        line.show_bytes(done, size)

    return told
