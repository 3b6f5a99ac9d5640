"""The units: what systemd would make of them, and the traps that were met with them."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from ledgermq.cli.node import serve_command
from ledgermq.cli.store import backup_command
from ledgermq.daemon.children import STOP_ORDER
from ledgermq.ipc.cursor_page import PORTS
from ledgermq.model.config.settings import ListenSection, SupervisionSection
from ledgermq.process.systemd.port_addresses import listening_addresses

FOLDER = Path(__file__).resolve().parents[2] / "packaging" / "systemd"
SERVICES = ["ledgermq.service", "ledgermq@.service"]
STREAM = "ledgermq-backup-stream.service"
BUCKET = "ledgermq-backup-bucket.service"
SOCKETS = ["ledgermq-remoting.socket", "ledgermq-remoting@.socket"]
ANALYZE = shutil.which("systemd-analyze")


def directives(name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for line in (FOLDER / name).read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found[key].append(value)
    return found


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


@pytest.mark.parametrize("name", SERVICES)
def test_every_command_is_one_that_our_command_line_understands(name: str) -> None:
    unit = directives(name)
    ours = [line for line in unit["ExecStart"] + unit["ExecReload"] if "ledgermq serve" in line]

    assert len(ours) == 2
    parser = argparse.ArgumentParser()
    serve_command.register(parser.add_subparsers())
    for line in ours:
        arguments = parser.parse_args(line.split()[1:])
        assert str(arguments.config).startswith("/etc/ledgermq/")


def test_the_backup_stream_reads_the_store_and_the_node_of_the_service() -> None:
    unit = directives(STREAM)
    parser = argparse.ArgumentParser()
    backup_command.register(parser.add_subparsers())
    arguments = parser.parse_args(unit["ExecStart"][0].split()[1:])

    assert arguments.directory == Path("/var/lib/ledgermq")
    assert arguments.runtime_dir == Path("/run/ledgermq")
    assert unit["RequiresMountsFor"] == [str(arguments.target)]
    # The store is written, too: how far the stream is stands there.
    assert unit["ReadWritePaths"] == [f"/var/lib/ledgermq -{arguments.target}"]
    assert unit["RestartPreventExitStatus"] == ["1"]


def test_the_stream_into_a_bucket_differs_by_what_a_network_needs() -> None:
    folder, bucket = directives(STREAM), directives(BUCKET)
    different = {key for key in folder.keys() | bucket.keys() if folder[key] != bucket[key]}
    words = (
        bucket["ExecStart"][0].replace("${LEDGERMQ_REPOSITORY}", "s3://backups/orders-a").split()
    )
    parser = argparse.ArgumentParser()
    backup_command.register(parser.add_subparsers())
    arguments = parser.parse_args(words[1:])

    assert str(arguments.target) == "s3://backups/orders-a"
    assert bucket["EnvironmentFile"] == ["/etc/ledgermq/backup-bucket.env"]
    # What is put waits for an answer where a whole file of the log finds room.
    assert "TMPDIR=/var/tmp" in bucket["Environment"]
    assert different == {
        "Description", "Wants", "After", "RequiresMountsFor", "EnvironmentFile", "ExecStart",
        "Environment", "ReadWritePaths", "PrivateNetwork", "RestrictAddressFamilies",
    }  # fmt: skip


@pytest.mark.parametrize("name", SERVICES)
def test_the_supervisor_alone_notifies_and_stops_its_children(name: str) -> None:
    unit = directives(name)

    assert (unit["Type"], unit["NotifyAccess"]) == (["notify"], ["main"])
    assert unit["KillMode"] == ["mixed"]
    assert (unit["Restart"], unit["RestartPreventExitStatus"]) == (["on-failure"], ["1 78"])


@pytest.mark.parametrize("name", SERVICES)
def test_systemd_is_more_patient_than_the_supervisor(name: str) -> None:
    unit = directives(name)
    supervision = SupervisionSection()
    steps = [role for role in STOP_ORDER if role not in PORTS[1:]]  # those stop together
    longest_stop_s = len(steps) * supervision.stop_timeout_ms / 1_000

    assert seconds(unit["TimeoutStopSec"][0]) > longest_stop_s
    # A child that hangs is killed and restarted before systemd kills the node for it.
    assert seconds(unit["WatchdogSec"][0]) * 1_000 >= 2 * supervision.beat_timeout_ms


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_is_denied_that_libzmq_needs(name: str) -> None:
    unit = directives(name)
    denied = " ".join(value for value in unit["SystemCallFilter"] if value.startswith("~"))

    assert "AF_NETLINK" in unit["RestrictAddressFamilies"][0]
    assert "@resources" not in denied
    assert "@ipc" not in denied
    assert unit["ProcSubset"] == []


@pytest.mark.parametrize("name", SERVICES)
def test_accounts_of_local_clients_stay_who_they_are(name: str) -> None:
    # In a user namespace the kernel tells «nobody» of every account that connects.
    assert directives(name)["PrivateUsers"] == []


@pytest.mark.parametrize("name", SERVICES)
def test_the_service_has_no_group_but_its_own(name: str) -> None:
    # Of the host's journal, say: who wants events in the console gives it that by a drop-in.
    assert directives(name)["SupplementaryGroups"] == []


def test_folders_of_instances_do_not_lie_in_those_of_the_single_node() -> None:
    single, instance = (directives(name) for name in SERVICES)

    assert single["RuntimeDirectory"] == ["ledgermq"]
    assert instance["RuntimeDirectory"] == instance["StateDirectory"] == ["ledgermq-%i"]


def test_service_and_template_are_hardened_alike() -> None:
    single, instance = (directives(name) for name in SERVICES)
    named = {"Description", "PartOf", "Before", "WantedBy", "ExecStart", "ExecReload"}
    different = {
        key for key in single.keys() | instance.keys() if single[key] != instance[key]
    } - named

    assert different == {"RuntimeDirectory", "StateDirectory"}


def test_sockets_of_the_node_and_of_instances_are_alike_and_start_their_own_service() -> None:
    single, instance = (directives(name) for name in SOCKETS)
    different = {key for key in single.keys() | instance.keys() if single[key] != instance[key]}

    assert different == {"Description", "Service", "StopPropagatedFrom"}
    assert (single["Service"], instance["Service"]) == ([SERVICES[0]], ["ledgermq@%i.service"])
    # Sockets= in the service would start the unit with it, which nobody has asked for.
    assert [directives(name)["Sockets"] for name in SERVICES] == [[], []]


def test_the_socket_listens_where_the_documents_have_the_port() -> None:
    (listens_at,) = directives(SOCKETS[0])["ListenStream"]
    host, port = listening_addresses(ListenSection(remoting="*:10911"))[0]

    assert listens_at == f"{host}:{port}"


@pytest.mark.slow
@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("name", [*SERVICES, STREAM, BUCKET, *SOCKETS])
def test_systemd_finds_nothing_to_complain_about(name: str, tmp_path: Path) -> None:
    units = tmp_path / "usr" / "lib" / "systemd" / "system"
    units.mkdir(parents=True)
    for unit in (*SERVICES, STREAM, BUCKET, *SOCKETS, "ledgermq.target"):
        shutil.copy(FOLDER / unit, units)
    others = (
        "network-online",
        "time-sync",
        "multi-user",
        "sysinit",
        "basic",
        "shutdown",
        "sockets",
    )
    for other in others:
        (units / f"{other}.target").write_text("[Unit]\nDescription=of the system\n")
    for program in ("usr/bin/ledgermq", "bin/kill"):
        (tmp_path / program).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / program).touch(mode=0o755)
    assert ANALYZE is not None
    command = [ANALYZE, "verify", "--man=no", f"--root={tmp_path}", name.replace("@", "@n0")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)

    # The exit status is 0 for an unknown key: what is printed counts.
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("name", [*SERVICES, STREAM, BUCKET])
def test_the_exposure_stays_low(name: str) -> None:
    assert ANALYZE is not None
    command = [ANALYZE, "security", "--offline=true", "--threshold=15", str(FOLDER / name)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout
