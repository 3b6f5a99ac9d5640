"""The package is replaced by others, removed and purged: messages stay until someone says so."""

from __future__ import annotations

import pytest

from tests.boot.conftest import LONG, PACKAGES, UNIT
from tests.boot.machine import Machine
from tests.boot.messages import expected, received, send, status
from tests.boot.root import NEXT_VERSION

pytestmark = [pytest.mark.slow, pytest.mark.boot, LONG]

CONFIG = "/etc/ledgermq/ledgermq.toml"
STORE = "/var/lib/ledgermq"


def install(machine: Machine, name: str, options: str = "") -> None:
    machine.run(f"apt-get install --yes {options} {PACKAGES}/{name}.deb", timeout_s=300)
    machine.wait_active(UNIT)


def test_upgrade_downgrade_remove_reinstall_and_purge_keep_every_message(machine: Machine) -> None:
    version = status(machine)["versions"]["ledgermq"]
    machine.run(f"echo '[ack]' >>{CONFIG}")
    send(machine, 1, 50)

    pid = machine.unit(UNIT, "MainPID")
    install(machine, "next")
    # Running nodes are left as they are: several hosts may upgrade by themselves at the same time.
    assert machine.unit(UNIT, "MainPID") == pid
    machine.run(f"systemctl restart {UNIT}")
    upgraded = status(machine)["versions"]["ledgermq"]
    send(machine, 51, 50)

    install(machine, "this", "--allow-downgrades")
    machine.run(f"systemctl restart {UNIT}")
    downgraded = status(machine)["versions"]["ledgermq"]
    send(machine, 101, 50)

    assert (upgraded, downgraded) == (NEXT_VERSION, version)
    # Changed by the administrator, and not asked about: the file that the package has is the same.
    assert machine.output(f"tail -n 1 {CONFIG}") == "[ack]"

    machine.run("apt-get remove --yes ledgermq")
    assert machine.run("pgrep -u ledgermq", check=False).stdout == ""
    assert machine.run("find /usr/lib/ledgermq", check=False).stdout == ""
    assert machine.run(f"systemctl is-active {UNIT}", check=False).stdout.strip() == "inactive"
    install(machine, "this")
    assert machine.output(f"tail -n 1 {CONFIG}") == "[ack]"
    assert received(machine) == expected(150)

    machine.run("apt-get purge --yes ledgermq")
    assert machine.run(f"ls {CONFIG}", check=False).returncode != 0
    assert machine.run(f"ls {STORE}/abort", check=False).returncode != 0
    assert machine.output(f"ls {STORE}/config/topics.json")


def test_a_purge_deletes_the_stores_that_settings_name_when_that_was_said(machine: Machine) -> None:
    machine.run("install -d -o ledgermq /var/lib/ledgermq-n1/config /var/lib/ledgermq-other")
    machine.run("touch /etc/ledgermq/n1.toml")
    machine.run("echo 'ledgermq ledgermq/purge-data boolean true' | debconf-set-selections")
    machine.run("apt-get purge --yes ledgermq")

    left = machine.run("ls -d /var/lib/ledgermq* /etc/ledgermq", check=False).stdout
    # No settings say that the other folder is an instance's.
    assert left.split() == ["/var/lib/ledgermq-other"]
    assert machine.output("systemctl --failed --no-legend") == ""
