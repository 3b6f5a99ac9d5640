"""Three instances of the template on one host, which are a group."""

from __future__ import annotations

import json

from tests.boot.conftest import UNIT
from tests.boot.machine import Machine
from tests.boot.root import SUITE

NODES = ("n0", "n1", "n2")
PREVIOUS_PACKAGE = "previous"


def settings(number: int, package: str) -> str:
    """Those of a node; Debian 12's version before has no word for what it takes for granted."""
    knows = package != PREVIOUS_PACKAGE or SUITE != "bookworm"
    trusted = "trusted_network = true" if knows else ""
    peers = json.dumps([f"{name}-127.0.0.1:{40911 + at}" for at, name in enumerate(NODES)])
    return f"""
[node]
self_id = "n{number}"
peers = {peers}
[store]
path_root_dir = "/var/lib/ledgermq-n{number}"
mapped_file_size_commit_log = 16777216
[listen]
runtime_dir = "/run/ledgermq-n{number}"
produce = "tcp://127.0.0.1:{10921 + 10 * number}"
consume = "tcp://127.0.0.1:{10922 + 10 * number}"
{trusted}
[retention]
refuse_above = "100%"
"""


def write_settings(machine: Machine, number: int, package: str) -> None:
    text = settings(number, package)
    machine.run(f"cat >/etc/ledgermq/n{number}.toml", typed=text)
    machine.run(f"ledgermq config check /etc/ledgermq/n{number}.toml")


def make_group(machine: Machine, package: str = "this") -> None:
    """Do what docs/operating/install.md says, and wait until all serve.

    Args:
        package: the one that is installed.
    """
    machine.run(f"systemctl disable --now {UNIT}")
    # As the doctor says: none of the machine's own connections is given the port of a member.
    machine.run("sysctl --quiet net.ipv4.ip_local_reserved_ports=40911-40913")
    machine.run(f"cd /root && ledgermq keys init keys --nodes {','.join(NODES)}")
    for number, name in enumerate(NODES):
        store = f"/var/lib/ledgermq-{name}"
        machine.run(
            f"install -d -o ledgermq -g ledgermq -m 0750 {store} {store}/ledgermq && "
            f"cp -r /root/keys/{name} {store}/ledgermq/keys && "
            f"chown -R ledgermq: {store}/ledgermq"
        )
        write_settings(machine, number, package)
    units = " ".join(f"ledgermq@{name}" for name in NODES)
    machine.run(f"systemctl enable --now --no-block {units} ledgermq.target")
    for name in NODES:
        machine.wait_active(f"ledgermq@{name}.service")
