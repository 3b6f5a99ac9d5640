"""The role of packaging/ansible: bare hosts become a group, and a second run changes nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from tests.boot import root
from tests.boot.conftest import LONG, PACKAGES, UNIT
from tests.boot.hosts import booted
from tests.boot.machine import Machine
from tests.boot.messages import status
from tests.boot.repository import URL, serve
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.boot, LONG]

ROLE = root.CHECKOUT / "packaging" / "ansible"
PROGRAMS = Path(sys.executable).parent
RUN_S = 580.0
SHOP = "shop topic:orders=PUB|SUB group:billing=SUB"
SSH = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
_RECAP = re.compile(
    r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE
)


class Controller:
    """This machine, in the network of the hosts, with a role to play on them."""

    def __init__(
        self, folder: Path, hosts: dict[str, Machine], package: Path, connections: str
    ) -> None:
        self.hosts = hosts
        self.setup = folder / "setup"
        self._folder = folder
        self._connections = connections
        self._transcript: list[str] = []
        self._inside = next(iter(hosts.values())).inside("--net")
        told = {
            "ansible_user": "root",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_private_key_file": str(folder / "ssh"),
            "ansible_ssh_common_args": SSH,
            "ledgermq_deb": str(package),
            "ledgermq_setup": str(self.setup),
            "ledgermq_users": [SHOP],
        }
        named = {f"mq{at}": {"ansible_host": address} for at, address in enumerate(hosts)}
        self._inventory = folder / "inventory.yml"
        # What JSON writes is YAML, too.
        self._inventory.write_text(json.dumps({"ledgermq": {"hosts": named, "vars": told}}))

    def say_of(self, host: str, **told: object) -> None:
        """Say more of a host in the inventory."""
        inventory = json.loads(self._inventory.read_text())
        inventory["ledgermq"]["hosts"][host].update(told)
        self._inventory.write_text(json.dumps(inventory))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the checkout's environment here, in the hosts' network."""
        environment = {
            **os.environ,
            "ANSIBLE_HOME": str(self._folder / "ansible"),
            # Of connections that are kept: hosts of another run have the same addresses.
            "ANSIBLE_SSH_CONTROL_PATH_DIR": self._connections,
            "ANSIBLE_NOCOLOR": "1",
            "LC_ALL": "C.UTF-8",
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            "PYTHONPATH": str(root.CHECKOUT),
        }
        return subprocess.run(
            [*self._inside, *words], capture_output=True, text=True, check=False, timeout=RUN_S,
            env=environment, cwd=root.CHECKOUT,
        )  # fmt: skip

    def play(self, **told: str) -> tuple[dict[str, int], str]:
        """Play the role, with further variables; how many steps changed each host, and what was
        said. It has to succeed.
        """
        done = self._play(told)
        said = f"{done.stdout}{done.stderr}"
        self._transcript.append(said)
        root.keep("ansible.txt", "\n".join(self._transcript))
        recap = _RECAP.findall(done.stdout)

        assert done.returncode == 0, said
        assert [(away, failed) for _, _, away, failed in recap] == [("0", "0")] * len(self.hosts)
        return {name: int(changed) for name, changed, _, _ in recap}, said

    def refuse(self, **told: str) -> str:
        """Play the role, which has to fail; what was said."""
        done = self._play(told)

        assert done.returncode != 0, done.stdout
        return done.stdout

    def _play(self, told: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        return self.run(
            "ansible-playbook", "-i", str(self._inventory), "-e", json.dumps(told),
            str(ROLE / "site.yml"),
        )  # fmt: skip


@pytest.fixture
def controller(packages: Path, repositories: None, tmp_path: Path) -> Iterator[Controller]:
    """Three hosts without the package, and what an administrator has of them."""
    if not (PROGRAMS / "ansible-playbook").exists():
        pytest.skip("no Ansible: LEDGERMQ_ANSIBLE=1 packaging/bootstrap.sh")
    # What Ansible's apt needs, which a host with a network would be given by it.
    bare = root.made_root(root.SUITE, f"{root.PACKAGES},python3-apt")
    with (
        # Paths of sockets are short.
        tempfile.TemporaryDirectory(prefix="lmq-", ignore_cleanup_errors=True) as connections,
        booted(tmp_path, 3, [bare], [(packages, PACKAGES)]) as hosts,
    ):
        for machine in hosts.values():
            # Thousands of files, each synced, on a disk that is thrown away.
            machine.run("echo force-unsafe-io >/etc/dpkg/dpkg.cfg.d/unsafe-io")
            # Ansible, unlike apt, ends where one of the sources is not reached.
            machine.run("rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*")
            serve(machine, f"{PACKAGES}/later")
        yield Controller(tmp_path, hosts, packages / "this.deb", connections)


def test_the_role_makes_a_group_changes_nothing_twice_and_restarts_one_host_after_the_other(
    controller: Controller,
) -> None:
    changed, _ = controller.play()
    again, said = controller.play()

    assert all(changed.values())
    assert again == dict.fromkeys(again, 0), said
    assert_serves(controller)
    for machine in controller.hosts.values():
        assert machine.unit(UNIT, "UnitFileState") == "enabled"
        assert machine.output("find /root /tmp /var/tmp -name '*.secret' -o -name '*.keys'") == ""

    for path in controller.setup.glob("n*/ledgermq.toml"):
        path.write_text(f'{path.read_text()}\n[log]\nlevel = "WARNING"\n')
    changed, _ = controller.play()

    assert set(changed.values()) == {2}
    assert_restarted_one_by_one(controller)
    assert_serves(controller)

    later = {
        "ledgermq_deb": "",
        "ledgermq_repository": URL,
        "ledgermq_package": f"ledgermq={root.NEXT_VERSION}*",
    }
    changed, _ = controller.play(**later)

    assert set(changed.values()) == {3}
    assert_restarted_one_by_one(controller)
    for machine in controller.hosts.values():
        assert status(machine)["versions"]["ledgermq"] == root.NEXT_VERSION
    assert_serves(controller)

    controller.setup.rename(controller.setup.with_name("elsewhere"))

    assert "has a store or keys" in " ".join(controller.refuse(**later).split())


def test_a_host_becomes_the_witness_of_the_two_others(controller: Controller) -> None:
    controller.say_of("mq2", ledgermq_witness=True)
    changed, _ = controller.play()
    again, said = controller.play()
    *full, witness = controller.hosts.values()
    statuses = [
        json.loads(one.output("ledgermq raft status --config /etc/ledgermq/ledgermq.toml --json"))
        for one in full
    ]

    assert all(changed.values())
    assert again == dict.fromkeys(again, 0), said
    for status_ in statuses:
        assert status_["voters"] == ["n0", "n1", "n2"]
        assert status_["bodiless"] == ["n2"]
    assert witness.unit(UNIT, "ActiveState") == "active"
    assert witness.output("find /etc/ledgermq -name users.key -o -name clients.key") == ""


def assert_serves(controller: Controller) -> None:
    """A client of RocketMQ's comes in over TLS and signed, one of ours by its keys."""
    roles = {address: status(one)["raft"]["role"] for address, one in controller.hosts.items()}
    (leads,) = (address for address, role in roles.items() if role == "leader")
    clients = controller.setup / "clients"
    keys = ",".join(f"tcp://{one}:10922?keys={clients}/shop.keys" for one in controller.hosts)
    sent = controller.run(
        sys.executable, "-m", "tests.boot.signed_send", f"{leads}:10911",
        str(controller.setup / "certificates.pem"), "shop",
        (clients / "shop.secret").read_text().strip(), "orders", "signed",
    )  # fmt: skip
    read = controller.run(
        "ledgermq", "receive", "orders", "--count", "1", "--timeout", str(PATIENCE_S),
        "--address", keys,
    )  # fmt: skip

    assert sorted(roles.values()) == ["follower", "follower", "leader"]
    assert sent.stdout.split() == ["0"], sent.stderr
    assert read.stdout.split() == ["signed"], read.stderr


def assert_restarted_one_by_one(controller: Controller) -> None:
    """Since the last time each has been, and the next one was stopped when one was ready."""
    lives = sorted(life_of(machine) for machine in controller.hosts.values())
    for (_, ready), (stopped, _) in pairwise(lives):
        assert ready <= stopped, lives


def life_of(machine: Machine) -> tuple[int, int]:
    """When the node was last stopped, and when it was ready again: microseconds since the boot of
    the kernel, which all machines share.
    """
    stopped = machine.unit(UNIT, "ActiveExitTimestampMonotonic")
    ready = machine.unit(UNIT, "ActiveEnterTimestampMonotonic")
    return int(stopped), int(ready)


def test_the_role_is_as_ansibles_own_checker_wants_it() -> None:
    checker = PROGRAMS / "ansible-lint"
    if not checker.exists():
        pytest.skip("no Ansible: LEDGERMQ_ANSIBLE=1 packaging/bootstrap.sh")
    done = subprocess.run(
        [checker, "--offline", "--nocolor", "--profile", "production", "."],
        cwd=ROLE, capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"},
    )  # fmt: skip

    assert done.returncode == 0, done.stdout
