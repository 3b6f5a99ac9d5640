"""Log files that one thread appends to and another one syncs."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.model.errors import CorruptLogError, DiskFullError
from ledgermq.store.files import append_files
from ledgermq.store.files.append_files import AppendFiles
from ledgermq.store.files.disk_sync import watched

FILE_SIZE = 4_096
ROLLS = 400


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the files that were synced so far; each sync is a real one."""
    names: set[str] = set()
    fdatasync = os.fdatasync

    def recorded(fd: int) -> None:
        fdatasync(fd)
        names.add(Path(f"/proc/self/fd/{fd}").readlink().name)

    monkeypatch.setattr(os, "fdatasync", recorded)
    return names


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.slow
@pytest.mark.usefixtures("hasty_threads")
def test_a_sync_beside_a_roll_leaves_no_file_out(tmp_path: Path, synced: set[str]) -> None:
    files = AppendFiles(tmp_path, file_size=FILE_SIZE, position=0)
    missed: list[str] = []
    failed: list[BaseException] = []
    is_done = threading.Event()

    def sync() -> None:
        try:
            while not is_done.is_set():
                appended = range(0, files.start, FILE_SIZE)
                files.sync()
                missed.extend(
                    name for at in appended if (name := append_files.file_name(at)) not in synced
                )
        except BaseException as error:  # whatever it is, the test has to tell it
            failed.append(error)

    thread = threading.Thread(target=sync)
    thread.start()
    for _ in range(ROLLS):
        files.append(b"x" * FILE_SIZE)
        files.roll()
    is_done.set()
    thread.join()
    files.close()

    assert failed == []
    assert missed == []


def test_a_roll_that_fails_changes_nothing(tmp_path: Path) -> None:
    files = AppendFiles(tmp_path, file_size=FILE_SIZE, position=0)
    files.append(b"x" * FILE_SIZE)
    (tmp_path / append_files.file_name(FILE_SIZE)).write_bytes(b"short")

    with pytest.raises(CorruptLogError):
        files.roll()

    assert (files.start, files.position) == (0, FILE_SIZE)
    files.sync()
    files.close()


def test_what_is_reserved_ahead_is_used_and_what_is_not_is_given_back(tmp_path: Path) -> None:
    files = AppendFiles(tmp_path, file_size=FILE_SIZE, position=0)
    files.reserve(2 * FILE_SIZE + 1)
    made = sorted(path.name for path in tmp_path.iterdir())
    files.append(b"x" * FILE_SIZE)
    files.roll()
    files.append(b"y")
    files.rewind(FILE_SIZE)
    files.close()

    assert made == [append_files.file_name(at) for at in (0, FILE_SIZE, 2 * FILE_SIZE)]
    assert files.files_made == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == made[:1]


def test_a_reserve_that_finds_no_space_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = AppendFiles(tmp_path, file_size=FILE_SIZE, position=0)
    files.append(b"x")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DiskFullError, match="no space for the log"):
        files.reserve(2 * FILE_SIZE)

    assert [path.name for path in tmp_path.iterdir()] == [append_files.file_name(0)]
    assert (files.position, files.files_made) == (1, 1)
    assert (tmp_path / append_files.file_name(0)).read_bytes()[:2] == b"x\0"
    files.close()


class NamesSynced:
    """Of each directory that was synced: its files, and the size that each had when synced."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.named: list[dict[str, int]] = []

    def synced(self, fd: int) -> None:
        """See ``SyncWatcher``."""
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if path.is_dir():
            names = [file.name for file in path.iterdir()]
            self.named.append({name: self.sizes.get(name, 0) for name in names})
        else:
            self.sizes[path.name] = os.fstat(fd).st_size


def test_a_file_has_its_size_on_the_disk_before_its_name(tmp_path: Path) -> None:
    watcher = NamesSynced()
    with watched(watcher):
        files = AppendFiles(tmp_path, file_size=FILE_SIZE, position=0)
        files.append(b"x" * FILE_SIZE)
        # No sync of what was appended comes between.
        files.roll()
        files.append(b"y" * FILE_SIZE)
        files.roll()
    files.close()

    first, second, third = (append_files.file_name(at) for at in (0, FILE_SIZE, 2 * FILE_SIZE))
    assert watcher.named == [
        {first: FILE_SIZE},
        {first: FILE_SIZE, second: FILE_SIZE},
        {first: FILE_SIZE, second: FILE_SIZE, third: FILE_SIZE},
    ]


def test_a_file_that_lost_its_size_gets_it_for_good(tmp_path: Path) -> None:
    (tmp_path / append_files.file_name(0)).touch()
    watcher = NamesSynced()
    with watched(watcher):
        files = AppendFiles(tmp_path, file_size=FILE_SIZE, position=0)
    files.close()

    assert watcher.sizes == {append_files.file_name(0): FILE_SIZE}


@pytest.fixture
def deleted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that were deleted, and ``""`` where their folder was synced."""
    found: list[str] = []
    unlink = Path.unlink
    sync = append_files.sync_directory

    def recorded(path: Path, missing_ok: bool = False) -> None:
        unlink(path, missing_ok)
        found.append(path.name)

    def synced(folder: Path) -> None:
        sync(folder)
        found.append("")

    monkeypatch.setattr(Path, "unlink", recorded)
    monkeypatch.setattr(append_files, "sync_directory", synced)
    return found


def test_a_cut_deletes_from_the_last_file_on(tmp_path: Path, deleted: list[str]) -> None:
    """Whoever dies on the way leaves a log without a gap."""
    names = [append_files.file_name(number * FILE_SIZE) for number in range(6)]
    for number in (3, 1, 5, 0, 4, 2):
        (tmp_path / names[number]).write_bytes(bytes(FILE_SIZE))
    files = AppendFiles(tmp_path, file_size=FILE_SIZE, position=10)
    files.cut()
    files.cut()
    files.close()

    assert deleted == [*reversed(names[1:]), ""]


def test_files_made_ahead_are_given_back_from_the_last_one_on(
    tmp_path: Path, deleted: list[str]
) -> None:
    names = [append_files.file_name(number * FILE_SIZE) for number in range(4)]
    files = AppendFiles(tmp_path, file_size=FILE_SIZE, position=0)
    files.append(b"x")
    files.reserve(4 * FILE_SIZE)
    deleted.clear()
    files.rewind(0)
    files.close()

    assert deleted == [*reversed(names[1:])]
