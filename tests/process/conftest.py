"""Nodes of real processes, and a systemd that listens."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import psutil
import pytest

from ledgermq.process import control
from tests import left_out
from tests.process.node_start import SERVE, SOURCES, Process, start_node
from tests.suite.patience import PATIENCE_S
from tests.suite.space import short_folder

if TYPE_CHECKING:
    from tests.process.group_nodes import Group

PORT_PROCESSES = os.environ.get("LEDGERMQ_PORT_PROCESSES", "")
"""``remoting.processes`` of the nodes that have a port and do not say."""

StartNode = Callable[..., "Node"]


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """Leave a module out, with the reason, that imports what is not installed to read for Spark."""
    return left_out.reading_module(module_path, parent)


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> Any:
    """What ``condition`` returns, once that is true.

    It is looked at again and again, and the rarer the longer it takes: many conditions look into a
    store or ask a node, for which others on the machine wait.
    """
    began = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        waited = time.monotonic() - began
        assert waited < timeout_s, f"{what} did not happen within {timeout_s} s"
        time.sleep(min(0.002 + waited / 50, 0.05))


def is_alive(pid: int) -> bool:
    """Whether a process can still do something; one that nobody has reaped yet cannot."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Node:
    """A supervisor and its children, and the socket of the systemd that started it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "store"
        self.runtime = folder / "run"
        self.orders = folder / "orders"
        self.orders.mkdir()
        self.config = folder / "ledgermq.toml"
        self.log = folder / "log"
        self.told: list[str] = []
        self._systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._systemd.bind(str(folder / "notify"))
        self._systemd.setblocking(False)
        self.process: Process | None = None

    def configure(self, **tables: dict[str, Any]) -> None:
        """Write the settings file; sizes and paths are for tests unless given."""
        values: dict[str, dict[str, Any]] = {
            "node": {"self_id": "n7"},
            "store": {"path_root_dir": str(self.root)},
            "listen": {"runtime_dir": str(self.runtime), "trusted_network": True},
            # Stores that are years old, and whatever the disk of the machine has.
            "retention": {"file_reserved_time": 876_000, "refuse_above": "100%"},
            # A new leader waits for so long before it says that nobody consumes.
            "groups": {"heartbeat_ms": 300},
            # Who gets no processor, or no disk, for some seconds does not hang.
            "supervision": {"beat_timeout_ms": 60_000, "stop_timeout_ms": 60_000},
        }
        for table, keys in tables.items():
            values.setdefault(table, {}).update(keys)
        if "remoting" in values["listen"] and PORT_PROCESSES:
            values.setdefault("remoting", {}).setdefault("processes", int(PORT_PROCESSES))
        lines = []
        for table, keys in values.items():
            lines.append(f"[{table}]")
            for key, value in keys.items():
                # What JSON writes of strings, numbers, booleans and lists is TOML, too.
                lines.append(f"{key} = {json.dumps(value)}")
        self.config.write_text("\n".join(lines) + "\n")

    def launch(
        self,
        command: list[str],
        *,
        watchdog_us: int = 0,
        python: tuple[str, ...] = (),
        prefix: tuple[str, ...] = (),
        passes: tuple[int, ...] = (),
    ) -> None:
        """Start the supervisor as systemd does; ``command`` is a script and its words.

        ``prefix`` is a program that becomes the supervisor, as ``ip netns exec`` does; ``passes``
        are descriptors that it gets.
        """
        environment = {
            **os.environ,
            "PYTHONPATH": str(SOURCES),
            "NOTIFY_SOCKET": str(self.folder / "notify"),
        }
        if watchdog_us:
            environment["WATCHDOG_USEC"] = str(watchdog_us)
        with self.log.open("ab") as log:
            self.process = start_node(
                command, environment=environment, output=log.fileno(),
                options=python, prefix=prefix, passes=passes,
            )  # fmt: skip

    @property
    def address(self) -> str:
        """For its clients on this machine."""
        return f"ipc://{self.runtime}"

    def serve(self) -> None:
        """Start the real node, for the first time or again; returns when it is ready."""
        self.forget_told()
        self.launch([*SERVE, str(self.config)])
        self.wait_ready()

    def order(self, name: str, text: str) -> None:
        """Tell a small process what to do (``small_node.py``)."""
        fresh = self.orders / f"{name}.new"
        fresh.write_text(text)
        fresh.rename(self.orders / name)

    def listen(self) -> list[str]:
        """All messages to systemd so far, in order."""
        while True:
            try:
                self.told += self._systemd.recv(4_096).decode().split("\n")
            except BlockingIOError:
                return self.told

    def forget_told(self) -> None:
        """What an earlier life of the node has told counts no more: also what nobody has read."""
        self.listen()
        self.told.clear()

    def wait_told(self, message: str, count: int = 1) -> None:
        """Wait until systemd has been told ``message`` so often."""
        wait_until(lambda: self.listen().count(message) >= count or self._has_ended(), f"{message}")
        # As one text: pytest shortens all else.
        assert self.told.count(message) >= count, f"{self.told}\n{self.log.read_text()}"

    def wait_ready(self) -> None:
        """Wait until the node says that it can serve."""
        self.wait_told("READY=1")

    def status(self) -> dict[str, Any]:
        """The answer of the control socket."""
        return control.ask(self.runtime / "control.sock", "status", timeout_s=PATIENCE_S)

    def child(self, role: str) -> dict[str, Any]:
        """What ``status`` says of one process."""
        found: dict[str, Any] = next(
            process for process in self.status()["processes"] if process["role"] == role
        )
        return found

    def pids(self) -> dict[str, int]:
        """Pids of all processes that are up."""
        return {p["role"]: p["pid"] for p in self.status()["processes"] if p["pid"]}

    def pid(self, role: str) -> int:
        """That of one process, once it is up: who dies again soon is down for a moment."""
        found: int = wait_until(lambda: self.pids().get(role), f"{role} is up")
        return found

    def signal(self, number: int) -> None:
        """Send a signal to the supervisor."""
        assert self.process is not None
        self.process.send_signal(number)

    def wait_end(self) -> int:
        """Exit status of the supervisor, once it has ended by itself."""
        assert self.process is not None
        return self.process.wait(PATIENCE_S)

    def stop(self) -> int:
        """Stop in order; the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait_end()

    def logged(self, text: str) -> bool:
        """Whether a line with ``text`` was logged."""
        return text in self.log.read_text()

    def destroy(self) -> None:
        """Leave nothing running, and nothing lying about."""
        self.end()
        self._systemd.close()

    def end(self) -> None:
        """Kill what runs, and wait until it has ended."""
        if self.process is not None:
            children = []
            if self.process.poll() is None:
                children = [child.pid for child in psutil.Process(self.process.pid).children()]
                self.process.kill()
            self.process.wait()
            wait_until(lambda: not any(map(is_alive, children)), "end of the children")

    def _has_ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None


