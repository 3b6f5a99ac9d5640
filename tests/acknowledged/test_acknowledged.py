"""What was acknowledged is known after any death, to the same node and to the next leader.

``LEDGERMQ_ACKNOWLEDGED_KILLS`` says how often a node with a store of ours dies; with those of
RocketMQ's, and leaders of groups, half as often. Each death is one for every verb.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence

import pytest

from tests.acknowledged.lives import Tally, live
from tests.acknowledged.stores import JAVAS, OF_GROUPS, OURS, Golden, Kind, forget_offsets
from tests.process.conftest import nodes_made

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("LEDGERMQ_ACKNOWLEDGED_KILLS", "2"))
SEED = int(os.environ.get("LEDGERMQ_ACKNOWLEDGED_SEED", random.randrange(2**32)))
KINDS = os.environ.get("LEDGERMQ_ACKNOWLEDGED_KINDS", "")
"""Only kinds of stores whose names have this."""

DEATHS_MAX = 6
"""Of one store: what is wrong at the beginning of its life is over soon."""

CONTROLS = 5


def run_lives(
    kinds: Sequence[Kind], golden: Golden, *, kills: int, is_group: bool = False
) -> Tally:
    """Lives of stores of these kinds in turn, until so many deaths were died."""
    chance, tally = random.Random(SEED), Tally()
    begun = time.monotonic()
    kinds = [kind for kind in kinds if KINDS in kind.name]
    turn = chance.randrange(len(kinds))
    while tally.rounds < kills:
        deaths = min(chance.randint(1, DEATHS_MAX), kills - tally.rounds)
        kind = kinds[turn % len(kinds)]
        turn += 1
        before = len(tally.findings)
        with nodes_made() as make_node:
            live(
                kind, make_node, golden,
                deaths=deaths, is_group=is_group, chance=chance, tally=tally,
            )  # fmt: skip
        spent = time.monotonic() - begun
        print(f"{tally.rounds} deaths in {spent:.0f} s: {kind.name}, {deaths}", flush=True)
        for finding in tally.findings[before:]:
            print("   ", finding, flush=True)
    print(f"seed {SEED}\n{tally.report()}", flush=True)
    return tally


@pytest.mark.long
def test_our_stores_know_what_was_acknowledged(golden: Golden) -> None:
    assert run_lives(OURS, golden, kills=KILLS).findings == [], SEED


def test_stores_that_java_wrote_know_what_was_acknowledged(golden: Golden) -> None:
    assert run_lives(JAVAS, golden, kills=(KILLS + 1) // 2).findings == [], SEED


@pytest.mark.long
def test_the_next_leader_knows_what_was_acknowledged(golden: Golden) -> None:
    tally = run_lives(OF_GROUPS, golden, kills=(KILLS + 1) // 2, is_group=True)

    assert tally.findings == [], SEED


def test_a_file_that_forgets_is_found(golden: Golden) -> None:
    """The control: without it nobody knows whether the others would find anything."""
    chance, tally = random.Random(SEED), Tally()
    for _ in range(CONTROLS):
        with nodes_made() as make_node:
            live(
                OURS[0], make_node, golden,
                deaths=1, is_group=False, chance=chance, tally=tally, change=forget_offsets,
            )  # fmt: skip
        forgotten = {finding.partition(" ")[0] for finding in tally.findings}
        if forgotten:
            break

    assert forgotten & {"group_commit", "offset_reset", "offset_clone", "offsets_store"}, SEED
