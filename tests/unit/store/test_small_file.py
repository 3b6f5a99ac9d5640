"""Small files and documents: whole or not there, and who is told what."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ledgermq.formats.config_json import DOCUMENT_SIZE_MAX
from ledgermq.model.errors import CorruptLogError, StorageError
from ledgermq.store.files.checked_document import read_document, write_document
from ledgermq.store.files.small_file import read_file, replace_file


def test_what_was_put_is_read(tmp_path: Path) -> None:
    replace_file(tmp_path / "file", b"old")
    replace_file(tmp_path / "file", b"new" * 100_000)

    assert read_file(tmp_path / "file") == b"new" * 100_000
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_no_file_is_no_content(tmp_path: Path) -> None:
    assert read_file(tmp_path / "file") is None
    assert read_document(tmp_path / "file") is None


def test_what_the_system_refuses_is_told_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=str(tmp_path)):
        read_file(tmp_path)
    with pytest.raises(StorageError, match="gone"):
        replace_file(tmp_path / "gone" / "file", b"")


def test_a_document_is_read_as_it_was_written(tmp_path: Path) -> None:
    document: dict[str, object] = {"name": "Größe", "list": [1, 2.5, None]}
    write_document(tmp_path / "file", document)

    assert read_document(tmp_path / "file") == document


def test_any_changed_byte_of_a_document_is_found(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_document(path, {"index": 12})
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(CorruptLogError):
            read_document(path)
        path.write_bytes(whole[:at])
        with pytest.raises(CorruptLogError):
            read_document(path)


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    os.mkfifo(path)
    with pytest.raises(StorageError, match="no plain file") as caught:
        read_file(path)

    assert caught.value.details["file"] == str(path)


def test_what_is_larger_than_any_table_is_not_read_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    with path.open("wb") as file:
        file.truncate(DOCUMENT_SIZE_MAX + 1)
    with pytest.raises(StorageError, match="larger than any") as caught:
        read_file(path)

    assert caught.value.details["bytes"] == caught.value.details["limit"] + 1
