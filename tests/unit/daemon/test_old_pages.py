"""Old reads leave the page cache as they found it: asked of the kernel itself."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from ledgermq.daemon.log_view import LogView
from ledgermq.daemon.old_pages import BLOCK_SIZE, OldPages, OldReadPace, resident_pages

FILE_SIZE = 8 * BLOCK_SIZE
PAGES = BLOCK_SIZE // mmap.PAGESIZE


@pytest.fixture
def log(tmp_path: Path) -> LogView:
    """Two files of eight blocks, of which nothing is in the page cache."""
    folder = tmp_path / "log"
    folder.mkdir()
    for start in (0, FILE_SIZE):
        (folder / f"{start:020d}").write_bytes(os.urandom(mmap.PAGESIZE) * (8 * PAGES))
    view = LogView((folder,))
    forget(view)
    if resident(view, 0):
        pytest.skip("the file system of this folder keeps all in memory: nothing can be dropped")
    return view


def forget(log: LogView) -> None:
    for start in (0, FILE_SIZE):
        file = log.file_of(start)
        assert file is not None
        descriptor = os.open(file.path, os.O_RDONLY)
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def resident(log: LogView, block: int) -> int:
    file = log.file_of(block * BLOCK_SIZE)
    assert file is not None
    at = block * BLOCK_SIZE - file.start
    return resident_pages(file.view[at : at + BLOCK_SIZE])


def read(log: LogView, pages: OldPages, block: int) -> None:
    pages.touch(block * BLOCK_SIZE, (block + 1) * BLOCK_SIZE)
    file = log.file_of(block * BLOCK_SIZE)
    assert file is not None
    at = block * BLOCK_SIZE - file.start
    bytes(file.view[at : at + BLOCK_SIZE])


def test_what_was_fetched_is_dropped_behind_the_reader(log: LogView) -> None:
    pages = OldPages(log, 3 * BLOCK_SIZE)

    for block in range(16):
        read(log, pages, block)

        assert resident(log, block) == PAGES
        assert pages.kept_size <= 4 * BLOCK_SIZE
    # What one process maps another's advice does not drop; we have given it back ourselves.
    assert [resident(log, block) for block in range(12)] == [0] * 12
    pages.give_back_all()
    assert [resident(log, block) for block in range(16)] == [0] * 16
    assert pages.fetched_size == FILE_SIZE * 2


def test_what_was_in_memory_stays_there(log: LogView) -> None:
    file = log.file_of(0)
    assert file is not None
    descriptor = os.open(file.path, os.O_RDONLY)
    # Nothing is read ahead of what is asked for.
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    os.pread(descriptor, 2 * BLOCK_SIZE, 2 * BLOCK_SIZE)
    os.close(descriptor)
    pages = OldPages(log, 2 * BLOCK_SIZE)

    for block in range(2, 6):
        read(log, pages, block)
    pages.give_back_all()

    assert [resident(log, block) for block in (2, 3)] == [PAGES, PAGES]
    assert [resident(log, block) for block in (4, 5)] == [0, 0]


def test_a_file_that_was_deleted_since_is_let_go_of(log: LogView) -> None:
    pages = OldPages(log, 2 * BLOCK_SIZE)
    read(log, pages, 1)
    file = log.file_of(0)
    assert file is not None
    file.path.unlink()
    log.refresh()

    pages.touch(0, BLOCK_SIZE)
    pages.give_back_all()

    assert pages.kept_size == 0
    assert log.file_of(0) is None


def test_a_pace_lets_a_burst_pass_and_then_its_rate() -> None:
    pace = OldReadPace(1_000)
    second = 1_000_000_000
    now = 50 * second
    waits = [pace.wait_ms(now)]
    pace.spend(100, now)
    waits.append(pace.wait_ms(now))
    pace.spend(500, now)
    waits += [pace.wait_ms(now), pace.wait_ms(now + second // 4), pace.wait_ms(now + second)]
    pace.spend(1_000, now + 10 * second)
    waits.append(pace.wait_ms(now + 10 * second))

    # What was not used is lost but for the burst of a tenth of a second.
    assert waits == [0, 0, 500, 250, 0, 900]
