"""Children that die, hang or give up, and what becomes of the node."""

from __future__ import annotations

import os
import re
import signal
import time

import pytest

from ledgermq.ipc.cursor_page import CursorPage, Role
from tests.process.conftest import StartNode, wait_until

pytestmark = pytest.mark.slow


def test_a_killed_child_is_back_without_a_wait_for_the_next_turn(
    start_small_node: StartNode,
) -> None:
    # Ten minutes between the turns of a supervisor that nothing wakes.
    node = start_small_node(orders={"supervisor.turn": "600"})
    others = node.pids()
    old = others.pop("dispatcher")
    with CursorPage.attach(node.runtime / "cursors") as page:
        os.kill(old, signal.SIGKILL)
        wait_until(lambda: page.read_process(Role.DISPATCHER).pid != old, "restart")
        slot = page.read_process(Role.DISPATCHER)
    now = node.pids()

    assert now.pop("dispatcher") == slot.pid
    assert now == others
    assert slot.generation == 2


def test_a_death_is_shown_in_status(start_small_node: StartNode) -> None:
    node = start_small_node()
    node.order("broker.once", "kill")
    broker = wait_until(
        lambda: (b := node.child("broker"))["restarts"] and b["state"] == "running" and b, "restart"
    )

    assert broker["restarts"] == 1
    assert broker["last_exit"] == "SIGKILL"
    assert node.status()["counters"]["supervisor"]["children_died"] == 1


def test_a_child_that_ends_unasked_is_restarted_even_with_status_zero(
    start_small_node: StartNode,
) -> None:
    node = start_small_node()
    node.order("raft.once", "exit 0")
    wait_until(lambda: node.child("raft")["restarts"] == 1, "restart")

    assert node.child("raft")["last_exit"] == "exit status 0"


def test_raft_may_ask_for_the_node_to_be_opened_anew(start_small_node: StartNode) -> None:
    node = start_small_node()
    before = node.pids()
    node.order("raft.once", "exit 4")
    node.wait_told("READY=1", 2)
    after = node.pids()
    with CursorPage.attach(node.runtime / "cursors") as page:
        generation = page.generation
    counters = node.status()["counters"]["supervisor"]

    assert after["supervisor"] == before["supervisor"]
    assert not set(after.values()) & (set(before.values()) - {before["supervisor"]})
    assert (generation, counters["children_died"]) == (2, 0)
    assert "STOPPING=1" not in node.listen()
    assert (node.orders / "stopped").read_text().split() == ["broker", "writer", "dispatcher"]
    assert node.stop() == 0


def test_a_node_that_is_stopped_while_it_is_opened_anew_stops(start_small_node: StartNode) -> None:
    node = start_small_node(supervision={"stop_timeout_ms": 2_000})
    node.order("broker.always", "stubborn")
    wait_until((node.orders / "broker.knows").exists, "the order")
    node.order("raft.once", "exit 4")
    wait_until(lambda: node.status()["state"] == "stopping", "the beginning")
    node.signal(signal.SIGTERM)
    wait_until(lambda: "STOPPING=1" in node.listen(), "the word to systemd")

    # The broker had to be killed.
    assert node.wait_end() == 3
    assert node.listen().count("READY=1") == 1


@pytest.mark.parametrize(
    ("order", "status"), [("raise bug", 3), ("kill", 3), ("exit 7", 3)], ids=str
)
def test_five_deaths_stop_the_node_in_order(
    start_small_node: StartNode, order: str, status: int
) -> None:
    node = start_small_node()
    node.order("writer.always", order)

    assert node.wait_end() == status
    assert node.log.read_text().count("child died child=writer") == 5
    assert node.logged("children die too often")
    assert (node.orders / "stopped").read_text().split() == ["broker", "raft", "dispatcher"]
    assert (node.root / "abort").exists()


def test_a_broker_that_dies_again_and_again_is_restarted_later_each_time(
    start_small_node: StartNode,
) -> None:
    node = start_small_node(supervision={"restarts_max": 3, "restart_pause_max_ms": 800})
    pids = node.pids()
    node.order("broker.always", "kill")
    wait_until(lambda: node.log.read_text().count("child died child=broker") >= 7, "seven deaths")
    others = {role: pid for role, pid in node.pids().items() if role != "broker"}
    (node.orders / "broker.always").unlink()
    wait_until(lambda: node.child("broker")["state"] == "running", "the broker to be back")
    pauses = [int(found) for found in re.findall(r"restart_in_ms=(\d+)", node.log.read_text())]

    assert pauses[:6] == [100, 200, 400, 800, 800, 800]
    assert others == {role: pid for role, pid in pids.items() if role != "broker"}
    assert node.logged("child died child=broker")
    assert not node.logged("node stops")
    assert not node.logged("the watchdog is not fed")
    assert node.stop() == 0


