"""The pages of docs/operating that need hosts with systemd, done on such, from top to bottom."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.boot import root
from tests.boot.conftest import LONG, PACKAGES, UNIT
from tests.boot.hosts import booted
from tests.boot.machine import Machine
from tests.boot.messages import expected, received, send, status
from tests.boot.pages import FIRST, Reader
from tests.boot.repository import HOST, know, serve
from tests.boot.root import NEXT_VERSION
from tests.conftest import Golden

pytestmark = [pytest.mark.slow, pytest.mark.boot, LONG]

SETTINGS = "/etc/ledgermq/ledgermq.toml"
FILES = f"""
echo force-unsafe-io >/etc/dpkg/dpkg.cfg.d/unsafe-io
mkdir -p /run/systemd/system/{UNIT}.d
printf '[Unit]\\nStartLimitIntervalSec=0\\n' >/run/systemd/system/{UNIT}.d/fast-reader.conf
systemctl daemon-reload
"""
"""One who types fast may start a node more often than it would start by itself. Thousands of files
are not synced to a disk that is thrown away."""

NOW, LATER = f"{PACKAGES}/now", f"{PACKAGES}/later"
CONSUME = ",".join(f"tcp://10.0.0.{number}:10922?keys=/root/shop.keys" for number in (1, 2, 3))
ADDRESS = f"--address '{CONSUME}'"
PLAIN = """
[node]
broker_name = "orders-a"
[store]
log = "commitlog"
mapped_file_size_commit_log = 1048576
"""
BROKER_CONF = """brokerName=orders-a
storePathRootDir=/srv/rocketmq/store
maxHashSlotNum=500
maxIndexNum=400
"""

MakeHosts = Callable[..., Reader]


@pytest.fixture
def make_hosts(
    packages: Path, repositories: None, installed: Machine, tmp_path: Path
) -> Iterator[Callable[..., Reader]]:
    """``make_hosts(3)``: with the package; ``make_hosts(1, bare=True)``: without.

    All are served a repository; those with the package know it.
    """
    with ExitStack() as made:

        def make(count: int, *, bare: bool = False, sees: tuple[Path, str] | None = None) -> Reader:
            layers = [root.debian_root()] if bare else [installed.upper, root.debian_root()]
            binds = [(packages, PACKAGES), *([sees] if sees else [])]
            machines = made.enter_context(booted(tmp_path, count, layers, binds))
            for machine in machines.values():
                machine.run(FILES)
                serve(machine, NOW)
                if not bare:
                    know(machine)
            return Reader(machines)

        yield make


def make_empty(machine: Machine) -> None:
    """As the pages have a host that is to be a member: installed, stopped, with an empty store."""
    machine.run(f"systemctl stop {UNIT} && find /var/lib/ledgermq -mindepth 1 -delete")


def put(machine: Machine, path: str, text: str) -> None:
    """Write a file on a machine."""
    machine.run(f"cat >{path}", typed=text)


def lead(reader: Reader, name: str) -> None:
    """Have a member lead, as a page assumes."""
    machine = next(one for one in reader.hosts.values() if status(one)["node"]["self_id"] == name)

    def leads() -> bool:
        if status(machine)["raft"]["role"] == "leader":
            return True
        for one in reader.hosts.values():
            one.run(f"ledgermq raft transfer {name} --config {SETTINGS}", check=False)
        return False

    machine.wait_until(leads, f"{name} to lead")


def read_three_hosts(reader: Reader, part: tuple[str, str] | None = None) -> None:
    """What becomes a group by the page: n0 leads when it is told of users."""
    first = reader.hosts[FIRST]

    def compare(text: str) -> None:
        # The page shows what the command has made, without the remarks at its head.
        assert first.output(f"cat {SETTINGS}").endswith(text.rstrip("\n"))

    leads = [("ledgermq access apply", lambda: lead(reader, "n0"))]
    reader.read("three-hosts.md", write=compare, given=[] if part else leads, part=part)


def assert_shut_to_strangers(machine: Machine, address: str) -> None:
    """Nobody comes in without a key, nor in clear where RocketMQ's clients do."""
    without_key = f"ledgermq receive orders --timeout 3 --address tcp://{address}:10922"
    in_clear = f"exec 3<>/dev/tcp/{address}/10911 && printf '\\0\\0\\0\\1x' >&3 && cat <&3"
    refused = machine.run(without_key, check=False)
    answered = machine.run(in_clear, check=False)

    assert refused.returncode != 0, refused.stdout
    assert refused.stdout == ""
    assert answered.stdout == ""


