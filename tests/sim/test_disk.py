"""The simulated disk after a power failure: what was synced is there, and of the rest any part."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from ledgermq.store.files.disk_sync import sync_content, sync_directory, watched
from ledgermq.store.files.small_file import replace_file
from tests.simulator.machine.disk import PAGE_SIZE, SECTOR_SIZE, Disk, Disks

SEEDS = range(40)


def disk_with(root: Path, seed: int, files: dict[str, bytes]) -> Disk:
    root.mkdir()
    for name, content in files.items():
        (root / name).write_bytes(content)
    disk = Disk(root, Random(seed))
    disk.format()
    return disk


@pytest.fixture(params=SEEDS)
def seed(request: pytest.FixtureRequest) -> int:
    assert isinstance(request.param, int)
    return request.param


def written(path: Path, content: bytes, *, sync: bool) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, content, 0)
    if sync:
        sync_content(fd)
    os.close(fd)


def failed(disk: Disk, change: Iterator[None]) -> None:
    """Power fails after ``change``."""
    disks = Disks()
    disks.disks.append(disk)
    with watched(disks):
        for _ in change:
            continue
    disk.power_failure()


def test_what_was_synced_survives(tmp_path: Path, seed: int) -> None:
    disk = disk_with(tmp_path / "disk", seed, {"a": bytes(2 * PAGE_SIZE)})
    new = bytes([1]) * 2 * PAGE_SIZE

    def change() -> Iterator[None]:
        yield written(disk.root / "a", new, sync=True)

    failed(disk, change())

    assert (disk.root / "a").read_bytes() == new


def test_each_sector_that_was_not_synced_is_the_old_one_or_the_new_one(
    tmp_path: Path,
) -> None:
    kinds = set()
    for seed in SEEDS:
        disk = disk_with(tmp_path / str(seed), seed, {"a": bytes(3 * PAGE_SIZE)})
        new = bytes([1]) * 3 * PAGE_SIZE

        def change(disk: Disk = disk, new: bytes = new) -> Iterator[None]:
            yield written(disk.root / "a", new, sync=False)

        failed(disk, change())
        left = (disk.root / "a").read_bytes()
        sectors = [left[at : at + SECTOR_SIZE] for at in range(0, len(left), SECTOR_SIZE)]
        assert all(sector in (bytes(SECTOR_SIZE), new[:SECTOR_SIZE]) for sector in sectors)
        pages = [left[at : at + PAGE_SIZE] for at in range(0, len(left), PAGE_SIZE)]
        kinds |= {(page[0], page[-1]) for page in pages}

    # Old pages, new ones, and torn ones, of which only the front was written.
    assert kinds == {(0, 0), (1, 1), (1, 0)}


def test_a_file_that_was_replaced_is_the_new_one(tmp_path: Path, seed: int) -> None:
    disk = disk_with(tmp_path / "disk", seed, {"a": b"old"})

    def change() -> Iterator[None]:
        yield replace_file(disk.root / "a", b"newer")

    failed(disk, change())

    assert (disk.root / "a").read_bytes() == b"newer"


def test_names_last_once_their_directory_was_synced(tmp_path: Path, seed: int) -> None:
    disk = disk_with(tmp_path / "disk", seed, {"a": b"a", "b": b"b"})

    def change() -> Iterator[None]:
        yield (disk.root / "a").unlink()
        yield sync_directory(disk.root)
        yield (disk.root / "b").unlink()

    failed(disk, change())

    left = {path.name: path.read_bytes() for path in disk.root.iterdir()}
    assert left in ({}, {"b": b"b"})


def test_what_a_sync_had_not_finished_may_be_lost(tmp_path: Path) -> None:
    outcomes = set()
    for seed in SEEDS:
        disk = disk_with(tmp_path / str(seed), seed, {"a": b"old"})
        disk.hold_back = True

        def change(disk: Disk = disk) -> Iterator[None]:
            yield written(disk.root / "a", b"new", sync=True)

        failed(disk, change())
        outcomes.add((disk.root / "a").read_bytes())

    assert outcomes == {b"old", b"new"}


def test_a_flipped_bit_stays(tmp_path: Path, seed: int) -> None:
    disk = disk_with(tmp_path / "disk", seed, {"a": bytes(100)})

    flip = disk.flip(disk.root / "a", 40, 50)

    disk.power_failure()
    content = (disk.root / "a").read_bytes()
    assert 40 <= flip.offset < 50
    assert content[flip.offset] == 1 << flip.bit
    assert content.count(0) == 99
