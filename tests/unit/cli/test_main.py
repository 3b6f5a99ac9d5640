"""The door of the commands: exit statuses, and errors that say what to do."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import ledgermq
from ledgermq.cli import main as door
from ledgermq.model.errors import (
    BusyError,
    ConfigError,
    CorruptLogError,
    LedgerError,
    StorageError,
    StoreLockedError,
)

SOURCE = Path(__file__).parents[3]

Failing = Callable[[Exception], None]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    """``failing(error)`` makes the command ``fail`` raise ``error``."""

    def install(error: Exception) -> None:
        def command(arguments: argparse.Namespace) -> int:
            raise error

        def parser(words: object) -> door.CommandParser:
            made = door.CommandParser(prog="ledgermq")
            made.add_argument("words", nargs="*")
            made.add_argument("--json", action="store_true")
            made.set_defaults(func=command)
            return made

        monkeypatch.setattr(door, "_parser", parser)

    return install


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError("c"), 1),
        (BusyError("b"), 1),
        (StorageError("s", errno=28), 2),
        (CorruptLogError("l"), 2),
        (StoreLockedError("h"), 2),
        (AssertionError("never"), 3),
        (KeyError("k"), 3),
    ],
)
def test_the_exit_status_says_whose_turn_it_is(
    failing: Failing, error: Exception, status: int
) -> None:
    failing(error)

    assert door.main(["fail"]) == status


def test_an_error_is_one_line_with_its_values(
    failing: Failing, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(StorageError("no space left for the log", path="/data", free=0))

    assert door.main(["fail"]) == 2
    assert capsys.readouterr() == (
        "",
        "ledgermq: no space left for the log (path='/data', free=0)\n",
    )


def test_with_json_an_error_is_an_object(
    failing: Failing, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(BusyError("window full", limit=5))

    assert door.main(["fail", "--json"]) == 1
    assert json.loads(capsys.readouterr().err) == {
        "error": {
            "kind": "BusyError",
            "message": "window full",
            "exit_status": 1,
            "number": 31,
            "retriable": True,
            "details": {"limit": 5},
        }
    }


def test_a_bug_shows_where_it_is(failing: Failing, capsys: pytest.CaptureFixture[str]) -> None:
    failing(ZeroDivisionError("by zero"))

    assert door.main(["fail"]) == 3
    error = capsys.readouterr().err
    assert error.startswith("Traceback ")
    assert error.endswith(
        "this is a bug of ledgermq, please report it: ZeroDivisionError: by zero\n"
    )


@pytest.mark.parametrize(
    ("package", "wanted"),
    [
        ("numpy", "ledgermq[server]"),
        ("numpy.random", "ledgermq[server]"),
        ("zzz", "zzz"),
        ("ledgermq.cli.spark", "ledgermq[spark]"),
    ],
)
def test_a_missing_package_is_named_with_what_to_install(
    failing: Failing, capsys: pytest.CaptureFixture[str], package: str, wanted: str
) -> None:
    failing(ModuleNotFoundError(f"No module named '{package}'", name=package))

    assert door.main(["fail"]) == 1
    name = package.removesuffix(".random")
    assert capsys.readouterr().err == (
        f"ledgermq: this command needs the Python package {name}: pip install '{wanted}'\n"
    )


def test_a_missing_module_of_our_own_is_a_bug(failing: Failing) -> None:
    failing(ModuleNotFoundError("No module named 'ledgermq.zzz'", name="ledgermq.zzz"))

    assert door.main(["fail"]) == 3


def test_an_interrupted_command_ends_as_the_shell_expects(failing: Failing) -> None:
    failing(KeyboardInterrupt())  # type: ignore[arg-type]

    assert door.main(["fail"]) == 130


def test_a_wrong_command_line_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert door.main(["config", "chekc"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("usage: ledgermq config ")
    assert "unknown: chekc; did you mean check?" in error


def test_help_and_version_are_not_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert door.main(["--help"]) == 0
    assert door.main(["config", "--help"]) == 0
    assert door.main(["--", "--version"]) == 0
    assert capsys.readouterr().out.endswith(f"ledgermq {ledgermq.__version__}\n")


def test_a_reader_that_leaves_early_is_not_an_error_to_show() -> None:
    command = f"{sys.executable} -m ledgermq.cli.main config show --json | true"
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin"},
    )

    assert done.stderr == ""


def test_every_error_class_has_an_exit_status() -> None:
    def classes(kind: type[LedgerError]) -> list[type[LedgerError]]:
        return [kind, *(found for child in kind.__subclasses__() for found in classes(child))]

    statuses = {door.exit_status_of(kind.__new__(kind)) for kind in classes(LedgerError)}
    assert statuses == {1, 2, 78}


def test_the_table_of_commands_is_what_the_modules_register() -> None:
    registered = {
        name: door.Subcommand(module, summary)
        for module in dict.fromkeys(command.module for command in door.COMMANDS.values())
        for name, summary in _registered_by(module)
    }

    assert registered == door.COMMANDS


@pytest.mark.parametrize("command", door.COMMANDS)
def test_every_command_takes_json_wherever_it_does_something(command: str) -> None:
    leaves = _leaves(door._parser([command]))

    assert [leaf.prog for leaf in leaves if "--json" not in leaf.format_usage()] == []


def test_help_needs_no_library() -> None:
    code = "import sys; from ledgermq.cli.main import main; main(['--help'])"
    heavy = "print(sorted({'numpy', 'tomli', 'zmq'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; {heavy}"],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(SOURCE)},
    )

    assert done.stdout.endswith("[]\n")


def _registered_by(module: str) -> list[tuple[str, str]]:
    subparsers = door.CommandParser().add_subparsers()
    importlib.import_module(f"ledgermq.cli.{module}").register(subparsers)
    return [(choice.dest, choice.help or "") for choice in subparsers._choices_actions]


def _leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    below = [
        child
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for child in action.choices.values()
    ]
    if not below:
        yield parser
    for child in below:
        yield from _leaves(child)


def parser_of_send() -> door.CommandParser:
    parser = door.CommandParser(prog="ledgermq")
    send = parser.add_subparsers(required=True).add_parser("send")
    send.add_argument("topic")
    send.add_argument("bodies", nargs="*")
    send.add_argument("--tag")
    return parser


@pytest.mark.parametrize(
    "words",
    [
        ["orders", "--tag", "T", "one", "two"],
        ["--tag", "T", "orders", "one", "two"],
        ["orders", "one", "--tag=T", "two"],
        ["orders", "one", "two", "--tag", "T"],
    ],
)
def test_options_may_stand_anywhere_between_the_words(words: list[str]) -> None:
    found = parser_of_send().parse_args(["send", *words])

    assert (found.topic, found.bodies, found.tag) == ("orders", ["one", "two"], "T")


def test_words_behind_two_dashes_are_no_options() -> None:
    found = parser_of_send().parse_args(["send", "--tag", "T", "--", "orders", "--tag", "-x"])

    assert (found.topic, found.bodies, found.tag) == ("orders", ["--tag", "-x"], "T")


def test_a_word_too_many_is_refused_with_the_usage_of_its_command() -> None:
    with pytest.raises(door.UsageError) as caught:
        parser_of_send().parse_args(["send", "orders", "--topic", "x"])

    assert "--topic" in str(caught.value)
    assert "ledgermq send" in caught.value.usage


def run(*words: str, stdout: int | None = None, closed: bool = False) -> tuple[int, str]:
    """The command in a process of its own: its exit status, and what it says on stderr."""
    line = [sys.executable, "-m", "ledgermq.cli.main", *words]
    if closed:
        line = ["sh", "-c", 'exec "$@" >&-', "sh", *line]
    done = subprocess.run(
        line, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--help",), ("config", "check", os.devnull)])
def test_output_onto_a_full_disk_is_no_bug(words: Sequence[str]) -> None:
    with Path("/dev/full").open("w") as full:
        found = run(*words, stdout=full.fileno())

    assert found == (2, "ledgermq: output cannot be written: No space left on device\n")


@pytest.mark.slow
def test_output_that_nobody_wants_is_not_missed() -> None:
    assert run("config", "check", os.devnull, closed=True) == (0, "")
