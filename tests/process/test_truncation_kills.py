"""kill -9 while a member's log is cut, because a new leader's differs; replayed from a seed.

In each life the leader is cut off, writes entries that nobody gets, and is killed. It comes back
when another one has led on, and dies at a call with which its writer takes the entries back, at one
that a seed chose (``LEDGERMQ_KILL_SEED``), or at the start before.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from ledgermq.client import Producer
from ledgermq.client.core.results import BatchResult
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.model.errors import LedgerError
from tests.process.conftest import Node, is_alive, wait_until
from tests.process.fault_network import ProxyNetwork
from tests.process.faults import kill_node
from tests.process.group_nodes import TOPIC, Group, Member, make_group, producer
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

LIVES = max(2, int(os.environ.get("LEDGERMQ_KILL_POINTS", "0")) // 10)
SEED = int(os.environ.get("LEDGERMQ_KILL_SEED") or random.SystemRandom().randrange(2**31))
CUTS = ("punch_hole", "unlink", "fdatasync", "pwrite", "open")
CUT_CALLS_MAX = 3
SIZES = {
    "mapped_file_size_commit_log": 65_536,
    "mapped_file_size_consume_queue": 4_000,
    "max_hash_slot_num": 100,
    "max_index_num": 700,
}
BATCH = 20


@pytest.fixture
def network() -> Iterator[ProxyNetwork]:
    made = ProxyNetwork(3)
    yield made
    made.close()


class Cutting:
    """A group whose leaders lose what they alone have, and what was acknowledged meanwhile."""

    def __init__(self, group: Group, network: ProxyNetwork) -> None:
        self.group = group
        self.acknowledged: set[bytes] = set()
        self.chance = random.Random(SEED)
        self._network = network
        self._sent = 0

    def live(self) -> str:
        """One life; what the member that is cut died of."""
        old = self.group.leader()
        self.send(self.group.members, batches=2)
        self.group.wait_equal()
        self._cut_off(old)
        self._write_alone(old, self.chance.randint(1, 12))
        others = self.group.others(old)
        self.group.leader(besides=old)
        self.send(others, batches=self.chance.randint(1, 12))
        kill_node(old)
        self._network.heal()
        cause = self._come_back(old)
        self.group.wait_equal()
        return cause

    def send(self, members: list[Member], *, batches: int) -> None:
        """Batches that are acknowledged."""
        with producer(*members, timeout_s=PATIENCE_S) as one:
            for _ in range(batches):
                bodies = self._bodies()
                one.send_batch(TOPIC, bodies).result()
                self.acknowledged.update(bodies)

    def _cut_off(self, member: Member) -> None:
        number = self.group.members.index(member)
        for other in range(len(self.group.members)):
            if other != number:
                self._network.lose(number, other)
                self._network.lose(other, number)

    def _write_alone(self, old: Member, batches: int) -> None:
        """Let a leader write what nobody gets; it leads until it misses the others' answers."""
        before = old.cursors()["written"]["index"]
        with producer(old, timeout_s=1.0) as one:
            for bodies, future in [self._try(one) for _ in range(batches)]:
                # The first of them may have gone out before nothing does any more; it may have
                # stepped down before the last.
                if future is not None and future.exception() is None:
                    self.acknowledged.update(bodies)
        written = old.cursors()["written"]["index"]
        print(f"entries that nobody got: {written - before}")

    def _try(self, one: Producer) -> tuple[list[bytes], SendFuture[BatchResult] | None]:
        bodies = self._bodies()
        try:
            return bodies, one.send_batch(TOPIC, bodies)
        except LedgerError:
            return bodies, None

    def _bodies(self) -> list[bytes]:
        self._sent += 1
        return [b"%06d-%02d-" % (self._sent, row) + b"x" * 900 for row in range(BATCH)]

    def _come_back(self, old: Member) -> str:
        """Start a member that dies when its log is cut, and again without that."""
        plan = old.node.folder / "plan"
        words = {
            "role": "writer",
            "folder": self.chance.choice(("data", "data", "index", "")),
            "names": [self.chance.choice(CUTS)],
            "call": self.chance.randint(1, CUT_CALLS_MAX),
            "moment": self.chance.choice(("before", "within", "after")),
            "scope": self.chance.choice(("node", "process")),
        }
        plan.write_text(json.dumps(words))
        script = Path(__file__).with_name("kill_point.py")
        old.node.forget_told()
        old.node.launch([str(script), str(old.node.config), str(plan)])
        died = Path(f"{plan}.died")
        process = old.node.process
        assert process is not None
        family = psutil.Process(process.pid)
        pids: set[int] = set()

        def has_ended() -> bool:
            with suppress(psutil.NoSuchProcess):
                pids.update(child.pid for child in family.children())
            return died.exists() or self._is_whole(old)

        wait_until(has_ended, f"an end of the cut: {words}", PATIENCE_S)
        plan.unlink(missing_ok=True)
        cause = died.read_text().strip() if died.exists() else f"nothing: {words}"
        died.unlink(missing_ok=True)
        if cause.startswith("writer") and words["scope"] == "node":
            assert process.wait(PATIENCE_S) == -signal.SIGKILL
            wait_until(lambda: not any(map(is_alive, pids)), "the node's death", PATIENCE_S)
            old.start()
        return cause

    def _is_whole(self, member: Member) -> bool:
        """Whether it has all that the leader has committed."""
        status, led = member.status(), self.group.leader(besides=member).status()
        if status is None or led is None:
            return False
        return bool(status["cursors"]["committed"] == led["cursors"]["committed"])


@pytest.mark.long
def test_a_member_that_dies_while_its_log_is_cut_gets_the_log_of_the_others(
    make_node: Callable[[], Node], network: ProxyNetwork
) -> None:
    print(f"LEDGERMQ_KILL_SEED={SEED} LEDGERMQ_KILL_POINTS={LIVES * 10}")
    group = make_group(make_node, ack="majority-fsync", sizes=SIZES, network=network)
    cutting = Cutting(group, network)
    for number in range(LIVES):
        print(f"life {number}: {cutting.live()}", flush=True)
    group.wait_equal()
    ends = group.stop()
    bodies = [member.bodies() for member in group.members]

    assert ends == [0, 0, 0]
    assert group.has_one_log()
    assert [sorted(one) for one in bodies] == [sorted(bodies[0])] * 3
    assert len(bodies[0]) == len(set(bodies[0]))
    assert cutting.acknowledged <= set(bodies[0])
