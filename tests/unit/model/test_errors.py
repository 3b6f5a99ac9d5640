"""What an operating system refuses, as an error of ours."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ledgermq.model.errors import StorageError, refused_as


@pytest.mark.parametrize(
    ("why", "expected"),
    [
        ("apart", "file not read (file='{path}', reason='No such file or directory')"),
        ("within", "file not read: No such file or directory (file='{path}')"),
        ("", "file not read (file='{path}')"),
    ],
)
def test_what_the_system_refuses_is_told_with_path_and_reason(
    tmp_path: Path, why: str, expected: str
) -> None:
    path = tmp_path / "missing"
    with pytest.raises(StorageError) as told, refused_as("file not read", why=why, file=path):
        path.read_bytes()
    assert str(told.value) == expected.format(path=path)
    assert told.value.errno == errno.ENOENT
    assert isinstance(told.value.__cause__, FileNotFoundError)


def test_errors_of_ours_pass() -> None:
    refused = StorageError("elsewhere")
    with pytest.raises(StorageError) as told, refused_as("file not read"):
        raise refused
    assert told.value is refused
