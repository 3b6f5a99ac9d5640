"""Quiet phase: faults end, and the group must recover (I6, I8 to I10, I19)."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulator.checks.checker import require
from tests.simulator.checks.settled import compare, is_detected, is_repaired
from tests.simulator.machine.events import MS
from tests.simulator.machine.network import Weather
from tests.simulator.node import Node
from tests.simulator.world import World

FIRST_COMMIT_MS = 6_000
"""The patience of a producer, several elections that end in a draw, and the way back of a node that
was stopped for two seconds."""

CATCH_UP_MS = 6_000
SETTLE_MS = 1_500
MARK_MS = 2_000
"""A writer that nothing comes to looks once a second whether it has durably what it had lost."""

STEP_MS = 100


def heal(world: World, settle: Callable[[], None] = lambda: None) -> None:
    """End all faults, and see the group heal.

    Args:
        settle: called when the group takes messages again, and before it has to be even.

    Raises:
        BrokenPromiseError: it does not.
    """
    _end_faults(world)
    before = len(world.checker.acknowledged)
    wait(
        world,
        FIRST_COMMIT_MS,
        "a quiet group takes messages",
        lambda: len(world.checker.acknowledged) > before,
    )
    for producer in world.producers:
        producer.is_stopped = True
    settle()
    wait(world, CATCH_UP_MS, "all members catch up", lambda: _is_even(world))
    world.events.run(SETTLE_MS * MS)
    # A preferred leader may just have been handed over to.
    wait(world, CATCH_UP_MS, "members stay caught up", lambda: _is_even(world))
    wait(
        world,
        MARK_MS,
        "who has all again is a member like others",
        lambda: not any(node.is_marked for node in sound_members(world)),
    )
    _look_at_memberships(world)
    _look_at_files(world)


def _end_faults(world: World) -> None:
    world.events.trace("quiet")
    world.crash_points = 0.0
    world.network.blocked.clear()
    world.set_weather(Weather())
    for name, node in world.nodes.items():
        for process in node.processes:
            process.paused_until = 0
            process.wake()
        if node.is_on:
            for role in sorted(node.roles):
                world.revive(name, role)
        else:
            world.start(name)
    for name, witness in world.witnesses.items():
        witness.wake()
        world.start(name)


def wait(world: World, limit_ms: int, promise: str, holds: Callable[[], bool]) -> None:
    """Let time pass until ``holds``, which ``promise`` says it will within ``limit_ms``."""
    end = world.events.now + limit_ms * MS
    while not holds():
        require(world.events.now < end, promise, *_standings(world))
        world.events.run(STEP_MS * MS)


def _standings(world: World) -> list[str]:
    return [
        f"{name}: entries {len(observer.log)}, durable {observer.durable},"
        f" commit {observer.commit}, term {observer.term}"
        for name, observer in world.observers.items()
    ]


def sound_members(world: World) -> list[Node]:
    """Members, as the leader says, whose disk has done nothing; who was removed is none."""
    leaders = world.leaders()
    if not leaders:
        return []
    status = world.ask(leaders[-1].name, "status")
    members = {*_texts(status.get("voters")), *_texts(status.get("learners"))}
    members -= world.lost
    return [node for name, node in world.nodes.items() if name in members and not node.spoilt]


def _texts(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def _is_even(world: World) -> bool:
    """Whether all sound members have everything, and know it to be committed. Writers may have seen
    to it by themselves, while a raft process stands still that has to be asked.
    """
    members = sound_members(world)
    for node in members:
        world.look_once_more(node)
    observers = [world.observers[node.name] for node in members]
    ends = {(len(observer.log), observer.commit, observer.durable) for observer in observers}
    count = len(world.checker.committed)
    is_even = ends == {(count, count - 1, count)}
    return is_even and not any("error" in world.ask(node.name, "status") for node in members)


def _look_at_memberships(world: World) -> None:
    """Who is in the group stands in the log, and each member goes by that."""
    for node in sound_members(world):
        index, membership = world.observers[node.name].membership
        status = world.ask(node.name, "status")
        said = (status["membership_index"], _texts(status["voters"]), _texts(status["learners"]))
        stands = (index, sorted(membership.voters), sorted(membership.learners))
        promise = "a member follows the membership of its log"
        require(said == stands, promise, node.name, said, stands)


def _look_at_files(world: World) -> None:
    sound = sound_members(world)
    for name in world.nodes:
        world.kill(name, power=False)
    for witness in world.witnesses.values():
        witness.kill(power=False)
    compare(sound, world.checker, world.root / "dispatch", world.random)
    for node in world.nodes.values():
        entries = len(world.observers[node.name].log)
        if node.spoilt and not (sound and is_repaired(node, sound[0], entries=entries)):
            require(is_detected(node), "damage is found by who looks for it", node.name)
