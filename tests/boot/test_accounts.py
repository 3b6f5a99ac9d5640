"""Accounts of the machine are users of the node, through the walls that systemd puts around it."""

from __future__ import annotations

import pytest

from tests.boot.conftest import UNIT
from tests.boot.machine import Machine
from tests.boot.messages import status

pytestmark = [pytest.mark.slow, pytest.mark.boot]

CONFIG = "/etc/ledgermq/ledgermq.toml"


def test_accounts_on_the_unix_sockets_are_told_apart(machine: Machine) -> None:
    for name in ("app", "nosy"):
        machine.run(f"useradd --groups ledgermq {name}")
    machine.run(f"printf '[access]\\nenabled = true\\nunix_users = [\"app=orders\"]\\n' >{CONFIG}")
    machine.run(f"systemctl restart {UNIT}")
    status(machine)
    machine.run("ledgermq acl add orders --topic 'orders=PUB|SUB'")
    machine.run("runuser -u app -- ledgermq send orders hello")
    elsewhere = machine.run("runuser -u app -- ledgermq send invoices hello", check=False)
    nosy = machine.run("runuser -u nosy -- ledgermq send orders hello", check=False)

    assert elsewhere.returncode == 1
    assert "orders" in elsewhere.stderr
    assert nosy.returncode == 1
    assert "none of the node's users" in nosy.stderr
    assert machine.output("runuser -u app -- ledgermq receive orders") == "hello"
