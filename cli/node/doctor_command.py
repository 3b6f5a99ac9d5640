"""``ledgermq doctor``: measurements of what a node needs, and what to change.

Exit status: 0 nothing fails, there may be warnings; 4 something fails; 1 the command line.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from ledgermq.doctor.finding import PARTS, Diagnosis, Weight, worst
from ledgermq.model.errors import ConfigError

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
    parser.add_argument(
        "--config", type=Path, default=CONFIG_FILE, metavar="FILE",
        help=f"settings of the node (default: {CONFIG_FILE})",
    )  # fmt: skip
    parser.add_argument(
        "--only", metavar="PARTS", help=f"some of them: {','.join(PARTS)} (default: all)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(func=_run)


def _run(arguments: argparse.Namespace) -> int:
    from ledgermq.doctor.examination import examine

    groups = _groups(arguments.only)
    shown = _shown(examine(arguments.config, groups), as_text=not arguments.json)
    verdict = worst(shown)
    if arguments.json:
        print(json.dumps(to_json(arguments.config, shown), indent=2))
    else:
        print(summary(shown))
    return EXIT_FAILS if verdict is Weight.FAIL else 0


def _groups(text: str | None) -> tuple[str, ...]:
    if text is None:
        return PARTS
    wanted = tuple(part.strip() for part in text.split(","))
    unknown = [part for part in wanted if part not in PARTS]
    if unknown:
        raise ConfigError("no such part", given=unknown, known=list(PARTS), option="--only")
    return wanted


def _shown(findings: Iterable[Diagnosis], *, as_text: bool) -> list[Diagnosis]:
    """All findings; as text each is printed at once, for some take seconds."""
    is_colored = as_text and sys.stdout.isatty()
    all_of_them = []
    for finding in findings:
        all_of_them.append(finding)
        if as_text:
            print("\n".join(describe(finding, is_colored=is_colored)), flush=True)
    return all_of_them


def describe(finding: Diagnosis, *, is_colored: bool) -> Iterator[str]:
    """The finding for people, line by line."""
    name = f"{finding.verdict.name:<6}"
    if is_colored:
        name = f"\x1b[{_COLORS[finding.verdict]}m{name}\x1b[0m"
    first, *more = textwrap.wrap(
        " ".join(finding.measured.split()), WIDTH - 32, break_long_words=False
    ) or [""]  # fmt: skip
    yield f"{name}{finding.check:<26}{first}"
    for line in more:
        yield f"{INDENT}{'':<26}{line}"
    if finding.verdict is not Weight.OK:
        for label, text in (("limit", finding.limit), ("do", finding.change)):
            if text:
                lines = textwrap.wrap(text, WIDTH - 16, break_long_words=False)
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
