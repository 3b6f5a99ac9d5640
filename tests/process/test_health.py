"""Health of real nodes: what they say when they do not serve, everywhere the same words."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from ledgermq.model.errors import LedgerError
from ledgermq.process import control
from tests.process.conftest import Node, StartNode, wait_until
from tests.process.group_nodes import TOPIC, Group, Member, make_group, producer
from tests.process.node_start import run_command
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

SERVED = "STATUS=leader in term 3, committed up to 4096"


def leading_health(member: Member) -> dict[str, Any] | None:
    """Its verdict while it says that it leads: on a busy machine a leader may just not."""
    health = health_of(member.node)
    return health if health["leads"] else None


def health_of(node: Node) -> dict[str, Any]:
    return control.ask(node.runtime / "control.sock", "health", timeout_s=PATIENCE_S)


def codes(node: Node) -> list[str]:
    return [reason["code"] for reason in health_of(node)["reasons"]]


def wait_code(node: Node, code: str) -> dict[str, Any]:
    """The verdict, once it has the reason ``code``."""

    def look() -> dict[str, Any] | None:
        health = health_of(node)
        return health if code in {reason["code"] for reason in health["reasons"]} else None

    found: dict[str, Any] = wait_until(look, code)
    return found


def wait_serves(node: Node) -> None:
    wait_until(lambda: health_of(node)["ready"], "the node to serve")


def takes(member: Member) -> bool:
    """Whether the member, or whom it names, takes a message."""
    try:
        with producer(member, timeout_s=3.0) as one:
            one.send(TOPIC, b"body").result()
    except LedgerError:
        return False
    return True


def test_status_systemd_and_the_control_socket_say_the_same(start_small_node: StartNode) -> None:
    node = start_small_node(supervision={"ready_within_ms": 1_600})
    node.order("raft.once", "isolated")
    wait_code(node, "no_majority")
    status = node.status()
    shown = run_command("status", "--runtime-dir", str(node.runtime))
    waited = run_command("status", "--runtime-dir", str(node.runtime), "--wait-ready", "0.1")
    node.wait_told(f"{SERVED}; not ready: no majority was heard of for 1600 ms")
    node.order("raft.once", "well")
    wait_serves(node)
    node.wait_told(SERVED, count=2)

    (reason,) = status["health"]["reasons"]
    assert (status["state"], reason["text"]) == (
        "not ready",
        "no majority was heard of for 1600 ms",
    )
    assert shown.returncode == 0
    assert f"{reason['text']}: {reason['see']}" in shown.stdout
    assert waited.returncode == 2
    assert reason["text"] in waited.stderr
    assert node.listen().count("READY=1") == 1
    assert node.logged("node does not serve: no majority was heard of for 1600 ms")
    assert node.logged("node serves again")


def test_a_process_that_hangs_is_told_before_it_is_killed_and_while_it_starts(
    start_small_node: StartNode,
) -> None:
    node = start_small_node(supervision={"beat_timeout_ms": 4_000})
    os.kill(node.pid("broker"), signal.SIGSTOP)
    node.order("broker.once", "slow 1")
    hanging = wait_code(node, "process_hangs")
    starting = wait_code(node, "process_starts")
    wait_serves(node)

    assert hanging["reasons"][0]["text"] == "broker is giving no sign of life"
    assert starting["reasons"][0]["text"] == "broker is being started again"
    assert node.child("broker")["restarts"] == 1


def test_one_that_waits_for_its_restart_is_down(start_small_node: StartNode) -> None:
    node = start_small_node(orders={"broker.always": "none"})
    node.order("broker.always", "raise bug")
    down = wait_code(node, "process_down")

    assert down["reasons"][0]["text"] == "broker is down, and to be started again"


def test_what_is_written_and_never_durable_or_committed_is_told(
    start_small_node: StartNode,
) -> None:
    node = start_small_node(supervision={"ready_within_ms": 1_600})
    node.order("writer.always", "unflushed")
    wait_code(node, "not_committed")
    found = codes(node)
    (node.orders / "writer.always").unlink()
    os.kill(node.pid("writer"), signal.SIGKILL)
    wait_serves(node)

    assert found == ["not_durable", "not_committed"]


@pytest.fixture
def group(make_node: Callable[[], Node]) -> Group:
    made = make_group(
        make_node,
        ack="majority-fsync",
        raft={"disk_sick_after_ms": 2_000},
        supervision={"ready_within_ms": 2_000},
    )
    for member in made.members:
        member.node.wait_ready()
    made.leader()
    for member in made.members:
        wait_serves(member.node)
    return made


@pytest.mark.long
def test_one_of_three_alone_is_not_ready_and_takes_nothing_until_another_comes_back(
    group: Group,
) -> None:
    # On a busy machine another one may lead by the time that is asked.
    leader, leads = wait_until(
        lambda: (health := leading_health(led := group.leader())) and (led, health),
        "the leader's health",
    )
    first, second = group.others(leader)
    taken = takes(leader)
    for member in (first, second):
        member.kill()
    alone = wait_code(leader.node, "no_majority")
    refused = not takes(leader)
    first.start()
    wait_serves(leader.node)
    wait_serves(first.node)

    assert (leads["ready"], leads["leads"], leads["leader"]) == (True, True, leader.name)
    assert taken and refused
    assert (alone["state"], alone["ready"], alone["leads"]) == ("not ready", False, False)
    assert alone["majority_age_ms"] > 2_000
    wait_until(lambda: takes(leader) or takes(first), "one of the two to lead, and to take it")


def test_a_member_whose_writer_hangs_has_a_sick_disk_and_another_leads(group: Group) -> None:
    sick = group.leader()
    pid = sick.node.pid("writer")
    os.kill(pid, signal.SIGSTOP)
    try:
        health = wait_code(sick.node, "disk_sick")
        other = group.leader(besides=sick)
        taken = wait_until(lambda: takes(other), "the others to take messages")
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_serves(sick.node)

    assert not health["ready"]
    assert taken
    wait_serves(other.node)
