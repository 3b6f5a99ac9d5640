"""The reserve for small files, on a disk that is full."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.model.errors import DiskFullError, StorageError
from ledgermq.store.files.disk_space import (
    FILL_SIZE,
    FREE_SIZE,
    bytes_on_disk,
    fill_reserve,
    measure,
    storage_error,
    use_reserve,
    with_reserve,
)
from ledgermq.store.files.small_file import replace_file


@pytest.fixture
def reserve(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "reserve"
    fill_reserve(path, 2 * FILL_SIZE)
    use_reserve(path)
    yield path
    use_reserve(None)


class FullDisk:
    """Refuses writes as long as the reserve is larger than ``free_at``."""

    def __init__(self, reserve: Path, free_at: int) -> None:
        self.reserve, self.free_at = reserve, free_at

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if self.reserve.stat().st_size > self.free_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.pwrite(fd, data, 0)


def test_a_small_file_on_a_full_disk_takes_from_the_reserve(
    tmp_path: Path, reserve: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "write", FullDisk(reserve, 2 * FILL_SIZE - 1).write)
    replace_file(tmp_path / "vote", b"n1")

    assert (tmp_path / "vote").read_bytes() == b"n1"
    assert reserve.stat().st_size == 2 * FILL_SIZE - FREE_SIZE


def test_without_a_reserve_the_old_content_stays_and_the_error_says_why(
    tmp_path: Path, reserve: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_file(tmp_path / "vote", b"n1")
    monkeypatch.setattr(os, "write", FullDisk(reserve, -1).write)

    with pytest.raises(DiskFullError) as caught:
        replace_file(tmp_path / "vote", b"n2")

    assert caught.value.errno == errno.ENOSPC
    assert (tmp_path / "vote").read_bytes() == b"n1"
    assert reserve.stat().st_size == 0


def test_another_error_than_a_full_disk_costs_nothing_of_the_reserve(reserve: Path) -> None:
    def fail() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(OSError, match="Input/output"):
        with_reserve(fail)

    assert reserve.stat().st_size == 2 * FILL_SIZE


def test_the_reserve_has_blocks_and_is_filled_again(reserve: Path) -> None:
    os.truncate(reserve, FILL_SIZE)
    fill_reserve(reserve, 2 * FILL_SIZE)

    assert reserve.stat().st_blocks * 512 >= 2 * FILL_SIZE


def test_only_no_space_is_a_full_disk() -> None:
    full = storage_error("x", OSError(errno.EDQUOT, "quota"), file="f")
    sick = storage_error("x", OSError(errno.EIO, "sick"), file="f")

    assert (type(full), type(sick)) == (DiskFullError, StorageError)
    assert full.details == {"file": "f", "reason": "quota"}


def test_a_folder_that_may_not_be_read_does_not_keep_the_others_from_being_counted() -> None:
    if os.geteuid() != 0:
        pytest.skip("only a superuser can act as another user")
    # pytest's own folders are closed to others.
    with tempfile.TemporaryDirectory(prefix="lmq-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "log").write_bytes(b"x" * 5_000)
        (folder / "lost+found").mkdir(mode=0o700)
        expected = (folder / "log").stat().st_blocks * 512
        os.seteuid(65_534)
        try:
            counted = bytes_on_disk(folder)
        finally:
            os.seteuid(0)

    assert counted == expected > 0


def test_a_disk_is_measured(tmp_path: Path) -> None:
    disk = measure(tmp_path)

    assert 0 <= disk.free <= disk.total
    assert disk.used <= disk.total
