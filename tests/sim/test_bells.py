"""Bells that are rung while nobody listens: between what a turn has seen and the sleep after it."""

from __future__ import annotations

import pytest

from ledgermq.ipc.cursor_page import Role
from tests.simulator.machine.events import MS
from tests.simulator.node import TOPIC, Node
from tests.simulator.world import Shape, World

STEPS_MAX = 20_000


def serving_leader(world: World) -> Node:
    for _ in range(STEPS_MAX):
        world.events.run(1 * MS)
        for node in world.leaders():
            log = node.readers.log
            if log is not None and log.is_settled and not log.awaits:
                return node
    raise AssertionError("no leader serves")


@pytest.mark.slow
def test_a_broker_does_not_sleep_over_the_change_that_it_waits_for() -> None:
    """It slept to the next tick, 200 ms, when dispatch was quicker than the end of its turn."""
    with World(1, Shape(members=3, has_readers=True, producers=0)) as world:
        leader = serving_leader(world)
        log, port, page = leader.readers.log, leader.readers.port, leader.page
        assert log is not None and port is not None and page is not None
        port.ask("group_commit", {"group": "g", "topic": TOPIC, "offsets": {"0": 0}}, print)
        while not log.awaits:
            world.events.run(10_000)
        leader.pause(Role.BROKER, world.events.now + 10_000 * MS)
        seen = page.read_dispatched().position

        while page.read_dispatched().position == seen:
            world.events.run(10_000)

        broker = leader.readers._broker
        assert broker is not None
        now_ns = leader.clock.monotonic_ns()
        assert broker.hears_bells(now_ns)
        assert broker.sleep_ms(now_ns) == 0