AnyNode = TypeVar("AnyNode", bound=Node)


@contextmanager
def nodes_made(kind: type[AnyNode] = Node) -> Iterator[Callable[[], AnyNode]]:
    """Makes nodes that are not started; all are destroyed at the end."""
    nodes: list[AnyNode] = []
    # A path of pytest's is too long for a unix socket.
    folder = Path(tempfile.mkdtemp(prefix="lmq-", dir=short_folder()))

    def make() -> AnyNode:
        own = folder / str(len(nodes))
        own.mkdir()
        nodes.append(kind(own))
        return nodes[-1]

    try:
        yield make
    finally:
        for node in nodes:
            node.destroy()
        shutil.rmtree(folder)


@pytest.fixture
def make_node() -> Iterator[Callable[[], Node]]:
    """See ``nodes_made``."""
    with nodes_made() as make:
        yield make


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    """A node that serves, one for all tests of a module that says so: ``NODE`` has its settings, as
    tables by their names. Who needs more than settings has a fixture of its own by this name."""
    from tests.process.client_node import start_client_node

    with nodes_made() as make:
        made = make()
        start_client_node(made, **request.module.NODE)
        yield made


@pytest.fixture
def own_node(request: pytest.FixtureRequest, make_node: Callable[[], Node]) -> Node:
    """The same for one test, which may do with it what it likes."""
    from tests.process.client_node import start_client_node

    made = make_node()
    start_client_node(made, **getattr(request.module, "NODE", {}))
    return made


@pytest.fixture
def address(node: Node) -> str:
    """That of ``node`` for its clients."""
    return node.address


@pytest.fixture
def topic(node: Node, request: pytest.FixtureRequest) -> str:
    """One of ``node`` that the test has for itself."""
    from tests.process.client_node import own_topic

    return own_topic(node, request)


@pytest.fixture
def group(make_node: Callable[[], Node]) -> Group:
    """Three nodes that acknowledge what a majority has on disk."""
    from tests.process.group_nodes import make_group

    return make_group(make_node, ack="majority-fsync")


@pytest.fixture
def start_small_node(make_node: Callable[[], Node]) -> StartNode:
    """Starts a node of tiny processes: ``start_small_node(watchdog_us=…, supervision={…})``."""

    def start(
        *,
        orders: dict[str, str] | None = None,
        watchdog_us: int = 0,
        python: tuple[str, ...] = (),
        ready: bool = True,
        **tables: dict[str, Any],
    ) -> Node:
        node = make_node()
        node.configure(**tables)
        for name, text in (orders or {}).items():
            node.order(name, text)
        launch_small(node, watchdog_us=watchdog_us, python=python)
        if ready:
            node.wait_ready()
        return node

    return start


def launch_small(node: Node, *, watchdog_us: int = 0, python: tuple[str, ...] = ()) -> None:
    """Start the node of tiny processes in the node's folder."""
    script = str(Path(__file__).with_name("small_node.py"))
    node.launch(
        [script, str(node.config), str(node.orders)], watchdog_us=watchdog_us, python=python
    )


@pytest.fixture
def restart_small_node() -> Callable[[Node], None]:
    """Starts the supervisor again in a node's folder, once the first one has ended."""
    return launch_small
