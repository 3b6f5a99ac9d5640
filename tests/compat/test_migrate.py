"""A group of RocketMQ becomes ours, then RocketMQ's again, while Java's clients go on."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from tests.compat.remoting_group import java_program
from tests.compat.rocketmq import (
    BROKER,
    MASTER_ID,
    ORACLE_LOCK,
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    oracle_program,
)
from tests.process.conftest import SOURCES, Node, wait_until
from tests.process.group_nodes import Group, Member

from ledgermq.model.ids import NodeId
from ledgermq.process.peer_keys import init_keys

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

THROUGH = Path(__file__).with_name("Through.java")
NAMES = ("n0", "n1", "n2")
RUNS_S = 150.0


class RocketGroup:
    """Three brokers with DLedger and a name server, on the stores in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.starts = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.places: dict[str, str] = {}

    def start(self) -> None:
        """Start it; name server and brokers are where they were before."""
        self.starts += 1
        said = self.folder / f"said-{self.starts}"
        words = ["serve", str(self.folder), "--replicas", "3", "--heap", "512m"]
        with said.open("wb") as target:
            self.process = subprocess.Popen(
                [sys.executable, str(oracle_program()), *words],
                stdout=target, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

        def listens() -> dict[str, str] | None:
            assert self.process is not None
            assert self.process.poll() is None, said.read_text()
            rows = [line.split() for line in said.read_text().splitlines()]
            found = {row[0]: row[1] for row in rows if row[:1] and row[0] in ("namesrv", *NAMES)}
            return found if len(found) == 4 else None

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
        """Leave nothing behind."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Move:
    """The hosts of a group, which are folders here, and what is typed on them."""

    def __init__(self, rocketmq: RocketGroup, make_node: Callable[[], Node]) -> None:
        self.rocketmq = rocketmq
        self.folder = rocketmq.folder
        self.nodes = {name: make_node() for name in NAMES}
        keys = init_keys(self.folder / "keys", [NodeId(name) for name in NAMES])
        self.keys = dict(zip(NAMES, keys, strict=True))

    def store(self, name: str) -> Path:
        """The directory that both have."""
        return self.folder / name / "store"

    def migrate(self, *words: object) -> dict[str, Any]:
        """Run a step, which must go well."""
        done = subprocess.run(
            [sys.executable, "-m", "ledgermq.cli.main", "migrate", *map(str, words), "--json"],
            capture_output=True, text=True, check=False, env={"PYTHONPATH": str(SOURCES)},
        )  # fmt: skip

        assert done.returncode == 0, done.stderr
        facts: dict[str, Any] = json.loads(done.stdout)
        return facts

    def take_over(self, name: str) -> dict[str, Any]:
        """Settings and manifest of one host; n0 is the name server, too."""
        places = self.rocketmq.places
        words: list[object] = [
            self.folder / f"{name}.conf",
            "--settings", self.folder / f"{name}.toml",
            "--manifest", self.folder / f"{name}.before",
            "--keys", self.keys[name],
            "--remoting", places[name],
            "--runtime-dir", self.nodes[name].runtime,
        ]  # fmt: skip
        for other in NAMES:
            words += ["--address", f"{other}-{places[other]}"]
        if name == NAMES[0]:
            words += ["--name-server", places["namesrv"]]
        return self.migrate("take-over", *words)

    def start(self) -> Group:
        """Start the nodes; they are the group that leads soon."""
        members = []
        for name, node in self.nodes.items():
            node.config = self.folder / f"{name}.toml"
            node.root = self.store(name)
            members.append(Member(node, name))
            members[-1].start()
        return Group(members)


def test_a_group_moves_to_us_and_back_under_clients_that_go_on(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    with ExitStack() as ends:
        lock = ends.enter_context(ORACLE_LOCK.open("w"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        rocketmq = RocketGroup(tmp_path)
        ends.callback(rocketmq.end)
        move = Move(rocketmq, make_node)
        rocketmq.start()
        java = ends.enter_context(
            java_program(rocketmq.places["namesrv"], THROUGH, "moved", "m", folder=tmp_path)
        )
        wait_until(lambda: java.has_said("runs"), "producers and consumers", RUNS_S)
        for name in NAMES:
            facts = move.migrate("check", tmp_path / f"{name}.conf")

            assert facts["broker"].startswith("runs as process ")
        leader: str = wait_until(rocketmq.leader, "RocketMQ's leader", START_TIMEOUT_S)
        rocketmq.stop()
        begin = time.monotonic()
        for name in set(NAMES) - {leader}:
            copytree(move.store(leader) / "config", move.store(name) / "config", dirs_exist_ok=True)
        taken = [move.take_over(name) for name in NAMES]
        group = move.start()
        group.leader()
        print(f"stopped to leading {time.monotonic() - begin:.1f} s")
        java.tell("ours")
        wait_until(lambda: java.has_said("through ours "), "clients with us", RUNS_S)
        group.wait_equal()
        for name, facts in zip(NAMES, taken, strict=True):
            found = move.migrate("verify", tmp_path / f"{name}.before", move.store(name))

            assert found["compared"] == facts["messages"] > 0
            assert found["added"] > 0

        assert group.stop() == [0, 0, 0]
        back = [
            move.migrate("back", move.store(name), "--manifest", tmp_path / f"{name}.after")
            for name in NAMES
        ]
        rocketmq.start()
        java.tell("theirs")
        wait_until(lambda: java.has_said("through theirs "), "clients with RocketMQ", RUNS_S)
        for name, facts in zip(NAMES, back, strict=True):
            found = move.migrate("verify", tmp_path / f"{name}.after", move.store(name))

            assert found["compared"] == facts["messages"] > 0
        java.tell("stop")
        lines = java.wait()
        rocketmq.stop()
    print(*java.said("through "), *java.said("acked "), *java.said("again "), sep="\n")

    assert "ordered missing 0 turned 0" in lines, lines[-50:]
    assert "concurrent missing 0" in lines, lines[-50:]
    assert [name for name, node in move.nodes.items() if node.logged("ERROR")] == []
