"""The unit as ``systemctl show`` tells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.cli.node.service_unit import Unit, describe, look_at_unit, unit_name

RUNNING = {
    "LoadState": "loaded",
    "ActiveState": "active",
    "SubState": "running",
    "Result": "success",
    "UnitFileState": "enabled",
    "ActiveEnterTimestamp": "Sun 2026-01-04 10:00:00 UTC",
    "InactiveEnterTimestamp": "",
    "NRestarts": "2",
    "ExecMainStatus": "0",
}


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ("/etc/ledgermq/ledgermq.toml", "ledgermq.service"),
        ("/etc/ledgermq/n1.toml", "ledgermq@n1.service"),
    ],
)
def test_a_settings_file_has_its_unit(config: str, name: str) -> None:
    assert unit_name(Path(config)) == name


def test_a_unit_that_runs_is_one_line() -> None:
    assert describe(Unit("ledgermq.service", RUNNING)) == (
        "ledgermq.service: active (running), since Sun 2026-01-04 10:00:00 UTC, "
        "restarted 2 times by systemd, starts at boot"
    )


def test_a_unit_that_failed_says_how() -> None:
    failed = {
        **RUNNING,
        "ActiveState": "failed",
        "SubState": "failed",
        "Result": "watchdog",
        "ExecMainStatus": "6",
        "UnitFileState": "disabled",
        "InactiveEnterTimestamp": "Sun 2026-01-04 11:00:00 UTC",
    }

    assert describe(Unit("ledgermq.service", failed)) == (
        "ledgermq.service: failed (failed), since Sun 2026-01-04 11:00:00 UTC, restarted 2 times "
        "by systemd, ended with watchdog, exit status 6, not started at boot"
    )


def test_a_unit_that_there_is_not_is_told() -> None:
    assert describe(Unit("x.service", {"LoadState": "not-found"})) == "x.service: not-found"


def test_without_systemd_it_says_so(tmp_path: Path) -> None:
    unit = look_at_unit("ledgermq.service", booted=tmp_path / "missing")

    assert unit.properties == {}
    assert describe(unit).startswith("systemd is not PID 1 here")
