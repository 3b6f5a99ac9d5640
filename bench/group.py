"""Three nodes on loopback for a benchmark: the installed command, directories of their own."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.node import COMMAND, configuration
from bench.processes import DIES_WITH_US, is_alive, processes_of
from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.model.errors import LedgerError
from ledgermq.model.ids import NodeId
from ledgermq.sessions.keys.peer_keys import init_keys

NODES = 3
PATIENCE_S = 60.0
LOOK_AGAIN_S = 0.005
CAUGHT_UP_S = 0.5
"""A node that needs no longer for what was committed when it was asked has caught up."""

COMPLAINTS_SHOWN = 20
_GRAVE = (" WARNING ", " ERROR ", " CRITICAL ")


class Standing(NamedTuple):
    """What the cursor page of a node says."""

    term: int
    granted: bool
    written: int
    committed: int
    dispatched: int


class GroupNode:
    """One of the three; its log lines are in ``log``, its settings in ``config``."""

    def __init__(
        self,
        name: str,
        directory: Path,
        runtime: Path,
        settings: str,
        *,
        prefix: Sequence[str] = (),
    ) -> None:
        """Nothing is started; ``prefix`` stands in front of the command."""
        self.name = name
        self.directory = directory
        self.runtime = runtime
        self.log = directory / "log"
        self.config = directory / "ledgermq.toml"
        self.config.write_text(settings)
        self._prefix = prefix
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Address for clients."""
        return f"ipc://{self.runtime}"

    @property
    def pid(self) -> int:
        """Of the supervisor."""
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether the supervisor has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it; in a session of its own, so that a terminal's Ctrl-C leaves it to us."""
        assert not self.runs
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*DIES_WITH_US, *self._prefix, *COMMAND, "serve", "--config", str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def standing(self) -> Standing | None:
        """What its page says now; None while it does not run, or has no page yet."""
        return self.last_standing() if self.runs else None

    def last_standing(self) -> Standing | None:
        """The same, and of a node that has ended what it said last."""
        try:
            with CursorPage.attach(self.runtime / "cursors") as page:
                grant = page.read_grant()
                return Standing(
                    grant.term,
                    grant.granted,
                    page.read_written().position,
                    page.read_committed().position,
                    page.read_dispatched().position,
                )
        except LedgerError:
            # It is starting.
            return None

    def leads(self) -> bool:
        """Whether its writer has a term."""
        standing = self.standing()
        return standing is not None and standing.granted

    def kill(self) -> None:
        """End all its processes with -9."""
        assert self._process is not None
        victims = processes_of(self.pid)
        for victim in victims:
            try:
                victim.kill()
            except psutil.NoSuchProcess:
                # It died with its supervisor.
                continue
        self._process.wait()
        while any(is_alive(victim.pid) for victim in victims):
            time.sleep(0.000_5)

    def ask_to_stop(self) -> None:
        """What ``systemctl stop`` does; ``wait_end`` comes later."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def wait_end(self) -> int:
        """Its exit status, once it has stopped."""
        assert self._process is not None
        return self._process.wait(PATIENCE_S)

    def stop(self) -> int:
        """Stop it in order; the exit status."""
        self.ask_to_stop()
        return self.wait_end()

    def complaints(self) -> list[str]:
        """Lines of its log that an operator should see."""
        if not self.log.exists():
            return []
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if any(level in line for level in _GRAVE)]

    def destroy(self) -> None:
        """Leave nothing running, and nothing lying about."""
        if self.runs:
            self.kill()
        shutil.rmtree(self.runtime, ignore_errors=True)
        shutil.rmtree(self.directory, ignore_errors=True)


class BenchGroup:
    """The three nodes."""

    def __init__(self, nodes: list[GroupNode], ports: list[int]) -> None:
        self.nodes = nodes
        self._ports = ports

    @property
    def addresses(self) -> str:
        """All addresses, as a client takes them."""
        return ",".join(node.address for node in self.nodes)

    @property
    def name_servers(self) -> str:
        """All nodes' ports for RocketMQ's clients, as those take them; empty without ports."""
        return ";".join(f"127.0.0.1:{port}" for port in self._ports)

    def port_of(self, node: GroupNode) -> int:
        """A node's port for RocketMQ's clients."""
        return self._ports[self.nodes.index(node)]

    def leader(self, *, besides: GroupNode | None = None) -> GroupNode:
        """Who leads; waits until somebody does."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            for node in self.nodes:
                if node is not besides and node.leads():
                    return node
            time.sleep(LOOK_AGAIN_S)
        raise TimeoutError(f"nobody leads; {self._said()}")

    def wait_for_runs(self) -> None:
        """Wait until all writers do by themselves what is steady (docs/decisions/0133)."""
        until = time.monotonic() + PATIENCE_S
        with ExitStack() as attached:
            pages = [
                attached.enter_context(CursorPage.attach(node.runtime / "cursors"))
                for node in self.nodes
            ]
            while not all(page.run_cell()[0] for page in pages):
                if time.monotonic() > until:
                    raise TimeoutError(f"a writer has no run; {self._said()}")
                time.sleep(LOOK_AGAIN_S)

    def term(self) -> int:
        """The highest term that any node knows."""
        return max(one.term for node in self.nodes if (one := node.standing()) is not None)

    def committed(self) -> int:
        """Position up to which any node knows the log to be committed."""
        return max(one.committed for node in self.nodes if (one := node.standing()) is not None)

    def wait_caught_up(self, node: GroupNode, *, patience_s: float = PATIENCE_S) -> float:
        """Seconds until ``node`` follows closely; the last of them is ``CAUGHT_UP_S`` at most."""
        begin = time.monotonic()
        while time.monotonic() - begin < patience_s:
            target, asked = self.committed(), time.monotonic()
            while not _has_committed(node, target):
                if time.monotonic() - begin > patience_s:
                    raise TimeoutError(f"{node.name} does not catch up; {self._said()}")
                time.sleep(LOOK_AGAIN_S)
            if time.monotonic() - asked < CAUGHT_UP_S:
                return time.monotonic() - begin
        raise TimeoutError(f"{node.name} does not catch up; {self._said()}")

    def complaints(self) -> list[str]:
        """Lines of all logs that an operator should see."""
        return [f"{node.name}: {line}" for node in self.nodes for line in node.complaints()]

    def _said(self) -> str:
        standings = {node.name: node.standing() for node in self.nodes}
        return f"{standings}, {self.complaints()[-COMPLAINTS_SHOWN:]}"


