"""``ledgermq backup stream``, and what ``verify`` and ``restore`` do with its repository."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from ledgermq.buckets.bucket_address import is_address
from ledgermq.cli.arguments import LateCommand, takes
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
    takes(stream, "directory", "storePathRootDir", type=Path)
    takes(
        stream,
        "target REPOSITORY",
        "the repository: a folder, or s3://BUCKET/PREFIX, gs://…, abfss://…",
        nargs="?",
    )
    takes(stream, "--to REPOSITORY", "the same, as spark archive has it")
    takes(stream, "--runtime-dir DIR", "listen.runtime_dir of the running node", required=True)
    takes(stream, "--self-id SELF_ID", "whose DLedger log, where there are several")
    takes(
        stream,
        "--interval SECONDS",
        f"how often, 5 when left out, at most {INTERVAL_MAX_S:.0f}",
        default=INTERVAL_S,
    )
    takes(
        stream,
        "--keep-days N",
        "delete log files whose messages are all older; without it all is kept",
    )
    takes(stream, "--once", "put what is there now, and end")
    _add_key_option(stream)
    takes(stream, "--json", "print JSON, with --once")
    stream.set_defaults(func=LateCommand("store.backups", "stream_store"))


def add_verify_options(verify: argparse.ArgumentParser) -> None:
    """Let ``backup verify`` take what it needs of a stream."""
    of_stream = verify.add_argument_group("of a stream")
    _add_key_option(of_stream)
    _add_member_option(of_stream)
    takes(
        of_stream,
        "--scratch DIR",
        "where a point is restored to; the folder of temporary files when left out",
    )
    takes(of_stream, "--seed N", "take the point that an earlier call has told")


def add_restore_options(restore: argparse.ArgumentParser) -> None:
    """Let ``backup restore`` take what it needs of a stream."""
    of_stream = restore.add_argument_group("of a stream")
    _add_key_option(of_stream)
    _add_member_option(of_stream)
    which = of_stream.add_mutually_exclusive_group()
    takes(
        which,
        "--to-time TIME",
        "the last entry before the first that was stored later: epoch ms, or ISO 8601",
    )
    takes(which, "--to-index N", "the entry with this index")
    takes(
        which, "--to-position N", "the last entry that ends at this position of the log or before"
    )


def _add_key_option(parser: argparse._ActionsContainer) -> None:
    takes(
        parser,
        "--key-file FILE",
        "64 hexadecimal digits that pieces are encrypted with (AES-256-GCM)",
    )


def _add_member_option(parser: argparse._ActionsContainer) -> None:
    takes(parser, "--member MEMBER", "whose stream, where there are several")


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
