"""Nodes of IPv6: on a host that has nothing else, and where clients of IPv4 come to all addresses.

The host is a network namespace whose loopback has no address of IPv4.
"""

from __future__ import annotations

import json
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from ledgermq.client import Producer, ProducerOptions
from ledgermq.client.admin.broker_admins import AccessAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.errors import NoPermissionError
from ledgermq.remoting.codes import RequestCode as Code
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import COMMAND, TOPIC, add_settings, free_port, make_group
from tests.process.remoting_client import RemotingClient
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

ASK = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).status)"


class LoneIpv6:
    """A namespace in which programs are started; nothing in it has an address of IPv4."""

    raft: Mapping[str, object] = {"direct_port": 42_200}

    def __init__(self) -> None:
        """Make it.

        Raises:
            PermissionError: this machine does not let one.
        """
        self.name = f"lmq-{secrets.token_hex(4)}-six"
        if shutil.which("ip") is None:
            raise PermissionError("there is no `ip` (Debian: iproute2)")
        self._ip("netns", "add", self.name)
        try:
            self._ip("-n", self.name, "link", "set", "lo", "up")
            self._ip("-n", self.name, "address", "del", "127.0.0.1/8", "dev", "lo")
        except PermissionError:
            self.close()
            raise

    def peers(self, member: int) -> list[str]:
        del member
        return [f"n{number}-[fd00::{number}]:41000" for number in range(3)]

    def prefix(self, member: int = 0) -> list[str]:
        del member
        return ["ip", "netns", "exec", self.name]

    def add_members(self) -> None:
        """Have an address for each member of a group."""
        for number in range(3):
            address = f"fd00::{number}/128"
            self._ip("-n", self.name, "-6", "address", "add", address, "dev", "lo", "nodad")

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run ``ledgermq`` there."""
        return self.run(*COMMAND, *words)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self.prefix(), *words], capture_output=True, text=True, check=False)

    def close(self) -> None:
        self._ip("netns", "del", self.name)

    def _ip(self, *words: str) -> None:
        done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise PermissionError(f"`ip {' '.join(words)}`: {done.stderr.strip()}")


@pytest.fixture
def host() -> Iterator[LoneIpv6]:
    try:
        made = LoneIpv6()
    except PermissionError as error:
        pytest.skip(f"no host with IPv6 alone: {error}")
    yield made
    made.close()


@pytest.mark.long(but=1)
@pytest.mark.parametrize("at", ["[::1]", "[::]", "lo"])
def test_a_node_with_ipv6_alone_serves_all_clients(
    make_node: Callable[[], Node], host: LoneIpv6, at: str
) -> None:
    node = make_node()
    numeric = at if at.startswith("[") else "[::1]"
    node.configure(
        node={"broker_ip": "::1", "listen_port": 10_911},
        listen={"produce": f"tcp://{at}:10921", "consume": f"tcp://{at}:10922",
                "remoting": f"{numeric}:10911", "http": f"{numeric}:9464"},
    )  # fmt: skip
    node.launch(
        ["-m", "ledgermq.cli.main", "serve", "--config", str(node.config)],
        prefix=tuple(host.prefix()),
    )
    node.wait_ready()
    address = "tcp://[::1]:10922"
    made = host.command("topic", "create", "orders", "--address", f"ipc://{node.runtime}")
    sent = host.command("send", "orders", "by IPv6", "--address", address, "--json")
    got = host.command("receive", "orders", "--from", "first", "--count", "1", "--json",
                       "--address", address)  # fmt: skip
    health = host.run(sys.executable, "-c", ASK, "http://[::1]:9464/metrics")
    route = host.run(
        sys.executable, "-c",
        "import socket; s = socket.create_connection(('::1', 10911)); print(s.family.name)",
    )  # fmt: skip
    doctor = host.command("doctor", "--config", str(node.config), "--only", "ports,settings",
                          "--json")  # fmt: skip

    assert made.returncode == 0, made.stderr
    assert sent.returncode == 0, sent.stderr
    assert json.loads(got.stdout)["body"] == "by IPv6", got
    assert (health.stdout.strip(), route.stdout.strip()) == ("200", "AF_INET6"), health.stderr
    ports = [one for one in json.loads(doctor.stdout)["findings"] if one["check"][:5] == "ports"]
    assert {one["check"] for one in ports} >= {
        "ports.listen.produce", "ports.listen.consume", "ports.listen.remoting",
        "ports.listen.http",
    }  # fmt: skip
    assert all("this node's" in one["measured"] for one in ports if "listen" in one["check"])
    assert node.stop() == 0


@pytest.mark.long
def test_a_group_with_ipv6_alone_elects_acknowledges_and_survives_its_leader(
    make_node: Callable[[], Node], host: LoneIpv6
) -> None:
    host.add_members()
    numbers = iter(range(3))
    group = make_group(
        make_node, ack="majority-fsync", network=host,
        prepare=lambda member: add_settings(member, _open(next(numbers))),
    )  # fmt: skip
    leader = group.leader()
    addresses = ",".join(f"tcp://[fd00::{number}]:10922" for number in range(3))
    first = host.command("send", TOPIC, "before", "--address", addresses)
    doctor = host.command("doctor", "--config", str(leader.node.config), "--only", "peers,ports",
                          "--json")  # fmt: skip
    leader.kill()
    heir = group.leader(besides=leader)
    second = host.command("send", TOPIC, "after", "--address", addresses)
    leader.start()
    group.wait_equal()
    wait_until(
        lambda: heir.node.logged("direct connection: peer="), "a direct connection of members"
    )
    assert not any(group.stop())

    assert (first.returncode, second.returncode) == (0, 0), (first.stderr, second.stderr)
    assert doctor.returncode == 0, doctor.stdout
    assert sorted(heir.bodies()) == [b"after", b"before"]


def _open(number: int) -> dict[str, dict[str, object]]:
    own = f"fd00::{number}"
    listen = {"produce": f"tcp://[{own}]:10921", "consume": f"tcp://[{own}]:10922"}
    return {"listen": dict(listen), "node": {"broker_ip": own}}


@pytest.mark.long(but=1)
@pytest.mark.parametrize("words", [("demo",), ("cluster", "demo")])
def test_the_demonstrations_run_with_ipv6_alone(host: LoneIpv6, words: tuple[str, ...]) -> None:
    done = host.command(*words, "--json")
    assert done.returncode == 0, done.stderr
    shutil.rmtree(Path(json.loads(done.stdout)["folder"]))


def test_clients_of_ipv4_are_what_they_are_where_all_addresses_are_listened_at(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    produce, consume, remoting = free_port(), free_port(), free_port()
    start_client_node(
        node,
        node={"listen_port": remoting},
        access={"enabled": True},
        limits={"connections_per_address": 2},
        listen={"produce": f"tcp://[::]:{produce}", "consume": f"tcp://[::]:{consume}",
                "remoting": f"[::]:{remoting}", "vip_channel": False},
    )  # fmt: skip
    with connect_broker(f"ipc://{node.runtime}", name="operator", timeout_s=PATIENCE_S) as broker:
        AccessAdmin(broker).set_user(
            "near", {"whiteRemoteAddress": "127.0.0.*", "defaultTopicPerm": "PUB|SUB"}, mode="add"
        )
    asks_for = {"topic": "orders", "queueId": "0"}
    near, second = (RemotingClient(f"127.0.0.1:{remoting}") for _ in range(2))
    stranger = RemotingClient(f"::1:{remoting}")
    let, _ = (one.ask(Code.GET_MAX_OFFSET, asks_for) for one in (near, second))
    kept_out = stranger.ask(Code.GET_MAX_OFFSET, asks_for)
    with socket.create_connection(("127.0.0.1", remoting)) as third:
        assert third.recv(1) == b""
    for one in (near, second, stranger):
        one.close()
    options = ProducerOptions(timeout_s=PATIENCE_S)
    with Producer(f"tcp://127.0.0.1:{consume}", options=options) as mine:
        stored = mine.send("orders", b"by IPv4").result()
    with (
        Producer(f"tcp://[::1]:{consume}", options=options) as foreign,
        pytest.raises(NoPermissionError) as refused,
    ):
        foreign.send("orders", b"by IPv6").result()
    wait_until(lambda: node.logged("2 of 127.0.0.1 are open"), "the line about the third")

    assert (let.code, kept_out.code) == (0, 16)
    assert stored.queue_offset == 0
    assert "from ::1" in str(refused.value)
    assert "::ffff:" not in node.log.read_text()
    assert node.stop() == 0
