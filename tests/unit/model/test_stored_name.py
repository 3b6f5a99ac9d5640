"""Names that files, tables and messages say, and paths that are made of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.model.errors import CorruptLogError
from ledgermq.model.names.stored_name import FILE_NAME_MAX, is_file_name, path_below

NAMES = ["a", "...", "a b", "é" * 127, "x" * FILE_NAME_MAX, "%RETRY%g", "a\n", "\udc80"]
NONE = ["", ".", "..", "a/b", "/", "a\0", "x" * (FILE_NAME_MAX + 1), "é" * 128, "\ud800"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_one_file_is_one(tmp_path: Path, name: str) -> None:
    path = path_below(tmp_path, name, said_by="x")
    path.touch()

    assert is_file_name(name)
    assert [made.name for made in tmp_path.iterdir()] == [name]
    assert is_file_name(name.encode("utf-8", "surrogateescape"))


@pytest.mark.parametrize("name", NONE)
def test_what_leads_elsewhere_is_none(tmp_path: Path, name: str) -> None:
    assert not is_file_name(name)
    if "/" not in name or name == "/":
        with pytest.raises(CorruptLogError, match="outside of its folder"):
            path_below(tmp_path, name, said_by="x")


def test_a_path_has_names_between_its_slashes(tmp_path: Path) -> None:
    assert path_below(tmp_path, "a/b", said_by="x") == tmp_path / "a" / "b"
    for name in ("a/../b", "../a", "/a", "a/", "a//b", "./a"):
        with pytest.raises(CorruptLogError, match="outside of its folder"):
            path_below(tmp_path, name, said_by="x")
