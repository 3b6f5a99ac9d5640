"""``ledgermq doctor``: measurements of what a node needs, and what to change.

Exit status: 0 nothing fails, there may be warnings; 4 something fails; 1 the command line. With
``--record``: 0 the archive is written, whatever was found; 2 it cannot be; 130 it was interrupted,
and has what there was.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator
from pathlib import Path

from ledgermq.cli.arguments import LateCommand, takes
from ledgermq.cli.seen_text import KEPT, shown
from ledgermq.doctor.finding import PARTS, Diagnosis, Weight, worst

CONFIG_FILE = Path("/etc/ledgermq/ledgermq.toml")
EXIT_FAILS = 4
WIDTH = 100
INDENT = " " * 6
_COLORS = {Weight.OK: "32", Weight.WARN: "33", Weight.FAIL: "31"}


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``doctor``."""
    parser = subparsers.add_parser(
        "doctor",
        help="measure what a node needs of its host, and say what to change",
        description="Looks at a node and at what it stands on, whether it runs or not. Changes "
        "nothing; the sync of the disk is measured with a file that is removed.",
    )
    takes(
        parser,
        "--config FILE",
        f"settings of the node (default: {CONFIG_FILE})",
        default=CONFIG_FILE,
    )
    takes(parser, "--only PARTS", f"some of them: {','.join(PARTS)} (default: all)")
    takes(parser, "--json", "print JSON")
    takes(
        parser,
        "--record SECONDS",
        "watch the node for so long, and write one archive that somebody far away can read:"
        " samples, stacks, logs, settings without secrets, findings",
    )
    takes(parser, "--output DIR", "folder of the archive (default: this one)")
    takes(
        parser,
        "--address ADDRESS",
        "with --record: nodes to be asked, too, as tcp://HOST:PORT of their consume sockets,"
        " divided by commas",
    )
    parser.set_defaults(func=LateCommand("node.doctor_run", "examine_node"))


def describe(finding: Diagnosis, *, is_colored: bool) -> Iterator[str]:
    """The finding for people, line by line."""
    name = f"{finding.verdict.name:<6}"
    if is_colored:
        name = f"\x1b[{_COLORS[finding.verdict]}m{name}\x1b[0m"
    first, *more = textwrap.wrap(
        shown(" ".join(finding.measured.split())), WIDTH - 32, break_long_words=False
    ) or [""]
    yield f"{name}{finding.check:<26}{first}"
    for line in more:
        yield f"{INDENT}{'':<26}{line}"
    if finding.verdict is not Weight.OK:
        for label, text in (("limit", finding.limit), ("do", finding.change)):
            if text:
                lines = textwrap.wrap(shown(text, keeps=KEPT), WIDTH - 16, break_long_words=False)
                yield f"{INDENT}  {label + ':':<8}{lines[0]}"
                yield from (f"{INDENT}  {'':<8}{line}" for line in lines[1:])


def summary(findings: list[Diagnosis]) -> str:
    """How many of each verdict."""
    counts = {
        verdict: sum(finding.verdict is verdict for finding in findings) for verdict in Weight
    }
    return "\n" + ", ".join(f"{count} {verdict.name}" for verdict, count in counts.items())


def to_json(config: Path, findings: list[Diagnosis]) -> dict[str, object]:
    """The findings for programs."""
    return {
        "file": str(config),
        "verdict": worst(findings).name,
        "findings": [
            {**finding._asdict(), "verdict": finding.verdict.name} for finding in findings
        ],
    }
