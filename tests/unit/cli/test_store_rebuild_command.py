"""``ledgermq store rebuild``: what it prints, and whom it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.daemon.store_lock import JavaLock
from ledgermq.model.exit_status import EXIT_CONFIG, EXIT_STORAGE
from tests.small_store import write_store

SIZES = ["--hash-slots", "5", "--index-items", "4", "--queue-file-size", "60"]


def test_it_tells_what_it_built(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_store(tmp_path)

    assert main(["store", "rebuild", str(tmp_path), *SIZES, "--json"]) == 0

    told = json.loads(capsys.readouterr().out)

    assert (told["messages"], told["units"], told["keys"], told["skipped"]) == (10, 10, 10, 0)
    assert all(Path(path).is_dir() for path in told["aside"])


def test_a_store_that_somebody_has_open_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_store(tmp_path)
    lock = JavaLock.take(tmp_path / "lock")
    try:
        status = main(["store", "rebuild", str(tmp_path), *SIZES])
    finally:
        lock.release()

    assert status == EXIT_STORAGE
    assert "held by" in capsys.readouterr().err


def test_other_sizes_than_those_of_the_files_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_store(tmp_path)
    words = ["store", "rebuild", str(tmp_path), "--queue-file-size", "80"]

    assert main([*words, "--hash-slots", "5"]) == EXIT_CONFIG
    assert "--queue-file-size" in capsys.readouterr().err
