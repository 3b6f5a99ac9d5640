"""Reading one queue: its bounds as the log grows, its units, and offsets by time."""

from __future__ import annotations

import os
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.doctor.disk_checks import mount_of
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.model.errors import CorruptLogError
from ledgermq.store.files.mapped_files import VanishedError
from ledgermq.store.queues.queue_reader import QueueReader
from tests.plain_codecs import PREFILL, QueueUnit, put_unit

UNITS = 5
FILE_SIZE = UNITS * UNIT_SIZE
MESSAGE_SIZE = 100
FAR = 2**40


def unit_of(number: int) -> QueueUnit:
    return QueueUnit(number * MESSAGE_SIZE, MESSAGE_SIZE, number)


def put_queue(directory: Path, end: int, *, first: int = 0) -> None:
    """A queue of messages ``first`` to ``end``; message n is the n-th hundred bytes of the log."""
    directory.mkdir(exist_ok=True)
    begin = first - first % UNITS
    for number in range(begin, end):
        path = directory / f"{number // UNITS * FILE_SIZE:020d}"
        if not path.exists():
            path.write_bytes(bytes(FILE_SIZE))
        page = bytearray(path.read_bytes())
        put_unit(memoryview(page), number % UNITS, unit_of(number) if number >= first else PREFILL)
        with path.open("r+b") as file:
            os.pwrite(file.fileno(), page, 0)


@pytest.mark.parametrize("end", [0, 1, 4, 5, 6, 10, 13])
def test_bounds_are_those_of_the_units(tmp_path: Path, end: int) -> None:
    put_queue(tmp_path / "q", end)

    assert QueueReader(tmp_path / "q", file_size=FILE_SIZE).bounds(FAR) == (0, end)


MEMORY = Path("/dev/shm")


@pytest.mark.skipif(
    not MEMORY.is_dir() or mount_of(MEMORY).system != "tmpfs", reason="no tmpfs at /dev/shm"
)
def test_a_look_behind_the_end_takes_no_space_of_a_tmpfs() -> None:
    per_file = 1_000
    ends = [0, 1, 203, 204, 205, 409, 614, 999, 1_000, 1_001, 1_400]
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="lmq-") as folder:
        queue = Path(folder)
        reader = QueueReader(queue, file_size=per_file * UNIT_SIZE)
        page = bytearray(UNIT_SIZE)
        for before, end in pairwise(ends):
            for number in range(before, end):
                put_unit(memoryview(page), 0, unit_of(number))
                path = queue / f"{number // per_file * per_file * UNIT_SIZE:020d}"
                with path.open("r+b" if path.exists() else "w+b") as file:
                    file.truncate(per_file * UNIT_SIZE)
                    os.pwrite(file.fileno(), page, number % per_file * UNIT_SIZE)
            taken = [path.stat().st_blocks for path in sorted(queue.iterdir())]
            bounds = reader.bounds(FAR)
            fresh = QueueReader(queue, file_size=None).bounds(FAR)

            assert bounds == fresh == (0, end)
            assert [path.stat().st_blocks for path in sorted(queue.iterdir())] == taken


@pytest.mark.parametrize("log_messages", [0, 1, 4, 5, 6, 9, 12, 13, 14])
def test_units_behind_the_end_of_the_log_are_not_visible(tmp_path: Path, log_messages: int) -> None:
    put_queue(tmp_path / "q", 13)
    queue = QueueReader(tmp_path / "q", file_size=None)

    assert queue.bounds(log_messages * MESSAGE_SIZE) == (0, min(log_messages, 13))


def test_a_queue_that_is_not_there_yet_is_empty_and_then_found(tmp_path: Path) -> None:
    queue = QueueReader(tmp_path / "q", file_size=FILE_SIZE)

    assert queue.bounds(FAR) == (0, 0)
    assert len(queue.units(0, 9)) == 0

    put_queue(tmp_path / "q", 7)

    assert queue.bounds(FAR) == (0, 7)


def test_prefill_units_are_below_the_first_message(tmp_path: Path) -> None:
    put_queue(tmp_path / "q", 14, first=8)
    queue = QueueReader(tmp_path / "q", file_size=FILE_SIZE)

    assert queue.bounds(FAR) == (8, 14)
    assert list(queue.units(8, 1)["tags"]) == [8]


def test_units_of_messages_that_the_log_lost_are_below_the_first_message(tmp_path: Path) -> None:
    put_queue(tmp_path / "q", 13)
    queue = QueueReader(tmp_path / "q", file_size=FILE_SIZE)

    assert queue.bounds(FAR, log_first=3 * MESSAGE_SIZE) == (3, 13)
    assert queue.bounds(FAR, log_first=7 * MESSAGE_SIZE + 1) == (8, 13)
    assert queue.bounds(FAR, log_first=99 * MESSAGE_SIZE) == (13, 13)


