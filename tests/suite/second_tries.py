"""Tests that failed beside others and passed alone: each has an open question to it.

``.ci/run`` lets work land with such a test once, and notes it in ``build/second-tries.json``. Until
it stands in ``docs/known-races.md``, with what is known of its cause, the next run of ``.ci/run``
and ``tests/test_known_races.py`` fail in the same checkout.

    python -m tests.suite.second_tries demand    say which notes are not on the page: status 1 then;
                                                 those that are on it have been answered and go
    python -m tests.suite.second_tries failed    print the tests that failed in the last run; 1 as
                                                 status when that did not run all of its tests
    python -m tests.suite.second_tries note ID…  these needed a second try
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
NOTES = ROOT / "build" / "second-tries.json"
PAGE = ROOT / "docs" / "known-races.md"
_CACHE = ROOT / ".pytest_cache" / "v"
LAST_FAILED = _CACHE / "cache" / "lastfailed"
NOT_RUN = _CACHE / "ledgermq" / "not-run"
"""How many tests the last run with workers did not come to, written by ``plugin``."""


class Row(NamedTuple):
    """A row of the page's table."""

    test: str
    seen: str
    cause: str


def rows(page: str) -> list[Row]:
    """The table of the page, without its head; each row begins with a test in backticks."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.splitlines()
        if line.startswith("| `")
    ]
    return [Row(row[0].strip("`"), *[*row[1:], "", ""][:2]) for row in cells]


def noted(notes: Path = NOTES) -> list[dict[str, str]]:
    """What the last runs noted: ``test``, ``commit``, ``at``."""
    found: list[dict[str, str]] = json.loads(notes.read_text()) if notes.exists() else []
    return found


def note(tests: Iterable[str], *, commit: str, notes: Path = NOTES) -> None:
    """Keep that these needed a second try."""
    at = datetime.now(UTC).isoformat(timespec="minutes")
    notes.parent.mkdir(exist_ok=True)
    added = [{"test": test, "commit": commit, "at": at} for test in tests]
    notes.write_text(json.dumps(noted(notes) + added, indent=1) + "\n")


def unanswered(page: str, notes: Path = NOTES) -> list[dict[str, str]]:
    """Notes of tests that are not on the page; a row of a test is one of all its cases."""
    known = {row.test.partition("[")[0] for row in rows(page)}
    return [one for one in noted(notes) if one["test"].partition("[")[0] not in known]


def described(missing: Iterable[dict[str, str]]) -> str:
    """The complaint about notes that are not on the page."""
    lines = [
        f"needed a second try, not in docs/known-races.md: {one['test']}"
        f" (commit {one['commit']}, {one['at']})"
        for one in missing
    ]
    return "\n".join(
        [*lines, "find the cause, or write down what is known of it: docs/known-races.md says how"]
    )


def demand(page: str, notes: Path = NOTES) -> list[dict[str, str]]:
    """What is not on the page; notes that are on it are forgotten."""
    missing = unanswered(page, notes)
    if missing:
        notes.write_text(json.dumps(missing, indent=1) + "\n")
    else:
        notes.unlink(missing_ok=True)
    return missing


def failed() -> list[str]:
    """The tests that failed in the last run of pytest."""
    return sorted(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.exists() else []


def _commit() -> str:
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return asked.stdout.strip() or "unknown"


def main(words: Sequence[str]) -> int:
    """See the module's text."""
    verb, *tests = words
    if verb == "failed":
        print("\n".join(failed()))
        if NOT_RUN.exists() and (missing_count := json.loads(NOT_RUN.read_text())):
            print(f"{missing_count} tests did not run", file=sys.stderr)
            return 1
    elif verb == "note":
        note(tests, commit=_commit())
        if missing := unanswered(PAGE.read_text()):
            print(described(missing), file=sys.stderr)
    elif missing := demand(PAGE.read_text()):
        print(described(missing), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
