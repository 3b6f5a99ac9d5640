"""HTTP, the console and records of a node that is behind the walls that systemd puts around it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.boot.conftest import UNIT, serving
from tests.boot.instances import NODES, make_group
from tests.boot.machine import Machine
from tests.boot.messages import processes, status
from tests.boot.root import keep
from tests.process.console_client import ConsoleClient

pytestmark = [pytest.mark.slow, pytest.mark.boot]

CONFIG = "/etc/ledgermq/ledgermq.toml"
TOKENS = "/etc/ledgermq/http-tokens"
TOKEN = "operator-0123456789abcdef0123456789abcdef"
URL = "http://127.0.0.1:9464"
DROP_IN = f"/run/systemd/system/{UNIT}.d/events.conf"
READS_JOURNAL = "[Service]\nSupplementaryGroups=systemd-journal\n"


@pytest.fixture(scope="module")
def machine(
    installed: Machine, packages: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    """One machine for all tests here: each gives its node settings of its own."""
    folder = tmp_path_factory.mktemp("observed")
    with serving(folder, installed, packages) as machine:
        yield machine


def restart(machine: Machine, settings: str) -> None:
    """Have the node run with these settings, and wait until it serves."""
    machine.run(f"cat >{CONFIG}", typed=settings)
    machine.run(f"systemctl restart {UNIT}")
    status(machine)


def answered(machine: Machine, path: str, words: str = "") -> str:
    """What a page at the localhost port has, once the observer answers with 200."""

    def ask() -> str:
        done = machine.run(f"wget -q -O - {words} '{URL}{path}'", check=False)
        return done.stdout if done.returncode == 0 else ""

    return str(machine.wait_until(ask, f"an answer at {path}"))


def at_socket(machine: Machine) -> ConsoleClient:
    """A browser of root's at the unix socket, as soon as somebody answers there."""
    found = machine.seen("/run/ledgermq/http.sock")
    machine.wait_until(found.is_socket, "the socket of the observer")
    return ConsoleClient(found)


def test_a_localhost_port_tells_health_and_metrics_and_asks_people_to_sign_in(
    machine: Machine,
) -> None:
    machine.run(f"install -g ledgermq -m 0640 /dev/stdin {TOKENS}", typed=f"boss {TOKEN} admin\n")
    restart(machine, f'[listen]\nhttp = "127.0.0.1:9464"\n[http]\ntokens_file = "{TOKENS}"\n')

    assert "ready" in answered(machine, "/health/ready")
    told = answered(machine, "/metrics", f"--header='Authorization: Bearer {TOKEN}'")
    keep("metrics", told)
    assert "\nledgermq_ready 1" in told
    # What the kernel tells of the other processes is not hidden by the unit.
    for role in processes(machine):
        assert f'ledgermq_process_resident_bytes{{process="{role}"}}' in told
    refused = machine.run(f"wget -q -O - {URL}/metrics", check=False)
    assert refused.returncode == 6, refused.stderr  # wget's: who asks has to say who it is
    # Asked for the first page, it leads to the one where people sign in.
    assert 'action="/sign-in"' in answered(machine, "/")


@pytest.fixture
def journal(machine: Machine) -> Iterator[None]:
    """Lets the service read the journal, as docs/operating/console.md does it."""
    folder = DROP_IN.rpartition("/")[0]
    machine.run(f"mkdir -p {folder} && cat >{DROP_IN}", typed=READS_JOURNAL)
    machine.run("systemctl daemon-reload")
    yield
    machine.run(f"rm {DROP_IN} && systemctl daemon-reload")


def test_who_signs_in_sees_events_of_the_journal(machine: Machine, journal: None) -> None:
    restart(machine, f'[listen]\nhttp = "127.0.0.1:9464"\n[http]\ntokens_file = "{TOKENS}"\n')

    shown = answered(machine, "/sign-in", f"--post-data='by=token&to=%2Fevents&token={TOKEN}'")

    assert "Last events" in shown
    assert "NODE_READY" in shown
    assert "There is nothing to see" not in shown


def test_the_unix_socket_serves_root_as_an_operator(machine: Machine, journal: None) -> None:
    restart(machine, '[listen]\nhttp = "unix"\n')
    root_of_machine = at_socket(machine)
    ready = root_of_machine.get("/health/ready")
    events = json.loads(root_of_machine.get("/events?export=json&table=events").text)

    assert ready.status == 200, ready.text
    assert "ledgermq_ready 1" in root_of_machine.get("/metrics").text
    assert {"NODE_STARTS", "NODE_READY", "NODE_STOPPED"} <= {one["event"] for one in events}


def test_a_unit_that_may_not_read_the_journal_has_a_page_that_says_so(machine: Machine) -> None:
    restart(machine, '[listen]\nhttp = "unix"\n')
    page = at_socket(machine).get("/events")

    assert page.status == 200
    assert "the journal cannot be read" in page.text
    assert "NODE_READY" not in page.text


def test_a_record_has_the_journal_and_the_stacks_of_each_process(machine: Machine) -> None:
    restart(machine, '[listen]\nhttp = "unix"\n')
    at_socket(machine)
    running = processes(machine)
    machine.run("mkdir -p /root/record")
    told = machine.output(
        f"ledgermq doctor --record 5 --config {CONFIG} --output /root/record --only limits,settings"
    )
    keep("record", told)
    archive = machine.output("ls /root/record/*.tar.gz")
    machine.run(f"tar -xzf {archive} -C /root/record --strip-components=1")

    assert machine.output(f"stat -c %a {archive}") == "600"
    assert "is ready" in machine.output("cat /root/record/journal.txt")
    assert {"raft", "writer", "dispatcher", "broker", "observer", "supervisor"} == running.keys()
    for role, pid in running.items():
        stacks = machine.output(f"cat /root/record/stacks/{role}-{pid}.txt")
        assert "samples" in stacks
        assert "ledgermq/" in stacks
    assert not machine.run("ls /root/record/stacks/*.log", check=False).stdout


def test_members_under_systemd_talk_directly(machine: Machine) -> None:
    make_group(machine)

    def told(name: str) -> set[str]:
        command = f"ledgermq raft status --json --config /etc/ledgermq/{name}.toml"
        return set(json.loads(machine.output(command))["direct"])

    for name in NODES:
        others = set(NODES) - {name}
        machine.wait_until(
            lambda name=name, others=others: told(name) == others, f"{name} to talk directly"
        )
    first = machine.output(f"ledgermq raft status --config /etc/ledgermq/{NODES[0]}.toml")

    assert "direct      n1, n2" in first
    machine.run("systemctl stop ledgermq.target")
