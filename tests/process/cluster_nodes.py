"""Groups of real nodes that are one cluster, what is typed at them, and how their leaders die."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ledgermq.sessions.keys.peer_keys import USERS_FILE
from ledgermq.sessions.keys.user_secrets import make_user_key
from tests.process.cluster_history import now_ms
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import Group, Member, add_settings, free_port, make_group
from tests.process.node_start import run_command

CLUSTER = "sales"
STEP_S = 400.0
"""For what is done while leaders die, on a machine that does much else."""

COMMAND_S = "60"
REPEATS_MAX = 20
"""Of commands to one group that were broken off: more than deaths of leaders explain."""

BETWEEN_KILLS_S = 1.0

BUSY_LOAD = 8
"""Processes that want a core, for each core: above it members do not hear each other in time."""

PATIENT_RAFT = {
    "heartbeat_ms": 500,
    "election_timeout_min_ms": 5_000,
    "election_timeout_max_ms": 10_000,
}


def is_busy() -> bool:
    """Whether leaders would be replaced all the time by members that are merely late."""
    return os.getloadavg()[0] > BUSY_LOAD * len(os.sched_getaffinity(0))


class ClusterGroup:
    """One group of a cluster.

    Attributes:
        ports: of its members, for RocketMQ's clients; name services, too.
        nodes: consume sockets of its members, as ``cluster init`` and clients take them.
        repeated: what commands said that were typed again.
    """

    def __init__(self, name: str, members: int) -> None:
        """Nothing of it runs yet."""
        self.name = name
        self.ports = [f"127.0.0.1:{free_port()}" for _ in range(members)]
        self.nodes = [f"tcp://127.0.0.1:{free_port()}" for _ in range(members)]
        self.repeated: list[str] = []
        self._made: Group | None = None

    def start(
        self, make_node: Callable[[], Node], name_servers: Sequence[str], *, is_patient: bool
    ) -> None:
        """Start its members; ``wait_ready`` comes later.

        Args:
            name_servers: where they register.
            is_patient: they wait long before they elect another leader.
        """

        def prepare(member: Member) -> None:
            number = int(member.name.removeprefix("n"))
            port = self.ports[number]
            settings: dict[str, dict[str, object]] = {
                "node": {
                    "broker_name": self.name,
                    "broker_cluster_name": CLUSTER,
                    "listen_port": int(port.partition(":")[2]),
                },
                "listen": {
                    "consume": self.nodes[number],
                    "produce": f"tcp://127.0.0.1:{free_port()}",
                    "remoting": port,
                },
                # A topic is spread strictly by whom all groups take for an admin.
                "access": {"admin_over_clients": True},
                "remoting": {
                    "addresses": [f"n{other}-{at}" for other, at in enumerate(self.ports)],
                    "name_servers": list(name_servers),
                    "registrations_from": ["127.0.0.0/8"],
                },
            }
            add_settings(member, settings)
            if members == 1:
                # One that is made alone has none, for it may join others. The home's is made of it.
                make_user_key(member.node.folder / "group-keys" / member.name / USERS_FILE)

        members = len(self.ports)
        raft = PATIENT_RAFT if is_patient else None
        self._made = make_group(
            make_node, members=members, ack="majority-fsync", raft=raft, prepare=prepare
        )

    def wait_ready(self) -> None:
        """Until all of them serve, and one leads."""
        for member in self.group.members:
            member.node.wait_ready()
        self.group.leader()

    @property
    def group(self) -> Group:
        """Its members."""
        assert self._made is not None, "it was started"
        return self._made

    @property
    def address(self) -> str:
        """For commands on a host of it."""
        return ",".join(self.group.addresses)

    def tell(self, *words: str, done: Callable[[], bool] = lambda: False) -> Any:
        """What ``ledgermq`` prints as JSON, asked of this group; broken off, it is typed again.

        Args:
            done: whether the end was reached all the same.
        """
        said: list[Any] = []

        def is_told() -> bool:
            ran = run_command(*words, "--address", self.address, "--timeout", COMMAND_S, "--json")
            if ran.returncode == 0:
                said.append(json.loads(ran.stdout))
                return True
            self.repeated.append(f"{' '.join(words[:2])}: {ran.stderr.strip().splitlines()[-1]}")
            assert len(self.repeated) < REPEATS_MAX, self.repeated
            if done():
                said.append(None)
            return bool(said)

        wait_until(is_told, " ".join(words), STEP_S)
        return said[0]

    def has(self, topic: str) -> bool:
        """Whether it has followed the topic's row."""
        listed = self.tell("topic", "list")
        return any(one["topic"] == topic for one in listed["topics"])


class Died(NamedTuple):
    """A leader that was killed: when, and after how long there was another, and it was back."""

    group: str
    member: str
    at_ms: int
    led_ms: int
    back_ms: int


class LeaderKills:
    """A thread that kills the leader of one group after the other, and starts it again."""

    def __init__(self, groups: Sequence[ClusterGroup]) -> None:
        """It begins at once."""
        self.died: list[Died] = []
        self._groups = list(groups)
        self._lock = threading.Lock()
        self._ends = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="leader-kills")
        self._thread.start()

    def add(self, group: ClusterGroup) -> None:
        """Kill the leaders of this one, too."""
        with self._lock:
            self._groups.append(group)

    def spare(self, group: ClusterGroup) -> None:
        """No longer of this one; it is whole on return."""
        with self._lock:
            self._groups.remove(group)

    def count(self, group: ClusterGroup) -> int:
        """How often a leader of it has died."""
        assert self._failure is None, self._failure
        return sum(one.group == group.name for one in self.died)

    def stop(self) -> None:
        """Have it end; all groups are whole then."""
        self._ends.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        number = 0
        try:
            while not self._ends.wait(BETWEEN_KILLS_S):
                with self._lock:
                    self.died.append(_kill(self._groups[number % len(self._groups)]))
                number += 1
        except BaseException as error:
            # The test's own thread raises it.
            self._failure = error


def _kill(killed: ClusterGroup) -> Died:
    group = killed.group
    leader = group.leader()
    end = leader.cursors()["committed"]["index"]
    at_ms = now_ms()
    leader.node.end()
    if len(group.members) > 1:
        group.leader()
        led_ms = now_ms() - at_ms
        leader.start()
        leader.node.wait_ready()
    else:
        leader.start()
        leader.node.wait_ready()
        group.leader()
        led_ms = now_ms() - at_ms

    def has_all() -> bool:
        status = leader.status()
        return status is not None and int(status["cursors"]["committed"]["index"]) >= end

    wait_until(has_all, "the member to catch up", STEP_S)
    return Died(killed.name, leader.name, at_ms, led_ms, now_ms() - at_ms)
