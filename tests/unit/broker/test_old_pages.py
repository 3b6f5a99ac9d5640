"""Old reads leave the page cache as they found it: asked of the kernel itself."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.broker.reading.old_pages import BLOCK_SIZE, OldPages, OldReadPace, resident_pages
from ledgermq.store.log_family import LogFamily, LogFolder
from ledgermq.store.log_view import LogView

FILE_SIZE = 8 * BLOCK_SIZE
PAGES = BLOCK_SIZE // mmap.PAGESIZE


ATTEMPTS = 6
"""The kernel promises nothing: it reads ahead, evicts what others leave no room for, and keeps a
page that is in use at the moment. What a wrong product does, it does every time."""


@pytest.fixture
def log(tmp_path: Path) -> LogView:
    """Two files of eight blocks, of which nothing is in the page cache."""
    folder = tmp_path / "log"
    folder.mkdir()
    for start in (0, FILE_SIZE):
        (folder / f"{start:020d}").write_bytes(os.urandom(mmap.PAGESIZE) * (8 * PAGES))
    view = LogView(LogFamily(LogFolder(folder, 0)))
    if not any(is_forgotten(view) for _ in range(ATTEMPTS)):
        pytest.skip("the file system of this folder keeps all in memory: nothing can be dropped")
    return view


def is_forgotten(log: LogView) -> bool:
    """Drop all that the page cache has of the log; whether it has nothing of it any more."""
    for start in (0, FILE_SIZE):
        file = log.file_of(start)
        assert file is not None
        log.advise(start, FILE_SIZE, mmap.MADV_DONTNEED)
        descriptor = os.open(file.path, os.O_RDONLY)
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    return not any(resident(log, block) for block in range(16))


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


def seen_once(log: LogView, reads: Callable[[], object], wanted: object) -> None:
    """Of some reads of a forgotten log, one must end as it is promised."""
    seen: list[object] = []
    for _ in range(ATTEMPTS):
        if not is_forgotten(log):
            continue
        seen.append(reads())
        if seen[-1] == wanted:
            return

    assert seen == [wanted]


def test_what_was_fetched_is_dropped_behind_the_reader(log: LogView) -> None:
    def reads() -> object:
        pages = OldPages(log, 3 * BLOCK_SIZE)
        there = []
        for block in range(16):
            read(log, pages, block)
            there.append(resident(log, block))

            assert pages.kept_size <= 4 * BLOCK_SIZE
        # What one process maps another's advice does not drop; we have given it back ourselves.
        behind = [resident(log, block) for block in range(12)]
        pages.give_back_all()
        return there, behind, [resident(log, block) for block in range(16)], pages.fetched_size

    seen_once(log, reads, ([PAGES] * 16, [0] * 12, [0] * 16, FILE_SIZE * 2))


def test_what_was_in_memory_stays_there(log: LogView) -> None:
    def reads() -> object:
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
        return [resident(log, block) for block in (2, 3, 4, 5)]

    seen_once(log, reads, [PAGES, PAGES, 0, 0])


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
