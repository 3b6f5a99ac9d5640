"""Nobody else may put anything into the folder of sockets and orders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ledgermq.daemon.store_lock import check_runtime_directory
from ledgermq.model.errors import ConfigError


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o755])
def test_a_folder_of_our_own_is_taken(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)

    check_runtime_directory(tmp_path)


@pytest.mark.parametrize("mode", [0o770, 0o757, 0o1777])
def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)

    with pytest.raises(ConfigError, match=r"others can write.*listen\.runtime_dir"):
        check_runtime_directory(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12_345, -1)

    with pytest.raises(ConfigError, match="owner=12345"):
        check_runtime_directory(folder)
