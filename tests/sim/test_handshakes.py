"""Handshakes of raft with its writer that meet what is under way between the two."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledgermq.ipc.cursor_page import Role
from ledgermq.model.config.settings import AckMode
from ledgermq.model.ids import Index, NodeId, Position, Term
from ledgermq.raft.roles.node_state import WriterState
from ledgermq.store.recovery.log_damage import LogDamage, damage_path, mark_damage
from tests.simulator.machine.events import MS
from tests.simulator.node import Node
from tests.simulator.world import Shape, World

STEP_NS = 20_000
STEPS_MAX = 200_000


def wait(world: World, holds: Callable[[], object]) -> None:
    for _ in range(STEPS_MAX):
        if holds():
            return
        world.events.run(STEP_NS)
    raise AssertionError(f"it does not come: {list(world.events.history)[-20:]}")


def leader_of(world: World, others: set[NodeId] | None = None) -> Node | None:
    """One that stamps, among ``others`` if they are named."""
    for node in world.leaders():
        page = node.page
        assert page is not None
        if page.read_grant().granted and (others is None or node.name in others):
            return node
    return None


def found(world: World, others: set[NodeId] | None = None) -> Node:
    wait(world, lambda: leader_of(world, others))
    node = leader_of(world, others)
    assert node is not None
    return node


def written(node: Node) -> int:
    assert node.page is not None
    return node.page.read_written().index


def separate(world: World, some: set[NodeId], others: set[NodeId]) -> None:
    for one in some:
        for other in others:
            world.network.blocked |= {(one, other), (other, one)}


@pytest.mark.slow
def test_a_cut_drops_what_the_writer_had_not_taken_of_what_stays() -> None:
    """A follower's writer stands still, and the leader goes with entries that no other has."""
    with World(5, Shape(members=5, ack=AckMode.MAJORITY_MEMORY)) as world:
        first = found(world)
        follower = next(node for node in world.nodes.values() if node is not first)
        others = set(world.nodes) - {first.name, follower.name}
        worker = follower._raft_worker
        assert worker is not None
        core = worker.core
        follower.pause(Role.WRITER, world.events.now + 60_000 * MS)
        stood = written(follower)
        wait(world, lambda: min(written(world.nodes[name]) for name in others) > stood + 3)
        separate(world, others, {first.name, follower.name})
        end = max(written(world.nodes[name]) for name in others)
        wait(world, lambda: core.last.index > end + 3)
        # The one that had it heard would lead with what the others lack.
        separate(world, {first.name}, {follower.name})
        world.kill(first.name, power=False)
        world.events.run(MS)
        world.network.blocked.clear()
        wait(world, lambda: core.status().writer is WriterState.TRUNCATING)
        kept = core.last.index

        assert stood < kept <= end + 1
        assert follower.writer is not None
        follower.writer.paused_until = 0
        follower.writer.wake()
        second = found(world, others)
        wait(world, lambda: written(follower) > end and written(follower) == written(second))

        assert follower._raft_worker is worker


@pytest.mark.slow
def test_a_leader_whose_new_writer_has_a_damaged_log_is_settled_by_one_handshake() -> None:
    """It took the answer before for the end of its log, with the order to stop on its way."""
    with World(3, Shape(members=3)) as world:
        leader = found(world)
        worker, page = leader._raft_worker, leader.page
        assert worker is not None and page is not None
        wait(world, lambda: worker.core.commit > 5)
        leader.kill_writer()
        leader.start_writer()
        wait(world, lambda: not worker._was_recovered)
        # By a reader of the log, which ends: the supervisor will stop this node, too.
        end = page.read_written()
        last = Position(end.position), Index(end.index), Term(end.term)
        mark_damage(damage_path(leader.store.root), LogDamage(Position(0), "", "crc", *last))
        wait(world, lambda: worker._was_recovered)

        assert worker._writer.awaits_answer
        assert worker.core.status().writer is WriterState.REVOKING
        wait(world, lambda: not worker._writer.awaits_answer)
        found(world)
        wait(world, lambda: min(map(written, world.nodes.values())) > end.index)

        assert leader._raft_worker is worker
