"""What systemd's programs say, and how they fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.model.errors import StorageError
from ledgermq.process.systemd.systemd_tools import listening_units, run_tool

LISTED = (
    '[{"listen":"/run/dbus/system_bus_socket","unit":"dbus.socket","activates":"dbus.service"},'
    '{"listen":"0.0.0.0:10911","unit":"ledgermq-remoting.socket","activates":"ledgermq.service"}]'
)
"""What systemctl 252 prints."""


def test_a_tool_that_fails_is_told_with_its_words() -> None:
    with pytest.raises(StorageError, match="gone wrong") as caught:
        run_tool(["/bin/sh", "-c", "echo gone wrong >&2; exit 3"])

    assert caught.value.details["status"] == 3


def test_units_are_found_by_where_they_listen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "systemctl"
    tool.write_text(f"#!/bin/sh\necho '{LISTED}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert listening_units(booted=tmp_path) == {
        "/run/dbus/system_bus_socket": "dbus.socket",
        "0.0.0.0:10911": "ledgermq-remoting.socket",
    }


def test_without_systemd_nothing_listens(tmp_path: Path) -> None:
    assert listening_units(booted=tmp_path / "missing") == {}
