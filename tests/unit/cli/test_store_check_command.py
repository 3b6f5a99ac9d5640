"""``ledgermq store check``: text, JSON, and the exit status of each kind of finding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ledgermq.cli.main import main
from ledgermq.model.exit_status import EXIT_CONFIG
from tests.small_store import write_store

GEOMETRY = ["--hash-slots", "5", "--index-items", "4"]


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    status = main(["store", "check", *map(str, words), *GEOMETRY])
    return status, capsys.readouterr().out


def report(capsys: pytest.CaptureFixture[str], root: Path) -> tuple[int, dict[str, Any]]:
    status, out = run(capsys, root, "--json", "--jobs", 1)
    document: dict[str, Any] = json.loads(out)
    return status, document


def turn_over(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_a_whole_store_is_0(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_store(tmp_path)
    status, out = run(capsys, tmp_path)

    assert status == 0
    assert "log: 10 records" in out
    assert "found: 0 damage, 0 derived, 0 note" in out


def test_a_wrong_queue_unit_is_4(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_store(tmp_path)
    turn_over(tmp_path / "consumequeue" / "orders" / "0" / f"{0:020d}", 11)
    status, document = report(capsys, tmp_path)

    assert status == document["exit_status"] == 4
    assert {finding["severity"] for finding in document["findings"]} == {"derived"}
    assert document["findings"][0]["remedy"] == "ledgermq store rebuild"


def test_a_wrong_record_is_5(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_store(tmp_path)
    turn_over(tmp_path / "dledger-n0" / "data" / f"{0:020d}", 140)
    status, document = report(capsys, tmp_path)

    assert status == document["exit_status"] == 5
    assert [finding["severity"] for finding in document["findings"]] == ["damage"]
    assert document["records"] == 9


def test_what_is_no_store_is_a_mistake(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, _ = run(capsys, tmp_path)

    assert status == EXIT_CONFIG
