"""Porcupine, the judge of histories that nobody here wrote: its program is built when it is needed.

``make check-all`` sets ``LEDGERMQ_PORCUPINE=1``: then it fails where Go is missing, or its module
cannot be fetched; else what needs it is left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent
IS_REQUIRED = os.environ.get("LEDGERMQ_PORCUPINE", "") not in ("", "0")
TIMEOUT_S = 120
BUILD_S = 300


class Checker:
    """The built program."""

    def __init__(self, program: Path) -> None:
        self._program = program

    def judge(
        self, histories: Iterable[Path], *, timeout: str = f"{TIMEOUT_S}s", drawing: Path | None
    ) -> subprocess.CompletedProcess[str]:
        """Its exit status (``main.go``) and what it says of each queue."""
        drawn = [] if drawing is None else ["-draw", str(drawing)]
        return subprocess.run(
            [str(self._program), "-timeout", timeout, *drawn, *map(str, histories)],
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * TIMEOUT_S,
        )

    def check(self, histories: Iterable[Path], *, drawing: Path) -> None:
        """Fail unless every queue is linearizable; also when the time was not enough to tell."""
        judged = self.judge(histories, drawing=drawing)
        assert judged.returncode == 0, f"{judged.stdout}{judged.stderr}\ndrawn in {drawing}"


def build(folder: Path) -> Checker | str:
    """The checker, built in ``folder``; or why there is none."""
    go = shutil.which("go")
    if go is None:
        return "no Go here (Debian: apt-get install golang-go; or https://go.dev/dl)"
    program = folder / "linearizability"
    built = subprocess.run(
        [go, "build", "-o", str(program), "."],
        cwd=SOURCES,
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_S,
    )
    if built.returncode:
        return f"Porcupine cannot be built (tests/linearizability): {built.stderr.strip()}"
    return Checker(program)


def built_or_none(folder: Path) -> Checker | None:
    """The checker; where there is none, ``None``, or a failure when it is asked for."""
    made = build(folder)
    if isinstance(made, Checker):
        return made
    if IS_REQUIRED:
        pytest.fail(made)
    return None
