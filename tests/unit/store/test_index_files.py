"""Rolling over, cutting and repairing of Index files; the items' bytes are the kernel's tests."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import numpy as np
import pytest

from ledgermq.formats.index_file import (
    HEADER_SIZE,
    IndexHeader,
    IndexLayout,
    fresh_header,
    get_header,
    put_header,
    query_key,
)
from ledgermq.formats.java_hash import index_key_hash
from ledgermq.model.errors import ConfigError, DiskFullError, StorageError
from ledgermq.store.index import index_files
from ledgermq.store.index.index_files import IndexFiles, NewKeys
from tests.plain_codecs import put_key

LAYOUT = IndexLayout(slots=5, items=8)
CLOCK_MS = 1_600_000_000_123

Put = tuple[str, int, int]


def open_index(root: Path, layout: IndexLayout = LAYOUT) -> IndexFiles:
    return IndexFiles(root, layout, aside=root.parent / "aside", clock_ms=lambda: CLOCK_MS)


def some_keys(count: int, seed: int = 1) -> list[Put]:
    """Keys with the position and the store time of their messages, up to two a message."""
    random_ = random.Random(seed)
    keys: list[Put] = []
    position, time = 0, 1_000_000
    while len(keys) < count:
        for _ in range(random_.randint(1, 2)):
            keys.append((f"T#{random_.randrange(9)}", position, time))
        position += 100
        time += random_.randrange(2_500)
    return keys[:count]


def put(index: IndexFiles, keys: list[Put], *, more_rows: int = 0) -> int:
    messages = sorted({(position, time) for _, position, time in keys})
    messages += [(messages[-1][0] + n + 1, messages[-1][1]) for n in range(more_rows)]
    row_of = {position: row for row, (position, _) in enumerate(messages)}
    block = NewKeys(
        np.array([index_key_hash(key) for key, _, _ in keys], np.int32),
        np.array([row_of[position] for _, position, _ in keys], np.int32),
        np.array([position for position, _ in messages], np.int64),
        np.array([time for _, time in messages], np.int64),
    )
    return index.put(block, range(len(messages)))


def contents(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(root.iterdir())]


def expected(keys: list[Put], layout: IndexLayout = LAYOUT) -> list[bytes]:
    """The files that putting one key after the other makes."""
    files: list[bytearray] = []
    header: IndexHeader | None = None
    for key, position, time in keys:
        while True:
            if files and put_key(
                memoryview(files[-1]), layout, key, physical_offset=position, store_timestamp=time
            ):
                break
            if files:
                header = get_header(memoryview(files[-1]), layout)
            files.append(bytearray(layout.file_size))
            put_header(memoryview(files[-1]), fresh_header(header))
    return [bytes(file) for file in files]


@pytest.mark.parametrize("step", [1, 3, 100])
def test_files_are_those_of_one_key_after_the_other(tmp_path: Path, step: int) -> None:
    keys = some_keys(40)
    index = open_index(tmp_path)
    blocks: list[list[Put]] = []
    for key in keys:
        # A message's keys are put together.
        if blocks and (len(blocks[-1]) < step or blocks[-1][-1][1] == key[1]):
            blocks[-1].append(key)
        else:
            blocks.append([key])
    counts = [put(index, block) for block in blocks]
    index.close()

    assert sum(counts) == 40
    assert contents(tmp_path) == expected(keys)


def test_a_file_is_named_by_the_local_time_of_its_creation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = open_index(tmp_path)
    put(index, some_keys(20))
    names = index.file_names
    index.close()

    assert names[0] == index_files.index_file_name(CLOCK_MS)
    assert names[0].endswith("123") and len(names[0]) == 17
    # Three within a millisecond: the names must differ, and ascend.
    assert [int(name) - int(names[0]) for name in names] == [0, 1, 2]


def test_the_next_file_waits_for_what_follows_a_full_one(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    put(index, some_keys(7))
    full = len(index.file_names)
    put(index, [("T#x", 10_000, 2_000_000)])
    index.close()

    assert (full, len(index.file_names)) == (1, 2)


def test_a_message_without_keys_follows_too(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    put(index, some_keys(7), more_rows=1)
    end = index.end_position
    index.close()
    again = open_index(tmp_path)

    assert len(again.file_names) == 2
    assert again.end_position == end == some_keys(7)[-1][1]
    again.close()


def test_keys_that_are_there_are_passed(tmp_path: Path) -> None:
    keys = [(f"T#{n}", 100 * n, 1_000_000 + n) for n in range(6)]
    index = open_index(tmp_path)
    put(index, keys[:4])
    count = put(index, keys)
    index.close()

    assert count == 2
    assert contents(tmp_path) == expected(keys)


@pytest.mark.parametrize("kept", [0, 1, 6, 7, 8, 20, 29])
@pytest.mark.parametrize("repair", [False, True])
def test_a_cut_index_goes_on_as_if_nothing_had_been_there(
    tmp_path: Path, kept: int, repair: bool
) -> None:
    keys = [(f"T#{n % 9}", 100 * n, 1_000_000 + 700 * n) for n in range(30)]
    index = open_index(tmp_path)
    put(index, keys)
    index.truncate_beyond(100 * kept, repair=repair)
    end = index.end_position
    count = put(index, keys)
    index.close()

    assert end == 100 * (kept - 1) if kept else end == -1
    assert count == 30 - kept
    assert contents(tmp_path) == expected(keys)


def test_nothing_is_cut_when_nothing_lies_beyond(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    put(index, some_keys(10))
    before = contents(tmp_path)
    index.truncate_beyond(index.end_position + 1)
    index.close()

    assert contents(tmp_path) == before


def test_slots_that_a_power_failure_garbled_are_computed_again(tmp_path: Path) -> None:
    keys = [(f"T#{n}", 100 * n, 1_000_000 + n) for n in range(6)]
    index = open_index(tmp_path)
    put(index, keys)
    index.close()
    (path,) = tmp_path.iterdir()
    page = bytearray(path.read_bytes())
    page[LAYOUT.slot_at(0) : LAYOUT.item_at(0)] = b"\0\0\0\7" * LAYOUT.slots
    path.write_bytes(page)
    index = open_index(tmp_path)
    index.truncate_beyond(10_000, repair=True)
    index.close()
    page = bytearray(path.read_bytes())

    assert all(position in query_key(page, LAYOUT, key) for key, position, _ in keys)
    assert get_header(memoryview(page), LAYOUT).slot_count == len(
        {index_key_hash(key) % LAYOUT.slots for key, _, _ in keys}
    )


def test_slots_of_a_large_file_are_made_and_repaired_with_signs_of_life(tmp_path: Path) -> None:
    layout = IndexLayout(slots=2_500_000, items=8)
    signs: list[int] = []
    index = IndexFiles(
        tmp_path / "index", layout, aside=tmp_path / "aside", sign_of_life=lambda: signs.append(1)
    )
    keys = some_keys(6)
    put(index, keys)
    assert len(signs) >= 9
    signs.clear()
    index.truncate_beyond(keys[-1][1] + 1, repair=True)
    index.close()

    # Ten megabytes are reserved, and written, a megabyte at a time.
    assert len(signs) >= 2 * 10
    (page,) = contents(tmp_path / "index")
    assert all(position in query_key(page, layout, key) for key, position, _ in keys)


@pytest.mark.parametrize("base", [0, 5_000])
@pytest.mark.parametrize("kept", [1, 3, 5])
def test_items_that_a_power_failure_has_lost_are_none_although_the_header_counts_them(
    tmp_path: Path, base: int, kept: int
) -> None:
    """They are zeros; what the checkpoint covers is there."""
    keys = [(f"T#{n}", base + 100 * n, 1_000_000 + n) for n in range(6)]
    index = open_index(tmp_path)
    put(index, keys)
    index.close()
    (path,) = tmp_path.iterdir()
    page = bytearray(path.read_bytes())
    page[LAYOUT.item_at(kept + 1) :] = bytes(len(page) - LAYOUT.item_at(kept + 1))
    path.write_bytes(page)
    index = open_index(tmp_path)
    index.truncate_beyond(keys[kept][1], repair=True)
    end = index.end_position
    put(index, keys[kept:])
    index.close()

    assert end == keys[kept - 1][1]
    (page,) = contents(tmp_path)
    assert all(position in query_key(page, LAYOUT, key) for key, position, _ in keys)
    assert get_header(memoryview(page), LAYOUT).index_count == len(keys) + 1


def test_a_file_of_which_a_power_failure_has_left_no_item_is_removed(tmp_path: Path) -> None:
    keys = [(f"T#{n}", 100 * n, 1_000_000 + n) for n in range(10)]
    index = open_index(tmp_path)
    put(index, keys)
    index.close()
    first, second = sorted(tmp_path.iterdir())
    page = second.read_bytes()
    second.write_bytes(page[: LAYOUT.item_at(0)] + bytes(len(page) - LAYOUT.item_at(0)))
    index = open_index(tmp_path)
    index.truncate_beyond(900, repair=True)
    end, left = index.end_position, sorted(tmp_path.iterdir())
    index.close()

    assert left == [first]
    assert end == 600


def test_old_files_are_deleted_but_never_the_newest(tmp_path: Path) -> None:
    keys = [(f"T#{n}", 100 * n, 1_000_000 + n) for n in range(20)]
    index = open_index(tmp_path)
    put(index, keys)
    one, two = index.delete_before(601), index.delete_before(10**9)
    index.close()

    assert (one, two) == (1, 1)
    assert contents(tmp_path) == expected(keys)[2:]


def test_slots_are_reserved_and_items_are_not(tmp_path: Path) -> None:
    layout = IndexLayout(slots=100_000, items=1_000_000)
    index = open_index(tmp_path, layout)
    put(index, some_keys(3))
    index.close()
    (path,) = tmp_path.iterdir()
    status = path.stat()

    assert status.st_size == 40 + 400_000 + 20_000_000
    assert 400_040 <= status.st_blocks * 512 < 2_000_000


def test_a_file_that_has_its_size_has_its_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looks up keys at that moment would take it for one that is older than all."""
    seen: list[bytes] = []
    give_size = os.ftruncate

    def looked_at(fd: int, size: int) -> None:
        give_size(fd, size)
        seen.append(os.pread(fd, HEADER_SIZE, 0))

    index = open_index(tmp_path)
    monkeypatch.setattr(index_files.os, "ftruncate", looked_at)
    put(index, some_keys(20))
    headers = [get_header(memoryview(content), LAYOUT) for content in contents(tmp_path)]

    assert len(seen) == len(headers) > 2
    for fresh, before in zip(seen[1:], headers, strict=False):
        page = fresh.ljust(LAYOUT.file_size, b"\0")
        assert get_header(memoryview(page), LAYOUT) == fresh_header(before)


