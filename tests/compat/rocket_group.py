"""Hosts of RocketMQ, which are folders here, and their move to us and back."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ledgermq.model.ids import NodeId
from ledgermq.sessions.keys.peer_keys import init_keys
from tests.compat.remoting_group import JavaProgram, java_program
from tests.compat.rocket_group5 import RocketGroup5
from tests.compat.rocketmq import (
    BROKER,
    MASTER_ID,
    ORACLE_LOCK,
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    end_all,
    oracle_program,
)
from tests.process.conftest import SOURCES, Node, wait_until
from tests.process.group_nodes import Group, Member, free_port

NAMES = ("n0", "n1", "n2")


class RocketGroup:
    """Brokers with a name server, on the stores in ``folder``: three with DLedger, or a plain one.

    Attributes:
        names: of the hosts whose directories are moved.
        places: where the name server and the brokers listen.
    """

    version = "4.9"

    def __init__(self, folder: Path, *words: str, names: Sequence[str] = NAMES) -> None:
        """Nothing runs yet.

        Args:
            words: more of them for ``oracle.py serve``.
        """
        self.folder = folder
        self.names = names
        self._words = words or ("--replicas", str(len(names)))
        self.starts = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.places: dict[str, str] = {}
        self._lock = ORACLE_LOCK.open("w")

    def conf(self, name: str) -> Path:
        """The broker.conf of a host."""
        return self.folder / f"{name}.conf"

    def start(self) -> None:
        """Start it; name server and brokers are where they were before.

        It looks for free ports first and takes them later, and a plain broker takes the next one,
        too: so one RocketMQ at a time on this machine, until :meth:`end`. Whatever of it runs when
        a start fails would hold its ports for all tests that come after.
        """
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            self._start()
        except BaseException:
            self.end()
            raise

    def _start(self) -> None:
        self.starts += 1
        said = self.folder / f"said-{self.starts}"
        words = ["serve", str(self.folder), *self._words, "--heap", "512m"]
        with said.open("wb") as target:
            self.process = subprocess.Popen(
                [sys.executable, str(oracle_program()), *words],
                stdout=target, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

        def listens() -> dict[str, str] | None:
            assert self.process is not None
            assert self.process.poll() is None, said.read_text()
            rows = [line.split() for line in said.read_text().splitlines()]
            listening = ("namesrv", *self.names)
            found = {row[0]: row[1] for row in rows if row[:1] and row[0] in listening}
            return found if len(found) == len(listening) else None

        places = wait_until(listens, "RocketMQ's start", START_TIMEOUT_S)
        assert self.places in ({}, places)
        self.places = places

    def leader(self) -> str | None:
        """Who leads, as RocketMQ's tool says: the broker with the id 0."""
        words = ["mqadmin", "clusterList", "-n", self.places["namesrv"]]
        listed = subprocess.run(
            [sys.executable, str(oracle_program()), *words],
            capture_output=True, text=True, check=False, timeout=STOP_TIMEOUT_S,
        )  # fmt: skip
        rows = [line.split() for line in listed.stdout.splitlines()]
        addresses = {row[3] for row in rows if row[1:3] == [BROKER, MASTER_ID]}
        return next((name for name, at in self.places.items() if at in addresses), None)

    def stop(self) -> None:
        """Stop all of it in order."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

        assert self.process.wait(STOP_TIMEOUT_S) == 0

    def end(self) -> None:
        """Leave nothing behind, and its ports to the next one."""
        if self.process is not None:
            end_all(self.process)
        self._lock.close()


def _migrate(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ledgermq.cli.main", "migrate", *map(str, words), "--json"],
        capture_output=True, text=True, check=False, env={"PYTHONPATH": str(SOURCES)},
    )  # fmt: skip


def run_migrate(*words: object) -> dict[str, Any]:
    """What a step says, which must go well."""
    done = _migrate(*words)

    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


class Move:
    """The hosts of a group, which are folders here, and what is typed on them."""

    def __init__(self, rocketmq: RocketGroup | RocketGroup5, make_node: Callable[[], Node]) -> None:
        self.rocketmq = rocketmq
        self.folder = rocketmq.folder
        self.names = rocketmq.names
        self.nodes = {name: make_node() for name in self.names}
        keys = init_keys(self.folder / "keys", [NodeId(name) for name in self.names])
        self.keys = dict(zip(self.names, keys, strict=True))

    def store(self, name: str) -> Path:
        """The directory that both have."""
        return self.folder / name / "store"

    def migrate(self, *words: object) -> dict[str, Any]:
        """Run a step, which must go well."""
        return run_migrate(*words)

    def verified(self, manifest: Path, store: Path) -> dict[str, Any] | None:
        """What ``verify`` says; None while the store lacks something of the manifest."""
        done = _migrate("verify", manifest, store)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def take_over(self, name: str) -> dict[str, Any]:
        """Settings and manifest of one host; n0 is the name server, too."""
        places = self.rocketmq.places
        words: list[object] = [
            self.rocketmq.conf(name),
            "--settings", self.folder / f"{name}.toml",
            "--manifest", self.folder / f"{name}.before",
            "--remoting", places[name],
            "--runtime-dir", self.nodes[name].runtime,
        ]  # fmt: skip
        if len(self.names) > 1:
            words += ["--keys", self.keys[name]]
        for other in self.names:
            words += ["--address", f"{other}-{places[other]}"]
        if name == self.names[0]:
            words += ["--name-server", places["namesrv"]]
        return self.migrate("take-over", *words)

    def back(self, name: str) -> dict[str, Any]:
        """What one host has for the RocketMQ that it came from, with a manifest."""
        manifest = self.folder / f"{name}.after"
        words = ["--manifest", manifest, "--to", self.rocketmq.version]
        return self.migrate("back", self.store(name), *words)

    def start(self) -> Group:
        """Start the nodes; they are the group that leads soon."""
        members = []
        for name, node in self.nodes.items():
            node.config = self.folder / f"{name}.toml"
            node.root = self.store(name)
            members.append(Member(node, name))
            members[-1].start()
        return Group(members)


@contextmanager
def slave_of(rocketmq: RocketGroup, store: Path) -> Iterator[JavaProgram]:
    """A slave of a plain broker, with its own ``store``; stopped in order at the end."""
    port = free_port()
    config = rocketmq.folder / f"slave-{port}.conf"
    settings = {
        "brokerClusterName": BROKER,
        "brokerName": BROKER,
        "brokerId": 1,
        "brokerRole": "SLAVE",
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
        "haListenPort": free_port(),
        "namesrvAddr": rocketmq.places["namesrv"],
        "storePathRootDir": store,
        "storePathCommitLog": store / "commitlog",
    }
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    program = "org.apache.rocketmq.broker.BrokerStartup"
    with java_program("", program, "-c", str(config), folder=rocketmq.folder) as java:
        wait_until(lambda: java.has_said("The broker["), "the slave", START_TIMEOUT_S)
        yield java
        os.killpg(java.process.pid, signal.SIGTERM)
        java.process.wait(STOP_TIMEOUT_S)
