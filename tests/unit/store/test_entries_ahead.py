"""Entries that are needed soon are in the page cache, and others are not: asked of the kernel."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.broker.reading.old_pages import resident_pages
from ledgermq.model.errors import StorageError
from ledgermq.model.ids import Position
from ledgermq.store.files.file_names import file_name
from ledgermq.store.log.entry_files import EntryFiles
from tests.process.conftest import wait_until

FILE_SIZE = 4 << 20
MIB = 1 << 20
PAGES = MIB // mmap.PAGESIZE
ATTEMPTS = 6
"""A page that is in use at the moment stays where it is."""


@pytest.fixture
def files(tmp_path: Path) -> Iterator[EntryFiles]:
    """Two files of a log, of which nothing is in the page cache."""
    for start in (0, FILE_SIZE):
        (tmp_path / file_name(start)).write_bytes(os.urandom(MIB) * (FILE_SIZE // MIB))
    if not any(is_forgotten(tmp_path) for _ in range(ATTEMPTS)):
        pytest.skip("the file system of this folder keeps all in memory: nothing can be dropped")
    opened = EntryFiles(tmp_path, tmp_path, file_size=FILE_SIZE)
    yield opened
    opened.forget()


def is_forgotten(folder: Path) -> bool:
    for start in (0, FILE_SIZE):
        descriptor = os.open(folder / file_name(start), os.O_RDONLY)
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    return not any(resident(folder))


def resident(folder: Path) -> list[int]:
    """Pages in memory of each MiB of the log."""
    found: list[int] = []
    for start in (0, FILE_SIZE):
        with (folder / file_name(start)).open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        with mapped, memoryview(mapped) as view:
            for at in range(0, FILE_SIZE, MIB):
                with view[at : at + MIB] as part:
                    found.append(resident_pages(part))
    return found


def test_what_is_needed_soon_is_read_over_the_end_of_a_file_and_no_more(
    files: EntryFiles, tmp_path: Path
) -> None:
    files.will_need(Position(3 * MIB), Position(6 * MIB))

    wanted = [0, 0, 0, PAGES, PAGES, PAGES, 0, 0]
    wait_until(lambda: resident(tmp_path) == wanted, "what was asked for")


def test_a_file_that_is_not_there_is_told(files: EntryFiles) -> None:
    with pytest.raises(StorageError, match="log not read"):
        files.will_need(Position(FILE_SIZE), Position(2 * FILE_SIZE + 1))
