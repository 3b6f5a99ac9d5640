"""The life of a cluster under load: three groups, a fourth that joins, the first that goes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.process.cluster_history import History, Message, now_ms
from tests.process.cluster_nodes import (
    CLUSTER,
    PATIENT_RAFT,
    STEP_S,
    ClusterGroup,
    LeaderKills,
    is_busy,
)
from tests.process.conftest import SOURCES, Node, wait_until
from tests.suite.patience import PATIENCE_S

NAMES = ("orders-a", "orders-b", "orders-c", "orders-d")
KEYED, ANY = "bills", "events"
"""Of the first topic order is promised; of the second what is not stored in time fails over."""

QUEUES = "2"
CHANGES = 2
"""How often a key's queue may change: with the topic's spread, and with the drain of a group."""

_ROOT = Path(__file__).parents[2]


class Client:
    """A program that produces and consumes until it is told to end."""

    def __init__(self, history: History, process: subprocess.Popen[bytes]) -> None:
        self.history = history
        self._process = process

    def look(self) -> History:
        """What it has said by now; one that has ended is a failure."""
        self.history.look()
        assert self._process.poll() is None, (self.history.name, self.history.tail())
        return self.history

    def stop_sending(self) -> None:
        """What it has begun to send it sends to its end."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"stop\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """Have it close its consumers, and end by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()

        assert self._process.wait(PATIENCE_S) == 0, (self.history.name, self.history.tail())


@contextmanager
def client_program(
    history: History, words: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[Client]:
    """Run a client; nothing of it is left at the end."""
    with history.said.open("wb") as target:
        process = subprocess.Popen(
            list(words),
            env={**os.environ, **(environment or {})},
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=target,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield Client(history, process)
    finally:
        # No such process: all of its session has ended by itself, as it should.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def native_client(name: str, groups: Sequence[ClusterGroup], folder: Path) -> Iterator[Client]:
    """Our own library's, which is given these groups."""
    history = History(name, folder / f"{name}.said", delivers_in_order=True, keeps_places=True)
    addresses = [",".join(one.nodes) for one in groups]
    words = [sys.executable, "-m", "tests.process.cluster_load", name, KEYED, ANY, *addresses]
    with client_program(history, words, {"PYTHONPATH": str(SOURCES)}) as client:
        yield client


class Cluster:
    """Three groups that serve, and a fourth one that does not run yet.

    Attributes:
        steps: what was done, and how many seconds it took.
        kills: of leaders, once they have begun, and at ``began_ms``.
        is_patient: whether the machine does too much else for elections as they are by default.
    """

    def __init__(
        self,
        make_node: Callable[[], Node],
        *,
        members: int,
        name_servers: Sequence[str] | None = None,
    ) -> None:
        """Start them, and make them a cluster with its topics.

        Args:
            members: of each group.
            name_servers: RocketMQ's; without them the nodes of the second and third group are.
        """
        self.groups = [ClusterGroup(name, members) for name in NAMES]
        self.steps: list[tuple[str, float]] = []
        self.kills: LeaderKills | None = None
        self.began_ms = now_ms()
        # A group of one has nobody to wait for.
        self.is_patient = members > 1 and is_busy()
        self._make_node = make_node
        first, second, third, _ = self.groups
        self.name_servers = list(name_servers or (*second.ports, *third.ports))
        with self._step("start nine nodes" if members > 1 else "start three nodes"):
            for group in self.groups[:3]:
                group.start(make_node, self.name_servers, is_patient=self.is_patient)
            for group in self.groups[:3]:
                group.wait_ready()
        with self._step("a cluster of three groups"):
            root_key = first.group.members[0].node.folder / "root.json"
            nodes = ",".join(first.nodes)
            first.tell("cluster", "init", CLUSTER, "--root-key", str(root_key), "--nodes", nodes)
            for group in (second, third):
                self.join(group, home=first)
        with self._step("two topics over three groups"):
            over = ("--over", "all", "--queues", QUEUES)
            first.tell("topic", "create", KEYED, *over, "--order", "on")
            first.tell("topic", "create", ANY, *over, "--fails-over", "on")
            self._wait_followed(self.groups[:3])

    @property
    def repeated(self) -> list[str]:
        """What commands said that were typed again."""
        return [f"{one.name}: {said}" for one in self.groups for said in one.repeated]

    def change(self, clients: Sequence[Client]) -> None:
        """Let a group join and the first one go, while clients go on and leaders die."""
        first, second, _, later = self.groups
        with self._step("clients begin"):
            for client in clients:
                wait_until(lambda one=client: one.look().is_busy, f"{client.history.name}", STEP_S)
        self.began_ms = now_ms()
        kills = self.kills = LeaderKills(self.groups[:3])
        try:
            with self._step("a fourth group joins"):
                later.start(self._make_node, self.name_servers, is_patient=self.is_patient)
                later.wait_ready()
                kills.add(later)
                self.join(later, home=first)
                goes_on(clients)
            with self._step("both topics are spread to it"):
                for topic in (KEYED, ANY):
                    first.tell("topic", "spread", topic, "--over", later.name)
                self._wait_followed([later])
                for client in clients:
                    wait_until(
                        lambda one=client: one.look().reads_from(later.name),
                        f"{client.history.name} to use the fourth group",
                        STEP_S,
                    )
            with self._step("the second group is the home"):
                first.tell("cluster", "move-home", second.name, "--yes")
            with self._step("the first group is drained"):
                home = ("--home", second.address, "--wait", str(int(STEP_S)), "--yes")
                first.tell("cluster", "drain", first.name, *home, done=lambda: _is_alone(first))
                listed = second.tell("cluster", "list")["groups"]
                assert [one["group"] for one in listed] == [*NAMES[1:]]
            with self._step("its nodes are stopped"):
                kills.spare(first)
                statuses = first.group.stop()
                assert statuses == [0] * len(first.nodes)
                goes_on(clients)
            with self._step("a leader of each group has died"):
                for group in self.groups:
                    wait_until(lambda one=group: kills.count(one), f"{group.name}", STEP_S)
        finally:
            kills.stop()

    def end(self, clients: Sequence[Client]) -> None:
        """Let all be acknowledged and consumed, and stop what is left."""
        with self._step("all is consumed"):
            for client in clients:
                client.stop_sending()
            for client in clients:
                wait_until(
                    lambda one=client: one.look().has_stopped, f"{client.history.name}", STEP_S
                )
            wait_read(clients, acknowledged(clients))
            for client in clients:
                client.end()
        with self._step("the others are stopped"):
            for group in self.groups[1:]:
                assert group.group.stop() == [0] * len(group.nodes)

    def join(self, group: ClusterGroup, *, home: ClusterGroup) -> None:
        """A group belongs to the cluster from now on."""
        nodes = ",".join(group.nodes)
        group.tell("cluster", "join", "--home", home.address, "--nodes", nodes)

    def _wait_followed(self, groups: Sequence[ClusterGroup]) -> None:
        for group in groups:
            for topic in (KEYED, ANY):
                wait_until(
                    lambda one=group, name=topic: one.has(name), f"{topic} in {group.name}", STEP_S
                )

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.steps.append((name, time.monotonic() - began))


