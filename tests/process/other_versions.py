"""Nodes of other versions: the one before levels were known, and one that knows a level more."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from ledgermq.model.features import LEVEL

REPOSITORY = Path(__file__).resolve().parents[2]
BEFORE_LEVELS = "9d1dea55a6ccf8e532a3ae7e9a0d0883f4f186ac"


@dataclass(frozen=True)
class Version:
    """A checkout that nodes can be started from."""

    python: Path
    sources: Path

    @property
    def environment(self) -> dict[str, str]:
        """What has an interpreter import it, and not what the folder has in which that is run."""
        return {"PYTHONPATH": str(self.sources), "PYTHONSAFEPATH": "1"}

    @property
    def prefix(self) -> tuple[str, ...]:
        """Words before a node's command that have this version run it."""
        words = [f"{name}={shlex.quote(text)}" for name, text in self.environment.items()]
        script = f"shift; {' '.join(words)} exec {shlex.quote(str(self.python))}"
        return ("/bin/sh", "-c", f'{script} "$@"', "sh")

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run this version's ``ledgermq``."""
        return subprocess.run(
            [str(self.python), "-m", "ledgermq.cli.main", *words],
            env={**os.environ, **self.environment},
            capture_output=True, text=True, check=False,
        )  # fmt: skip


THIS = Version(Path(sys.executable), REPOSITORY)


def version_before() -> Version:
    """That of 0.1.0's last commit, unpacked once, run with this one's libraries; skips without it.

    Its kernels are not compiled: they take two minutes of a processor, and their plain twins do
    the same.
    """
    folder = Path(tempfile.gettempdir()) / f"ledgermq-{BEFORE_LEVELS[:8]}-plain-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        pytest.skip(f"{folder} is another account's")
    with (folder / "lock").open("w") as lock:
        # Workers that run beside this one wait for the first of them.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "unpacked").exists():
            _unpack(folder)
    return Version(Path(sys.executable), folder / "src")


def _unpack(folder: Path) -> None:
    archive = subprocess.run(
        ["git", "-C", str(REPOSITORY), "archive", BEFORE_LEVELS],
        capture_output=True, check=False,
    )  # fmt: skip
    if archive.returncode:
        pytest.skip(f"the commit of 0.1.0 is not there: {archive.stderr.decode()[:200]}")
    subprocess.run(["tar", "x", "-C", str(folder)], input=archive.stdout, check=True)
    (folder / "unpacked").touch()


def next_version(folder: Path, *, asks_nobody: bool = False) -> Version:
    """This one with one feature level more, in ``folder``.

    Args:
        asks_nobody: it raises levels whatever the others know, and lets everybody in.
    """
    sources = folder / "src"
    shutil.copytree(
        REPOSITORY / "ledgermq", sources / "ledgermq", ignore=shutil.ignore_patterns("__pycache__")
    )
    changes = [
        (
            "model/features.py",
            "\nLEVEL = ",
            f'\nLEVELS += (FeatureLevel({LEVEL + 1}, "one of tests", "9.9.9", (), ()),)\nLEVEL = ',
        )
    ]
    if asks_nobody:
        changes += [
            ("broker/administration/feature_calls.py", "return min(LEVEL, ", "return max(LEVEL, "),
            ("raft_node/peers/peer_admission.py", "self._level_needed = level", "del level"),
        ]
    for name, before, after in changes:
        path = sources / "ledgermq" / name
        text = path.read_text()
        assert text.count(before) == 1, path
        path.write_text(text.replace(before, after))
    return Version(Path(sys.executable), sources)
