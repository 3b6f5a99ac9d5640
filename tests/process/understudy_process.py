"""The process of ``ledgermq understudy run`` on a folder: begun, killed, told to end, looked at."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.process.node_start import SOURCES, Process, start_node
from tests.suite.patience import PATIENCE_S

_COMMAND = ["-m", "ledgermq.cli.main", "understudy"]


def understudy(*words: object) -> subprocess.CompletedProcess[str]:
    """Run one verb."""
    return subprocess.run(
        [sys.executable, *_COMMAND, *map(str, words)],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )  # fmt: skip


class UnderstudyProcess:
    """A folder and the process that follows, while there is one."""

    def __init__(self, folder: Path, said: Path, *doors: object) -> None:
        """Nothing runs yet.

        Args:
            doors: words for ``add`` and ``run``, by which the master lets them in.
        """
        self._doors = [str(word) for word in doors]
        self.folder = folder
        self.said = said
        self._process: Process | None = None

    def add_words(self, master: str, remoting: str) -> list[object]:
        """The command by which the folder is prepared."""
        return ["add", master, "--remoting", remoting, "--folder", self.folder, *self._doors]

    def add(self, master: str, remoting: str) -> None:
        """Prepare the folder."""
        done = understudy(*self.add_words(master, remoting))

        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        """Begin to follow."""
        environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
        with self.said.open("ab") as output:
            self._process = start_node(
                [*_COMMAND, "run", "--folder", str(self.folder), *self._doors],
                environment=environment, output=output.fileno(),
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """That of what follows."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """End it by the kernel, if it runs."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> int:
        """End it in order; the exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        status = self._process.wait(PATIENCE_S)
        self._process = None
        return status

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself."""
        assert self._process is not None
        return self._process.poll() is not None

    @property
    def status(self) -> int | None:
        """Exit status of one that has ended by itself."""
        assert self._process is not None
        return self._process.returncode

    def show(self) -> dict[str, Any]:
        """What ``show`` says."""
        done = understudy("show", "--folder", self.folder, "--json")

        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found
