"""RocketMQ's own admin tool against a port of ours."""

from __future__ import annotations

import subprocess
import sys

from tests.compat.rocketmq import oracle_program

TIMEOUT_S = 120.0


class Mqadmin:
    """Runs one sub-command after the other, each in a JVM of its own."""

    def __init__(self, name_server: str) -> None:
        self._name_server = name_server

    def __call__(self, *words: str) -> str:
        """All that it prints; its exit status says nothing, even when it has failed."""
        command = [sys.executable, str(oracle_program()), "mqadmin", *words]
        done = subprocess.run(
            [*command, "-n", self._name_server],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        return done.stdout + done.stderr