def test_a_node_whose_broker_is_to_be_restarted_later_stops_at_once(
    start_small_node: StartNode,
) -> None:
    node = start_small_node(supervision={"restart_pause_max_ms": 600_000})
    node.order("broker.always", "kill")
    wait_until(lambda: node.logged("restart_in_ms=1600"), "a pause")

    assert node.stop() == 0
    assert (node.orders / "stopped").read_text().split() == ["writer", "raft", "dispatcher"]


def test_deaths_of_all_children_count_together(start_small_node: StartNode) -> None:
    node = start_small_node(supervision={"restarts_max": 3})
    for role in ("raft", "writer"):
        node.order(f"{role}.once", "kill")
        wait_until(lambda r=role: node.child(r)["restarts"] == 1, f"restart of {role}")
    node.order("dispatcher.once", "kill")

    assert node.wait_end() == 3


def test_deaths_outside_the_window_do_not_count(start_small_node: StartNode) -> None:
    node = start_small_node(supervision={"restarts_max": 2, "restart_window_s": 1})
    for count in (1, 2, 3):
        node.order("raft.once", "kill")
        wait_until(lambda c=count: node.child("raft")["restarts"] == c, "restart")
        # The window begins with the death, which was before this.
        at = time.monotonic()
        wait_until(lambda since=at: time.monotonic() > since + 1.2, "end of the window")

    assert node.child("raft")["restarts"] == 3
    assert node.stop() == 0


@pytest.mark.parametrize(
    ("order", "status"),
    [
        ("raise storage", 2),
        ("raise eio", 2),
        ("exit 2", 2),
        ("raise config", 1),
        ("exit 1", 1),
        ("exit 78", 78),
    ],
    ids=str,
)
def test_storage_and_configuration_failures_end_the_node_at_once(
    start_small_node: StartNode, order: str, status: int
) -> None:
    node = start_small_node()
    node.order("writer.always", order)

    assert node.wait_end() == status
    assert node.log.read_text().count("child died child=writer") == 1
    assert (node.orders / "stopped").read_text().split() == ["broker", "raft", "dispatcher"]
    assert (node.root / "abort").exists()


def test_a_child_that_fails_at_the_start_ends_the_node(start_small_node: StartNode) -> None:
    node = start_small_node(orders={"writer.always": "raise config"}, ready=False)

    assert node.wait_end() == 1
    assert node.logged("process failed: listen.produce is taken")
    assert "READY=1" not in node.listen()


def test_a_child_that_turns_no_more_is_killed_and_restarted(start_small_node: StartNode) -> None:
    node = start_small_node(supervision={"beat_timeout_ms": 1_000})
    hung = node.pid("dispatcher")
    node.order("dispatcher.once", "silent")
    wait_until(lambda: node.child("dispatcher")["pid"] not in (hung, None), "restart")
    line = next(x for x in node.log.read_text().splitlines() if "child hangs and is killed" in x)

    noted = re.search(rf"child=dispatcher pid={hung} silent_ms=(\d+) limit_ms=1000$", line)
    assert noted is not None and int(noted[1]) >= 1_000
    assert node.child("dispatcher")["last_exit"] == "SIGKILL"


def test_a_stopped_child_is_killed_and_restarted(start_small_node: StartNode) -> None:
    node = start_small_node(supervision={"beat_timeout_ms": 1_000})
    writer = node.pid("writer")
    os.kill(writer, signal.SIGSTOP)
    wait_until(lambda: node.child("writer")["pid"] not in (writer, None), "restart")

    assert node.status()["counters"]["supervisor"]["children_killed"] >= 1
    assert node.logged(f"child hangs and is killed child=writer pid={writer} ")


def test_a_pause_of_the_whole_node_kills_nobody(start_small_node: StartNode) -> None:
    node = start_small_node(supervision={"beat_timeout_ms": 2_000})
    before = node.pids()
    with CursorPage.attach(node.runtime / "cursors") as page:
        for pid in before.values():
            os.kill(pid, signal.SIGSTOP)
        paused_ns = time.monotonic_ns()
        wait_until(lambda: time.monotonic_ns() > paused_ns + 2_500_000_000, "the pause")
        # The supervisor first: it finds all children silent for longer than they may be.
        os.kill(before["supervisor"], signal.SIGCONT)
        wait_until(lambda: page.read_process(Role.SUPERVISOR).beat_ns > paused_ns, "a turn")
        for role, pid in before.items():
            if role != "supervisor":
                os.kill(pid, signal.SIGCONT)
    wait_until(lambda: all(p["beat_age_ms"] < 1_000 for p in node.status()["processes"]), "beats")

    assert node.pids() == before


@pytest.mark.long(but=1)
@pytest.mark.parametrize("order", ["slow 4", "load 4"])
def test_a_child_that_is_long_in_starting_is_left_alone(
    start_small_node: StartNode, order: str
) -> None:
    node = start_small_node(orders={"writer.once": order}, supervision={"beat_timeout_ms": 3_000})

    assert node.child("writer")["restarts"] == 0
    assert node.status()["counters"]["supervisor"]["children_killed"] == 0
