"""``serve --check`` against directories that the real Java brokers wrote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.daemon.directory_check import check_directory
from ledgermq.model.config.settings import (
    ListenSection,
    LogKind,
    NodeSection,
    Settings,
    StoreSection,
)
from ledgermq.model.errors import ConfigError

Golden = Callable[[str], Path]

RUNTIME = ListenSection(runtime_dir=Path("/tmp/lmq-check"))
JAVA_SIZES = {"max_hash_slot_num": 500, "max_index_num": 400}


def settings_of(root: Path, log: LogKind = LogKind.DLEDGER, **store: int) -> Settings:
    return Settings(store=StoreSection(path_root_dir=root, log=log, **store), listen=RUNTIME)


def snapshot(root: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in root.rglob("*")}


def test_javas_dledger_store_fits_settings_with_its_sizes(golden: Golden) -> None:
    root = golden("gd0")
    before = snapshot(root)
    found = check_directory(settings_of(root, **JAVA_SIZES))

    assert found.log == "dledger"
    assert found.log_files > 0
    assert found.text.startswith(f"dledger log of {found.log_files} files of ")
    assert snapshot(root) == before


def test_a_plain_commit_log_is_found(golden: Golden) -> None:
    found = check_directory(settings_of(golden("g6"), LogKind.COMMITLOG, **JAVA_SIZES))

    assert (found.log, found.log_files > 0) == ("commitlog", True)


def test_a_directory_that_is_not_there_is_one_to_be_made(tmp_path: Path) -> None:
    found = check_directory(settings_of(tmp_path / "missing"))

    assert found.text == "no log yet; a dledger log will be made"
    assert not (tmp_path / "missing").exists()


def test_the_other_kind_of_log_is_refused(golden: Golden) -> None:
    with pytest.raises(ConfigError, match=r"store\.log"):
        check_directory(settings_of(golden("gd0"), LogKind.COMMITLOG, **JAVA_SIZES))


def test_the_log_of_another_member_is_refused(golden: Golden) -> None:
    settings = replace(settings_of(golden("gd0"), **JAVA_SIZES), node=NodeSection(self_id="n5"))
    with pytest.raises(ConfigError, match=r"node\.self_id"):
        check_directory(settings)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("mapped_file_size_commit_log", 123_456),
        ("mapped_file_size_consume_queue", 6_000_020),
        ("max_index_num", 401),
    ],
)
def test_files_of_another_size_are_refused_with_the_setting(
    golden: Golden, setting: str, value: int
) -> None:
    with pytest.raises(ConfigError, match=rf"store\.{setting}|store\.\w+, store\.{setting}"):
        check_directory(settings_of(golden("gd0"), **{**JAVA_SIZES, setting: value}))


def test_what_is_no_file_of_the_store_changes_nothing(golden_copy: Golden) -> None:
    root = golden_copy("gd0")
    before = check_directory(settings_of(root, **JAVA_SIZES))
    for folder in ("dledger-n0/data", "dledger-n0/index", "index", "consumequeue"):
        (root / folder / "lost+found").mkdir()
        (root / folder / "notes.txt").write_text("mine")

    assert check_directory(settings_of(root, **JAVA_SIZES)) == before


def test_a_runtime_directory_that_can_hold_no_socket_is_refused(tmp_path: Path) -> None:
    settings = replace(
        settings_of(tmp_path), listen=ListenSection(runtime_dir=Path("/tmp") / ("r" * 120))
    )
    with pytest.raises(ConfigError, match=r"listen\.runtime_dir is too long"):
        check_directory(settings)