def test_a_full_disk_leaves_no_file_without_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    index = open_index(tmp_path)
    monkeypatch.setattr(index_files.os, "posix_fallocate", full)
    with pytest.raises(StorageError) as caught:
        put(index, some_keys(3))

    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_oldest_file_is_no_reason_to_end_when_old_files_are_deleted(
    tmp_path: Path,
) -> None:
    index = open_index(tmp_path / "index")
    put(index, some_keys(30))
    names = index.file_names
    with (tmp_path / "index" / names[0]).open("r+b") as file:
        file.seek(36)
        file.write(b"\x7f")

    assert index.delete_before(2**40) == 0
    assert index.file_names == names

    index.drop_from(names[0])

    assert index.file_names == ()


@pytest.mark.parametrize("refused", ["the next file", "the next keys"])
def test_a_message_that_a_full_disk_let_in_by_half_is_put_again_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    keys = [(f"T#k{number}", 100 * number, 1_000_000 + number) for number in range(6)]
    keys += [("T#a", 600, 1_000_007), ("T#b", 600, 1_000_007)]
    if refused == "the next keys":
        # Two keys of one message are put by two writes.
        monkeypatch.setattr(index_files, "KEYS_AT_ONCE", 7)
    layout = IndexLayout(slots=5, items=8 if refused == "the next file" else 20)
    whole = open_index(tmp_path / "whole", layout)
    put(whole, keys)
    calls = 0

    def full_at_the_second(error: OSError) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise error

    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    allocate, write = os.posix_fallocate, index_files.write_fully

    def fallocate(fd: int, offset: int, size: int) -> None:
        if refused == "the next file":
            full_at_the_second(error)
        allocate(fd, offset, size)

    def write_keys(fd: int, data: memoryview, offset: int, path: str) -> None:
        if refused == "the next keys":
            full_at_the_second(DiskFullError("write refused", errno=errno.ENOSPC))
        write(fd, data, offset, path)

    monkeypatch.setattr(index_files.os, "posix_fallocate", fallocate)
    monkeypatch.setattr(index_files, "write_fully", write_keys)
    index = open_index(tmp_path / "index", layout)
    with pytest.raises(DiskFullError):
        put(index, keys)
    put(index, keys)

    assert calls > 2
    assert contents(tmp_path / "index") == contents(tmp_path / "whole")


