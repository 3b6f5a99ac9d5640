"""A node under systemd: what it survives, and how it ends."""

from __future__ import annotations

import pytest

from tests.boot.conftest import UNIT
from tests.boot.machine import Machine
from tests.boot.messages import expected, processes, received, send, status

pytestmark = [pytest.mark.slow, pytest.mark.boot]

CHILDREN = ("raft", "writer", "dispatcher", "broker")
CONFIG = "/etc/ledgermq/ledgermq.toml"


def restarts(machine: Machine) -> int:
    return int(machine.unit(UNIT, "NRestarts"))


def wait_replaced(machine: Machine, role: str, pid: int) -> None:
    """Until another process than ``pid`` has the role, in a node that is ready."""
    machine.wait_until(
        lambda: machine.unit(UNIT, "ActiveState") == "active" and processes(machine)[role] != pid,
        f"another {role}",
    )


def test_the_death_of_a_process_is_mended_and_loses_nothing(machine: Machine) -> None:
    count = 0
    for role in CHILDREN:
        send(machine, count + 1, 50)
        count += 50
        pid = processes(machine)[role]
        machine.run(f"kill -9 {pid}")
        wait_replaced(machine, role, pid)

    assert restarts(machine) == 0

    pid = processes(machine)["supervisor"]
    machine.run(f"kill -9 {pid}")
    machine.wait_until(lambda: restarts(machine) == 1, "a restart by systemd")
    wait_replaced(machine, "supervisor", pid)
    send(machine, count + 1, 50)

    assert received(machine) == expected(count + 50)


def test_a_reload_takes_good_settings_and_refuses_bad_ones(machine: Machine) -> None:
    pid = processes(machine)["supervisor"]
    machine.run(f"printf '[quotas]\\nclient_produce_bytes = 1000000\\n' >{CONFIG}")
    machine.run(f"systemctl reload {UNIT}")
    # The signal is taken a moment after systemctl has returned.
    machine.wait_until(
        lambda: "changed=quotas.client_produce_bytes" in machine.journal(UNIT), "new settings"
    )
    machine.run(f"cp {CONFIG} /root/good && echo 'broken = [' >>{CONFIG}")
    done = machine.run(f"systemctl reload {UNIT}", check=False)
    state = machine.unit(UNIT, "ActiveState")
    machine.run(f"cp /root/good {CONFIG}")

    assert done.returncode != 0
    assert state == "active"
    assert processes(machine)["supervisor"] == pid
    assert f"{CONFIG} cannot be used" in machine.journal(UNIT)


def test_a_stop_leaves_a_clean_directory_and_messages_survive_boots(machine: Machine) -> None:
    send(machine, 1, 100)
    machine.run(f"systemctl stop {UNIT}")

    assert machine.unit(UNIT, "Result") == "success"
    assert machine.run("ls /run/ledgermq", check=False).returncode != 0
    assert machine.run("ls /var/lib/ledgermq/abort", check=False).returncode != 0
    assert machine.run("pgrep -u ledgermq", check=False).stdout == ""

    machine.power_off()
    machine.boot()
    machine.wait_active(UNIT)
    send(machine, 101, 100)
    machine.cut_power()
    machine.boot()
    machine.wait_active(UNIT)

    assert received(machine) == expected(200)
    assert status(machine)["damage"] is None
