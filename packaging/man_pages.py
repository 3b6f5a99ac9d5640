#!/usr/bin/env python3
"""Writes the manual pages of all commands from their parsers, so that they say what the code does.

    man_pages.py FOLDER

makes ``ledgermq.1``, ``ledgermq-COMMAND.1`` for each command, ``ledgermqd.8`` and
``ledgermq.toml.5`` (from docs/operating/settings.md) in FOLDER.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from settings_sample import told_settings

import ledgermq
from ledgermq.cli.main import COMMANDS, whole_parser

_SECTIONS = {1: "User Commands", 5: "File Formats", 8: "System Administration"}

_EXIT_STATUSES = (
    ("0", "Done."),
    ("1", "The settings, the command line or the request: change what was asked for."),
    ("2", "Store or output: the disk, the files, or another process that holds them."),
    ("3", "A bug of LedgerMQ."),
    ("78", "The store needs a newer version of LedgerMQ."),
)
_FILES = (
    ("/etc/ledgermq/ledgermq.toml", "Settings of the node that ledgermq.service runs."),
    ("/etc/ledgermq/NAME.toml", "Settings of the node that ledgermq@NAME.service runs."),
    ("/var/lib/ledgermq, /var/lib/ledgermq-NAME", "Their stores."),
    ("/run/ledgermq, /run/ledgermq-NAME", "Their sockets."),
)


def main() -> None:
    """Write all pages into the folder that the command line names."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    pages = {
        "ledgermq.1": overview_page(),
        "ledgermqd.8": daemon_page(),
        "ledgermq.toml.5": settings_page(),
    }
    (commands,) = _verb_groups(whole_parser())
    for name in COMMANDS:
        pages[f"ledgermq-{name}.1"] = command_page(name, commands.choices[name])
    for name, lines in pages.items():
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def overview_page() -> Iterator[str]:
    """``ledgermq.1``: which commands there are."""
    yield from _head("ledgermq", 1, "a replicated message broker that keeps RocketMQ's store")
    yield from _section("SYNOPSIS", r".B ledgermq", r".I COMMAND", "[...]")
    yield ".SH DESCRIPTION"
    yield _text(
        "LedgerMQ stores messages as RocketMQ 4.9 does, and keeps them on several machines with "
        "Raft. This is the command line of its nodes and of their clients. Each command has a "
        "page of its own."
    )
    yield ".SH COMMANDS"
    for name, command in COMMANDS.items():
        yield ".TP"
        yield rf".BR ledgermq\-{name} (1)"
        yield _sentence(command.summary)
    yield from _tagged("EXIT STATUS", _EXIT_STATUSES)
    yield from _tagged("FILES", _FILES)
    yield from _see_also("ledgermqd(8)", "ledgermq.toml(5)", "systemctl(1)")


def daemon_page() -> Iterator[str]:
    """``ledgermqd.8``: a node as systemd runs it."""
    yield from _head("ledgermqd", 8, "a node of the LedgerMQ message broker")
    yield from _section(
        "SYNOPSIS", ".B ledgermqd", r"\-\-config", ".I FILE", r"[\-\-check [\-\-json]]"
    )
    yield ".SH DESCRIPTION"
    yield _text(
        "ledgermqd is another name of «ledgermq serve»: a supervisor with four processes (raft, "
        "writer, dispatcher, broker). ledgermq.service runs one node on a host, instances of "
        "ledgermq@.service several; ledgermq.target is all of those instances."
    )
    yield ".PP"
    yield _text(
        "The service is started when a node can serve, which systemctl start waits for. The "
        "supervisor feeds systemd's watchdog while all processes turn and what was flushed "
        "returns. A leader that is stopped hands over first."
    )
    yield ".PP"
    yield _text(
        "systemd may hold the port of RocketMQ's clients (ledgermq-remoting.socket, for instances "
        "ledgermq-remoting@.socket; not enabled unless you do it): then a restart refuses nobody."
    )
    yield from _tagged(
        "SIGNALS",
        (
            ("SIGTERM, SIGINT", "Stop in order."),
            ("SIGHUP", "Read the settings again; «systemctl reload» checks the file before."),
        ),
    )
    yield from _tagged("EXIT STATUS", _EXIT_STATUSES)
    yield from _tagged("FILES", _FILES)
    yield from _see_also("ledgermq(1)", "ledgermq-serve(1)", "ledgermq.toml(5)", "systemctl(1)")


