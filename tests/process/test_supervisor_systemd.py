"""The notify protocol, against a real datagram socket; and SIGHUP."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.process.conftest import StartNode, wait_until

pytestmark = pytest.mark.slow

WATCHDOG_US = 400_000


def test_ready_is_told_once_and_stopping_before_the_end(start_small_node: StartNode) -> None:
    node = start_small_node()
    node.stop()
    told = [message for message in node.listen() if message in ("READY=1", "STOPPING=1")]

    assert told == ["READY=1", "STOPPING=1"]


@pytest.mark.parametrize(
    ("role", "waits_for"),
    [
        ("raft", "a leader"),
        ("writer", "writer"),
        ("dispatcher", "dispatcher"),
        ("broker", "broker"),
    ],
)
def test_ready_waits_for_every_process(
    start_small_node: StartNode, role: str, waits_for: str
) -> None:
    node = start_small_node(orders={f"{role}.once": "slow 1"}, ready=False)
    wait_until((node.runtime / "control.sock").exists, "control socket")
    wait_until(lambda: node.status()["waits_for"] == waits_for, f"waiting for {waits_for}")
    told = list(node.listen())
    node.wait_ready()

    assert "READY=1" not in told
    assert node.status()["waits_for"] == ""


def test_ready_waits_until_the_backlog_is_dispatched(start_small_node: StartNode) -> None:
    node = start_small_node(orders={"raft.always": "behind"}, ready=False)
    wait_until((node.runtime / "control.sock").exists, "control socket")
    waits_for = wait_until(
        lambda: (s := node.status())["waits_for"].endswith("dispatched") and s, "backlog"
    )
    told = list(node.listen())

    assert waits_for["state"] == "starting"
    assert waits_for["waits_for"] == "4096 bytes to be dispatched"
    assert "READY=1" not in told


def test_a_slow_start_asks_for_more_time(start_small_node: StartNode) -> None:
    node = start_small_node(orders={"writer.once": "slow 1.5"})

    assert "EXTEND_TIMEOUT_USEC=10000000" in node.told
    assert node.told.index("EXTEND_TIMEOUT_USEC=10000000") < node.told.index("READY=1")


def test_the_status_is_one_sentence_with_role_term_and_position(
    start_small_node: StartNode,
) -> None:
    node = start_small_node()
    node.wait_told("STATUS=leader in term 3, committed up to 4096")
    at = time.monotonic()
    wait_until(lambda: time.monotonic() > at + 1.5, "time for a repetition")

    assert node.listen().count("STATUS=leader in term 3, committed up to 4096") == 1


def test_the_status_tells_what_is_not_dispatched_as_long_as_it_is_not(
    start_small_node: StartNode,
) -> None:
    node = start_small_node()
    node.wait_told("STATUS=leader in term 3, committed up to 4096")
    node.order("raft.once", "behind")

    node.wait_told("STATUS=leader in term 3, committed up to 8192; 4096 bytes to be dispatched")


def test_the_status_tells_why_the_watchdog_is_not_fed(start_small_node: StartNode) -> None:
    node = start_small_node(supervision={"flush_age_max_ms": 300})
    node.order("writer.always", "unflushed")
    node.wait_told(
        "STATUS=leader in term 3, committed up to 4096; 4096 bytes to be committed; "
        "not well: nothing becomes durable"
    )
    (node.orders / "writer.always").unlink()
    os.kill(node.pid("writer"), signal.SIGKILL)
    wait_until(lambda: node.logged("node is well again"), "the end of it")

    assert node.logged("node is not well: the watchdog is not fed")


def test_a_stop_that_may_take_long_asks_for_the_time(start_small_node: StartNode) -> None:
    node = start_small_node(supervision={"stop_timeout_ms": 1_500})
    node.order("broker.once", "stubborn")
    wait_until((node.orders / "broker.knows").exists, "the order")
    node.stop()
    stopping = node.listen().index("STOPPING=1")

    assert "EXTEND_TIMEOUT_USEC=10000000" in node.told[stopping:]


def test_the_watchdog_is_fed_twice_a_period(start_small_node: StartNode) -> None:
    node = start_small_node(watchdog_us=WATCHDOG_US)
    gaps_s = []
    last = time.monotonic()
    for count in range(1, 8):
        node.wait_told("WATCHDOG=1", count=count)
        gaps_s.append(time.monotonic() - last)
        last += gaps_s[-1]

    # A machine that is busy makes gaps longer, but not all of them.
    assert min(gaps_s[1:]) < 0.75 * WATCHDOG_US / 1_000_000


def test_without_a_watchdog_none_is_fed(start_small_node: StartNode) -> None:
    node = start_small_node()
    at = time.monotonic()
    wait_until(lambda: time.monotonic() > at + 0.7, "time for a turn")

    assert "WATCHDOG=1" not in node.listen()


def test_the_watchdog_is_not_fed_while_a_child_hangs(start_small_node: StartNode) -> None:
    node = start_small_node(watchdog_us=WATCHDOG_US, supervision={"beat_timeout_ms": 1_000})
    # Both: the supervisor kills one that hangs, so a node is sick for a moment only.
    node.order("broker.once", "silent")
    wait_until(lambda: node.logged("the watchdog is not fed"), "withheld watchdog")
    wait_until(lambda: node.child("broker")["restarts"] == 1, "restart")
    count = len([m for m in node.listen() if m == "WATCHDOG=1"])
    node.wait_told("WATCHDOG=1", count=count + 2)

    assert node.logged("child_silent=True")
    assert node.status()["counters"]["supervisor"]["watchdog_withheld"] >= 1


def test_the_watchdog_is_not_fed_while_nothing_becomes_durable(
    start_small_node: StartNode,
) -> None:
    node = start_small_node(watchdog_us=WATCHDOG_US, supervision={"flush_age_max_ms": 300})
    node.wait_told("WATCHDOG=1", count=2)
    node.order("writer.always", "unflushed")
    wait_until(lambda: node.logged("the watchdog is not fed"), "withheld watchdog")
    fed = node.listen().count("WATCHDOG=1")
    at = time.monotonic()
    wait_until(lambda: time.monotonic() > at + 1.0, "two and a half periods")
    fed_later = node.listen().count("WATCHDOG=1")
    (node.orders / "writer.always").unlink()
    pid = node.pid("writer")
    os.kill(pid, signal.SIGKILL)
    node.wait_told("WATCHDOG=1", count=fed_later + 2)

    assert fed_later == fed
    noted = re.search(r"not_durable_ms=(\d+)", node.log.read_text())
    assert noted is not None and int(noted[1]) >= 300


def test_children_do_not_inherit_the_way_to_systemd(start_small_node: StartNode) -> None:
    node = start_small_node(watchdog_us=WATCHDOG_US)
    pids = node.pids()
    supervisor_sockets = sockets_of(pids.pop("supervisor"))
    inherited = {role: sockets_of(pid) & supervisor_sockets for role, pid in pids.items()}

    assert supervisor_sockets
    assert inherited == {role: set() for role in pids}


def sockets_of(pid: int) -> set[str]:
    links = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        # The process may close one while they are listed.
        with suppress(FileNotFoundError):
            links.add(str(fd.readlink()))
    return {link for link in links if link.startswith("socket:")}


def test_sighup_is_framed_by_reloading_and_ready(start_small_node: StartNode) -> None:
    node = start_small_node()
    before_us = time.monotonic_ns() // 1_000
    node.signal(signal.SIGHUP)
    node.wait_told("READY=1", count=2)
    at = node.told.index("RELOADING=1")
    name, _, value = node.told[at + 1].partition("=")

    assert name == "MONOTONIC_USEC"
    assert before_us < int(value) < time.monotonic_ns() // 1_000
    assert "READY=1" in node.told[at + 2 :]


def test_ready_after_sighup_waits_until_every_process_has_the_settings(
    start_small_node: StartNode,
) -> None:
    node = start_small_node(supervision={"beat_timeout_ms": 60_000})
    node.order("writer.once", "deaf")
    wait_until((node.orders / "writer.knows").exists, "the order")
    node.configure(log={"level": "WARNING"}, supervision={"beat_timeout_ms": 60_000})
    node.signal(signal.SIGHUP)
    wait_until(lambda: len(list(node.orders.glob("*.level"))) == 3, "the others to take them")
    # A request is answered behind the look at the page that would have made it ready.
    before = [node.status()["state"] for _ in range(3)]
    told = list(node.listen())
    node.order("writer.once", "hear")
    node.wait_told("READY=1", count=2)

    assert before == ["ready"] * 3
    assert told.count("RELOADING=1") == 1
    assert told.count("READY=1") == 1
    assert (node.orders / "writer.level").read_text() == "WARNING"
    assert not node.logged("settings are not taken")


def test_a_process_that_does_not_take_the_settings_is_named_and_not_waited_for(
    start_small_node: StartNode,
) -> None:
    node = start_small_node(supervision={"beat_timeout_ms": 1_000})
    for role in ("raft", "broker"):
        node.order(f"{role}.once", "deaf")
        wait_until((node.orders / f"{role}.knows").exists, "the order")
    node.signal(signal.SIGHUP)
    node.wait_told("READY=1", count=2)
    sentence = "STATUS=leader in term 3, committed up to 4096"
    node.wait_told(f"{sentence}; reloaded settings not taken by raft and broker")
    for role in ("raft", "broker"):
        node.order(f"{role}.once", "hear")
    node.wait_told(sentence, count=2)

    assert node.logged("settings are not taken by every process processes=raft,broker")
    assert node.logged("settings are taken by all processes")
    assert node.listen().count("READY=1") == 2


def test_a_process_forked_during_a_reload_has_the_settings(start_small_node: StartNode) -> None:
    node = start_small_node(supervision={"beat_timeout_ms": 60_000})
    node.order("writer.once", "deaf")
    wait_until((node.orders / "writer.knows").exists, "the order")
    node.signal(signal.SIGHUP)
    node.wait_told("RELOADING=1")
    os.kill(node.pid("writer"), signal.SIGKILL)
    node.wait_told("READY=1", count=2)

    assert node.child("writer")["restarts"] == 1


def test_sighup_applies_what_may_change_in_every_process(start_small_node: StartNode) -> None:
    node = start_small_node()
    node.configure(log={"level": "WARNING"}, limits={"put_lock_warn_ms": 7})
    node.signal(signal.SIGHUP)
    wait_until(
        lambda: [path.read_text() for path in node.orders.glob("*.level")] == ["WARNING"] * 4,
        "children with the new level",
    )

    # Said aloud: it is not in force in the writer that runs.
    assert node.logged("restarted keys=limits.put_lock_warn_ms")
    assert node.logged("settings re-read changed=limits.put_lock_warn_ms,log.level")


def test_sighup_refuses_what_needs_a_restart_and_says_so(start_small_node: StartNode) -> None:
    node = start_small_node()
    node.configure(node={"self_id": "n9"}, ack={"mode": "lossy-leader"}, log={"level": "DEBUG"})
    node.signal(signal.SIGHUP)
    node.wait_told("READY=1", count=2)
    status = node.status()

    assert node.logged(
        "settings refused: they need a restart of the node keys=node.self_id,ack.mode"
    )
    assert (status["node"]["self_id"], status["ack_mode"]) == ("n7", "majority-fsync")


def test_sighup_with_a_file_that_is_wrong_changes_nothing(start_small_node: StartNode) -> None:
    node = start_small_node()
    node.config.write_text("[limits]\nput_lock_warn_ms = -1\n")
    node.signal(signal.SIGHUP)
    node.wait_told("READY=1", count=2)

    assert node.logged("settings not re-read")
    assert node.logged("limits.put_lock_warn_ms")
    assert node.stop() == 0


def test_a_child_restarted_after_sighup_has_the_new_settings(start_small_node: StartNode) -> None:
    node = start_small_node()
    node.configure(log={"level": "ERROR"})
    node.signal(signal.SIGHUP)
    node.wait_told("READY=1", count=2)
    node.order("broker.once", "raise bug")
    wait_until(lambda: node.child("broker")["restarts"] == 1, "restart")

    assert node.logged("broker: process failed")
    assert 'level = "ERROR"' in (node.runtime / "settings.toml").read_text()
