"""The commands of docs/operating, run as they are told: against a group of three real nodes.

What the documents call by the places of an installed host (``/etc/ledgermq``, ``10.0.0.1``, …) is
that of a group on loopback; all else is as it is typed. Each command of a block that is marked as
``console`` has to end with status 0; a doctor may also say that something fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import Golden
from tests.operating_commands import Told, documents, told_in, words_of
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Group, Member, free_port, make_group, producer

from ledgermq.cli.main import _parser
from ledgermq.client.address import DEFAULT_ADDRESS

pytestmark = pytest.mark.slow

PROGRAMS = Path(sys.executable).parent
FIRST = "n0"
BROKER_CONF = "brokerClusterName=DefaultCluster\nbrokerName=orders-a\nlistenPort=10911\n"
DOCTOR_FAILS = 4
GIVEN = (
    "ledgermq receive orders --group billing",
    "ledgermq send orders more --count 30 --queue 3",
)
"""What the documents take for granted: a group that consumes, and messages that it has not read."""

UNLIKE_ANY_OTHER = re.compile(r"\d{8}T\d{6}\.\d{3}Z")


class Host:
    """What the first host of the documents is here."""

    def __init__(self, group: Group, ports: dict[str, int], scratch: Path, plain: Path) -> None:
        self._group = group
        self._first = group.members[0]
        self._scratch = scratch
        node = self._first.node
        self._places = {
            "/etc/ledgermq/ledgermq.toml": str(node.config),
            "/etc/ledgermq/keys": str(node.folder / "group-keys" / FIRST),
            "/etc/rocketmq/broker.conf": str(scratch / "broker.conf"),
            "/srv/rocketmq/store": str(plain),
            "/var/lib/ledgermq": str(node.root),
            "/run/ledgermq": str(node.runtime),
            "/root/": f"{scratch}/root/",
            "/backup/": f"{scratch}/backup/",
            "/srv/": f"{scratch}/srv/",
        }
        self._places |= {
            f"tcp://10.0.0.{number + 1}:{port}": f"tcp://127.0.0.1:{ports[f'n{number} {port}']}"
            for number in range(3)
            for port in (10_921, 10_922)
        }
        for name in ("root", "backup", "srv"):
            (scratch / name).mkdir()
        (scratch / "broker.conf").write_text(BROKER_CONF)

    def _addressed(self, text: str) -> str:
        """``text``, asked of the first host where it says nothing, for its place is the default."""
        if not text.startswith("ledgermq "):
            return text
        words = words_of(text)
        arguments = _parser(words).parse_args(words)
        if getattr(arguments, "address", None) == DEFAULT_ADDRESS and "--address" not in words:
            return f"{text} --address ipc:///run/ledgermq"
        return text

    def lead(self) -> None:
        """Have the first host lead, as the documents assume."""

        def leads() -> bool:
            leader = self._group.leader()
            if leader is self._first:
                return True
            leader.command("raft", "transfer", FIRST)
            return self._first.leads

        wait_until(leads, "the first host to lead")

    def run(self, told: Told) -> subprocess.CompletedProcess[str]:
        """Run a command; names of backups are those of the only one that there is."""
        text = self._addressed(re.split(r"  +#", told.text)[0])
        for place, here in self._places.items():
            text = text.replace(place, here)
        made = sorted(self._scratch.glob("backup/*/*Z"))
        if made:
            text = UNLIKE_ANY_OTHER.sub(made[-1].name, text)
        return subprocess.run(
            ["bash", "-e", "-u", "-o", "pipefail", "-c", text],
            capture_output=True, text=True, check=False, timeout=300, cwd=self._scratch,
            env={"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "HOME": str(self._scratch)},
        )  # fmt: skip


@pytest.fixture
def host(make_node: Callable[[], Node], golden_copy: Golden, tmp_path: Path) -> Host:
    ports: dict[str, int] = {}

    def listen_over_tcp(member: Member) -> None:
        lines = []
        for name, port in (("produce", 10_921), ("consume", 10_922)):
            ports[f"{member.name} {port}"] = free_port()
            lines.append(f'{name} = "tcp://127.0.0.1:{ports[f"{member.name} {port}"]}"')
        text = member.node.config.read_text()
        joined = "\n".join(lines)
        member.node.config.write_text(text.replace("[listen]", f"[listen]\n{joined}"))

    group = make_group(make_node, ack="majority-fsync", prepare=listen_over_tcp)
    for member in group.members:
        member.node.wait_ready()
    with producer(*group.members) as sender:
        sender.send(TOPIC, b"a message").result()
    made = Host(group, ports, tmp_path, golden_copy("g6"))
    made.lead()
    for command in GIVEN:
        done = made.run(Told("", command, True))
        assert done.returncode == 0, done.stderr
    return made


def test_every_command_that_is_told_does_what_it_says(host: Host) -> None:
    wrong = []
    run: set[str] = set()
    for document in documents():
        # What several documents tell is run once.
        commands = [told for told in told_in(document) if told.is_run and told.text not in run]
        if commands:
            host.lead()
        for told in commands:
            run.add(told.text)
            done = host.run(told)
            allowed = {0, DOCTOR_FAILS} if told.text.startswith("ledgermq doctor") else {0}
            if done.returncode not in allowed:
                wrong.append(f"{document}: {told.text}\n{done.returncode} {done.stderr[-500:]}")

    assert wrong == [], "\n".join(wrong)
    assert len(run) > 20
