"""Start, order of stop, and the marker that tells a clean stop from a crash."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.process.conftest import Node, StartNode, is_alive, wait_until

pytestmark = pytest.mark.slow

ROLES = ["supervisor", "raft", "writer", "dispatcher", "broker"]


def test_every_process_has_its_title_and_the_supervisor_as_parent(
    start_small_node: StartNode,
) -> None:
    node = start_small_node()
    pids = node.pids()
    titles = {role: psutil.Process(pid).cmdline()[0] for role, pid in pids.items()}
    parents = {psutil.Process(pids[role]).ppid() for role in ROLES[1:]}

    assert titles == {role: f"ledgermq: {role} [n7]" for role in ROLES}
    assert parents == {pids["supervisor"]}


def test_children_share_no_descriptor_that_is_the_supervisors_alone(
    start_small_node: StartNode,
) -> None:
    node = start_small_node()
    # A restarted child is forked from a supervisor that has clients, too.
    writer = node.pid("writer")
    os.kill(writer, signal.SIGKILL)
    wait_until(lambda: node.child("writer")["pid"] not in (None, writer), "restart")
    sockets = {
        role: [link for link in links(pid) if link.startswith("socket:")]
        for role, pid in node.pids().items()
        if role != "supervisor"
    }

    assert sockets == {role: [] for role in ROLES[1:]}


def links(pid: int) -> list[str]:
    return [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()]


def test_children_stop_in_order_and_the_node_ends_with_zero(start_small_node: StartNode) -> None:
    node = start_small_node()
    status = node.stop()
    order = (node.orders / "stopped").read_text().split()

    assert status == 0
    assert order == ["broker", "writer", "raft", "dispatcher"]


def test_ctrl_c_in_a_terminal_stops_in_order_too(start_small_node: StartNode) -> None:
    node = start_small_node()
    groups = {os.getpgid(pid) for role, pid in node.pids().items() if role != "supervisor"}
    supervisor = node.pid("supervisor")
    node.signal(signal.SIGINT)

    assert os.getpgid(os.getpid()) not in groups
    assert supervisor not in groups
    assert node.wait_end() == 0


def test_the_abort_file_is_there_while_the_node_is_up_and_gone_after_a_clean_stop(
    start_small_node: StartNode,
) -> None:
    node = start_small_node()
    abort = node.root / "abort"
    content = abort.read_bytes()
    node.stop()

    assert content == b""
    assert not abort.exists()


def test_the_abort_file_stays_when_a_child_has_to_be_killed(start_small_node: StartNode) -> None:
    node = start_small_node(
        orders={"writer.always": "stubborn"}, supervision={"stop_timeout_ms": 200}
    )
    status = node.stop()

    assert status == 3
    assert node.logged("child does not stop and is killed child=writer")
    assert (node.root / "abort").exists()


def test_the_abort_file_stays_when_something_was_not_dispatched(
    start_small_node: StartNode,
) -> None:
    node = start_small_node()
    node.order("raft.always", "behind")
    wait_until(lambda: node.status()["cursors"]["not_dispatched_bytes"] == 4_096, "lag")
    status = node.stop()

    assert status == 0
    assert (node.root / "abort").exists()


def test_a_clean_stop_removes_the_abort_file_of_an_earlier_crash(
    start_small_node: StartNode, restart_small_node: Callable[[Node], None]
) -> None:
    node = start_small_node()
    node.signal(signal.SIGKILL)
    node.wait_end()
    abort = node.root / "abort"
    was_left = abort.exists()
    restart_small_node(node)
    node.wait_told("READY=1", count=2)
    node.stop()

    assert was_left
    assert not abort.exists()


def test_no_child_outlives_a_killed_supervisor(start_small_node: StartNode) -> None:
    node = start_small_node()
    children = [pid for role, pid in node.pids().items() if role != "supervisor"]
    node.signal(signal.SIGKILL)
    node.wait_end()
    wait_until(lambda: not any(map(is_alive, children)), "death of the children")

    assert len(children) == 4


def test_a_second_start_gets_the_next_generation(
    start_small_node: StartNode, restart_small_node: Callable[[Node], None]
) -> None:
    node = start_small_node()
    first = node.status()["generation"]
    node.signal(signal.SIGKILL)
    node.wait_end()
    restart_small_node(node)
    node.wait_told("READY=1", count=2)

    assert node.status()["generation"] == first + 1


def test_a_page_of_another_version_is_replaced(
    start_small_node: StartNode, restart_small_node: Callable[[Node], None]
) -> None:
    node = start_small_node()
    node.stop()
    (node.runtime / "cursors").write_bytes(bytes(4_096))
    restart_small_node(node)
    node.wait_told("READY=1", count=2)

    assert node.status()["generation"] == 1


def test_python_without_assertions_is_refused(start_small_node: StartNode) -> None:
    node = start_small_node(python=("-O",), ready=False)

    assert node.wait_end() == 1
    assert node.logged("run without -O")
    assert not node.root.exists()
