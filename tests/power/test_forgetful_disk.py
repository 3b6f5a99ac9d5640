"""The disk of these tests forgets what was not synced, keeps what was, and nothing besides."""

from __future__ import annotations

import errno
import mmap
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.power.forgetful_disk import STRICT, ForgetfulDisk, Policy, forgetful_disks, why_not
from tests.process.conftest import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]

SEEDS = range(20)
MakeDisk = Callable[[Path], ForgetfulDisk]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[ForgetfulDisk]:
    with forgetful_disks() as make:
        yield make(tmp_path / "disk")


def write(path: Path, content: bytes, *, at: int = 0, sync: bool = True) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.pwrite(fd, content, at)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def fail(disk: ForgetfulDisk, policy: Policy = STRICT, seed: int = 0) -> None:
    disk.cut()
    disk.forget(policy, seed)
    disk.mount()


def test_data_is_kept_by_an_fsync_of_its_file_and_a_name_by_one_of_its_folder(
    disk: ForgetfulDisk,
) -> None:
    root = disk.folder
    write(root / "both", b"synced")
    sync_folder(root)
    write(root / "both", b"later!", sync=False)
    write(root / "no-name", b"synced")
    write(root / "both", b"x" * 5_000, at=100, sync=False)
    fail(disk)

    assert [path.name for path in root.iterdir()] == ["both"]
    assert (root / "both").read_bytes() == b"synced"


def test_a_name_without_its_data_is_an_empty_file(disk: ForgetfulDisk) -> None:
    write(disk.folder / "empty", b"not synced", sync=False)
    sync_folder(disk.folder)
    fail(disk)

    assert (disk.folder / "empty").read_bytes() == b""


def test_a_folder_takes_all_below_it_along(disk: ForgetfulDisk) -> None:
    (disk.folder / "folder").mkdir()
    write(disk.folder / "folder" / "file", b"synced")
    sync_folder(disk.folder / "folder")
    fail(disk)

    assert list(disk.folder.iterdir()) == []


@pytest.mark.parametrize("names", ["none", "prefix", "all"])
def test_a_rename_is_done_or_not_and_never_loses_the_file(disk: ForgetfulDisk, names: str) -> None:
    root = disk.folder
    seen = set()
    for name in ("one", "two"):
        (root / name).mkdir()
    write(root / "one" / "file", b"content")
    for folder in (root / "one", root / "two", root):
        sync_folder(folder)
    for seed in SEEDS:
        source, target = sorted(
            (root / "one" / "file", root / "two" / "file"), key=lambda path: not path.exists()
        )
        source.rename(target)
        fail(disk, Policy("none", names), seed)
        there = [path for path in (source, target) if path.exists()]

        assert len(there) == 1
        assert there[0].read_bytes() == b"content"
        seen.add(there[0] == target)

    assert seen == {"none": {False}, "prefix": {False, True}, "all": {True}}[names]


def test_a_journal_takes_names_along(disk: ForgetfulDisk) -> None:
    disk.keep_a_journal()
    write(disk.folder / "first", b"", sync=False)
    write(disk.folder / "second", b"synced")
    fail(disk)

    assert sorted(path.name for path in disk.folder.iterdir()) == ["first", "second"]


def test_a_page_is_as_it_was_at_some_moment_and_sectors_of_it_are_torn(
    disk: ForgetfulDisk,
) -> None:
    path = disk.folder / "file"
    found, torn = set(), 0
    write(path, b"a" * 4_096)
    sync_folder(disk.folder)
    for seed in SEEDS:
        for letter in (b"b", b"c"):
            write(path, letter * 4_096, sync=False)
        fail(disk, Policy("random", "none", 512), seed)
        content = path.read_bytes()
        assert len(content) == 4_096
        assert all(len({*content[at : at + 512]}) == 1 for at in range(0, 4_096, 512))
        found |= {*content}
        torn += len({*content}) > 1
        write(path, b"a" * 4_096)

    assert found == {*b"abc"}
    assert torn


def test_what_was_cut_off_may_be_there_again(disk: ForgetfulDisk) -> None:
    path = disk.folder / "file"
    sizes = set()
    for seed in SEEDS:
        write(path, b"x" * 10_000)
        sync_folder(disk.folder)
        os.truncate(path, 100)
        fail(disk, Policy("random", "all"), seed)
        sizes.add(path.stat().st_size)
        assert path.read_bytes() == b"x" * path.stat().st_size

    assert sizes == {100, 10_000}


def test_what_was_written_through_a_map_is_kept_by_a_sync_of_it(disk: ForgetfulDisk) -> None:
    path = disk.folder / "file"
    write(path, bytes(8_192))
    sync_folder(disk.folder)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as page:
        page[:4] = b"kept"
        page.flush()
        page[4_096:4_100] = b"gone"
    fail(disk)

    assert path.read_bytes() == b"kept" + bytes(8_188)


def test_a_lying_disk_keeps_nothing(disk: ForgetfulDisk) -> None:
    write(disk.folder / "before", b"synced")
    sync_folder(disk.folder)
    disk.lie()
    write(disk.folder / "after", b"synced")
    write(disk.folder / "before", b"later!")
    sync_folder(disk.folder)
    fail(disk)

    assert [path.name for path in disk.folder.iterdir()] == ["before"]
    assert (disk.folder / "before").read_bytes() == b"synced"


def test_a_failed_sync_is_told_once_and_what_it_was_for_is_lost(disk: ForgetfulDisk) -> None:
    path = disk.folder / "file"
    write(path, b"first ")
    sync_folder(disk.folder)
    disk.fail_next_sync("/file")
    with pytest.raises(OSError, match="Input/output error") as failed:
        write(path, b"second")
    write(path, b"third", at=4_096)
    shown = path.read_bytes()[:6]
    fail(disk)

    assert failed.value.errno == errno.EIO
    assert disk.failed_syncs == 1
    assert shown == b"second"
    assert path.read_bytes() == b"first " + bytes(4_090) + b"third"


def test_the_power_fails_before_the_change_that_was_asked_for(disk: ForgetfulDisk) -> None:
    before = disk.changes
    write(disk.folder / "file", b"1")
    sync_folder(disk.folder)
    needed = disk.changes - before
    disk.arm(1)
    waiting = os.fork()
    if waiting == 0:
        write(disk.folder / "file", b"2")
        os._exit(0)
    wait_until(lambda: disk.is_cut, "the failure")
    os.kill(waiting, signal.SIGKILL)
    fail(disk)
    os.waitpid(waiting, 0)

    assert needed == 4  # create, write, two syncs
    assert (disk.folder / "file").read_bytes() == b"1"
