"""Node of this machine for who tries or develops: in a folder of its own, run by a command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, TypeVar, cast

from ledgermq.model.config.settings import LogKind, Settings
from ledgermq.model.config.settings_file import write_settings
from ledgermq.model.errors import LedgerError, StorageError, TimedOutError
from ledgermq.process import control
from ledgermq.process.runtime_paths import RuntimePaths

if TYPE_CHECKING:
    from ledgermq.daemon.health.status import NodeStatus
    from ledgermq.formats.index_file import IndexLayout

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
LEADER_TIMEOUT_S = 30.0
ASK_AGAIN_S = 0.02
LOG_LINES_SHOWN = 12
DLEDGER_FOLDER = "dledger-"


class SupervisorProcess(Protocol):
    """The supervisor of a node, as ``subprocess.Popen`` is one."""

    def poll(self) -> int | None:
        """The exit status; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, once it has ended.

        Raises:
            TimeoutExpired: of ``subprocess``; it has not ended within ``timeout`` seconds.
        """

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""

    def terminate(self) -> None:
        """Send SIGTERM, unless it has ended."""


class LocalNode:
    """``ledgermq serve`` on ``FOLDER/store``; its settings are ``FOLDER/node.toml``."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        """A node that is not started.

        Args:
            folder: short enough for unix sockets in it.
            settings: all but the paths, which are in ``folder``.
        """
        self.store = folder / "store"
        self.config = folder / "node.toml"
        self.log = folder / "node.log"
        self.runtime = folder / "run"
        self.name = settings.node.self_id
        self._settings = replace(
            settings,
            store=replace(settings.store, path_root_dir=self.store),
            listen=replace(settings.listen, runtime_dir=self.runtime),
        )
        self._process: SupervisorProcess | None = None

    @classmethod
    def on_store(cls, folder: Path, layout: IndexLayout | None) -> Self:
        """A node of its own for the store that is in ``folder`` already.

        Args:
            layout: of the store's index files; None for RocketMQ's default.
        """
        return cls(folder, _settings_for(folder / "store", layout))

    @property
    def address(self) -> str:
        """Where clients find it."""
        return f"ipc://{self.runtime}"

    def start(self) -> NodeStatus:
        """Start it, and return its status once it can serve.

        Raises:
            LedgerError: it ended, or was not ready in time; with what it logged last.
        """
        self.launch()
        return self.wait_ready()

    def launch(self) -> None:
        """Start it."""
        self.config.write_text(write_settings(self._settings))
        with self.log.open("ab") as log:
            self._process = self._begin(["serve", "--config", str(self.config)], log.fileno())

    def _begin(self, words: Sequence[str], log: int) -> SupervisorProcess:
        """Run ``ledgermq`` with these words; ``log`` is the descriptor that it prints to."""
        return subprocess.Popen(  # noqa: S603 - our own program, without a shell
            [sys.executable, "-m", "ledgermq.cli.main", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )

    def wait_ready(self) -> NodeStatus:
        """Its status, once it can serve.

        Raises:
            LedgerError: it ended, or was not ready in time; with what it logged last.
        """
        assert self._process is not None
        deadline = time.monotonic() + READY_TIMEOUT_S
        while True:
            status = self._status_or_none()
            if status is not None and status["state"] == "ready":
                return status
            if self._process.poll() is not None:
                raise LedgerError(f"the node ended before it was ready:\n{self.last_lines()}")
            if time.monotonic() > deadline:
                raise LedgerError(
                    f"the node was not ready after {READY_TIMEOUT_S:.0f} s, on a machine that may"
                    f" be busy with something else; it said:\n{self.last_lines()}"
                )
            time.sleep(ASK_AGAIN_S)

    @property
    def is_up(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def status(self) -> NodeStatus:
        """What the running node says of itself."""
        path = RuntimePaths(self.runtime).control
        return cast("NodeStatus", control.ask(path, "status"))

    def last_lines(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text().splitlines()[-LOG_LINES_SHOWN:])

    def kill(self, role: str) -> int:
        """End one of its processes with SIGKILL; its pid.

        Raises:
            LedgerError: the node, on a machine that may be busy with something else, has not named
                it within a minute.
        """
        deadline = time.monotonic() + READY_TIMEOUT_S
        while True:
            status = self._status_or_none()
            for process in [] if status is None else status["processes"]:
                if process["role"] == role and process["pid"] is not None:
                    os.kill(process["pid"], signal.SIGKILL)
                    return process["pid"]
            if not self.is_up or time.monotonic() > deadline:
                raise LedgerError("process is not running", role=role)
            time.sleep(ASK_AGAIN_S)

    def kill_all(self) -> None:
        """End the whole node with SIGKILL: the children die with their supervisor."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Stop it in order; its exit status.

        Raises:
            TimedOutError: it has not stopped in time, and was killed.
        """
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            self._process.kill()
            raise TimedOutError("the node did not stop", waited_s=STOP_TIMEOUT_S) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_up:
            self.stop()

    def _status_or_none(self) -> NodeStatus | None:
        try:
            return self.status()
        except (StorageError, TimedOutError):
            # It has not made its socket yet, or gets no processor.
            return None


AnyNode = TypeVar("AnyNode", bound=LocalNode)


def leader_of(nodes: Sequence[AnyNode]) -> AnyNode:
    """The node that may write, once there is one.

    Raises:
        TimedOutError: there is none within half a minute.
    """
    deadline = time.monotonic() + LEADER_TIMEOUT_S
    while time.monotonic() < deadline:
        for node in nodes:
            try:
                if node.is_up and node.status()["raft"]["granted"]:
                    return node
            except LedgerError:
                # It is starting, or dies just now.
                continue
        time.sleep(ASK_AGAIN_S)
    raise TimedOutError("no node leads", waited_s=LEADER_TIMEOUT_S)


def _settings_for(store: Path, layout: IndexLayout | None) -> Settings:
    defaults = Settings()
    members = sorted(path.name for path in store.glob(f"{DLEDGER_FOLDER}*"))
    node = defaults.node
    if members:
        node = replace(node, self_id=members[0].removeprefix(DLEDGER_FOLDER))
    return replace(
        defaults,
        node=node,
        store=replace(
            defaults.store,
            log=LogKind.DLEDGER if members else LogKind.COMMITLOG,
            max_hash_slot_num=None if layout is None else layout.slots,
            max_index_num=None if layout is None else layout.items,
        ),
        # The store that is shown may be years old, and is to be shown whole.
        retention=replace(defaults.retention, file_reserved_time=876_000),
    )
