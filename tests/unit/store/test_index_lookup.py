"""Many keys looked up at once are found as one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ledgermq.formats.index_file import IndexLayout, get_header
from ledgermq.store.index import index_lookup
from ledgermq.store.index.index_lookup import NOT_ALL, WantedKeys, find_positions
from ledgermq.store.index.index_reader import IndexReader
from tests.unit.store.test_index_reader import LAYOUT, SECOND, put_files

COUNT = 100


def keys_of(*names: str, since: int = 0) -> WantedKeys:
    text = "/".join(names).encode()
    ends = np.cumsum([len(name) + 1 for name in names]) - 1
    starts = ends - np.array([len(name) for name in names])
    times = np.full(len(names), since, np.int64)
    return WantedKeys(memoryview(text), starts.astype(np.int64), ends.astype(np.int64), times)


def found_by(reader: IndexReader, keys: WantedKeys) -> dict[int, list[int]]:
    rows, positions = find_positions(reader, b"topic", keys)
    found: dict[int, list[int]] = {}
    for row, position in zip(rows.tolist(), positions.tolist(), strict=True):
        found.setdefault(row, []).append(position)
    return found


@pytest.mark.parametrize("since_s", [0, 1, 30, 77, 100, 101])
@pytest.mark.parametrize("layout", [LAYOUT, IndexLayout(slots=1, items=500)])
def test_all_keys_are_found_that_are_young_enough(
    tmp_path: Path, layout: IndexLayout, since_s: int
) -> None:
    put_files(tmp_path, layout, COUNT, keys=9)
    reader = IndexReader(tmp_path, layout=layout)
    names = [f"key{number}" for number in range(9)]
    found = found_by(reader, keys_of(*names, "none", since=since_s * SECOND))

    for row, name in enumerate(names):
        young = reader.query("topic", name, begin_timestamp=since_s * SECOND, count_max=COUNT)
        # An item knows its time by the second: one more may be found, and none less.
        assert set(young) <= set(found.get(row, []))
        assert len(found.get(row, [])) <= len(young) + 1
        assert found.get(row, []) == sorted(found.get(row, []), reverse=True)
    assert 9 not in found


@pytest.mark.parametrize("size", [0, LAYOUT.item_at(0), LAYOUT.file_size])
def test_a_file_that_is_just_being_made_hides_nothing(tmp_path: Path, size: int) -> None:
    """Its header is zeros, or of the end of the file before: no time that ends the search."""
    *_, newest = put_files(tmp_path, LAYOUT, COUNT, keys=9)
    fresh = newest.with_name(str(int(newest.name) + 1))
    fresh.write_bytes(bytes(size))
    found = found_by(IndexReader(tmp_path, layout=LAYOUT), keys_of("key0", since=SECOND))

    assert found == {0: [number * 100 + 48 for number in range(99, -1, -9)]}


def test_no_more_is_found_of_a_key_than_there_is_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_lookup, "FOUND_MAX", 3)
    monkeypatch.setattr(index_lookup, "_ROOM", 4)
    layout = IndexLayout(slots=7, items=500)
    put_files(tmp_path, layout, COUNT, keys=5)
    found = found_by(IndexReader(tmp_path, layout=layout), keys_of("key0", "key1", "key2"))

    assert {row: len(positions) for row, positions in found.items()} == {0: 4, 1: 4, 2: 4}
    assert found[0] == [9_548, 9_048, 8_548, NOT_ALL]


def test_it_is_told_when_a_chain_is_not_followed_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_files(tmp_path, IndexLayout(slots=1, items=500), COUNT, keys=5)
    reader = IndexReader(tmp_path, layout=IndexLayout(slots=1, items=500))
    whole = found_by(reader, keys_of("none"))
    monkeypatch.setattr(index_lookup, "STEPS_MAX", COUNT - 1)
    cut = found_by(reader, keys_of("none"))

    assert (whole, cut) == ({}, {0: [NOT_ALL]})


def test_a_chain_that_leads_to_a_newer_item_ends_there(tmp_path: Path) -> None:
    layout = IndexLayout(slots=1, items=500)
    (path,) = put_files(tmp_path, layout, 10, keys=1)
    page = bytearray(path.read_bytes())
    at = layout.item_at(5) + 16
    page[at : at + 4] = (9).to_bytes(4, "big")
    path.write_bytes(page)
    found = found_by(IndexReader(tmp_path, layout=layout), keys_of("key0"))

    assert get_header(memoryview(page), layout).index_count == 11
    assert found == {0: [948, 848, 748, 648, 548, 448, NOT_ALL]}


def test_an_index_without_files_has_nothing(tmp_path: Path) -> None:
    assert found_by(IndexReader(tmp_path, layout=LAYOUT), keys_of("key0")) == {}