def test_installing_upgrading_and_removing_go_as_the_page_says(make_hosts: MakeHosts) -> None:
    reader = make_hosts(1, bare=True)
    machine = reader.hosts[FIRST]
    version = machine.output(f"dpkg-deb --field {PACKAGES}/this.deb Version")

    def write_instances(text: str) -> None:
        for name in ("n0", "n1", "n2"):
            put(machine, f"/etc/ledgermq/{name}.toml", text.replace("-n1", f"-{name}"))

    def go_on_with_one() -> None:
        machine.run("systemctl disable --now ledgermq.target ledgermq@n0 ledgermq@n1 ledgermq@n2")
        machine.run("systemctl enable --now ledgermq")

    def install_again() -> None:
        assert machine.output("ls /var/lib/ledgermq/config/topics.json")
        machine.run(f"apt-get install --yes {PACKAGES}/this.deb", timeout_s=300)

    reader.read(
        "install.md",
        write=write_instances,
        given=[
            ("apt update && ", lambda: serve(machine, LATER)),
            ("apt install --allow", go_on_with_one),
            ("echo", install_again),
        ],
        instead={
            "https://packages.example": lambda: f"http://{HOST}",
            "0.2.0-1~deb12u1": lambda: version,
        },
    )

    assert reader.wrong == [], "\n".join(reader.wrong)
    assert reader.typed["ledgermq receive orders"].split() == ["hello"]
    assert machine.run("ls -d /var/lib/ledgermq* /etc/ledgermq", check=False).stdout == ""


def test_bare_hosts_become_a_group_for_rocketmqs_clients_as_the_page_of_the_first_hour_says(
    make_hosts: MakeHosts,
) -> None:
    reader = make_hosts(3, bare=True)
    first = reader.hosts[FIRST]
    reader.read(
        "first-hour.md",
        given=[("ledgermq access apply", lambda: lead(reader, "n0"))],
        instead={"https://packages.example": lambda: f"http://{HOST}"},
    )

    assert reader.wrong == [], "\n".join(reader.wrong)
    (received_line,) = (said for text, said in reader.typed.items() if "receive orders" in text)
    assert received_line.split("\n")[0] == "a first message"
    assert {one.unit(UNIT, "UnitFileState") for one in reader.hosts.values()} == {"enabled"}
    for machine in reader.hosts.values():
        # What it had before the page: a node of its own was never started.
        assert machine.output("ls /var/lib/ledgermq").split()
        assert "n0" in machine.output("ledgermq raft status")
    for address in reader.hosts:
        assert_shut_to_strangers(first, address)


def test_a_group_on_three_hosts_comes_about_lives_gets_a_new_version_and_another_member(
    make_hosts: MakeHosts,
) -> None:
    everybody = make_hosts(4)
    fourth = everybody.hosts["10.0.0.4"]
    make_empty(fourth)
    reader = Reader(dict(list(everybody.hosts.items())[:3]))
    first = reader.hosts[FIRST]

    def open_port() -> None:
        first.run(f"sed -i 's/^remoting = .*/remoting = \"*:10911\"/' {SETTINGS}")

    read_three_hosts(reader)

    assert reader.wrong == [], "\n".join(reader.wrong)
    assert "a first message" in "".join(reader.typed.values())
    assert "trusted_network" not in first.output(f"cat {SETTINGS}")
    for address in reader.hosts:
        assert_shut_to_strangers(first, address)

    reader.read("service.md", given=[("systemctl stop ledgermq", open_port)])
    lead(reader, "n0")
    serve(reader.hosts["10.0.0.2"], LATER)
    reader.read("new-version.md")
    second = status(reader.hosts["10.0.0.2"])

    assert reader.wrong == [], "\n".join(reader.wrong)
    assert second["versions"]["ledgermq"] == NEXT_VERSION
    machine = reader.hosts["10.0.0.2"]
    machine.wait_until(lambda: status(machine)["raft"]["role"] == "leader", "n1 to lead")
    assert first.unit(UNIT, "ActiveState") == "active"

    lead(reader, "n0")
    everybody.read(
        "group.md",
        given=[
            ("ledgermq keys init", lambda: lead(reader, "n0")),
        ],
    )
    members = everybody.typed[f"ledgermq raft status --config {SETTINGS}"]

    assert everybody.wrong == [], "\n".join(everybody.wrong)
    assert "n3" in members
    assert status(fourth)["raft"]["role"] == "follower"


