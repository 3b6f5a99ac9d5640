"""Maps of a family of files: what is found, what is refused, what stays valid."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ledgermq.model.errors import CorruptLogError
from ledgermq.store.files.mapped_files import MappedFiles, VanishedError

SIZE = 4_096


def put_file(directory: Path, start: int, *, size: int = SIZE) -> Path:
    """A file of the family, filled with the lowest byte of its number."""
    path = directory / f"{start:020d}"
    path.write_bytes(bytes([start // SIZE & 0xFF]) * size)
    return path


def test_the_size_is_read_off_the_files(tmp_path: Path) -> None:
    put_file(tmp_path, 2 * SIZE)
    put_file(tmp_path, 3 * SIZE)
    files = MappedFiles(tmp_path)

    assert (files.file_size, files.first, files.end) == (SIZE, 2 * SIZE, 4 * SIZE)


def test_bytes_are_found_by_position(tmp_path: Path) -> None:
    put_file(tmp_path, 2 * SIZE)
    put_file(tmp_path, 3 * SIZE)
    files = MappedFiles(tmp_path)

    assert files.view(3 * SIZE - 1, 1) == b"\x02"
    assert files.view(3 * SIZE, SIZE) == b"\x03" * SIZE
    assert files.room(3 * SIZE - 1) == 1
    assert files.room(3 * SIZE) == SIZE


@pytest.mark.parametrize(
    ("position", "size"),
    [(0, 1), (SIZE - 1, 1), (2 * SIZE - 1, 2), (2 * SIZE, 1), (SIZE, SIZE + 1), (SIZE, -1)],
)
def test_what_is_not_within_one_file_is_refused(tmp_path: Path, position: int, size: int) -> None:
    put_file(tmp_path, SIZE)
    files = MappedFiles(tmp_path)
    with pytest.raises(CorruptLogError) as caught:
        files.view(position, size)

    assert caught.value.details["offset"] == position
    assert caught.value.details["size"] == size


def test_a_missing_directory_is_a_family_without_files(tmp_path: Path) -> None:
    files = MappedFiles(tmp_path / "later")

    assert (files.first, files.end, files.file_size) == (0, 0, 0)

    (tmp_path / "later").mkdir()
    put_file(tmp_path / "later", 0)

    assert files.refresh()
    assert files.view(SIZE - 1, 1) == b"\x00"


def test_refresh_finds_created_and_deleted_files(tmp_path: Path) -> None:
    oldest = put_file(tmp_path, 0)
    put_file(tmp_path, SIZE)
    files = MappedFiles(tmp_path, file_size=SIZE)

    assert not files.refresh()

    held = files.view(0, SIZE)
    oldest.unlink()
    put_file(tmp_path, 2 * SIZE)

    assert files.refresh()
    assert files.starts == (SIZE, 2 * SIZE)
    assert held == bytes(SIZE)
    with pytest.raises(CorruptLogError):
        files.view(0, 1)


def test_a_view_shows_what_is_written_later(tmp_path: Path) -> None:
    path = put_file(tmp_path, 0)
    files = MappedFiles(tmp_path)
    view = files.view(10, 4)
    with path.open("r+b") as file:
        os.pwrite(file.fileno(), b"late", 10)

    assert view == b"late"


def test_views_outlive_close_and_released_pages(tmp_path: Path) -> None:
    put_file(tmp_path, SIZE)
    files = MappedFiles(tmp_path)
    view = files.view(SIZE, SIZE)
    files.release_pages()
    files.close()

    assert view == b"\x01" * SIZE


def test_a_file_that_is_not_extended_yet_is_not_there_yet(tmp_path: Path) -> None:
    put_file(tmp_path, 0)
    fresh = put_file(tmp_path, SIZE, size=0)
    files = MappedFiles(tmp_path)

    assert files.starts == (0,)

    os.truncate(fresh, SIZE)

    assert files.refresh()
    assert files.starts == (0, SIZE)


@pytest.mark.parametrize("size", [0, 1, SIZE - 1, SIZE + 1])
def test_a_file_of_another_size_is_refused(tmp_path: Path, size: int) -> None:
    wrong = put_file(tmp_path, 0, size=size)
    put_file(tmp_path, SIZE)
    with pytest.raises(CorruptLogError) as caught:
        MappedFiles(tmp_path, file_size=SIZE)

    assert caught.value.details == {"file": str(wrong), "size": size, "expected": SIZE}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_without_a_setting_the_odd_one_out_is_named(tmp_path: Path, number: int) -> None:
    paths = [put_file(tmp_path, start * SIZE) for start in range(3)]
    os.truncate(paths[number], 100)
    with pytest.raises(CorruptLogError) as caught:
        MappedFiles(tmp_path)

    assert caught.value.details == {"file": str(paths[number]), "size": 100, "expected": SIZE}


def test_a_file_that_shrank_before_it_was_mapped_is_refused(tmp_path: Path) -> None:
    path = put_file(tmp_path, 0)
    files = MappedFiles(tmp_path)
    os.truncate(path, SIZE - 1)
    with pytest.raises(CorruptLogError) as caught:
        files.view(0, 1)

    assert caught.value.details == {"file": str(path), "size": SIZE - 1, "expected": SIZE}


@pytest.mark.parametrize("name", ["notes.txt", "1", "0000000000000000000x", "0" * 19 + "²"])
def test_what_is_no_file_of_the_family_is_passed(tmp_path: Path, name: str) -> None:
    put_file(tmp_path, 0)
    (tmp_path / name).touch()
    files = MappedFiles(tmp_path)

    assert (files.starts, files.file_size) == ((0,), SIZE)


def test_a_gap_is_refused(tmp_path: Path) -> None:
    put_file(tmp_path, 0)
    behind = put_file(tmp_path, 2 * SIZE)
    with pytest.raises(CorruptLogError) as caught:
        MappedFiles(tmp_path)

    assert caught.value.details == {"file": str(behind), "offset": 2 * SIZE, "expected": SIZE}


def test_a_file_that_was_deleted_since_is_told_from_one_that_cannot_be_read(
    tmp_path: Path,
) -> None:
    oldest = put_file(tmp_path, 0)
    put_file(tmp_path, SIZE)
    files = MappedFiles(tmp_path)
    oldest.unlink()
    with pytest.raises(VanishedError) as caught:
        files.view(0, 1)

    assert caught.value.details["file"] == str(oldest)
    assert files.refresh()
    assert files.first == SIZE


@pytest.mark.parametrize("size", [SIZE, None])
def test_a_listing_that_missed_a_file_made_meanwhile_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int | None
) -> None:
    for number in range(3):
        put_file(tmp_path, number * SIZE)
    missed = [[f"{0:020d}", f"{2 * SIZE:020d}"]]
    listed = MappedFiles._names
    monkeypatch.setattr(
        MappedFiles, "_names", lambda files: missed.pop() if missed else listed(files)
    )
    files = MappedFiles(tmp_path, file_size=size)

    assert (files.starts, files.file_size) == ((0, SIZE, 2 * SIZE), SIZE)