def test_a_file_of_another_size_is_kept_aside(tmp_path: Path) -> None:
    assert LAYOUT.file_size == 220
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20261121040211729").write_bytes(bytes(219))
    index = open_index(tmp_path / "index")

    assert (index.lost, index.file_names) == (True, ())
    assert [path.stat().st_size for path in (tmp_path / "aside").iterdir()] == [219]


def test_what_is_no_file_of_the_index_is_left_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "index"
    (root / "lost+found").mkdir(parents=True)
    for name in (".DS_Store", "2026112104021172~", "notes.txt"):
        (root / name).write_bytes(bytes(220))
    index = open_index(root)

    assert (index.lost, index.file_names) == (False, ())
    assert len(list(root.iterdir())) == 4 and not (tmp_path / "aside").exists()
    (told,) = caplog.messages
    assert "left where they are" in told and "and 1 more" in told


def test_all_files_of_another_size_are_a_setting_that_was_changed(tmp_path: Path) -> None:
    for name in ("20261121040211729", "20261121040211730"):
        (tmp_path / name).write_bytes(bytes(219))

    with pytest.raises(ConfigError, match="max_hash_slot_num"):
        open_index(tmp_path)


@pytest.mark.parametrize("harm", ["short", "counts too much"])
def test_files_behind_a_broken_one_are_kept_aside_with_it(tmp_path: Path, harm: str) -> None:
    root = tmp_path / "index"
    index = open_index(root)
    put(index, some_keys(20))
    names = index.file_names
    index.close()
    assert len(names) > 2
    broken = 1 if harm == "short" else len(names) - 1
    with (root / names[broken]).open("r+b") as file:
        if harm == "short":
            file.truncate(100)
        else:
            file.seek(36)
            file.write(b"\x7f\xff\xff\xff")
    again = open_index(root)
    put(again, some_keys(20))
    again.close()

    assert again.lost
    assert len(list((tmp_path / "aside").iterdir())) == len(names) - broken
    assert len(again.file_names) == len(names)


@pytest.mark.parametrize("size", [0, LAYOUT.item_at(0)])
def test_a_file_that_a_crash_left_unfinished_is_removed(tmp_path: Path, size: int) -> None:
    unfinished = tmp_path / "20261121040211729"
    unfinished.write_bytes(bytes(size))
    index = open_index(tmp_path)
    put(index, [("T#1", 100, 1_000_000)])

    assert not unfinished.exists()
    assert len(contents(tmp_path)) == 1


def test_a_folder_that_cannot_be_made_is_an_error_of_the_disk(tmp_path: Path) -> None:
    """As where the first key of a store comes to a full disk; a bare one would end the node."""
    index = IndexFiles(tmp_path / "below" / "index", LAYOUT, aside=tmp_path / "aside")
    (tmp_path / "below").write_bytes(b"")
    with pytest.raises(StorageError, match="folder not made"):
        put(index, some_keys(1))
    index.close()
