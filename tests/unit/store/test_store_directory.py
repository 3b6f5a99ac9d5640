"""What a store is, found out from its folders and files alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ledgermq.model.config.settings import LogKind
from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError
from ledgermq.store.store_directory import open_directory


@pytest.mark.parametrize(
    ("name", "log", "self_id", "divided", "log_file_size", "aborted"),
    [
        ("gs1", LogKind.COMMITLOG, None, None, 1_048_576, False),
        ("gs1.live", LogKind.COMMITLOG, None, None, 1_048_576, True),
        ("gd1", LogKind.DLEDGER, "n1", None, 1_048_576, False),
        ("gd2.live", LogKind.DLEDGER, "n2", None, 1_048_576, True),
        ("gu0", LogKind.DLEDGER, "n0", 1_048_576, 1_048_576, False),
        ("g6", LogKind.COMMITLOG, None, None, 524_288, False),
    ],
)
def test_a_real_store_is_recognized(
    golden: Any,
    *,
    name: str,
    log: LogKind,
    self_id: str | None,
    divided: int | None,
    log_file_size: int,
    aborted: bool,
) -> None:
    found = open_directory(golden(name))

    assert (found.log, found.self_id, found.divided) == (log, self_id, divided)
    assert (found.log_file_size, found.queue_file_size) == (log_file_size, 4_000)
    assert found.aborted == aborted


def test_an_empty_old_log_does_not_make_an_upgraded_one(golden_copy: Any) -> None:
    root = golden_copy("gd0")
    (root / "commitlog").mkdir()
    found = open_directory(root)

    assert (found.log, found.commit_log, found.divided) == (LogKind.DLEDGER, None, None)


def test_a_folder_that_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        open_directory(tmp_path)

    assert caught.value.details == {"directory": str(tmp_path)}


def test_a_missing_folder_is_an_error_of_the_disk(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        open_directory(tmp_path / "nowhere")


def test_of_several_logs_one_must_be_named(tmp_path: Path) -> None:
    for self_id in ("n0", "n1"):
        (tmp_path / f"dledger-{self_id}" / "data").mkdir(parents=True)
    with pytest.raises(ConfigError) as caught:
        open_directory(tmp_path)

    assert caught.value.details["found"] == ["dledger-n0", "dledger-n1"]
    assert open_directory(tmp_path, self_id="n1").self_id == "n1"
    with pytest.raises(ConfigError):
        open_directory(tmp_path, self_id="n7")


def test_a_log_file_of_another_size_is_refused(golden_copy: Any) -> None:
    root = golden_copy("gd0")
    path = sorted((root / "dledger-n0" / "data").iterdir())[0]
    os.truncate(path, 1_000)
    with pytest.raises(CorruptLogError) as caught:
        open_directory(root)

    assert caught.value.details == {"file": str(path), "size": 1_000, "expected": 1_048_576}