@given(st.lists(st.integers(min_value=0, max_value=4), min_size=1, max_size=8))
def test_bounds_follow_a_growing_queue(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int]
) -> None:
    directory = tmp_path_factory.mktemp("queue") / "q"
    queue = QueueReader(directory, file_size=FILE_SIZE)
    end = 0
    for step in steps:
        put_queue(directory, end + step, first=0)
        end += step

        assert queue.bounds(FAR) == (0, end)
        assert list(queue.units(0, end)["position"]) == [n * MESSAGE_SIZE for n in range(end)]


def test_deleted_files_raise_the_first_offset(tmp_path: Path) -> None:
    put_queue(tmp_path / "q", 13)
    queue = QueueReader(tmp_path / "q", file_size=FILE_SIZE)
    queue.bounds(FAR)
    (tmp_path / "q" / f"{0:020d}").unlink()

    assert queue.refresh()
    assert queue.bounds(FAR) == (UNITS, 13)


def test_after_a_cut_other_units_are_seen(tmp_path: Path) -> None:
    put_queue(tmp_path / "q", 9)
    queue = QueueReader(tmp_path / "q", file_size=FILE_SIZE)
    queue.bounds(FAR)
    path = tmp_path / "q" / f"{FILE_SIZE:020d}"
    with path.open("r+b") as file:
        os.pwrite(file.fileno(), bytes(FILE_SIZE - UNIT_SIZE), UNIT_SIZE)
    queue.forget()

    assert queue.bounds(FAR) == (0, 6)


def test_a_lower_end_of_the_log_hides_units_again(tmp_path: Path) -> None:
    put_queue(tmp_path / "q", 9)
    queue = QueueReader(tmp_path / "q", file_size=FILE_SIZE)
    queue.bounds(FAR)

    assert queue.bounds(4 * MESSAGE_SIZE) == (0, 4)


def test_units_are_joined_across_files_and_end_with_the_queue(tmp_path: Path) -> None:
    put_queue(tmp_path / "q", 13)
    queue = QueueReader(tmp_path / "q", file_size=FILE_SIZE)
    queue.bounds(FAR)

    assert list(queue.units(3, 9)["tags"]) == list(range(3, 12))
    assert list(queue.units(11, 100)["tags"]) == [11, 12]
    assert list(queue.units(13, 1)["tags"]) == []


def test_units_of_one_file_are_not_copied(tmp_path: Path) -> None:
    put_queue(tmp_path / "q", 5)
    queue = QueueReader(tmp_path / "q", file_size=FILE_SIZE)
    queue.bounds(FAR)
    units = queue.units(1, 3)
    queue.close()

    assert not units.flags.owndata
    assert list(units["tags"]) == [1, 2, 3]


@pytest.mark.parametrize("size", [1, FILE_SIZE - 1, FILE_SIZE + UNIT_SIZE])
def test_a_file_of_another_size_is_refused(tmp_path: Path, size: int) -> None:
    put_queue(tmp_path / "q", 3)
    path = tmp_path / "q" / f"{0:020d}"
    os.truncate(path, size)
    with pytest.raises(CorruptLogError) as caught:
        QueueReader(tmp_path / "q", file_size=FILE_SIZE)

    assert caught.value.details == {"file": str(path), "size": size, "expected": FILE_SIZE}


def test_a_size_that_is_read_off_must_hold_whole_units(tmp_path: Path) -> None:
    put_queue(tmp_path / "q", 3)
    path = tmp_path / "q" / f"{0:020d}"
    os.truncate(path, FILE_SIZE - 1)
    with pytest.raises(CorruptLogError) as caught:
        QueueReader(tmp_path / "q", file_size=None)

    assert caught.value.details["file"] == str(path)
    assert caught.value.details["size"] == FILE_SIZE - 1


