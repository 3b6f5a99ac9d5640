"""Three instances of the template are a group on one host, upgraded while clients send."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.boot.conftest import LONG, PACKAGES, UNIT
from tests.boot.instances import NODES, make_group, write_settings
from tests.boot.machine import Machine
from tests.boot.messages import status
from tests.boot.root import CHECKOUT, NEXT_VERSION, PREVIOUS
from tests.process.history import History, Outcome

pytestmark = [pytest.mark.slow, pytest.mark.boot, LONG]

TOPIC = "orders"
ADDRESSES = ",".join(f"tcp://127.0.0.1:{10922 + 10 * number}" for number in range(3))
PRODUCERS = ("p0", "p1")


def members(machine: Machine) -> dict[str, dict[str, str]]:
    """Role and version of each node."""
    found = {name: status(machine, f"/etc/ledgermq/{name}.toml") for name in NODES}
    return {
        name: {"role": one["raft"]["role"], "version": one["versions"]["ledgermq"]}
        for name, one in found.items()
    }


def pids(machine: Machine) -> dict[str, str]:
    return {name: machine.unit(f"ledgermq@{name}.service", "MainPID") for name in NODES}


@contextmanager
def load(machine: Machine, folder: Path) -> Iterator[History]:
    """Producers on this machine that send to that one's nodes, until the end of the block."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    script = CHECKOUT / "tests" / "process" / "fault_producer.py"
    started = [
        subprocess.Popen(
            [*machine.inside("--net"), sys.executable, str(script), ADDRESSES, TOPIC, name,
             str(folder / f"history-{name}.jsonl"), "60"],
            env=environment, stdin=subprocess.DEVNULL,
        )
        for name in PRODUCERS
    ]  # fmt: skip
    try:
        yield History([folder / f"history-{name}.jsonl" for name in PRODUCERS])
    finally:
        for producer in started:
            producer.terminate()
        for producer in started:
            producer.wait(timeout=120)


def wait_for_acks(machine: Machine, history: History) -> None:
    """Until each producer has an acknowledgement of something that it sends from now on."""
    since_ns = time.monotonic_ns()

    def all_acked() -> bool:
        acked = history.refresh().last_acked_start_ns()
        return all(acked.get(name, 0) > since_ns for name in PRODUCERS)

    machine.wait_until(all_acked, "every producer to be acknowledged")


def roll(machine: Machine, history: History, package: str) -> None:
    """Give one node after the other another version, under load."""
    before = pids(machine)
    install(machine, package)

    # The package leaves instances alone: three at once would be the majority.
    assert pids(machine) == before
    wait_for_acks(machine, history)

    for number, name in enumerate(NODES):
        write_settings(machine, number, package)
        machine.run(f"systemctl restart ledgermq@{name}")
        machine.run(
            f"ledgermq status --config /etc/ledgermq/{name}.toml --wait-ready 60 >/dev/null"
        )
        wait_for_acks(machine, history)


def install(machine: Machine, package: str) -> None:
    path = f"{PACKAGES}/{package}.deb"
    machine.run(f"apt-get install --yes --allow-downgrades {path}", timeout_s=300)


def assert_versions(machine: Machine, version: str) -> None:
    """All run that version, and one of them leads, once an election is over."""

    def settled() -> dict[str, dict[str, str]]:
        found = members(machine)
        roles = sorted(one["role"] for one in found.values())
        return found if roles == ["follower", "follower", "leader"] else {}

    after = machine.wait_until(settled, "one member to lead")

    assert {one["version"] for one in after.values()} == {version}


def assert_nothing_is_lost(machine: Machine, history: History) -> None:
    told = machine.output(f"ledgermq receive {TOPIC} --address {ADDRESSES} --timeout 60")
    found = [line.split()[0] for line in told.splitlines()]
    acked = [
        value
        for one in history.refresh().appends.values()
        if one.outcome is Outcome.ACKED
        for value in one.values
    ]

    assert len(acked) > 100
    assert sorted(set(found)) == sorted(found)
    assert set(acked) <= set(found)


def test_a_group_is_upgraded_node_by_node_under_load_without_a_loss(
    machine: Machine, tmp_path: Path
) -> None:
    make_group(machine)
    with load(machine, tmp_path) as history:
        wait_for_acks(machine, history)
        roll(machine, history, "next")
        assert_versions(machine, NEXT_VERSION)
    assert_nothing_is_lost(machine, history)

    # Folders of one unit do not lie in those of another: a stop removes its own.
    machine.run(f"systemctl start {UNIT} && systemctl stop {UNIT}")
    machine.output("ls /run/ledgermq-n0/control.sock /run/ledgermq-n2/control.sock")
    machine.run("systemctl stop ledgermq.target")
    for name in NODES:
        unit = f"ledgermq@{name}.service"
        machine.wait_until(lambda unit=unit: machine.unit(unit, "ActiveState") == "inactive", unit)
    states = [machine.unit(f"ledgermq@{name}.service", "Result") for name in NODES]

    assert states == ["success"] * 3
    assert machine.run("pgrep -u ledgermq", check=False).stdout == ""


def test_a_group_goes_from_the_version_before_to_this_one_and_back_under_load_without_a_loss(
    machine: Machine, tmp_path: Path, previous: str
) -> None:
    version = status(machine)["versions"]["ledgermq"]
    install(machine, previous)
    make_group(machine, previous)
    assert_versions(machine, PREVIOUS.version)
    with load(machine, tmp_path) as history:
        wait_for_acks(machine, history)
        roll(machine, history, "this")
        assert_versions(machine, version)
        roll(machine, history, previous)
        assert_versions(machine, PREVIOUS.version)
    assert_nothing_is_lost(machine, history)

    # What was stored by either is read by this one.
    install(machine, "this")
    for number in range(len(NODES)):
        write_settings(machine, number, "this")
    machine.run("systemctl restart ledgermq.target")
    assert_versions(machine, version)
    assert_nothing_is_lost(machine, history)

    for name in NODES:
        machine.run(f"systemctl stop ledgermq@{name}")
        machine.run(f"ledgermq store check /var/lib/ledgermq-{name} --self-id {name}")
