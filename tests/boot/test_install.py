"""The package on a fresh machine: what apt installs is a node that serves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.boot.conftest import UNIT, serving
from tests.boot.machine import Machine
from tests.boot.messages import expected, received, send, status
from tests.boot.root import keep

pytestmark = [pytest.mark.slow, pytest.mark.boot]

EXPOSURE_MAX = 1.5


@pytest.fixture(scope="module")
def machine(
    installed: Machine, packages: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    """One machine for all tests here: they only look at it."""
    folder = tmp_path_factory.mktemp("looked-at")
    with serving(folder, installed, packages) as machine:
        yield machine


def test_apt_says_nothing_of_trouble(machine: Machine, installed: Machine) -> None:
    told = (installed.folder / "apt").read_text()

    assert re.findall(r"(?im)^.*(?:error|warning|fail).*$", told) == []
    assert "Setting up ledgermq" in told


def test_the_node_is_started_at_boot_and_serves_local_clients(machine: Machine) -> None:
    send(machine, 1, 100)

    # How long is kept and not judged: what else this machine does is not known.
    since, ready = (
        int(machine.unit(UNIT, f"{name}TimestampMonotonic"))
        for name in ("InactiveExit", "ActiveEnter")
    )
    keep("start", f"ready {(ready - since) / 1_000:.0f} ms after its start")

    assert received(machine) == expected(100)
    assert machine.output(f"systemctl is-enabled {UNIT}") == "enabled"
    assert machine.output("systemctl --failed --no-legend") == ""
    assert status(machine)["kernel"] == "compiled"


def test_all_processes_are_of_the_account_and_have_no_rights(machine: Machine) -> None:
    pids = [one["pid"] for one in status(machine)["processes"]]
    users = machine.output(f"ps -o user= -p {','.join(map(str, pids))}").split()
    rights = machine.output(f"grep -h CapEff {' '.join(f'/proc/{pid}/status' for pid in pids)}")

    assert len(pids) == 5
    assert set(users) == {"ledgermq"}
    assert set(rights.split()) == {"CapEff:", "0000000000000000"}


def test_processes_are_named_for_what_they_do(machine: Machine) -> None:
    titles = machine.output("ps -o args= -u ledgermq")

    for role in ("supervisor", "raft", "writer", "dispatcher", "broker"):
        assert role in titles


def test_the_journal_explains_events_of_the_node(machine: Machine) -> None:
    assert "@LEDGERMQ_NODE@ is ready" in machine.output("journalctl --list-catalog --no-pager")


def test_folders_belong_to_whom_they_should(machine: Machine) -> None:
    paths = "/etc/ledgermq /var/lib/ledgermq /run/ledgermq /etc/ledgermq/ledgermq.toml"

    assert machine.output(f"stat -c '%a %U %G %n' {paths}").splitlines() == [
        "750 root ledgermq /etc/ledgermq",
        "750 ledgermq ledgermq /var/lib/ledgermq",
        "750 ledgermq ledgermq /run/ledgermq",
        "644 root root /etc/ledgermq/ledgermq.toml",
    ]
    assert machine.output("getent passwd ledgermq").endswith(":/var/lib/ledgermq:/usr/sbin/nologin")


def test_the_units_are_faultless(machine: Machine) -> None:
    names = "ledgermq.service ledgermq@n0.service ledgermq.target"
    done = machine.run(f"systemd-analyze verify {names}")
    keep("verify", f"{done.stdout}{done.stderr}")

    assert done.stdout + done.stderr == ""


@pytest.mark.parametrize("unit", ["ledgermq.service", "ledgermq@n0.service"])
def test_the_units_are_hardened(machine: Machine, unit: str) -> None:
    found = machine.output(f"systemd-analyze security --no-pager {unit}")
    keep(f"security-{unit}", found)
    (exposure,) = re.findall(rf"exposure level for {re.escape(unit)}: ([\d.]+)", found)

    assert float(exposure) <= EXPOSURE_MAX, found


def test_units_are_as_tight_before_they_run(machine: Machine) -> None:
    threshold = f"--offline=true --threshold={EXPOSURE_MAX * 10:.0f}"

    for unit in ("ledgermq.service", "ledgermq@.service"):
        machine.run(f"systemd-analyze security {threshold} /lib/systemd/system/{unit}")


def test_the_settings_file_shows_every_default(machine: Machine) -> None:
    machine.run("sed 's/^#\\([a-z_]* = \\|\\[\\)/\\1/' /etc/ledgermq/ledgermq.toml >/tmp/all.toml")

    assert machine.output("grep -c '^[a-z]' /tmp/all.toml") != "0"
    assert machine.output("ledgermq config show /tmp/all.toml") == machine.output(
        "ledgermq config show"
    )


def test_every_command_has_a_manual_page(machine: Machine) -> None:
    commands = re.findall(r"(?m)^    ([a-z]+) ", machine.output("ledgermq --help"))
    pages = ["ledgermq", "ledgermqd", "ledgermq.toml", *(f"ledgermq-{name}" for name in commands)]

    assert "send" in commands
    for page in pages:
        assert machine.run(f"man --warnings=w {page} >/dev/null").stderr == ""


def test_shells_complete_the_command(machine: Machine) -> None:
    found = machine.output(
        "bash -c 'source /usr/share/bash-completion/bash_completion; _completion_loader ledgermq; "
        "COMP_WORDS=(ledgermq topic cr) COMP_CWORD=2; $(complete -p ledgermq | "
        'sed "s/.*-F \\([^ ]*\\).*/\\1/") ledgermq cr topic; echo ${COMPREPLY[@]}\''
    )
    loaded = machine.output(
        "zsh -fc 'autoload -Uz compinit; compinit -u -D; echo $_comps[ledgermq]'"
    )

    fished = machine.output("fish -c 'complete -C \"ledgermq topic cr\"'")

    assert found == "create"
    assert loaded == "_ledgermq"
    assert fished.startswith("create\t")
