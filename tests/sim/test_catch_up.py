"""A member that lags is filled beside producers: how many bytes it is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from ledgermq.model.config.settings import AckMode
from ledgermq.model.ids import NodeId, Position
from ledgermq.raft.message_codec import decode_message
from ledgermq.raft.messages import Append
from ledgermq.raft_node.replicated import FRAMES_AHEAD
from ledgermq.store.log.entry_files import EntryFiles
from tests.simulator.machine.events import MS
from tests.simulator.machine.network import Weather
from tests.simulator.node import Node
from tests.simulator.world import Shape, World

PER_S = 20_000
SHAPE = Shape(ack=AckMode.MAJORITY_MEMORY, producers=4, catch_up_bytes_per_s=PER_S)
AWAY = NodeId("n2")

STEP_MS = 20
SLOW = Weather(delay_ns=3 * MS)
"""Somebody nearly always waits for a commit."""


class Sent:
    """Entries that a leader has sent to ``AWAY``.

    Attributes:
        paced, idle: bytes, sent for the first time, while somebody waited for a commit, and
            while nobody did.
    """

    def __init__(self, world: World, leader: Node) -> None:
        self.paced = self.idle = 0
        self._last = -1
        self._world = world
        self._leader = leader
        world.network.seen = self._seen

    def _seen(self, source: NodeId, target: NodeId, parts: Sequence[bytes]) -> None:
        self._world.checker.sent(source, target, parts)
        if source != self._leader.name or len(parts) != 2:
            return
        page = self._leader.page
        assert page is not None
        is_awaited = page.read_committed().index < page.read_written().index
        message = decode_message(memoryview(parts[0]))
        assert isinstance(message, Append)
        last = message.previous.index + sum(run.count for run in message.runs)
        # The network changes the order: then they are sent again.
        is_fresh = message.previous.index >= self._last
        if target == AWAY and is_fresh:
            self._last = last
            self.paced += len(parts[1]) * is_awaited
            self.idle += len(parts[1]) * (not is_awaited)


def position(node: Node) -> int:
    """Where its log ends."""
    assert node.page is not None
    return node.page.read_written().position


def run_until(world: World, condition: Callable[[], bool], what: str, patience_ms: int) -> None:
    for _ in range(patience_ms // STEP_MS):
        if condition():
            return
        world.events.run(STEP_MS * MS)
    raise AssertionError(f"{what} did not happen in {patience_ms} ms")


def leader_of(world: World) -> Node | None:
    led = [node for node in world.leaders() if node.name != AWAY]
    return led[-1] if led else None


def begin(world: World, lacks: int) -> Node:
    """A leader, and ``AWAY``, which has just come back and lacks so many bytes."""
    run_until(world, lambda: bool(world.leaders()), "a leader", 5_000)
    run_until(world, lambda: len(world.checker.acknowledged) > 20, "messages", 5_000)
    away = world.nodes[AWAY]
    ended = position(away)
    world.kill(AWAY, power=False)
    for producer in world.producers:
        producer.think_ns = MS
    run_until(world, lambda: leader_of(world) is not None, "a leader of the others", 5_000)
    leader = leader_of(world)
    assert leader is not None
    run_until(world, lambda: position(leader) > ended + lacks, "what it lacks", 60_000)
    world.set_weather(SLOW)
    world.start(AWAY)
    return leader


@pytest.mark.slow
def test_it_gets_what_producers_write_and_its_own_bytes() -> None:
    with World(9, SHAPE) as world:
        leader = begin(world, 100_000)
        away = world.nodes[AWAY]
        run_until(world, lambda: position(away) > 0, "its start", 2_000)
        sent, window = Sent(world, leader), leader.settings.raft.in_flight_bytes
        end, lacked, since = position(leader), position(leader) - position(away), world.events.now
        for _ in range(40):
            world.events.run(STEP_MS * MS)
            # A node's clock may be fast by a twentieth.
            own = PER_S * 1.05 * (world.events.now - since) / 1e9
            assert sent.paced <= position(leader) - end + own + 2 * window
        grown = position(leader) - end

        assert position(leader) - position(away) < lacked
        # Not because producers have stopped, nor in their pauses alone.
        assert grown > 3 * lacked and sent.paced > 10 * sent.idle


@pytest.mark.slow
def test_what_it_gets_next_is_asked_of_the_disk_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    will_need = EntryFiles.will_need

    def noted(files: EntryFiles, begin: Position, end: Position) -> None:
        asked.append((begin, end))
        will_need(files, begin, end)

    with World(9, SHAPE) as world:
        begin(world, 100_000)
        monkeypatch.setattr(EntryFiles, "will_need", noted)
        world.events.run(400 * MS)
        frame = world.nodes[AWAY].settings.raft.frame_bytes

    assert len(asked) > 10
    assert all(0 < end - begin <= FRAMES_AHEAD * frame for begin, end in asked)
    # Again only where the network's order has made much be sent again.
    whole = max(end for _, end in asked) - min(begin for begin, _ in asked)
    assert sum(end - begin for begin, end in asked) < 1.25 * whole


@pytest.mark.slow
def test_a_majority_that_needs_it_does_not_wait_for_its_pace() -> None:
    with World(3, SHAPE) as world:
        leader = begin(world, 120_000)
        (other,) = set(world.nodes) - {AWAY, leader.name}
        world.kill(other, power=False)
        acknowledged = len(world.checker.acknowledged)
        # By its bytes a second it would take six seconds.
        run_until(
            world,
            lambda: len(world.checker.acknowledged) > acknowledged + 20,
            "acknowledgements with it",
            4_000,
        )
