"""The geometry of index files is told by those that nobody writes to any more."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ledgermq.formats.findings import Finding, Severity
from ledgermq.formats.index_file import HEADER_SIZE, SLOT_SIZE
from ledgermq.repair.check.check_index import find_geometry
from tests.unit.store.test_index_reader import LAYOUT, put_files


def count_more(path: Path) -> None:
    """As when a node has counted keys, and not yet named them in slots."""
    content = bytearray(path.read_bytes())
    content[HEADER_SIZE : LAYOUT.item_at(0)] = bytes(SLOT_SIZE * LAYOUT.slots)
    path.write_bytes(content)


def test_a_file_that_is_being_written_is_not_asked_when_others_tell(tmp_path: Path) -> None:
    paths = put_files(tmp_path / "index", LAYOUT, 30)
    count_more(paths[-1])

    assert len(paths) > 1
    assert find_geometry(tmp_path / "index", is_open=True) == LAYOUT
    stopped = find_geometry(tmp_path / "index", is_open=False)
    assert isinstance(stopped, Finding)
    assert (stopped.severity, stopped.what) == (
        Severity.DERIVED,
        "index files not compared: index files fit no number of slots",
    )


@pytest.mark.parametrize("size", [0, LAYOUT.item_at(0), LAYOUT.file_size])
def test_a_file_that_is_just_being_made_tells_nothing(tmp_path: Path, size: int) -> None:
    paths = put_files(tmp_path / "index", LAYOUT, 30)
    fresh = paths[-1].with_name("20270101000000000")
    fresh.write_bytes(bytes(size))

    assert find_geometry(fresh.parent, is_open=True) == LAYOUT
    for path in paths:
        path.unlink()
    assert find_geometry(fresh.parent, is_open=True) is None


def test_files_that_are_removed_meanwhile_tell_nothing(tmp_path: Path) -> None:
    paths = put_files(tmp_path / "index", LAYOUT, 30)
    paths[0].unlink()

    assert find_geometry(tmp_path / "index", is_open=True) == LAYOUT
    assert find_geometry(tmp_path / "nothing", is_open=True) is None


def test_the_only_file_is_read_again_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who writes it goes on in the pause between two looks, however busy the machine is."""
    (path,) = put_files(tmp_path / "index", LAYOUT, 8)
    whole = path.read_bytes()
    count_more(path)
    monkeypatch.setattr(time, "sleep", lambda _seconds: path.write_bytes(whole))

    assert find_geometry(path.parent, is_open=True) == LAYOUT


def test_the_only_file_of_a_store_that_may_be_open_is_no_fault_but_one_of_a_stopped_store_is(
    tmp_path: Path,
) -> None:
    (path,) = put_files(tmp_path / "index", LAYOUT, 8)
    count_more(path)
    found = [find_geometry(path.parent, is_open=is_open) for is_open in (True, False)]

    assert [one.severity for one in found if isinstance(one, Finding)] == [
        Severity.NOTE,
        Severity.DERIVED,
    ]


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_file_that_was_cut_inside_a_word_fits_no_geometry(tmp_path: Path, cut: int) -> None:
    (path,) = put_files(tmp_path / "index", LAYOUT, 8)
    path.write_bytes(path.read_bytes()[:-cut])
    found = find_geometry(path.parent, is_open=False)

    assert isinstance(found, Finding)
    assert "fit no number of slots" in found.what
