"""``ledgermq service status`` where nothing runs, and its look."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.cli.node.service_command import describe
from ledgermq.cli.node.service_unit import Unit
from ledgermq.process.systemd.last_events import LastEvents, Told

DIED = Told(
    datetime(2026, 1, 4, 10, 0, 1, tzinfo=UTC), "ERROR", "PROCESS_DIED", "supervisor",
    "child died child=broker exit=SIGKILL",
)  # fmt: skip
NOBODY = Unit("ledgermq.service", {}, "systemd is not PID 1 here")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "node.toml"
    file.write_text(f'[listen]\nruntime_dir = "{tmp_path}/run"\n')
    return file


def test_a_node_that_does_not_run_has_status_2(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["service", "status", "--config", str(config)])
    captured = capsys.readouterr()

    assert (status, captured.err) == (2, "")
    assert "node        does not run: no node is running there" in captured.out
    assert "\x1b" not in captured.out


def test_json_has_unit_node_and_events(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["service", "status", "--config", str(config), "--json"])
    told = json.loads(capsys.readouterr().out)

    assert status == 2
    assert (told["unit"]["name"], told["node"]) == ("ledgermq@node.service", None)
    assert told["events"] == []
    assert told["why_no_node"]


def test_so_many_events_are_no_number(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["service", "status", "--config", str(config), "--events", "0"])

    assert status == 1
    assert "--events" in capsys.readouterr().err


def test_in_a_terminal_lines_fit_and_levels_have_colors() -> None:
    plain = list(describe(NOBODY, None, "silent", LastEvents([DIED])))[-1]
    shown = list(describe(NOBODY, None, "silent", LastEvents([DIED]), width=60, colored=True))[-1]
    bare = shown.replace("\x1b[31m", "").replace("\x1b[0m", "")

    assert plain == (
        "  2026-01-04 10:00:01  ERROR PROCESS_DIED            supervisor: child died "
        "child=broker exit=SIGKILL"
    )
    assert shown.startswith("  2026-01-04 10:00:01  \x1b[31mERROR \x1b[0mPROCESS_DIED")
    assert (len(bare), bare[-1]) == (60, "…")
