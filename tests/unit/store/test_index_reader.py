"""Key queries over several index files, and files whose geometry nobody told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.formats import index_file
from ledgermq.formats.index_file import IndexLayout, fresh_header, get_header, put_header
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.store.index.index_reader import IndexReader
from tests.plain_codecs import put_key

LAYOUT = IndexLayout(slots=7, items=12)
SECOND = 1_000


def put_files(
    directory: Path,
    layout: IndexLayout,
    count: int,
    *,
    keys: int = 5,
    second: Callable[[int], int] = lambda number: number + 1,
) -> list[Path]:
    """Index files with ``count`` messages, message n at n * 100 + 48, stored at ``second(n)``."""
    directory.mkdir(exist_ok=True)
    paths: list[Path] = []
    page = bytearray()
    for number in range(count):
        put = bool(page) and put_key(
            memoryview(page),
            layout,
            f"topic#key{number % keys}",
            physical_offset=number * 100 + 48,
            store_timestamp=second(number) * SECOND,
        )
        if not put:
            previous = get_header(memoryview(page), layout) if page else None
            page = bytearray(layout.file_size)
            put_header(memoryview(page), fresh_header(previous))
            paths.append(directory / f"{20260101000000000 + len(paths)}")
            put_key(
                memoryview(page),
                layout,
                f"topic#key{number % keys}",
                physical_offset=number * 100 + 48,
                store_timestamp=second(number) * SECOND,
            )
        paths[-1].write_bytes(page)
    return paths


@pytest.mark.parametrize(
    "layout",
    [
        LAYOUT,
        IndexLayout(slots=50, items=12),
        IndexLayout(slots=11, items=3),
        IndexLayout(slots=1, items=60),
    ],
    ids=lambda layout: f"{layout.slots}-{layout.items}",
)
def test_the_geometry_is_found_in_the_files(tmp_path: Path, layout: IndexLayout) -> None:
    put_files(tmp_path / "index", layout, 30)

    assert IndexReader(tmp_path / "index").layout == layout


def test_the_default_size_has_the_default_geometry(tmp_path: Path) -> None:
    (tmp_path / "20260101000000000").touch()
    with (tmp_path / "20260101000000000").open("r+b") as file:
        file.truncate(420_000_040)

    assert IndexReader(tmp_path).layout == IndexLayout(slots=5_000_000, items=20_000_000)


def test_files_without_a_key_answer_nothing(tmp_path: Path) -> None:
    (tmp_path / "20260101000000000").write_bytes(bytes(LAYOUT.file_size))
    index = IndexReader(tmp_path)

    assert index.layout is None
    assert index.query("topic", "key0") == []


def test_files_that_fit_no_geometry_are_refused(tmp_path: Path) -> None:
    (path,) = put_files(tmp_path / "index", LAYOUT, 8)
    content = bytearray(path.read_bytes())
    content[24:32] = b"\x01" * 8
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        IndexReader(tmp_path / "index")

    assert caught.value.details["file"] == str(path)
    assert caught.value.details["setting"] == "store.max_hash_slot_num"


def test_a_key_is_found_in_all_files(tmp_path: Path) -> None:
    put_files(tmp_path / "index", LAYOUT, 30)
    index = IndexReader(tmp_path / "index")

    assert index.query("topic", "key2") == [number * 100 + 48 for number in range(2, 30, 5)]
    assert index.query("topic", "other") == []


def test_the_newest_are_found_when_there_are_more_than_wanted(tmp_path: Path) -> None:
    put_files(tmp_path / "index", LAYOUT, 30)
    index = IndexReader(tmp_path / "index")

    assert index.query("topic", "key2", count_max=2) == [22 * 100 + 48, 27 * 100 + 48]


def test_times_bound_what_is_found(tmp_path: Path) -> None:
    put_files(tmp_path / "index", LAYOUT, 30)
    index = IndexReader(tmp_path / "index")
    found = index.query("topic", "key3", begin_timestamp=14 * SECOND, end_timestamp=24 * SECOND)

    assert found == [number * 100 + 48 for number in (13, 18, 23)]


def test_the_first_message_of_a_later_file_counts_as_later_than_it_was(tmp_path: Path) -> None:
    # Message 22 begins the third file; as in Java, its seconds are counted from the end of the
    # second one and added to the begin of its own.
    put_files(tmp_path / "index", LAYOUT, 30)
    index = IndexReader(tmp_path / "index")

    assert 22 * 100 + 48 not in index.query("topic", "key2", end_timestamp=23 * SECOND)
    assert 22 * 100 + 48 in index.query("topic", "key2", end_timestamp=24 * SECOND)


@pytest.mark.parametrize("items", [12, 40])
@pytest.mark.parametrize("back_s", [40, 3_600])
def test_by_their_times_all_are_found_around_a_clock_that_was_put_back(
    tmp_path: Path, items: int, back_s: int
) -> None:
    """In one file or over several; those of other times that come with them are for who asks."""
    times = [10_000 + number - (back_s if number >= 17 else 0) for number in range(30)]
    layout = IndexLayout(slots=7, items=items)
    put_files(tmp_path / "index", layout, 30, second=times.__getitem__)
    index = IndexReader(tmp_path / "index")
    missed = []
    for begin in sorted({*times, 0}):
        for end in sorted({*times, 20_000}):
            found = index.query(
                "topic", "key2",
                begin_timestamp=(begin - 1) * SECOND + 1, end_timestamp=end * SECOND,
                clock_step_ms=3_600 * SECOND,
            )  # fmt: skip
            wanted = {n * 100 + 48 for n in range(2, 30, 5) if begin <= times[n] <= end}
            if not wanted <= {*found}:
                missed.append((begin, end, found))

    assert missed == []
    late = times[27] * SECOND
    # As RocketMQ looks, the last one is of the time of its file's first message, or not in time.
    assert 27 * 100 + 48 in index.query("topic", "key2", end_timestamp=late, clock_step_ms=late)


def test_a_key_of_many_messages_is_not_gone_through_for_a_clock_that_may_have_been_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "PASSED_MAX", 20)
    looked: list[int] = []
    get_item = index_file.get_item

    def counted(page: memoryview, layout: IndexLayout, number: int) -> index_file.IndexItem:
        looked.append(number)
        return get_item(page, layout, number)

    put_files(tmp_path / "index", IndexLayout(slots=7, items=500), 1_200, keys=1)
    index = IndexReader(tmp_path / "index")
    monkeypatch.setattr(index_file, "get_item", counted)
    found = index.query(
        "topic", "key0",
        begin_timestamp=100 * SECOND, end_timestamp=110 * SECOND, clock_step_ms=3_600 * SECOND,
    )  # fmt: skip

    assert {n * 100 + 48 for n in range(99, 110)} <= {*found}
    # In the oldest file up to there, and so many more; in each of the others so many.
    assert len(looked) < 500 + 4 * 20


def test_new_files_are_found_later(tmp_path: Path) -> None:
    index = IndexReader(tmp_path / "index")

    assert index.query("topic", "key2") == []

    put_files(tmp_path / "index", LAYOUT, 30)
    index.refresh()

    assert len(index.query("topic", "key2")) == 6


@pytest.mark.parametrize("size", [0, LAYOUT.item_at(0), LAYOUT.file_size])
def test_a_file_that_is_just_being_made_hides_nothing(tmp_path: Path, size: int) -> None:
    """Also one of RocketMQ's, which has its size before its header."""
    paths = put_files(tmp_path / "index", LAYOUT, 30)
    fresh = paths[-1].with_name(str(int(paths[-1].name) + 1))
    fresh.write_bytes(bytes(size))
    index = IndexReader(tmp_path / "index", layout=LAYOUT)

    assert index.query("topic", "key2", begin_timestamp=1) == [
        number * 100 + 48 for number in range(2, 30, 5)
    ]


