"""Which file of a log in two folders has a position, and what is said when there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ledgermq.model.errors import StorageError
from ledgermq.store.files.file_names import file_name, is_index_name, is_position_name, starts_in
from ledgermq.store.log_family import LogFamily, LogFile, LogFolder, MappedLog

SIZE = 100


def made(root: Path) -> LogFamily:
    """A plain log of two files, and a DLedger log that goes on behind it with two."""
    old, new = LogFolder(root / "commitlog", 0), LogFolder(root / "data", 48)
    for number in range(4):
        folder = (old, new)[number // 2]
        folder.path.mkdir(exist_ok=True)
        (folder.path / file_name(number * SIZE)).write_bytes(bytes([number]) * SIZE)
    return LogFamily(old, new)


def test_all_files_are_told_from_the_oldest_on_with_the_headers_of_their_folder(
    tmp_path: Path,
) -> None:
    family = made(tmp_path)
    (tmp_path / "data" / "stray").write_bytes(b"")

    assert [(one.start, one.end, one.header_size) for one in family.files()] == [
        (0, 100, 0),
        (100, 200, 0),
        (200, 300, 48),
        (300, 400, 48),
    ]
    assert family.files()[2] == LogFile(200, SIZE, tmp_path / "data" / file_name(200), 48)


def test_the_first_file_is_the_oldest_that_is_left_of_both_folders(tmp_path: Path) -> None:
    family = made(tmp_path)
    found = []
    for file in family.files():
        found.append(family.first_file())
        file.path.unlink()

    assert [*found, family.first_file()] == [0, 100, 200, 300, None]


@pytest.mark.parametrize(
    ("position", "starts"), [(0, [0]), (150, [100]), (200, [200, 100]), (399, [300, 100])]
)
def test_a_position_may_be_in_the_last_file_of_each_folder_that_begins_before_it(
    tmp_path: Path, position: int, starts: list[int]
) -> None:
    family = made(tmp_path)

    assert [start for _, start in family.candidates(position)] == starts
    assert family.file_start(position) == starts[0]


def test_a_log_without_a_folder_has_no_files(tmp_path: Path) -> None:
    family = LogFamily(LogFolder(tmp_path / "missing", 0))

    assert (family.files(), family.first_file(), family.file_start(7)) == ([], None, 0)
    assert starts_in(tmp_path / "missing") == []


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"")
    with pytest.raises(StorageError) as refused:
        LogFolder(tmp_path / "data", 0).files()

    assert refused.value.details["directory"] == str(tmp_path / "data")
    assert os.strerror(refused.value.errno or 0) == refused.value.details["reason"]


def test_each_byte_of_a_mapped_log_is_in_the_part_of_its_folder(tmp_path: Path) -> None:
    log = MappedLog(made(tmp_path).mapped())
    found = []
    for position in range(0, 4 * SIZE, SIZE // 2):
        part = log.part_with(position)
        assert part is not None
        found.append((part.header_size, part.files.view(position, 1)[0]))
    log.close()

    assert found == [(48 * (number // 4), number // 2) for number in range(8)]
    assert log.part_with(4 * SIZE) is None


def test_a_mapped_log_begins_with_the_oldest_file_once_it_has_looked_again(tmp_path: Path) -> None:
    log = MappedLog(made(tmp_path).mapped())
    for number in (0, 1):
        (tmp_path / "commitlog" / file_name(number * SIZE)).unlink()
    before = log.first_position
    log.refresh()

    assert (before, log.first_position) == (0, 2 * SIZE)


@pytest.mark.parametrize("name", ["", "7", "0" * 19, "0" * 21, "٠" * 20, "-" + "0" * 19])
def test_only_twenty_digits_are_a_files_name(name: str) -> None:
    assert not is_position_name(name)
    assert is_position_name(file_name(7)) and not is_index_name(file_name(7))
    assert is_index_name("20261123164700123")
