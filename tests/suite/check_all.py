"""Runner of ``make check-all`` and ``make soak``: parts that have not passed on this very tree yet.

    python -m tests.suite.check_all              all that is left
    python -m tests.suite.check_all boot power   these, whether they have passed or not
    python -m tests.suite.check_all --list       what is known of each; 1 while any is left
    python -m tests.suite.check_all --soak       those for a night, instead

What a part said at its end is kept in ``build/check-all.json``, with the tree that it ran on, so
that a run that was broken off goes on where it was. A change of any file that is tracked begins
anew. What a part prints goes to ``build/check-all/NAME.log``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.suite.check_parts import PARTS, SOAKS, Part
from tests.suite.kept_rows import keep_rows, kept_rows

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "check-all.json"
LOGS = ROOT / "build" / "check-all"


class Outcome(NamedTuple):
    """How a part ended.

    Attributes:
        tree: of git's, that it ran on; empty where files differed from it.
        said: the last line that it printed.
        load: what the machine had to do at the end, runnable threads over the last five minutes.
    """

    tree: str
    commit: str
    status: int
    said: str
    seconds: int
    load: float

    def passed_on(self, tree: str) -> bool:
        """Whether nothing is left to be run on ``tree``."""
        return self.status == 0 and self.tree == tree != ""


def kept() -> dict[str, Outcome]:
    """The outcomes that are known, by part."""
    return {name: Outcome(**fields) for name, fields in kept_rows(KEPT).items()}


def keep(name: str, outcome: Outcome) -> None:
    """Replace what is known of a part."""
    outcomes = kept() | {name: outcome}
    keep_rows(KEPT, {part: one._asdict() for part, one in outcomes.items()})


def tree_of() -> str:
    """What git calls the content of the last commit; empty where tracked files differ from it."""
    if _git("status", "--porcelain", "--untracked-files=no"):
        return ""
    return _git("rev-parse", "HEAD^{tree}")


def command_of(part: Part) -> list[str]:
    """What is run for a part."""
    if part.command:
        return list(part.command)
    return [sys.executable, "-m", "pytest", "-q", "-rs", "-n", part.workers, *part.tests]


def run(part: Part, tree: str) -> Outcome:
    """Run it to its end; what it prints goes to its file."""
    LOGS.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    log = LOGS / f"{part.name}.log"
    with log.open("wb") as printed:
        status = 0
        for tool in part.tools:
            status = status or _call(["packaging/install-tools.sh", tool], {}, printed.fileno())
        status = status or _call(command_of(part), part.environment, printed.fileno())
    lines = log.read_text(errors="replace").split("\n")
    said = next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
    return Outcome(
        tree, _git("describe", "--always", "--dirty"), status, said,
        round(time.monotonic() - began), round(os.getloadavg()[1], 1),
    )  # fmt: skip


def _call(command: Sequence[str], environment: Mapping[str, str], printed: int) -> int:
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, check=False,
        stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT,
    ).returncode  # fmt: skip


def _git(*words: str) -> str:
    asked = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return asked.stdout.strip()


def table(parts: Sequence[Part], outcomes: dict[str, Outcome], tree: str) -> list[str]:
    """A line for each part: what is known of it on ``tree``."""
    lines = []
    for part in parts:
        one = outcomes.get(part.name)
        if one is None:
            lines.append(f"{part.name:<18}not run")
            continue
        word = "passed" if one.passed_on(tree) else "FAILED" if one.status else "passed before"
        cost = f"{one.seconds:>6} s  load {one.load:<6}"
        lines.append(f"{part.name:<18}{word:<15}{one.commit:<14}{cost}{one.said}")
    return lines


def main(words: Sequence[str]) -> int:
    """See the module's text; 0 when every part has passed on this tree."""
    parts = SOAKS if "--soak" in words else PARTS
    names = [part.name for part in parts]
    asked = [word for word in words if word not in ("--list", "--soak")]
    if unknown := sorted(set(asked) - set(names)):
        print(f"not known: {', '.join(unknown)}; parts are {', '.join(names)}", file=sys.stderr)
        return 2
    tree = tree_of()
    if not tree:
        print("check-all: files differ from the commit, so nothing of this counts later")
    left = [one for one in parts if not (one.name in kept() and kept()[one.name].passed_on(tree))]
    if "--list" in words:
        print("\n".join(table(parts, kept(), tree)))
        return int(bool(left))
    failed = 0
    for part in [one for one in parts if one.name in asked] if asked else left:
        print(f"check-all: {part.name}: {LOGS / part.name}.log", flush=True)
        outcome = run(part, tree)
        keep(part.name, outcome)
        failed += outcome.status != 0
    print("\n".join(table(parts, kept(), tree)))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