def test_a_file_that_was_just_being_made_is_read_later(tmp_path: Path) -> None:
    *_, newest = put_files(tmp_path / "index", LAYOUT, 30)
    content = newest.read_bytes()
    newest.write_bytes(content[: LAYOUT.item_at(0)])
    index = IndexReader(tmp_path / "index", layout=LAYOUT)
    before = index.query("topic", "key4")
    newest.write_bytes(content)
    index.refresh()

    assert 29 * 100 + 48 not in before
    assert 29 * 100 + 48 in index.query("topic", "key4")


def test_what_is_no_file_of_the_index_is_passed(tmp_path: Path) -> None:
    put_files(tmp_path / "index", LAYOUT, 3)
    before = IndexReader(tmp_path / "index", layout=LAYOUT).query("topic", "key1")
    (tmp_path / "index" / "20260101000000000.bak").touch()

    assert IndexReader(tmp_path / "index", layout=LAYOUT).query("topic", "key1") == before


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    paths = put_files(tmp_path / "index", LAYOUT, 30)
    paths[1].write_bytes(paths[1].read_bytes()[:-1])
    with pytest.raises(CorruptLogError) as caught:
        IndexReader(tmp_path / "index", layout=LAYOUT)

    assert caught.value.details["file"] == str(paths[1])
    assert caught.value.details["value"] == LAYOUT.file_size - 1
    assert caught.value.details["expected"] == LAYOUT.file_size
