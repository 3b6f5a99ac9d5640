"""The nodes that a store's life runs on: one, or a group of three; killed whole, at once."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import psutil

from tests.acknowledged.stores import Golden, Kind
from tests.process.conftest import Node, is_alive, wait_until
from tests.process.group_nodes import Group, Member, free_port, make_group
from tests.process.node_start import SERVE

SIZES = {
    "mapped_file_size_commit_log": 1_048_576,
    "mapped_file_size_consume_queue": 4_000,
    "max_hash_slot_num": 500,
    "max_index_num": 400,
}
"""Those of RocketMQ's golden stores."""


QUICK = {
    "transaction_timeout_ms": 500,
    "transaction_check_interval_ms": 500,
    "transaction_check_max": 1_000,
}
"""Producers are asked at once how transactions ended; in a group the log would never rest."""


class Nodes(Protocol):
    """Where verbs are asked."""

    addresses: list[str]
    port: str | None

    def start(self) -> None:
        """Start what does not run; clients may come before it is ready."""
        ...

    def wait_ready(self) -> None:
        """Until it says that it can serve."""
        ...

    def kill(self, change: Callable[[Path], None] | None) -> None:
        """End who answers, whole; ``change`` is done to the stores of those that have ended."""
        ...

    def stop(self) -> list[Path]:
        """End all in order; the stores."""
        ...


def kill_all(nodes: Iterable[Node]) -> None:
    """End all processes of these nodes by SIGKILL, at once, and wait for their ends."""
    pids: list[int] = []
    nodes = list(nodes)
    for node in nodes:
        assert node.process is not None
        above = psutil.Process(node.process.pid)
        pids += [above.pid, *(child.pid for child in above.children(recursive=True))]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for node in nodes:
        node.wait_end()
    wait_until(lambda: not any(map(is_alive, pids)), "the end of all processes")


def forget_told(node: Node) -> None:
    """What systemd was told of an earlier life is not to be taken for news."""
    node.listen()
    node.told.clear()


class SingleNode:
    """One node, with a port for RocketMQ's clients."""

    def __init__(self, node: Node, kind: Kind, golden: Golden, chance: random.Random) -> None:
        kind.begin(node.root, golden)
        port = free_port()
        node.configure(
            node={"self_id": "n0", "listen_port": port},
            store={**SIZES, "log": kind.log},
            ack={"mode": chance.choice(("majority-memory", "majority-fsync"))},
            listen={"remoting": f"127.0.0.1:{port}"},
            access={"admin_over_clients": True},
            supervision={"restarts_max": 1_000},
            transactions=QUICK,
        )
        self._node = node
        self.addresses = [f"ipc://{node.runtime}"]
        self.port: str | None = f"127.0.0.1:{port}"

    def start(self) -> None:
        process = self._node.process
        if process is not None and process.poll() is None:
            return
        forget_told(self._node)
        self._node.launch([*SERVE, str(self._node.config)])

    def wait_ready(self) -> None:
        self._node.wait_ready()

    def kill(self, change: Callable[[Path], None] | None) -> None:
        kill_all([self._node])
        if change is not None:
            change(self._node.root)

    def stop(self) -> list[Path]:
        assert self._node.stop() == 0, self._node.log.read_text()[-2_000:]
        return [self._node.root]


class GroupOfThree:
    """Three nodes; the leader dies, and sometimes all three."""

    port: str | None = None

    def __init__(
        self,
        make_node: Callable[[], Node],
        kind: Kind,
        golden: Golden,
        chance: random.Random,
    ) -> None:
        def prepare(member: Member) -> None:
            shutil.rmtree(member.node.root)
            kind.begin(member.node.root, golden, int(member.name.removeprefix("n")))

        mode = chance.choice(("majority-memory", "majority-fsync"))
        self._chance = chance
        self._group: Group = make_group(make_node, ack=mode, sizes=SIZES, prepare=prepare)
        self._is_started = True
        self.addresses = self._group.addresses

    def start(self) -> None:
        for member in self._group.members:
            if member not in self._group.up():
                forget_told(member.node)
                member.start()

    def wait_ready(self) -> None:
        # All three: where one has ended at its start, the leader's death leaves no majority.
        for member in self._group.members:
            member.node.wait_ready()

    def kill(self, change: Callable[[Path], None] | None) -> None:
        victims = [self._group.leader()]
        if change is not None or self._chance.random() < 0.25:
            victims = self._group.members
        kill_all(member.node for member in victims)
        for member in victims:
            if change is not None:
                change(member.node.root)
        if len(victims) > 1:
            self.start()

    def stop(self) -> list[Path]:
        self.start()
        self.wait_ready()
        self._group.wait_equal()
        assert self._group.stop() == [0, 0, 0]
        return [member.node.root for member in self._group.members]
