"""The simulator finds each deliberate error in the straight line within 200 seeds."""

from __future__ import annotations

from collections.abc import Hashable
from hashlib import sha256
from pathlib import Path
from types import ModuleType

import pytest

from ledgermq.formats.kernels import kernel
from ledgermq.formats.kernels.kernel import SteadyLine
from ledgermq.raft.core import RaftCore
from tests.raft_group.runs import failure
from tests.sim.search import find
from tests.simulator.machine import compared_line
from tests.simulator.machine.compared_line import STEADY, ComparedLine
from tests.simulator.machine.network import Network
from tests.simulator.node import Node
from tests.simulator.runs.runs import run_seed

SEEDS = 200
NAME = "ledgermq.formats.kernels._steady"

Patch = pytest.MonkeyPatch

MUTATIONS: dict[str, tuple[str, str]] = {
    "a leader commits what one member holds": ("len(matched) // 2", "0"),
    "a leader commits what it does not hold itself": (
        "min(matched[len(matched) // 2], state.held)",
        "matched[len(matched) // 2]",
    ),
    "a follower commits what no leader has verified": (
        "min(following.leader_commit, following.verified, state.held)",
        "min(following.leader_commit, state.held)",
    ),
    "a follower answers for what no leader has verified": (
        "following.acknowledged = min(state.held, following.verified)",
        "following.acknowledged = state.held",
    ),
    "the term before the entries is not compared": (
        "            or log.terms[-1] != previous_term\n",
        "",
    ),
    "entries that leave a gap are taken": ("previous != log.last_index or ", ""),
    "a message of an old term is taken": ("term != state.term\n            or source", "source"),
    "any number of appends is under way": (
        "        and len(progress.inflight) < flow.inflight_count_max\n",
        "",
    ),
    "a follower waits no longer behind a message": ("        _arm_election(state)\n", ""),
    "a leader forgets whom it has heard of": ("    progress.heard = state.now\n", ""),
    "a waiting read is not looked at": ("        or lead.reads.waiting\n", ""),
    "a hand-over is not gone on with": ("        or lead.transfer is not None\n", ""),
    "a round is not counted": ("    progress.round = max(progress.round, round_)\n", ""),
    "memberships are sent without a word": ("indexes and indexes[-1] >= first", "False"),
    "witnesses are sent what the leader does not hold": (
        "        and not membership.witnesses\n",
        "",
    ),
    "what is left to the core has changed": (
        "        state = self.state\n        log = state.log\n        if (\n",
        "        state = self.state\n        state.heard = now\n        log = state.log\n"
        "        if (\n",
    ),
}

# The simulator asks for no confirmed reads, and leaders there hardly follow one another so soon:
# groups of cores alone do.
AMONG_CORES = ("a waiting read is not looked at", "a message of an old term is taken")

# Where each was found last, if not in 0: looked at first, for a search takes a while.
LIKELY: dict[str, int] = {
    "a leader commits what it does not hold itself": 3,
    "any number of appends is under way": 3,
    "a follower commits what no leader has verified": 6,
    "a follower answers for what no leader has verified": 6,
    "the term before the entries is not compared": 133,
    "a message of an old term is taken": 99,
    "a hand-over is not gone on with": 9,
    "memberships are sent without a word": 3,
    "witnesses are sent what the leader does not hold": 8,
}


class LongWay(SteadyLine):
    """A line that takes nothing."""

    def __init__(self, core: RaftCore) -> None:
        super().__init__(core._state, **STEADY)

    def receive(
        self, now: int, source: Hashable, data: bytes | memoryview, has_entries: bool
    ) -> bool:
        return False

    def written(self, index: int) -> bool:
        return False

    def held(self, index: int) -> bool:
        return False

    def replicated(self, peer: Hashable, first: int, last: int, size: int) -> bytes | None:
        return None


def mutated(right: str, wrong: str) -> type[SteadyLine]:
    """The line with ``wrong`` in the place of ``right``."""
    path = Path(kernel.__file__ or "").with_name("_steady.py")
    text = path.read_text()
    assert text.count(right) == 1, (right, text.count(right))
    module = ModuleType(NAME)
    exec(compile(text.replace(right, wrong), str(path), "exec"), vars(module))
    made: type[SteadyLine] = module.SteadyLine
    return made


@pytest.mark.long(but=2)
@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_comparison_finds(mutation: str, monkeypatch: Patch) -> None:
    wrong = mutated(*MUTATIONS[mutation])

    def line_of(core: RaftCore) -> SteadyLine:
        return ComparedLine(core, wrong(core._state, **STEADY))

    monkeypatch.setattr(Node, "line_of", line_of)

    monkeypatch.setattr(compared_line, "SteadyLine", wrong)

    def fails(seed: int) -> bool:
        if mutation in AMONG_CORES:
            found: object = failure(seed)
        else:
            found = run_seed(seed, interrupted=False).failure
        return "DifferentWaysError" in str(found)

    found = find(fails, likely=LIKELY.get(mutation, 0), count=SEEDS)

    assert found is not None, f"{mutation} was not found in {SEEDS} seeds"


def said(seed: int, patch: Patch) -> tuple[object, ...]:
    """What a run comes to, and a digest of all that its members say to one another."""
    digest = sha256()
    carry = Network.carry

    def heard(network: Network, source: str, target: str, parts: list[bytes]) -> None:
        digest.update(f"{source} {target} {len(parts)} ".encode() + b"".join(parts))
        carry(network, source, target, parts)  # type: ignore[arg-type]

    with patch.context() as within:
        within.setattr(Network, "carry", heard)
        # The long way looks at the page more often.
        outcome = run_seed(seed, interrupted=False)
    return outcome.failure, outcome.committed, outcome.acknowledged, digest.hexdigest()


@pytest.mark.long(but=1)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_run_is_the_same_to_the_last_byte_without_the_line(seed: int, monkeypatch: Patch) -> None:
    short = said(seed, monkeypatch)
    monkeypatch.setattr(Node, "line_of", LongWay)

    assert said(seed, monkeypatch) == short
