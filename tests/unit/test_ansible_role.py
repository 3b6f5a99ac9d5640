"""What the role of Ansible makes of an inventory: who is which member, and what is asked for them.

No host is asked anything: ``tests/boot/test_ansible.py`` plays the whole role.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
ROLE = ROOT / "packaging" / "ansible" / "roles" / "ledgermq"
PROGRAMS = Path(sys.executable).parent
SHOP = "shop topic:orders=PUB|SUB"

GROUPS: dict[str, dict[str, dict[str, object]]] = {
    # Of an inventory in the form of ini a value is a text.
    "sites": {"a1": {}, "a2": {"ledgermq_witness": "true"}, "a3": {"ledgermq_witness": "false"}},
    "three": {"b1": {}, "b2": {}, "b3": {"ledgermq_witness": False}},
    "pair": {"c1": {}, "c2": {}},
    "odd": {f"d{number}": {} for number in range(3)} | {"d3": {"ledgermq_witness": True}},
    "double": {"e1": {}, "e2": {"ledgermq_witness": True}, "e3": {"ledgermq_witness": True}},
}
"""Inventories by the name of their group: the hosts, and what is said of each."""

PLAYED = """
- hosts: "{{ members }}"
  gather_facts: false
  connection: local
  tasks:
    - block:
        - ansible.builtin.import_role: { name: ROLE, tasks_from: members.yml }
        - ansible.builtin.command:
            argv: "{{ [python, '-m', 'ledgermq.cli.main'] + ledgermq_init_command[1:]
              + ['--output', ledgermq_setup] }}"
          run_once: true
        - ansible.builtin.copy:
            content: "{{ {'node': ledgermq_node, 'first': ledgermq_first,
              'witness': [ledgermq_witness_id, ledgermq_witness_address]
              if ledgermq_witnesses else []} | to_json }}"
            dest: "{{ told }}/{{ inventory_hostname }}"
      rescue:
        - ansible.builtin.copy:
            content: "{{ {'refused': ansible_failed_result.msg} | to_json }}"
            dest: "{{ told }}/{{ inventory_hostname }}"
"""


class Played(NamedTuple):
    """What the role made of ``GROUPS``: by host, and the folders of ``config init`` by group."""

    told: dict[str, dict[str, Any]]
    made: Path

    def settings(self, group: str, node: str) -> dict[str, Any]:
        return tomllib.loads((self.made / group / node / "ledgermq.toml").read_text())


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    if not (PROGRAMS / "ansible-playbook").exists():
        pytest.skip("no Ansible: LEDGERMQ_ANSIBLE=1 packaging/bootstrap.sh")
    folder = tmp_path_factory.mktemp("ansible")
    told = folder / "told"
    told.mkdir()
    inventory = {
        group: {
            "hosts": {
                host: {"ansible_host": f"10.0.0.{at + 1}", **about}
                for at, (host, about) in enumerate(hosts.items())
            },
            "vars": {
                "members": group, "ledgermq_members": group, "ledgermq_users": [SHOP],
                "ledgermq_init_options": ["--port", "20920"], "told": str(told),
                "ledgermq_setup": str(folder / group), "python": sys.executable,
                "ansible_python_interpreter": sys.executable,
            },
        }
        for group, hosts in GROUPS.items()
    }  # fmt: skip
    # What JSON writes is YAML, too.
    (folder / "inventory.yml").write_text(json.dumps(inventory))
    plays = [PLAYED.replace("{{ members }}", group) for group in GROUPS]
    (folder / "play.yml").write_text("".join(plays).replace("ROLE", str(ROLE)))
    done = subprocess.run(
        [PROGRAMS / "ansible-playbook", "-i", "inventory.yml", "play.yml"],
        cwd=folder, capture_output=True, text=True, check=False,
        env={
            **os.environ, "ANSIBLE_HOME": str(folder / "home"), "ANSIBLE_NOCOLOR": "1",
            "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT),
        },
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return Played({path.name: json.loads(path.read_text()) for path in told.iterdir()}, folder)


@pytest.mark.long
def test_the_witness_has_the_last_id_wherever_it_stands(played: Played) -> None:
    nodes = {host: played.told[host]["node"] for host in GROUPS["sites"]}

    assert nodes == {"a1": "n0", "a3": "n1", "a2": "n2"}
    assert {played.told[host]["first"] for host in GROUPS["sites"]} == {"a1"}


def test_its_settings_are_a_witnesss_and_say_where_it_is_taken_in(played: Played) -> None:
    witness, full = (played.settings("sites", node) for node in ("n2", "n0"))

    assert witness["node"]["witness"] is True and "listen" not in witness
    assert "witness" not in full["node"]
    assert full["node"]["peers"] == ["n0-10.0.0.1:20920", "n1-10.0.0.3:20920"]
    for host in GROUPS["sites"]:
        assert played.told[host]["witness"] == ["n2", "10.0.0.2:20920"]


def test_without_a_witness_hosts_have_ids_in_their_order(played: Played) -> None:
    nodes = {host: played.told[host]["node"] for host in GROUPS["three"]}

    assert nodes == {"b1": "n0", "b2": "n1", "b3": "n2"}
    assert not any(played.told[host]["witness"] for host in GROUPS["three"])
    peers = played.settings("three", "n2")["node"]["peers"]
    assert peers == [f"n{at}-10.0.0.{at + 1}:20920" for at in range(3)]


@pytest.mark.parametrize("group", ["pair", "odd", "double"])
def test_hosts_that_are_no_group_are_refused_before_anything_is_made(
    played: Played, group: str
) -> None:
    for host in GROUPS[group]:
        assert "two or four and one with ledgermq_witness" in played.told[host]["refused"]
    assert not (played.made / group).exists()
