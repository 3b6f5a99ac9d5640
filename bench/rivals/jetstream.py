"""NATS JetStream on loopback: built from the Go module proxy, one server or three, file storage."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.processes import DIES_WITH_US

SERVER = "github.com/nats-io/nats-server/v2@v2.15.2"
SOURCE = Path(__file__).with_name("nats")
HOME = Path(os.environ.get("LEDGERMQ_RIVALS", Path.home() / ".cache" / "ledgermq-rivals"))


class NatsLoad(NamedTuple):
    """What the load program measured."""

    messages_per_second: float
    p50_ms: float
    p99_ms: float
    failed: int


def build() -> tuple[Path, Path]:
    """The server and the load program, built once; needs ``go``."""
    HOME.mkdir(parents=True, exist_ok=True)
    server, load = HOME / "nats-server", HOME / "natsload"
    environment = dict(os.environ, GOBIN=str(HOME), GOFLAGS="-mod=mod")
    if not server.exists():
        subprocess.run(["go", "install", SERVER], env=environment, check=True)
    newest = max(path.stat().st_mtime for path in SOURCE.iterdir())
    if not load.exists() or load.stat().st_mtime < newest:
        with tempfile.TemporaryDirectory() as scratch:
            shutil.copytree(SOURCE, scratch, dirs_exist_ok=True)
            for command in (["go", "mod", "tidy"], ["go", "build", "-o", str(load), "."]):
                subprocess.run(
                    command, cwd=scratch, env=environment, check=True, capture_output=True
                )
    return server, load


@contextmanager
def jetstream(directory: Path, *, sync_always: bool) -> Iterator[str]:
    """A server with its store below ``directory``; its URL."""
    server, _ = build()
    (port,) = _free_ports(1)
    store = directory / "nats"
    sync = ", sync_interval: always" if sync_always else ""
    configuration = directory / "nats.conf"
    configuration.write_text(f"port: {port}\njetstream {{ store_dir: {store}{sync} }}\n")
    process = subprocess.Popen(
        [*DIES_WITH_US, str(server), "-a", "127.0.0.1", "-c", str(configuration)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _await_port(port)
        yield f"nats://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(store, ignore_errors=True)


@contextmanager
def jetstream_group(directory: Path, *, sync_always: bool, servers: int = 3) -> Iterator[str]:
    """A cluster with its stores below ``directory``; the URLs of its servers, with commas."""
    server, _ = build()
    ports = _free_ports(2 * servers)
    clients, routes = ports[:servers], ports[servers:]
    sync = ", sync_interval: always" if sync_always else ""
    among = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
    processes = []
    stores = [directory / f"nats-{number}" for number in range(servers)]
    for number, store in enumerate(stores):
        configuration = directory / f"nats-{number}.conf"
        configuration.write_text(
            f"server_name: s{number}\nport: {clients[number]}\n"
            f"jetstream {{ store_dir: {store}{sync} }}\n"
            f"cluster {{ name: bench, listen: 127.0.0.1:{routes[number]}, routes: [{among}] }}\n"
        )
        processes.append(
            subprocess.Popen(
                [*DIES_WITH_US, str(server), "-a", "127.0.0.1", "-c", str(configuration)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
    try:
        for port in clients:
            _await_port(port)
        yield ",".join(f"nats://127.0.0.1:{port}" for port in clients)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)
        for store in stores:
            shutil.rmtree(store, ignore_errors=True)


def load(
    url: str,
    *,
    mode: str,
    clients: int,
    size: int,
    seconds: float,
    replicas: int = 1,
    messages: int = 0,
    pending: int = 512,
) -> NatsLoad:
    """Run the load program once.

    Args:
        messages: that are there to be consumed, of its pull modes.
        pending: publishes of each client in flight, of its async mode.
    """
    _, program = build()
    done = subprocess.run(
        [
            str(program),
            f"-url={url}",
            f"-mode={mode}",
            f"-clients={clients}",
            f"-size={size}",
            f"-seconds={seconds}",
            f"-replicas={replicas}",
            f"-messages={messages}",
            f"-pending={pending}",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    fields = json.loads(done.stdout)
    return NatsLoad(
        fields["messages_per_second"], fields["p50_ms"], fields["p99_ms"], fields["failed"]
    )


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _await_port(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens on port {port}")
