"""The straight line, compiled and plain, does what the core does; a steady group keeps to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.formats.kernels.kernel import SteadyLine, load_plain
from ledgermq.model.ids import NodeId
from ledgermq.raft.membership import Membership
from tests.datadriven import script
from tests.datadriven.script import replay
from tests.raft_group.group import RaftGroup
from tests.simulator.machine import compared_line
from tests.simulator.machine.compared_line import ComparedLine

SCENARIOS = sorted(Path(script.__file__).parent.glob("*.txt"))
NAMES = ("n0", "n1", "n2")

KERNELS = [SteadyLine, load_plain("ledgermq.formats.kernels._steady").SteadyLine]


@pytest.fixture(params=KERNELS, ids=["loaded", "plain"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[SteadyLine]:
    """The line that is compared with the core in what a test runs."""
    made: type[SteadyLine] = request.param
    monkeypatch.setattr(compared_line, "SteadyLine", made)
    return made


def lines(group: RaftGroup) -> list[ComparedLine]:
    found = [node.core.line for node in group.nodes.values() if node.core is not None]
    assert all(isinstance(line, ComparedLine) for line in found)
    return found  # type: ignore[return-value]


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_it_does_in_each_scenario_what_the_core_does(path: Path) -> None:
    written, said = replay(path)

    assert said == written


@pytest.mark.usefixtures("kernel")
def test_a_steady_group_leaves_nothing_to_the_core() -> None:
    group = RaftGroup(1, Membership(frozenset(map(NodeId, NAMES))), fsync=False)
    for name in NAMES:
        group.add(name)
    group.run(2_000)
    leader = group.leader()
    assert leader is not None
    group.propose(leader.name, "first")
    group.run(200)
    taken, left = [[getattr(line, kind) for line in lines(group)] for kind in ("taken", "left")]
    commit = leader.core.commit if leader.core is not None else -1
    for number in range(20):
        group.propose(leader.name, f"m{number}")
        group.run(20)

    assert leader.core is not None
    assert leader.core.commit == commit + 20
    assert [line.left for line in lines(group)] == left
    assert all(now.taken > before + 20 for now, before in zip(lines(group), taken, strict=True))
