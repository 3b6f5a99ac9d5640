"""Three nodes on loopback for a benchmark: the installed command, directories of their own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.node import COMMAND, configuration
from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.model.errors import LedgerError

NODES = 3
PATIENCE_S = 60.0


class GroupNode:
    """One of the three."""

    def __init__(self, name: str, directory: Path, settings: str) -> None:
        self.name = name
        self.directory = directory
        self.runtime = Path(tempfile.mkdtemp(prefix="lmq-", dir="/tmp"))
        self._config = directory / "ledgermq.toml"
        self._config.write_text(settings.format(directory=directory, runtime=self.runtime))
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Address for clients."""
        return f"ipc://{self.runtime}"

    def start(self) -> None:
        """Start it."""
        self.process = subprocess.Popen([*COMMAND, "serve", "--config", str(self._config)])

    def leads(self) -> bool:
        """Whether its writer has a term."""
        if self.process is None or self.process.poll() is not None:
            return False
        try:
            with CursorPage.attach(self.runtime / "cursors") as page:
                return page.read_grant().granted
        except LedgerError:
            # It has not made its page yet.
            return False

    def kill(self) -> None:
        """End all of it with -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Stop it in order, and remove what it had in its runtime directory."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(PATIENCE_S)
        shutil.rmtree(self.runtime, ignore_errors=True)
        shutil.rmtree(self.directory, ignore_errors=True)


class BenchGroup:
    """The three nodes."""

    def __init__(self, nodes: list[GroupNode]) -> None:
        self.nodes = nodes

    @property
    def addresses(self) -> str:
        """All addresses, as a client takes them."""
        return ",".join(node.address for node in self.nodes)

    def leader(self) -> GroupNode:
        """Who leads; waits until somebody does."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            for node in self.nodes:
                if node.leads():
                    return node
            time.sleep(0.005)
        raise TimeoutError("nobody leads")

    def dispatch_lag_bytes(self) -> int:
        """How far dispatch of any node is behind what the leader has committed, now."""
        with ExitStack() as opened:
            pages = [
                opened.enter_context(CursorPage.attach(node.runtime / "cursors"))
                for node in self.nodes
            ]
            committed = max(page.read_committed().position for page in pages)
            return committed - min(page.read_dispatched().position for page in pages)


@contextmanager
def bench_group(base: Path, *, ack: str, more: str = "") -> Iterator[BenchGroup]:
    """Three nodes below ``base`` with a leader.

    Args:
        more: tables of settings beside those that every benchmark has.
    """
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(NODES)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        ports = [probe.getsockname()[1] for probe in probes]
    names = [f"n{number}" for number in range(NODES)]
    peers = ", ".join(f'"{name}-127.0.0.1:{port}"' for name, port in zip(names, ports, strict=True))
    nodes = []
    for name in names:
        own = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=base))
        settings = f'[node]\nself_id = "{name}"\npeers = [{peers}]\n[raft]\ncurve = false\n'
        settings += configuration(Path("{directory}"), Path("{runtime}"), ack=ack, more=more)
        nodes.append(GroupNode(name, own, settings))
    group = BenchGroup(nodes)
    try:
        for node in nodes:
            node.start()
        group.leader()
        yield group
    finally:
        for node in sorted(nodes, key=lambda node: node.leads()):
            node.stop()
