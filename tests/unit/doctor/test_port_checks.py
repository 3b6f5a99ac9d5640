"""Ports that are free, and such that another program has."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from ledgermq.doctor import host_checks as checked
from ledgermq.doctor.finding import Weight
from ledgermq.doctor.host_checks import endpoints_of, listeners, port_checks
from tests.unit.doctor.subjects import by_check, listener, member_in, subject_in


def test_a_port_of_another_program_fails_and_names_it(tmp_path: Path) -> None:
    with listener() as taken:
        port = taken.getsockname()[1]
        subject = subject_in(tmp_path, listen={"produce": f"tcp://127.0.0.1:{port}"})
        held = by_check(port_checks, subject)["ports.listen.produce"]
        holders = listeners(port)
    free = by_check(port_checks, subject)["ports.listen.produce"]

    assert holders == {os.getpid()}
    assert held.verdict is Weight.FAIL
    assert f"(pid {os.getpid()})" in held.measured
    assert "listen.produce" in held.change
    assert free.verdict is Weight.OK


def test_all_ports_of_the_settings_are_looked_at(tmp_path: Path) -> None:
    subject = member_in(
        tmp_path,
        listen={
            "produce": "tcp://127.0.0.1:23921",
            "consume": "tcp://[::1]:23922",
            "remoting": "*:23923",
            "name_server": "[::1]:23924",
        },
    )

    assert [(one.setting, one.host, one.port) for one in endpoints_of(subject)] == [
        ("node.peers", "127.0.0.1", 23_911),
        ("listen.produce", "127.0.0.1", 23_921),
        ("listen.consume", "::1", 23_922),
        ("listen.remoting", "0.0.0.0", 23_923),
        ("listen.name_server", "::1", 23_924),
    ]


def test_a_second_port_that_is_taken_is_no_failure(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        subject = subject_in(tmp_path, listen={"remoting": f"127.0.0.1:{port + 2}"})
        finding = by_check(port_checks, subject)["ports.listen.vip_channel"]

    assert finding.verdict is Weight.WARN
    assert f"port {port} is taken by" in finding.measured
    assert "set listen.vip_channel to false" in finding.change


def test_a_node_without_tcp_has_no_ports(tmp_path: Path) -> None:
    assert by_check(port_checks, subject_in(tmp_path)) == {}


@pytest.mark.parametrize(
    ("reserved", "verdict"),
    [("", Weight.WARN), ("8080,23900-23999", Weight.OK), ("23921", Weight.OK)],
)
def test_a_port_that_the_system_gives_away_has_to_be_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reserved: str, verdict: Weight
) -> None:
    (tmp_path / "range").write_text("20000\t30000\n")
    (tmp_path / "reserved").write_text(f"{reserved}\n")
    monkeypatch.setattr(checked, "_RANGE", tmp_path / "range")
    monkeypatch.setattr(checked, "_RESERVED", tmp_path / "reserved")
    subject = subject_in(tmp_path, listen={"produce": "tcp://127.0.0.1:23921"})
    finding = by_check(port_checks, subject)["ports.reserved"]

    assert finding.verdict is verdict
    assert verdict is Weight.OK or "net.ipv4.ip_local_reserved_ports = 23921" in finding.change


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_port_that_systemd_holds_for_the_node_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    # What systemctl prints: a booted machine shows that it is so (tests/boot/test_sockets.py).
    units = {f"{host}:23923": "ledgermq-remoting.socket", f"{host}:23924": "other.socket"}
    monkeypatch.setattr(checked, "listening_units", lambda: units)
    subject = subject_in(
        tmp_path, listen={"remoting": f"{host}:23923", "name_server": f"{host}:23924"}
    )
    findings = by_check(port_checks, subject)

    assert findings["ports.listen.remoting"].verdict is Weight.OK
    assert "held for the node by ledgermq-remoting.socket" in (
        findings["ports.listen.remoting"].measured
    )
    assert "other.socket" not in findings["ports.listen.name_server"].measured
