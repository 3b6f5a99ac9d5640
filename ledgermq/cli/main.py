"""Entry point of the ``ledgermq`` command: sub-commands, and errors as exit statuses.

A module of sub-commands exposes ``register(subparsers)`` and sets ``func`` on each of its parsers
to ``(arguments) -> exit status``, and ``keeps_umask`` where it makes files that are the user's own
data, which others may be meant to read. Only the module of the command that was asked for is
imported; what needs an optional library is in another one, which is imported when the command runs
(``LateCommand``), or imported where it is used, so that ``--help`` never does.

| exit status | meaning |
|---|---|
| 0 | done |
| 1 | the settings, the command line or the request: change what was asked for |
| 2 | store or output: the disk, the files, or another process that holds them |
| 3 | a bug of ours |
| 78 | the store needs a newer version of this program |
"""

from __future__ import annotations

import argparse
import errno
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple, NoReturn, Protocol, cast

import ledgermq
from ledgermq.cli.seen_text import show_only_what_is_seen
from ledgermq.model.errors import (
    NO_SPACE,
    OUT_OF_DESCRIPTORS,
    CorruptLogError,
    LedgerError,
    NewerVersionError,
    StorageError,
    StoreLockedError,
)
from ledgermq.model.exit_status import (
    EXIT_BUG,
    EXIT_CONFIG,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_OUTDATED,
    EXIT_STORAGE,
)

EXTRA_OF_PACKAGE = {
    "boto3": "buckets",
    "cryptography": "server",
    "cython": "server",
    "h11": "server",
    "isal": "server",
    "jinja2": "server",
    "lz4": "compression",
    "markdown_it": "server",
    "markupsafe": "server",
    "numpy": "server",
    "prometheus_client": "server",
    "psutil": "server",
    "pyarrow": "spark",
    "pyspark": "spark",
    "rich": "server",
    "sdnotify": "server",
    "setproctitle": "server",
    "starlette": "server",
    "tomli": "server",
    "yaml": "server",
    "zstandard": "compression",
}
"""Which optional extra of the distribution brings an import name."""

EXTRA_OF_PART = {
    "ledgermq.cli.clusters": "server",
    "ledgermq.cli.node": "server",
    "ledgermq.cli.setup": "server",
    "ledgermq.cli.spark": "spark",
    "ledgermq.cli.store": "server",
    "ledgermq.cli.top": "server",
    "ledgermq.cold": "spark",
    "ledgermq.observer": "server",
}
"""Which one brings a package of ours that another distribution has than this module
(``distributions/``)."""

_REFUSALS = (
    NO_SPACE | OUT_OF_DESCRIPTORS | {errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM}
)
"""What an operating system says of its state or of rights, and not of a mistake of ours."""

Subparsers = argparse._SubParsersAction  # generic in the stubs only; there is no public name
Run = Callable[[argparse.Namespace], int]


class Subcommand(NamedTuple):
    """The module that registers a command, and what ``--help`` says of it without importing it."""

    module: str
    summary: str


COMMANDS = {
    "serve": Subcommand("node.serve_command", "run a node in the foreground"),
    "status": Subcommand("node.status_command", "show what a node on this machine is doing"),
    "service": Subcommand("node.service_command", "look at a node as a service of this machine"),
    "doctor": Subcommand(
        "node.doctor_command", "measure what a node needs of its host, and say what to change"
    ),
    "top": Subcommand(
        "top.top_command", "watch all nodes of a group: roles, rates, lag, disks, memory"
    ),
    "raft": Subcommand("node.raft_command", "look at the group, and hand over its leadership"),
    "upgrade": Subcommand("node.upgrade_command", "say which node may get another version next"),
    "config": Subcommand("setup.config_commands", "make, check, show and translate settings"),
    "keys": Subcommand("setup.keys_command", "make the keys of a group's members"),
    "send": Subcommand("messages.send_command", "send messages"),
    "receive": Subcommand("messages.receive_command", "print messages"),
    "topic": Subcommand("admin.topic_command", "list, show, create, alter and delete topics"),
    "group": Subcommand(
        "admin.group_command", "list, show, create, alter and delete groups; their lag"
    ),
    "offset": Subcommand("admin.offset_command", "show, reset and clone what groups have consumed"),
    "explain": Subcommand(
        "spark.explain_command", "tell what a group had and had not consumed of a topic at a moment"
    ),
    "share": Subcommand(
        "admin.share_command", "take messages one by one, beside others on the same queues"
    ),
    "query": Subcommand("messages.query_command", "find messages of a running node"),
    "message": Subcommand("messages.message_command", "show, find, browse and track messages"),
    "receipt": Subcommand(
        "messages.receipt_command", "prove that messages were stored, and check such proofs"
    ),
    "dlq": Subcommand("messages.dlq_command", "look at dead letters, and replay them"),
    "timer": Subcommand("admin.timer_command", "list and cancel messages that wait for their time"),
    "transaction": Subcommand(
        "admin.transaction_command", "look at transactions without an end, and end them"
    ),
    "access": Subcommand("setup.access_command", "make keys, certificates and users in one go"),
    "acl": Subcommand("setup.acl_command", "say who may do what"),
    "archive": Subcommand("admin.archive_command", "show the archives that retention waits for"),
    "mirror": Subcommand("node.mirror_command", "copy a group to another site"),
    "quota": Subcommand("admin.quota_command", "say how much may be sent and read a second"),
    "schema": Subcommand("messages.schema_command", "say what the bodies of messages are"),
    "store": Subcommand("store.store_commands", "read and convert a store directory"),
    "migrate": Subcommand("store.migrate_command", "move from RocketMQ in place, and back"),
    "understudy": Subcommand(
        "node.understudy_command", "follow a running RocketMQ master, and take its place"
    ),
    "spark": Subcommand(
        "spark.spark_command", "rebuild, audit, archive, replay and count on Spark"
    ),
    "backup": Subcommand("store.backup_command", "back a store up, and restore it"),
    "piece": Subcommand("spark.piece_command", "seal a log into pieces, and read them"),
    "bench": Subcommand("messages.bench_command", "put load on a running node and measure it"),
    "cluster": Subcommand(
        "node.cluster_command", "several groups as one; feature levels of a group; try one here"
    ),
    "dev": Subcommand("node.dev_command", "a node, or a group of three, to develop against"),
    "demo": Subcommand(
        "node.demo_command", "take over a store that RocketMQ wrote, and go on with it"
    ),
}
"""All commands, in the order in which ``--help`` shows them."""


class UsageError(Exception):
    """The command line cannot be understood; ``usage`` is what it should look like."""

    def __init__(self, message: str, *, usage: str) -> None:
        super().__init__(message)
        self.usage = usage


class CommandParser(argparse.ArgumentParser):
    """A parser that raises instead of leaving with status 2, which means storage here.

    Options may stand anywhere between the other words, and what is too much is refused with the
    usage of the command that it was given to.
    """

    _is_mixing = False

    def parse_known_args(self, args, namespace=None):  # type: ignore[no-untyped-def,override]
        """Parse what argparse parses; a command without verbs knows all of its words, or refuses
        them.

        Raises:
            UsageError: a word is not known, or missing.
        """
        positionals = self._get_positional_actions()
        if self._is_mixing or any(action.nargs == argparse.PARSER for action in positionals):
            return super().parse_known_args(args, namespace)
        if "--" in args:
            # What follows are no options, whatever they look like: mixing would forget that.
            found, extras = super().parse_known_args(args, namespace)
        else:
            self._is_mixing = True
            try:
                # By itself argparse takes ``TOPIC --tag X BODY`` for a topic without bodies.
                found, extras = self.parse_known_intermixed_args(args, namespace)
            finally:
                self._is_mixing = False
        if extras:
            meant = _meant(extras[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(extras)}{meant}")
        return found, extras

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a command, a verb or a value that there is not, and say which is like it.

        Raises:
            ArgumentError: there is none.
        """
        if action.choices is None or value in action.choices:
            return
        known = list(map(str, action.choices))
        meant = _meant(str(value), known) or f"; there are {', '.join(known)}"
        raise argparse.ArgumentError(action, f"unknown: {value}{meant}")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Refuse what is no number in words, and say what the number is.

        Raises:
            ArgumentError: it is none.
        """
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError:
            if action.type not in (int, float):
                raise
            what = f": {action.help}" if action.help and "%" not in action.help else ""
            raise argparse.ArgumentError(action, f"no number: {arg_string!r}{what}") from None

    def error(self, message: str) -> NoReturn:
        """Refuse the command line.

        Raises:
            UsageError: always.
        """
        raise UsageError(message, usage=self.format_usage())


def _meant(word: str, known: Iterable[str]) -> str:
    """What was meant by a word that is not known; empty: nothing is like it."""
    lower = {one.lower(): one for one in known}
    close = get_close_matches(word.lower(), lower, n=1)
    return f"; did you mean {lower[close[0]]}?" if close else ""


class _CommandModule(Protocol):
    def register(self, subparsers: Subparsers[CommandParser]) -> None: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; nothing that goes wrong leaves as an exception.

    Args:
        argv: words behind the program's name; those of the process when ``None``.
    """
    if sys.stdout is None:
        # Closed by who started us: nobody wants to read it.
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    show_only_what_is_seen()
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["--"]:
        # What is behind it are no options; the command is looked for in the first place.
        del words[0]
    try:
        status = _run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone. Python would complain at exit about what is buffered.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_CONFIG
    except Exception as error:
        status = _failed(error, as_json="--json" in words)
        _let_go_of_output()
    return status


def _let_go_of_output() -> None:
    """Write what is printed so far; what cannot be written is lost, and that was told."""
    try:
        sys.stdout.flush()
    except OSError:
        # From 3.13 on Python tries again at exit, and exits with a status of its own then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def daemon_main(argv: Sequence[str] | None = None) -> int:
    """The ``ledgermqd`` command, which is ``ledgermq serve``."""
    return main(["serve", *(sys.argv[1:] if argv is None else argv)])


def whole_parser() -> argparse.ArgumentParser:
    """A parser that knows all commands, for documents and completions.

    It imports the modules of all of them, and none of the optional libraries.
    """
    parser = _bare_parser()
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in dict.fromkeys(command.module for command in COMMANDS.values()):
        _register(module, subparsers)
    return parser


def exit_status_of(error: LedgerError) -> int:
    """Exit status of a command that ended with ``error``."""
    if isinstance(error, NewerVersionError):
        return EXIT_OUTDATED
    storage = (StorageError, CorruptLogError, StoreLockedError)
    return EXIT_STORAGE if isinstance(error, storage) else EXIT_CONFIG


def _run(words: Sequence[str]) -> int:
    try:
        arguments = _parser(words).parse_args(words)
    except SystemExit as leaving:
        # --help and --version have printed what was asked for.
        return int(leaving.code or EXIT_OK)
    run: Run = arguments.func
    if getattr(arguments, "keeps_umask", False):
        return run(arguments)
    # What a command makes belongs to who asks alone, whatever the shell says; what is for others
    # gets its mode where it is made.
    before = os.umask(0o077)
    try:
        return run(arguments)
    finally:
        os.umask(before)


def _parser(words: Sequence[str]) -> CommandParser:
    """A parser for the command that ``words`` begin with, else for the mere names of all."""
    parser = _bare_parser()
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    command = COMMANDS.get(words[0]) if words else None
    if command is None:
        for name, (_, summary) in COMMANDS.items():
            subparsers.add_parser(name, help=summary, add_help=False)
    else:
        _register(command.module, subparsers)
    return parser


def _bare_parser() -> CommandParser:
    parser = CommandParser(
        prog="ledgermq",
        description="A replicated message broker that keeps RocketMQ's store.",
        epilog="Each command explains itself: ledgermq COMMAND --help",
    )
    parser.add_argument("--version", action="version", version=f"ledgermq {ledgermq.__version__}")
    return parser


def _register(module: str, subparsers: Subparsers[CommandParser]) -> None:
    imported = importlib.import_module(f"ledgermq.cli.{module}")
    cast("_CommandModule", imported).register(subparsers)


def _failed(error: Exception, *, as_json: bool) -> int:
    """Say what went wrong, and what to do about it; the exit status."""
    text, status = str(error), EXIT_CONFIG
    if isinstance(error, LedgerError):
        status = exit_status_of(error)
    elif isinstance(error, ModuleNotFoundError) and (package := _foreign_package(error)):
        extra = (EXTRA_OF_PACKAGE | EXTRA_OF_PART).get(package)
        wanted = f"ledgermq[{extra}]" if extra else package
        text = f"this command needs the Python package {package}: pip install '{wanted}'"
    elif isinstance(error, OSError) and error.errno in _REFUSALS:
        # Of what is printed into a file, too; that one has no name.
        what = f"{error.filename}: " if error.filename is not None else "output cannot be written: "
        text, status = f"{what}{error.strerror}", EXIT_STORAGE
    elif not isinstance(error, UsageError):
        status = EXIT_BUG
        text = f"this is a bug of ledgermq, please report it: {type(error).__name__}: {error}"
    if as_json:
        print(json.dumps({"error": _described(error, text, status)}, default=str), file=sys.stderr)
        return status
    if status == EXIT_BUG:
        traceback.print_exception(error)
    if isinstance(error, UsageError):
        print(error.usage, end="", file=sys.stderr)
    print(f"ledgermq: {text}", file=sys.stderr)
    return status


def _foreign_package(error: ModuleNotFoundError) -> str | None:
    """The package that is not installed: of others, or of ours where a distribution brings it;
    ``None`` when a module of ours is missing."""
    name = error.name or ""
    package = name.partition(".")[0]
    if package == "ledgermq":
        return name if name in EXTRA_OF_PART else None
    return package or None


def _described(error: Exception, text: str, status: int) -> dict[str, object]:
    described: dict[str, object] = {
        "kind": type(error).__name__,
        "message": text,
        "exit_status": status,
    }
    if isinstance(error, LedgerError):
        described |= {
            "message": error.message,
            "number": error.number,
            "retriable": error.retriable,
            "details": error.details,
        }
    return described


if __name__ == "__main__":
    sys.exit(main())