def settings_page() -> Iterator[str]:
    """``ledgermq.toml.5``: every setting with its default, its limits and its meaning."""
    yield from _head("ledgermq.toml", 5, "settings of a node of the LedgerMQ message broker")
    yield ".SH DESCRIPTION"
    yield _text(
        "One TOML file for a node. What it leaves out has its default, so an empty file is a "
        "working node of its own. Unknown tables and keys are refused."
    )
    for table, rows in told_settings().items():
        yield f'.SH "[{_escaped(table)}]"'
        for row in rows:
            yield ".TP"
            yield rf"\fB{_escaped(row.key)}\fR = {_escaped(row.default)}"
            again = " A reload takes it." if row.is_reloaded else ""
            yield _text(f"{row.meaning}{again} Must be {row.allowed}.")
    yield from _see_also("ledgermq(1)", "ledgermqd(8)", "ledgermq-config(1)")


def command_page(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """``ledgermq-NAME.1``: usage and options of each verb of the command."""
    leaves = list(_leaves(parser, parser.prog))
    yield from _head(f"ledgermq-{name}", 1, COMMANDS[name].summary)
    yield ".SH SYNOPSIS"
    for leaf, _ in leaves:
        usage = re.sub(r"\s+", " ", leaf.format_usage().removeprefix("usage: ")).strip()
        yield ".PP"
        yield rf"\fB{_escaped(leaf.prog)}\fR{_escaped(usage.removeprefix(leaf.prog))}"
    yield ".SH DESCRIPTION"
    yield _sentence(parser.description or COMMANDS[name].summary)
    if not parser._actions:
        yield ".PP"
        yield _text(
            "Its libraries are not in this package: install the project's wheel with pip where "
            "the command is to run, and «ledgermq COMMAND --help» tells the rest."
        )
    if len(leaves) == 1 and leaves[0][0] is parser:
        yield ".SH OPTIONS"
        yield from _options(parser)
    else:
        yield ".SH VERBS"
        for leaf, summary in leaves:
            yield f'.SS "{_escaped(leaf.prog)}"'
            yield _sentence(leaf.description or summary)
            yield from _options(leaf)
    if parser.epilog:
        yield ".SH NOTES"
        yield _text(parser.epilog)
    yield from _tagged("EXIT STATUS", _EXIT_STATUSES)
    yield from _see_also("ledgermq(1)", "ledgermqd(8)", "ledgermq.toml(5)")


def _verb_groups(
    parser: argparse.ArgumentParser,
) -> list[argparse._SubParsersAction[argparse.ArgumentParser]]:
    return [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]


def _leaves(
    parser: argparse.ArgumentParser, summary: str
) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """Parsers below which there are no more verbs, each with its one line of help."""
    groups = _verb_groups(parser)
    if not groups:
        yield parser, summary
    for group in groups:
        helps = {action.dest: action.help or "" for action in group._choices_actions}
        for verb, child in group.choices.items():
            yield from _leaves(child, helps.get(verb, ""))


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    formatter = parser._get_formatter()
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or isinstance(action, argparse._HelpAction):
            continue
        yield ".TP"
        yield rf"\fB{_escaped(formatter._format_action_invocation(action))}\fR"
        yield _sentence(formatter._expand_help(action) if action.help else "")


def _head(name: str, section: int, summary: str) -> Iterator[str]:
    # The build's date, so that the same input makes the same bytes.
    when = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC)
    yield (
        f'.TH "{_escaped(name.upper())}" "{section}" "{when:%Y-%m-%d}" '
        f'"LedgerMQ {ledgermq.__version__}" "{_SECTIONS[section]}"'
    )
    yield ".nh"
    yield ".ad l"
    yield ".SH NAME"
    yield rf"{_escaped(name)} \- {_escaped(summary)}"


def _section(title: str, *lines: str) -> Iterator[str]:
    yield f'.SH "{title}"'
    yield from lines


def _tagged(title: str, rows: tuple[tuple[str, str], ...]) -> Iterator[str]:
    yield f'.SH "{title}"'
    for tag, text in rows:
        yield ".TP"
        yield rf"\fB{_escaped(tag)}\fR"
        yield _text(text)


def _see_also(*pages: str) -> Iterator[str]:
    yield '.SH "SEE ALSO"'
    for number, page in enumerate(pages):
        name, _, section = page.partition("(")
        yield f".BR {_escaped(name)} ({section}{',' if number < len(pages) - 1 else ''}"


def _sentence(text: str) -> str:
    """``text`` as a sentence: argparse's helps begin small and have no full stop."""
    text = text.strip()
    if text and text[-1] not in ".!?:":
        text += "."
    if re.match(r"[a-z]+[\s,;.]", text):
        text = text[0].upper() + text[1:]
    return _text(text)


def _text(text: str) -> str:
    return _escaped(re.sub(r"\s+", " ", text).strip()) or r"\&"


def _escaped(text: str) -> str:
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("`", "")
    # A line that begins with one of these would be a request.
    return rf"\&{text}" if text.startswith((".", "'")) else text


if __name__ == "__main__":
    main()