def _has_committed(node: GroupNode, position: int) -> bool:
    standing = node.standing()
    return standing is not None and standing.committed >= position


@contextmanager
def bench_group(
    base: Path,
    *,
    ack: str,
    curve: bool,
    more: str = "",
    remoting: bool = False,
    port_processes: int = 1,
    direct: bool = True,
    writers: bool = True,
    http: Sequence[str] = (),
    prefix: Sequence[str] = (),
    members: int = NODES,
) -> Iterator[BenchGroup]:
    """Nodes below ``base`` with a leader; nothing of them is left at the end.

    Args:
        members: so many nodes.
        remoting: whether they have ports for RocketMQ's clients.
        port_processes: that serve these ports; one is the broker's.
        curve: whether the members encrypt what they say, as they do by default.
        more: tables of settings beside those that every benchmark has.
        direct: whether the members have direct connections, as they do by default.
        writers: whether writers feed one another.
        http: where each answers HTTP; nowhere without.
        prefix: in front of the command of each.
    """
    names = [f"n{number}" for number in range(members)]
    with tempfile.TemporaryDirectory(prefix="group-", dir=base) as scratch:
        ports = free_ports(members) if remoting else []
        if ports:
            more += f"[remoting]\nprocesses = {port_processes}\n"
        nodes = _nodes(
            Path(scratch), names, ports, ack=ack, curve=curve, more=more, direct=direct,
            writers=writers, http=http, prefix=prefix,
        )  # fmt: skip
        group = BenchGroup(nodes, ports)
        try:
            for node in nodes:
                node.start()
            group.leader()
            yield group
            # The leader last: it hands over while there is somebody to hand over to.
            for node in sorted(nodes, key=lambda node: node.leads()):
                if node.runs:
                    node.stop()
        finally:
            for line in group.complaints()[:COMPLAINTS_SHOWN]:
                print(line, file=sys.stderr)
            for node in nodes:
                node.destroy()


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def _nodes(
    scratch: Path,
    names: list[str],
    remoting: list[int],
    *,
    ack: str,
    curve: bool,
    more: str,
    direct: bool,
    writers: bool,
    http: Sequence[str],
    prefix: Sequence[str],
) -> list[GroupNode]:
    """The nodes with their settings, not started."""
    ports = free_ports(len(names))
    peers = ", ".join(f'"{name}-127.0.0.1:{port}"' for name, port in zip(names, ports, strict=True))
    served = dict(zip(names, remoting, strict=False))
    asked = dict(zip(names, http, strict=False))
    if served:
        addresses = ", ".join(f'"{name}-127.0.0.1:{port}"' for name, port in served.items())
        more += f"addresses = [{addresses}]\n"
    keys = init_keys(scratch / "keys", [NodeId(name) for name in names])
    nodes = []
    for name, own_keys in zip(names, keys, strict=True):
        own = scratch / name
        own.mkdir()
        runtime = Path(tempfile.mkdtemp(prefix="lmq-", dir="/tmp"))
        port = served.get(name)
        settings = (
            f'[node]\nself_id = "{name}"\npeers = [{peers}]\n'
            + (f"listen_port = {port}\n" if port else "")
            + f'[raft]\ncurve = {str(curve).lower()}\nkeys_dir = "{own_keys}"\n'
            + ("" if direct else "direct = false\n")
            + ("" if writers else "direct_writers = false\n")
        )
        listen = f'remoting = "127.0.0.1:{port}"\n' if port else ""
        if name in asked:
            listen += f'http = "{asked[name]}"\n'
        settings += configuration(own, runtime, ack=ack, level="INFO", more=more, listen=listen)
        nodes.append(GroupNode(name, own, runtime, settings, prefix=prefix))
    return nodes
