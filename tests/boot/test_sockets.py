"""systemd holds the port of RocketMQ's clients: a restart of the service refuses nobody."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.boot.conftest import UNIT
from tests.boot.machine import PATIENCE_S, Machine
from tests.boot.messages import processes, status
from tests.boot.root import CHECKOUT

pytestmark = [pytest.mark.slow, pytest.mark.boot]

SOCKET = "ledgermq-remoting.socket"
CONFIG = "/etc/ledgermq/ledgermq.toml"
ADDRESS = "127.0.0.1:10911"


@contextmanager
def connecting(machine: Machine, told: dict[str, Any]) -> Iterator[None]:
    """Have somebody connect in the machine's network during the block; ``told`` is how it went."""
    script = CHECKOUT / "tests" / "boot" / "connecting.py"
    with subprocess.Popen(
        [*machine.inside("--net"), sys.executable, str(script), ADDRESS],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    ) as client:  # fmt: skip
        assert client.stdout is not None
        assert client.stdout.readline() == "connecting\n"
        try:
            yield
        finally:
            client.send_signal(signal.SIGTERM)
            told.update(json.loads(client.communicate(timeout=PATIENCE_S)[0]))


def restart(machine: Machine) -> dict[str, Any]:
    """Restart the service while somebody connects; how that went."""
    told: dict[str, Any] = {}
    with connecting(machine, told):
        machine.run(f"systemctl restart {UNIT}")
        status(machine)
    return told


def test_a_restart_refuses_nobody_whose_port_systemd_holds(machine: Machine) -> None:
    listens = '[listen]\\nremoting = "*:10911"\\ntrusted_network = true\\n'
    machine.run(f"printf '{listens}' >{CONFIG}")
    machine.run(f"systemctl restart {UNIT}")
    without = restart(machine)
    machine.run(f"systemctl stop {UNIT} && systemctl enable --now {SOCKET}")
    held = machine.run(f"ledgermq doctor --config {CONFIG} --only ports", check=False).stdout
    machine.run(f"systemctl start {UNIT}")
    with_it = restart(machine)

    # The control: the node's own port is closed for a while.
    assert without["refused"] > 0
    assert with_it["refused"] == 0
    assert with_it["answered"] > 0
    assert f"held for the node by {SOCKET}" in held

    told = machine.output(f"ledgermq service status --config {CONFIG}")
    assert f"port        0.0.0.0:10911 (listen.remoting): held by systemd ({SOCKET})" in told
    told = machine.run(f"ledgermq doctor --config {CONFIG} --only ports", check=False).stdout
    assert f"port 10911 is this node's, and {SOCKET} holds it" in told

    # Each of its processes may go: the next broker, and the next node, have the same sockets.
    counted: dict[str, Any] = {}
    pid = processes(machine)["broker"]
    with connecting(machine, counted):
        machine.run(f"kill -9 {pid}")
        machine.wait_until(lambda: processes(machine)["broker"] != pid, "another broker")
        machine.run(f"systemctl kill --signal=KILL --kill-whom=main {UNIT}")
        machine.wait_until(lambda: machine.unit(UNIT, "NRestarts") == "1", "a restart by systemd")
        status(machine)
    assert counted["refused"] == 0


def test_a_socket_that_the_settings_do_not_want_ends_the_start_with_a_reason(
    machine: Machine,
) -> None:
    machine.run(f"systemctl stop {UNIT} && systemctl start {SOCKET}")
    machine.run(f"systemctl start {UNIT}", check=False)
    told = machine.journal(UNIT)

    assert machine.unit(UNIT, "ExecMainStatus") == "1"
    assert "systemd listens for the node where its settings do not" in told
    assert SOCKET in told
    machine.run(f"systemctl stop {SOCKET} && systemctl start {UNIT}")
    assert status(machine)["ports"] == []

    machine.run(f"systemctl stop {UNIT} && systemctl start {SOCKET}")
    machine.run("apt-get remove --yes ledgermq")
    assert machine.run(f"systemctl is-active {SOCKET}", check=False).stdout.strip() == "inactive"
