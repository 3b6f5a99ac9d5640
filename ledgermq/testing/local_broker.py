"""Local broker: a real node, or a group of three, that ends with the program that started it."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from typing import Any, Self

from ledgermq.model.errors import LedgerError

ENDED_WITHIN_S = 60.0


class LocalBroker:
    """``ledgermq dev`` in a process of its own, with a temporary folder and free ports.

    It ends with ``close``, and by itself when this program ends, in whatever way: nothing is left.
    What it complains of comes to this program's standard error. For one thread at a time.

    Attributes:
        address: for ``ledgermq.client``.
        name_server: for RocketMQ's clients (``setNamesrvAddr``).
        http: addresses of console and HTTP API, one a node; none without ``ledgermq-web``.
        token: for these, ``Authorization: Bearer TOKEN``.
        pid: of the process below which all others are.
        nodes: of each node ``name``, ``address``, ``remoting``, ``http``, ``log`` and others.
    """

    def __init__(self, *, nodes: int = 1) -> None:
        """Start it, and return once it can serve.

        Args:
            nodes: 1, or 3 for a group.

        Raises:
            LedgerError: it did not start.
        """
        words = ["-P", "-m", "ledgermq.cli.main", "dev", "--orders", "--nodes", str(nodes)]
        self._process = subprocess.Popen(  # noqa: S603 - our own program, without a shell
            [sys.executable, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C in a terminal ends the tests first, which may still want it.
            process_group=0,
        )
        self.pid = self._process.pid
        told = self._answer()
        self.address: str = told["address"]
        self.name_server: str = told["name_server"]
        self.http: list[str] = told["http"]
        self.token: str = told["token"]
        self.nodes: list[dict[str, str]] = told["nodes"]

    def fresh_name(self, prefix: str = "test") -> str:
        """A name that no topic and no group has: what is sent there is this test's alone."""
        return f"{prefix}-{secrets.token_hex(6)}"

    def kill_leader(self) -> str:
        """Kill the node that leads, all of its processes, with SIGKILL; its name.

        It returns when another one leads, or at once where too few are left.

        Raises:
            LedgerError: there is one node only, or nobody leads.
        """
        killed: str = self._ask("kill-leader")["killed"]
        return killed

    def start_killed(self) -> list[str]:
        """Start those again that were killed, and return once all can serve; their names.

        Raises:
            LedgerError: one did not start.
        """
        started: list[str] = self._ask("start")["started"]
        return started

    def close(self) -> None:
        """End it, and return when no process and no file is left.

        Raises:
            LedgerError: it ended with an error.
            TimeoutExpired: of ``subprocess``; it did not end within a minute, and was killed.
        """
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
            try:
                status = process.wait(ENDED_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        if status:
            raise LedgerError("the broker did not end in order", exit_status=status)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, order: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        if self._process.poll() is None:
            self._process.stdin.write(f"{order}\n")
            self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise LedgerError("the broker has ended", exit_status=self._process.wait())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise LedgerError(answer["error"])
        return answer
