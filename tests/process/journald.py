"""A real journald for tests: in a mount namespace of its own, with a /run of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.process.conftest import wait_until
from tests.suite.patience import PATIENCE_S

JOURNALD = Path("/lib/systemd/systemd-journald")
_NAMESPACE = ("unshare", "--mount", "--propagation", "private")
_BEGIN = f"""
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal /run/log/journal && exec {JOURNALD}
"""
_STREAM = 'JOURNAL_STREAM=$(stat -L -c %d:%i /dev/stderr) exec "$@"'


def why_not() -> str:
    """Why there can be no journald here; empty when there can."""
    missing = [tool for tool in ("unshare", "nsenter", "journalctl") if not shutil.which(tool)]
    if missing or not JOURNALD.exists():
        return f"not installed: {', '.join([*missing, str(JOURNALD)])}"
    if not Path("/etc/machine-id").exists() or not Path("/etc/machine-id").read_text().strip():
        return "the machine has no /etc/machine-id"
    tried = subprocess.run(
        [*_NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", "/run"],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    return tried.stderr.strip()


class Journald:
    """journald, and what it holds."""

    def __init__(self, pid: int) -> None:
        self._inside = Path(f"/proc/{pid}/root")
        self.socket = self._inside / "run/systemd/journal/socket"
        self.folder = self._inside / "run/log/journal"
        self.prefix = (
            "nsenter", "--target", str(pid), "--mount", "--wd=/",
            "systemd-cat", "--identifier=ledgermq", "sh", "-c", _STREAM, "sh",
        )  # fmt: skip
        """Words before a command whose output is to go to this journal, as of a service."""

    def is_up(self) -> bool:
        """Whether it takes lines."""
        return self.socket.exists() and (self.socket.parent / "stdout").exists()

    def ask(self, *words: str) -> str:
        """What journalctl prints."""
        done = subprocess.run(
            ["journalctl", "--directory", str(self.folder), *words],
            capture_output=True, text=True, check=True, timeout=PATIENCE_S,
        )  # fmt: skip
        return done.stdout

    def entries(self, *matches: str) -> list[dict[str, Any]]:
        """Entries of ours with all of these fields, the oldest first."""
        wanted = ("SYSLOG_IDENTIFIER=ledgermq", *matches)
        lines = self.ask("--output=json", "--all", "--quiet", *wanted).splitlines()
        return [json.loads(line) for line in lines]


@contextmanager
def running_journald() -> Iterator[Journald]:
    """A journald that runs for so long."""
    process = subprocess.Popen(
        [*_NAMESPACE, "sh", "-c", _BEGIN],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    journald = Journald(process.pid)
    try:
        wait_until(lambda: journald.is_up() or process.poll() is not None, "journald's sockets")
        assert process.poll() is None
        yield journald
    finally:
        process.kill()
        process.wait()
