"""The commands of docs/operating, run as they are told: against a group of three real nodes.

What the documents call by the places of an installed host (``/etc/ledgermq``, ``10.0.0.1``, …) is
that of a group on loopback; all else is as it is typed. Each command of a block that is marked as
``console`` has to end with status 0; a doctor may also say that something fails.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from ledgermq.cli.main import _parser
from ledgermq.client import TransactionalProducer
from ledgermq.client.admin.broker_admins import ArchiveAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.core.address import DEFAULT_ADDRESS
from ledgermq.client.reading.retries import DEAD
from ledgermq.sessions.keys.client_keys import make_client_keys, make_node_key
from tests.conftest import Golden
from tests.operating_commands import Told, documents, told_in, words_of
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import Group, Member, free_port, make_group, producer
from tests.suite.patience import PATIENCE_S

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

CLEAR = "trusted_network = true"
SHOP = "--topic 'orders=PUB|SUB' --group billing=SUB"
"""What three-hosts.md has made beforehand: nodes that nobody reaches without keys, and a user."""

MESSAGE = "0A0000010BD118B4AAC24CA9C2370000"
MESSAGE_OFFSET_ID = "7F00000100002A9F000000000000D2F0"
MESSAGE_POSITION = "position 54000"
TIMER = "7F0000010BD118B4AAC24CA9C2370000"
TRANSACTIONS = ("7F0000010BD118B4AAC24CA9C2380001", "7F0000010BD118B4AAC24CA9C2380002")
LETTER = (" billing 17", "--offset 17")
DAYS_TO_COME = ("2026-12-24T18:00", "2026-01-01T00:00")
"""What the documents call by names that are others everywhere."""

UNLIKE_ANY_OTHER = re.compile(r"\d{8}T\d{6}\.\d{3}Z")


DEFAULT_TIMEOUT_S = 15.0
"""That of commands that ask a node."""
BEHIND_THE_WORDS = re.compile(r"  |\s+[<>|&;#]")


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

    def give(self, name: str, here: str) -> None:
        """Have ``here`` stand for what the documents call ``name``."""
        self._places[name] = here

    def _addressed(self, text: str) -> str:
        """``text``, asked of the first host where it says nothing, for its place is the default;
        and with a test's patience: a busy machine takes longer than an operator would wait."""
        if not text.startswith("ledgermq "):
            return text
        words = words_of(text)
        arguments = vars(_parser(words).parse_args(words))
        if arguments.get("timeout") == DEFAULT_TIMEOUT_S and "--timeout" not in words:
            behind = BEHIND_THE_WORDS.search(text)
            at = len(text) if behind is None else behind.start()
            text = f"{text[:at]} --timeout {PATIENCE_S:.0f}{text[at:]}"
        if arguments.get("address") == DEFAULT_ADDRESS and "--address" not in words:
            text = f"{text} --address ipc:///run/ledgermq"
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
        text = self._addressed(told.command)
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
def host(make_node: Callable[[], Node], golden_copy: Golden, tmp_path: Path) -> Iterator[Host]:
    ports: dict[str, int] = {}
    key = tmp_path / "clients.key"
    server = make_node_key(key)

    def listen_over_tcp(member: Member) -> None:
        lines = [f'curve_secret_file = "{key}"', 'http = "unix"']
        for name, port in (("produce", 10_921), ("consume", 10_922)):
            ports[f"{member.name} {port}"] = free_port()
            lines.append(f'{name} = "tcp://127.0.0.1:{ports[f"{member.name} {port}"]}"')
        text = member.node.config.read_text()
        assert text.count(CLEAR) == 1
        shut = text.replace(CLEAR, "\n".join(lines))
        member.node.config.write_text(f"{shut}[access]\nenabled = true\n")

    group = make_group(make_node, ack="majority-fsync", prepare=listen_over_tcp)
    for member in group.members:
        member.node.wait_ready()
    made = Host(group, ports, tmp_path, golden_copy("g6"))
    made.lead()
    public = make_client_keys(tmp_path / "root" / "shop.keys", server=server)
    for command in (*GIVEN, f"ledgermq acl add shop {SHOP} --public-key '{public}'"):
        done = made.run(Told("", command, "$"))
        assert done.returncode == 0, done.stderr
    # As long as it is there, its transactions wait for what the documents do with them.
    with TransactionalProducer(group.addresses, group="shop") as shop:
        give_things(made, group, shop)
        yield made


def give_things(host: Host, group: Group, shop: TransactionalProducer) -> None:
    """A message with a key, one that waits for its time, dead letters, transactions, an archive."""
    host.lead()
    address = group.members[0].address
    with producer(*group.members) as sender:
        sent = sender.send("orders", b"paid", keys=["order-4711"]).result()
        later = sender.send("orders", b"pay", delay=timedelta(hours=1)).result()
    with connect_broker(address, name="test", timeout_s=PATIENCE_S) as broker:
        asked = {"group": "billing", "position": sent.physical_offset, "delay_level": DEAD}
        broker.call("send_back", **asked)
        ArchiveAdmin(broker).commit("nightly", 1)
    for name in TRANSACTIONS:
        transaction = shop.transaction()
        transaction.send("orders", b"book").result()
        host.give(name, transaction.id)
    host.give(MESSAGE, sent.unique_id)
    host.give(MESSAGE_OFFSET_ID, sent.offset_message_id)
    host.give(MESSAGE_POSITION, f"position {sent.physical_offset}")
    host.give(TIMER, later.unique_id)
    for words in LETTER:
        host.give(words, words.replace("17", "0"))
    for day in DAYS_TO_COME:
        host.give(day, (datetime.now() + timedelta(days=1)).isoformat(timespec="minutes"))


@pytest.mark.skipif(shutil.which("curl") is None, reason="not installed: curl")
@pytest.mark.long
def test_every_command_that_is_told_does_what_it_says(host: Host) -> None:
    wrong = []
    run: set[str] = set()
    for document in documents():
        # What several documents tell is run once.
        commands = [
            told for told in told_in(document) if told.prompt == "$" and told.text not in run
        ]
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