def test_what_is_no_file_of_a_queue_is_passed(tmp_path: Path) -> None:
    put_queue(tmp_path / "q", 3)
    before = QueueReader(tmp_path / "q", file_size=FILE_SIZE).bounds(10**9, log_first=0)
    (tmp_path / "q" / "copy.bak").touch()

    assert QueueReader(tmp_path / "q", file_size=FILE_SIZE).bounds(10**9, log_first=0) == before


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (0, 0),  # before the first
        (1_000, 0),  # exactly
        (1_004, 0),  # nearer to the older one
        (1_005, 0),  # as near to both
        (1_006, 1),  # nearer to the newer one
        (1_020, 2),
        (9_999, 4),  # behind the last
    ],
)
def test_a_time_finds_the_nearest_message(tmp_path: Path, timestamp: int, expected: int) -> None:
    put_queue(tmp_path / "q", 5)
    queue = QueueReader(tmp_path / "q", file_size=FILE_SIZE)
    queue.bounds(FAR)
    found = queue.offset_by_time(timestamp, lambda at, _: 1_000 + at // MESSAGE_SIZE * 10, 0)

    assert found == expected


def found_by_time(folder: Path, changed_ms: list[int], times: list[int]) -> list[int]:
    """What is found in a queue of 13 messages, 10 ms apart from 1,000 on, five to a file."""
    put_queue(folder, 13)
    for number, changed in enumerate(changed_ms):
        changed_ns = changed * 1_000_000
        os.utime(folder / f"{number * FILE_SIZE:020d}", ns=(changed_ns, changed_ns))
    queue = QueueReader(folder, file_size=FILE_SIZE)
    queue.bounds(FAR)
    return [
        queue.offset_by_time(time, lambda at, _: 1_000 + at // MESSAGE_SIZE * 10, 0)
        for time in times
    ]


def test_a_time_is_looked_for_in_the_first_file_changed_since(tmp_path: Path) -> None:
    found = found_by_time(
        tmp_path / "q", [1_045, 1_095, 1_145], [1_044, 1_046, 1_090, 1_094, 1_130, 5_000]
    )

    assert found == [4, 5, 9, 9, 12, 12]


@pytest.mark.parametrize(
    "changed_ms",
    [
        [9_000, 9_000, 9_000],  # all behind the last message, as after a rebuild
        [9_000, 9_000, 1],  # the last one by another clock
        [1, 1, 1],
    ],
)
def test_a_time_is_found_whenever_the_files_were_changed(
    tmp_path: Path, changed_ms: list[int]
) -> None:
    times = [900, 1_000, 1_044, 1_050, 1_052, 1_090, 1_098, 1_100, 1_130, 5_000]
    found = found_by_time(tmp_path / "q", changed_ms, times)

    assert found == [0, 0, 4, 5, 5, 9, 10, 10, 12, 12]


def test_units_older_than_the_log_count_as_too_old(tmp_path: Path) -> None:
    put_queue(tmp_path / "q", 5)
    queue = QueueReader(tmp_path / "q", file_size=FILE_SIZE)
    queue.bounds(FAR)
    found = queue.offset_by_time(0, lambda at, _: at, 2 * MESSAGE_SIZE)

    assert found == 2


def test_a_message_that_cannot_be_read_makes_the_offset_of_a_time_0(tmp_path: Path) -> None:
    put_queue(tmp_path / "q", 5)
    queue = QueueReader(tmp_path / "q", file_size=FILE_SIZE)
    queue.bounds(FAR)

    assert queue.offset_by_time(1_000, lambda _at, _size: -1, 0) == 0


def test_files_that_are_deleted_while_they_are_looked_at_are_not_missed(tmp_path: Path) -> None:
    put_queue(tmp_path / "q", 13)
    known = QueueReader(tmp_path / "q", file_size=FILE_SIZE)
    bounds = known.bounds(FAR)
    fresh = QueueReader(tmp_path / "q", file_size=FILE_SIZE)
    (tmp_path / "q" / f"{0:020d}").unlink()

    assert bounds == (0, 13)
    # What it has mapped it can read until it looks.
    assert known.bounds(FAR, log_first=5 * MESSAGE_SIZE) == (5, 13)
    assert fresh.bounds(FAR, log_first=3 * MESSAGE_SIZE) == (5, 13)
    with pytest.raises(VanishedError):
        QueueReader.units(queue_without_maps(tmp_path / "q"), 5, 9)


def queue_without_maps(directory: Path) -> QueueReader:
    """A reader that knows its bounds, and whose first file was deleted then."""
    queue = QueueReader(directory, file_size=FILE_SIZE)
    queue.bounds(FAR)
    queue.files.close()
    (directory / f"{FILE_SIZE:020d}").unlink()
    return queue


def test_a_queue_whose_folder_was_emptied_is_empty(tmp_path: Path) -> None:
    put_queue(tmp_path / "q", 13)
    queue = QueueReader(tmp_path / "q", file_size=FILE_SIZE)
    queue.bounds(FAR)
    for path in (tmp_path / "q").iterdir():
        path.unlink()
    queue.refresh()

    assert queue.bounds(FAR) == (0, 0)


@pytest.mark.parametrize(("offset", "expected"), [(0, 5), (4, 5), (5, 10), (12, 15)])
def test_the_next_file_begins_where_java_rolls_to(
    tmp_path: Path, offset: int, expected: int
) -> None:
    put_queue(tmp_path / "q", 13)

    assert QueueReader(tmp_path / "q", file_size=None).next_file(offset) == expected
