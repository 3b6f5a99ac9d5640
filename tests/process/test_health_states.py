"""Health over HTTP in the states that a node gets into, beside what a client can do then."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple

import pytest

from ledgermq.client import Consumer
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.model.errors import LedgerError
from tests.process.conftest import nodes_made, wait_until
from tests.process.fault_network import ProxyNetwork
from tests.process.group_nodes import TOPIC, Group, Member, make_group, producer
from tests.process.http_client import HttpAnswer, get

pytestmark = pytest.mark.slow

TRIED_S = 3.0
"""So long a client tries."""


class Look(NamedTuple):
    """What is seen of a node: statuses of its pages, and what a client of it alone can do."""

    live: int
    ready: int
    leader: int
    sends: bool
    reads: bool


OPTIONS = ConsumerOptions(timeout_s=TRIED_S)

WELL = Look(200, 200, 200, sends=True, reads=True)


class Scene:
    """A group, and what lies between its members."""

    def __init__(self, group: Group, network: ProxyNetwork) -> None:
        self.group = group
        self.network = network
        self.undo = ExitStack()
        self.leader = group.leader()
        self.others = group.others(self.leader)

    def page(self, member: Member, name: str) -> HttpAnswer:
        """What a page of a member says; as if it said nothing while nobody answers."""
        try:
            return get(member.node.runtime / "http.sock", f"/health/{name}")
        except OSError:
            return HttpAnswer(0, {}, b"")

    def look(self, member: Member) -> Look:
        """All of it, one after the other."""
        statuses = [self.page(member, name).status for name in ("live", "ready", "leader")]
        return Look(*statuses, sends=sends(member), reads=reads(member))

    def wait_reason(self, member: Member, words: str) -> None:
        """Until the member is not ready for that reason."""

        def says() -> bool:
            answer = self.page(member, "ready")
            return answer.status == 503 and words in answer.text

        wait_until(says, f"{member.name} not to be ready: {words}")

    def settle(self) -> None:
        """As it was: all serve, and one of them leads."""
        self.undo.close()
        for member in self.group.members:
            if member not in self.group.up():
                member.start()
        for member in self.group.members:
            wait_until(lambda m=member: self.page(m, "ready").status == 200, f"{member.name}")

        def leads() -> Member | None:
            members = self.group.members
            return next((one for one in members if self.page(one, "leader").status == 200), None)

        self.leader = wait_until(leads, "a leader that serves")
        self.others = self.group.others(self.leader)


def sends(member: Member) -> bool:
    """Whether a producer that knows this member alone has a message acknowledged."""
    try:
        with producer(member, timeout_s=TRIED_S) as one:
            one.send(TOPIC, b"body").result()
    except LedgerError:
        return False
    return True


def reads(member: Member) -> bool:
    """Whether a consumer that knows this member alone gets a message that was there."""
    try:
        with Consumer(member.address, topic=TOPIC, start="first", options=OPTIONS) as one:
            return len(one.poll(TRIED_S)) > 0
    except LedgerError:
        return False


def nothing(scene: Scene) -> None:
    scene.settle()


def cut_off(scene: Scene) -> None:
    numbers = {member.name: number for number, member in enumerate(scene.group.members)}
    alone = numbers[scene.leader.name]
    for other in numbers.values():
        if other != alone:
            scene.network.lose(alone, other)
            scene.network.lose(other, alone)
    scene.undo.callback(scene.network.heal)
    scene.wait_reason(scene.leader, "no majority was heard of")
    successor = scene.group.leader(besides=scene.leader)
    wait_until(lambda: scene.page(successor, "leader").status == 200, "another leader")


def two_stopped(scene: Scene) -> None:
    for member in scene.others:
        member.kill()
    scene.wait_reason(scene.leader, "no majority was heard of")


def stop_process(scene: Scene, name: str) -> None:
    pid = scene.leader.node.pid(name)
    os.kill(pid, signal.SIGSTOP)

    def go_on() -> None:
        # Killed meanwhile, for it gave no sign of life.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    scene.undo.callback(go_on)


def sick_disk(scene: Scene) -> None:
    stop_process(scene, "writer")
    scene.wait_reason(scene.leader, "disk")
    wait_until(lambda: scene.group.leader(besides=scene.leader), "another leader")


def full_disk(scene: Scene) -> None:
    for member in scene.group.members:
        settings = member.node.config.read_text()
        full = settings.replace('refuse_above = "100%"', 'refuse_above = "1%"')
        assert full != settings
        for text, when in ((settings, scene.undo.callback), (full, lambda act: act())):
            when(lambda member=member, text=text: change(member, text))
    for member in scene.group.members:
        scene.wait_reason(member, "disk full")


def change(member: Member, settings: str) -> None:
    member.node.config.write_text(settings)
    member.reload()


def hung_process(scene: Scene) -> None:
    stop_process(scene, "broker")
    scene.wait_reason(scene.leader, "broker is giving no sign of life")


def hung_supervisor(scene: Scene) -> None:
    scene.leader.node.signal(signal.SIGSTOP)
    scene.undo.callback(scene.leader.node.signal, signal.SIGCONT)
    wait_until(lambda: scene.page(scene.leader, "live").status == 503, "the silence")


STATES: Sequence[tuple[Callable[[Scene], None], Look]] = (
    (nothing, WELL),
    (cut_off, Look(200, 503, 503, sends=False, reads=True)),
    (two_stopped, Look(200, 503, 503, sends=False, reads=True)),
    (sick_disk, Look(200, 503, 503, sends=False, reads=True)),
    (full_disk, Look(200, 503, 503, sends=False, reads=True)),
    (hung_process, Look(200, 503, 503, sends=False, reads=False)),
    (hung_supervisor, Look(503, 503, 503, sends=True, reads=True)),
)
"""What is done, and what is seen of the node that led before."""


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    def prepare(member: Member) -> None:
        text = member.node.config.read_text()
        member.node.config.write_text(text.replace("[listen]", '[listen]\nhttp = "unix"'))

    network = ProxyNetwork(3)
    try:
        with nodes_made() as make:
            group = make_group(
                make, ack="majority-fsync", raft={"disk_sick_after_ms": 2_000}, network=network,
                supervision={"ready_within_ms": 2_000, "beat_timeout_ms": 60_000},
                prepare=prepare,
            )  # fmt: skip
            for member in group.members:
                member.node.wait_ready()
            made = Scene(group, network)
            made.settle()
            assert sends(made.leader)
            yield made
            made.undo.close()
    finally:
        network.close()


@pytest.mark.long
@pytest.mark.parametrize(("act", "seen"), STATES, ids=[act.__name__ for act, _ in STATES])
def test_health_says_what_a_client_can_do(
    scene: Scene, act: Callable[[Scene], None], seen: Look
) -> None:
    scene.settle()
    act(scene)
    found = scene.look(scene.leader)
    others = {
        member.name: scene.look(member) for member in scene.others if member in scene.group.up()
    }
    print(f"{act.__name__}: {scene.leader.name} {found}, {others}")

    assert found == seen
    if act in (cut_off, sick_disk):
        # The others go on, under one of them.
        assert all(look.ready == 200 for look in others.values())
        assert [look.sends for look in others.values() if look.leader == 200] == [True]