def _is_alone(group: ClusterGroup) -> bool:
    return group.tell("cluster", "status") == {"cluster": None}


def acknowledged(clients: Sequence[Client]) -> set[Message]:
    """All messages of which one of them was told that they are stored."""
    return {message for client in clients for message in client.look().acked}


def wait_read(clients: Sequence[Client], messages: set[Message]) -> None:
    """Until each of them was given all of these."""
    for client in clients:
        wait_until(
            lambda one=client: not one.look().lacks(messages), f"{client.history.name}", STEP_S
        )


def goes_on(clients: Sequence[Client]) -> None:
    """Each has read what was acknowledged before, and something of each key is stored since."""
    before = acknowledged(clients)
    counts = {(one, key): len(times) for one in clients for key, times in one.history.acks.items()}

    def are_further() -> bool:
        for client in clients:
            client.look()
        return all(len(one.history.acks[key]) > count + 1 for (one, key), count in counts.items())

    wait_until(are_further, "an acknowledgement of each key", STEP_S)
    wait_read(clients, before)


def check(histories: Sequence[History]) -> None:
    """What docs/operating/several-groups.md promises of messages and of their order."""
    stored = {message for one in histories for message in one.acked}
    steady = {one.name for one in histories if one.keeps_places}
    for one in histories:
        assert len(one.acked) == one.sent > 0, (one.name, one.sent, len(one.acked))
        lost = one.lacks(stored)
        assert not lost, (one.name, len(lost), lost[:5])
        turned = one.out_of_order()
        assert not turned, (one.name, len(turned), turned[:5])
        for (writer, key), queues in one.places().items():
            assert writer not in steady or len(queues) <= CHANGES + 1, (writer, key, queues)


def report(cluster: Cluster, histories: Sequence[History]) -> str:
    """Of each step its time, of each client its figures, of each kill what it cost."""
    lines = ["step".ljust(40) + "seconds"]
    lines += [f"{name:<38}{seconds:>9.1f}" for name, seconds in cluster.steps]
    if cluster.is_patient:
        lines.append(f"the machine is busy: {PATIENT_RAFT}")
    lines += [f"typed again: {said}" for said in cluster.repeated]
    heads = (
        "sent", "acknowledged", "received", "stored twice", "given again", "gap ms", "of a key",
        "of reads", "queues of a key",
    )  # fmt: skip
    lines.append("client    " + "".join(f"{head:>16}" for head in heads))
    for one in histories:
        span = cluster.began_ms, one.last_ack_ms()
        twice = [message for message in one.stored_twice() if message[0] == one.name]
        places = [len(queues) for (writer, _), queues in one.places().items() if writer == one.name]
        figures = (
            one.sent, len(one.acked), len(one.reads), len(twice), one.given_again(),
            one.gap_ms(*span), one.key_gap_ms(*span), one.read_gap_ms(*span),
            max(places, default=0),
        )  # fmt: skip
        lines.append(f"{one.name:<10}" + "".join(f"{figure:>16,}" for figure in figures))
    lines += [
        f"sent again by {one.name}: {count:,} times, {why}"
        for one in histories
        for why, count in sorted(one.refused.items())
    ]
    lines.append(
        "leader killed      led after ms   back after ms   longest gap ms of each client (of a key)"
    )
    for died in cluster.kills.died if cluster.kills is not None else ():
        span = died.at_ms, died.at_ms + died.back_ms
        gaps = ", ".join(
            f"{one.name} {one.gap_ms(*span):,} ({one.key_gap_ms(*span):,})" for one in histories
        )
        name = f"{died.group} {died.member}"
        lines.append(f"{name:<19}{died.led_ms:>12,}{died.back_ms:>16,}   {gaps}")
    return "\n".join(lines)