def test_a_member_and_a_group_are_restored_as_the_page_says(make_hosts: MakeHosts) -> None:
    reader = make_hosts(3)
    first = reader.hosts[FIRST]
    read_three_hosts(reader)
    lead(reader, "n1")

    def name_group() -> None:
        for machine in reader.hosts.values():
            machine.run(f"sed -i 's/^group = .*/group = \"orders-b\"/' {SETTINGS}")

    reader.read(
        "backup.md",
        given=[("systemctl start --no-block", name_group)],
        instead={"20261122T004431.518Z": lambda: first.output("ls /backup/orders-a")},
    )
    reader.read("check-and-repair.md")
    for machine in reader.hosts.values():
        status(machine)

    def lose_majority() -> None:
        for address in ("10.0.0.2", "10.0.0.3"):
            reader.hosts[address].run(f"systemctl stop {UNIT}")

    def get_it_back() -> None:
        for machine in reader.hosts.values():
            machine.run(f"systemctl start --no-block {UNIT}")
        status(first)

    reader.read(
        "what-to-do.md",
        given=[
            ("ledgermq raft why-no-leader", lose_majority),
            ("ledgermq store check", get_it_back),
        ],
    )

    assert reader.wrong == [], "\n".join(reader.wrong)
    assert status(first)["node"]["group"] == "orders-b"
    assert "a first message" in first.output(f"ledgermq receive orders {ADDRESS}")


def test_a_plain_store_becomes_a_group_and_a_plain_store_again(make_hosts: MakeHosts) -> None:
    reader = make_hosts(3)
    first = reader.hosts[FIRST]
    for machine in reader.hosts.values():
        make_empty(machine)
    put(first, SETTINGS, PLAIN)
    first.run(f"systemctl start {UNIT}")
    send(first, 1, 100)
    first.run(f"systemctl stop {UNIT}")

    def make_members() -> None:
        read_three_hosts(reader, part=("ledgermq config init", "ledgermq config check"))

    def let_in() -> None:
        lead(reader, "n0")
        reader.read("three-hosts.md", part=("ledgermq access apply", "rm -r"))

    def stop_all() -> None:
        let_in()
        send(first, 101, 100, address=CONSUME)
        lead(reader, "n0")
        for machine in reversed(reader.hosts.values()):
            machine.run(f"systemctl stop {UNIT}")

    reader.read(
        "upgrade.md",
        given=[
            ("ledgermq serve --check", make_members),
            ("ledgermq store downgrade", stop_all),
            ("ledgermq serve --check", lambda: put(first, SETTINGS, PLAIN)),
        ],
    )

    assert reader.wrong == [], "\n".join(reader.wrong)
    assert status(first)["raft"]["role"] == "leader"
    assert received(first) == expected(200)


def test_a_broker_of_rocketmq_is_taken_over_as_the_page_says(
    make_hosts: MakeHosts, golden: Golden
) -> None:
    reader = make_hosts(1, sees=(golden("g6"), "/golden"))
    first = reader.hosts[FIRST]
    make_empty(first)
    first.run("mkdir -p /srv/rocketmq /etc/rocketmq && cp -r /golden /srv/rocketmq/store")
    put(first, "/etc/rocketmq/broker.conf", BROKER_CONF)
    reader.read("first-steps.md", endless=frozenset({"ledgermq serve --config node.toml"}))

    assert reader.wrong == [], "\n".join(reader.wrong)
    assert len(reader.typed["ledgermq topic list"].splitlines()) > 3


def test_users_come_in_as_the_page_says(make_hosts: MakeHosts) -> None:
    reader = make_hosts(1)
    first = reader.hosts[FIRST]
    first.run("useradd orders-app && groupadd analysts")

    def write(text: str) -> None:
        put(first, SETTINGS, text)
        if "curve_secret_file" not in text:
            first.run(f"systemctl restart {UNIT}")

    def key_of(kind: str) -> str:
        (said,) = (said for text, said in reader.typed.items() if f"acl keys --{kind} /" in text)
        return re.findall(r"\S{40}", said)[-1]

    reader.read(
        "access.md",
        write=write,
        instead={"NODE-KEY": lambda: key_of("node"), "CLIENT-KEY": lambda: key_of("client")},
    )

    assert reader.wrong == [], "\n".join(reader.wrong)
    assert first.output("ledgermq receive orders") == "hello"
