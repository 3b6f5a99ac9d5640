"""Three real nodes under load while processes die or stand still, and the network loses things.

Afterwards nothing that was acknowledged is lost, nothing is there twice, queue offsets are neither
shared nor skipped, and the members hold the same bytes. ``LEDGERMQ_FAULT_ROUNDS`` says how often
each fault is repeated in a run, ``LEDGERMQ_FAULT_S`` how many seconds pauses and cuts last at most.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.linearizability.checker import Checker, built_or_none
from tests.process.conftest import Node
from tests.process.fault_load import Run, queued_in, stored_in
from tests.process.fault_namespaces import NamespaceNetwork
from tests.process.fault_network import LossyNetwork, ProxyNetwork
from tests.process.faults import NETWORK_FAULTS, PROCESS_FAULTS, Fault, Scene, storm
from tests.process.group_nodes import make_group
from tests.process.history import Outcome
from tests.process.history_rules import violations

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("LEDGERMQ_FAULT_ROUNDS", "1"))
LASTING_S_MAX = float(os.environ.get("LEDGERMQ_FAULT_S", "1.5"))
LASTING_S_MIN = 1.0
MODES = ("majority-fsync", "majority-memory")
MEMBERS = 3
FAULTS_TOGETHER = 3
STORM_STEPS = 5


@pytest.fixture(scope="session")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Checker | None:
    return built_or_none(tmp_path_factory.mktemp("porcupine"))


@pytest.fixture
def proxies() -> Iterator[ProxyNetwork]:
    network = ProxyNetwork(MEMBERS)
    yield network
    network.close()


@pytest.fixture
def namespaces() -> Iterator[NamespaceNetwork]:
    try:
        network = NamespaceNetwork(MEMBERS)
    except PermissionError as error:
        pytest.skip(f"no network namespaces can be made here (proxies stand in for them): {error}")
    yield network
    network.close()


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Of the test's chances; printed when it fails."""
    drawn = int(os.environ.get("LEDGERMQ_FAULT_SEED") or random.SystemRandom().randrange(10**6))
    print(f"LEDGERMQ_FAULT_SEED={drawn} {request.node.nodeid}")
    return drawn


class Trial:
    """One group, its load and its faults, and the judgement at the end."""

    def __init__(
        self,
        make_node: Callable[[], Node],
        network: LossyNetwork,
        folder: Path,
        *,
        ack: str,
        seed: int,
    ) -> None:
        self._network = network
        self._folder = folder
        self._chance = random.Random(seed)
        # Who stands still for longer is killed, as it is on an operator's node.
        hangs = {"beat_timeout_ms": 5_000}
        self.group = make_group(make_node, ack=ack, network=network, supervision=hangs)
        self.group.leader()
        # Two of them lead and commit, and stand still once they are cut off from one another.
        for member in self.group.members:
            member.node.wait_ready()
        self._run = Run(self.group, folder)

    def undergo(self, faults: Sequence[Fault]) -> None:
        """One after the other; after each, every producer has been acknowledged something."""
        self._run.wait_for_all()
        for fault in faults:
            lasting_s = self._chance.uniform(LASTING_S_MIN, LASTING_S_MAX)
            fault(Scene(self.group, self._network, lasting_s, self._run.wait_for_all))
            self._run.wait_for_all()

    def weather(self, steps: int) -> None:
        """Many faults at once; then every producer goes on."""
        self._run.wait_for_all()
        storm(
            Scene(self.group, self._network, LASTING_S_MIN, self._run.wait_for_all),
            self._chance,
            steps,
        )
        self._run.wait_for_all()

    def judge(self, checker: Checker | None) -> None:
        """End the load, read all, stop the group, and look at the logs of all."""
        run, group = self._run, self.group
        ended = run.stop()
        group.wait_equal()
        committed = group.leader().cursors()["committed"]["position"]
        run.read_all()
        stopped = group.stop()
        logs = [member.log_bytes() for member in group.members]
        common = min(map(len, logs))
        stored = [stored_in(member) for member in group.members]
        history = run.history
        counts = {outcome.value: history.count(outcome) for outcome in Outcome}
        print(json.dumps({**counts, "stored": len(stored[0]), "reads": len(history.reads)}))

        assert ended == [0] * len(ended)
        assert stopped == [0] * MEMBERS
        assert violations(history, stored[0]) == []
        assert stored[1:] == [stored[0]] * (MEMBERS - 1)
        for member in group.members:
            assert queued_in(member) == sorted(stored[0], key=lambda one: one[:2])
        assert common >= committed
        assert len({log[:common] for log in logs}) == 1
        assert counts["acked"] > 0
        if checker is not None:
            checker.check(history.paths, drawing=self._folder / "not-linearizable.html")

    def destroy(self) -> None:
        """End the load, and keep the nodes' logs beside the histories."""
        self._run.destroy()
        for member in self.group.members:
            shutil.copy(member.node.log, self._folder / f"log-{member.name}")


@pytest.fixture
def make_trial(
    make_node: Callable[[], Node], tmp_path: Path, seed: int
) -> Iterator[Callable[[LossyNetwork, str], Trial]]:
    made: list[Trial] = []

    def make(network: LossyNetwork, ack: str) -> Trial:
        made.append(Trial(make_node, network, tmp_path, ack=ack, seed=seed))
        return made[-1]

    yield make
    for trial in made:
        trial.destroy()


MakeTrial = Callable[[LossyNetwork, str], Trial]


FAULTS = {**PROCESS_FAULTS, **NETWORK_FAULTS}


def trials() -> list[tuple[tuple[str, ...], str]]:
    """Faults of one group of nodes each, and its mode: with more rounds each fault with both modes;
    else with one in turn, and some to a group, since most of the time is that of its start.
    """
    if ROUNDS > 1:
        return [((name,), ack) for name in FAULTS for ack in MODES]
    return [
        (names, ack)
        for number, ack in enumerate(MODES)
        for names in batched(list(FAULTS)[number :: len(MODES)], FAULTS_TOGETHER)
    ]


def batched(names: list[str], size: int) -> Iterator[tuple[str, ...]]:
    return (tuple(names[begin : begin + size]) for begin in range(0, len(names), size))


@pytest.mark.long
@pytest.mark.parametrize(
    ("names", "ack"), trials(), ids=[f"{'+'.join(names)}-{ack}" for names, ack in trials()]
)
def test_a_fault_loses_doubles_and_moves_nothing(
    proxies: ProxyNetwork,
    make_trial: MakeTrial,
    names: tuple[str, ...],
    ack: str,
    checker: Checker | None,
) -> None:
    trial = make_trial(proxies, ack)
    trial.undergo([FAULTS[name] for name in names] * ROUNDS)

    trial.judge(checker)


@pytest.mark.long
def test_lost_packets_lose_double_and_move_nothing(
    namespaces: NamespaceNetwork, make_trial: MakeTrial, checker: Checker | None
) -> None:
    trial = make_trial(namespaces, MODES[0])
    trial.undergo(list(NETWORK_FAULTS.values()) * ROUNDS)

    trial.judge(checker)


@pytest.mark.long
@pytest.mark.parametrize("ack", MODES)
def test_many_faults_at_once_lose_double_and_move_nothing(
    proxies: ProxyNetwork, make_trial: MakeTrial, ack: str, checker: Checker | None
) -> None:
    trial = make_trial(proxies, ack)
    trial.weather(STORM_STEPS * ROUNDS)

    trial.judge(checker)
