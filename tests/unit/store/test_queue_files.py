"""Rules by which units are put into ConsumeQueues, and where a queue is found to end."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ledgermq.formats.arrays import UNIT, Units
from ledgermq.model.errors import ConfigError, StorageError
from ledgermq.store.files import descriptor_cache
from ledgermq.store.queues.queue_end import PREFILL_SIZE
from ledgermq.store.queues.queue_files import FILE_SIZE, QueueFiles, found_file_size

TOPIC = b"orders"
UNITS_PER_FILE = 5


def open_queues(root: Path, **fields: Any) -> QueueFiles:
    aside = root.parent / "aside"
    return QueueFiles(root, **{"file_size": UNITS_PER_FILE * 20, "aside": aside, **fields})


def units_at(*positions: int) -> Units:
    units = np.zeros(len(positions), UNIT)
    units["position"] = positions
    units["size"] = 10
    units["tags"] = np.array(positions) + 1
    return units


def put(queues: QueueFiles, offsets: list[int], positions: list[int], queue_id: int = 0) -> int:
    return queues.append(TOPIC, queue_id, np.array(offsets, np.int64), units_at(*positions))


def stored(root: Path, queue_id: int = 0) -> dict[int, list[tuple[int, int]]]:
    """Position and size of every slot, by the first byte of its file."""
    return {
        int(path.name): [
            (int(unit["position"]), int(unit["size"]))
            for unit in np.frombuffer(path.read_bytes(), UNIT)
        ]
        for path in sorted((root / "orders" / str(queue_id)).iterdir())
    }


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


NONE = (0, 0)
PREFILLED = (0, PREFILL_SIZE)


def test_a_block_goes_on_in_the_next_file(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    count = put(queues, list(range(7)), [100 * n for n in range(7)])

    assert (count, queues.end_of(TOPIC, 0), queues.log_end) == (7, 7, 610)
    assert stored(tmp_path) == {
        0: [(100 * n, 10) for n in range(5)],
        100: [(500, 10), (600, 10), NONE, NONE, NONE],
    }


def test_a_file_has_its_full_size_from_the_start(tmp_path: Path) -> None:
    queues = QueueFiles(tmp_path, file_size=FILE_SIZE, aside=tmp_path / "aside")
    put(queues, [0], [0])
    (path,) = (tmp_path / "orders" / "0").iterdir()

    assert path.stat().st_size == 6_000_000
    assert found_file_size(tmp_path) == 6_000_000


def test_a_size_is_rounded_up_to_whole_units(tmp_path: Path) -> None:
    assert open_queues(tmp_path, file_size=81).file_size == 100


def test_a_size_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="mapped_file_size_consume_queue"):
        open_queues(tmp_path, file_size=0)


def test_a_queue_that_does_not_begin_with_message_0_is_prefilled(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    put(queues, [7, 8], [1_000, 2_000])

    assert stored(tmp_path) == {100: [PREFILLED, PREFILLED, (1_000, 10), (2_000, 10), NONE]}
    assert queues.end_of(TOPIC, 0) == 9


def test_units_that_are_there_are_not_put_again(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    put(queues, [0, 1], [0, 100])
    count = put(queues, [0, 1, 2], [0, 100, 200])

    assert count == 1
    assert stored(tmp_path) == {0: [(0, 10), (100, 10), (200, 10), NONE, NONE]}


def test_a_queue_offset_that_was_given_twice_is_put_once(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    put(queues, [0, 1, 1, 2], [0, 100, 200, 300])

    assert stored(tmp_path) == {0: [(0, 10), (100, 10), (300, 10), NONE, NONE]}
    assert queues.gaps == 0


def test_a_unit_behind_a_gap_is_put_at_the_end_and_counted(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    put(queues, [0, 1], [0, 100])
    put(queues, [5], [200])

    assert stored(tmp_path) == {0: [(0, 10), (100, 10), (200, 10), NONE, NONE]}
    assert (queues.gaps, queues.end_of(TOPIC, 0)) == (1, 3)


def test_the_number_0_is_never_compared(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    put(queues, [0, 1], [0, 100])
    put(queues, [0], [200])

    assert queues.end_of(TOPIC, 0) == 3


@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 17])
@pytest.mark.parametrize("whole_below", [0, 10**9])
def test_an_end_is_found_again(tmp_path: Path, count: int, whole_below: int) -> None:
    queues = open_queues(tmp_path)
    for number in range(count):
        put(queues, [number], [100 * number])
    queues.close()
    again = open_queues(tmp_path, whole_below=whole_below)

    assert again.end_of(TOPIC, 0) == queues.end_of(TOPIC, 0) == count
    assert again.log_end == queues.log_end


def test_a_queue_of_prefill_alone_counts_as_empty(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    put(queues, [7], [1_000])
    path = tmp_path / "orders" / "0" / f"{100:020d}"
    os.truncate(path, 40)
    os.truncate(path, 100)
    again = open_queues(tmp_path)
    empty = (again.end_of(TOPIC, 0), again.log_end)
    put(again, [8], [2_000])

    assert empty == (0, -1)
    assert stored(tmp_path) == {100: [PREFILLED, PREFILLED, PREFILLED, (2_000, 10), NONE]}


@pytest.mark.parametrize(
    ("position", "left"),
    [(0, 0), (1, 1), (100, 1), (400, 4), (500, 5), (501, 6), (1_100, 11), (9_999, 12)],
)
def test_units_beyond_a_position_are_erased(tmp_path: Path, position: int, left: int) -> None:
    queues = open_queues(tmp_path)
    put(queues, list(range(12)), [100 * n for n in range(12)])
    cut = queues.truncate_beyond(position)
    again = open_queues(tmp_path)
    slots = [slot for file in stored(tmp_path).values() for slot in file]

    assert cut == (left < 12)
    assert queues.end_of(TOPIC, 0) == again.end_of(TOPIC, 0) == left
    assert again.log_end == queues.log_end == (100 * left - 90 if left else -1)
    assert [slot for slot in slots if slot != NONE] == [(100 * n, 10) for n in range(left)]
    assert len(stored(tmp_path)) == -(-left // UNITS_PER_FILE)


def test_a_cut_back_to_the_prefill_leaves_no_queue(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    put(queues, [7, 8], [1_000, 2_000])
    queues.truncate_beyond(1_000)

    assert stored(tmp_path) == {}
    assert (queues.end_of(TOPIC, 0), queues.log_end) == (0, -1)


@pytest.mark.parametrize("position", [0, 300, 500, 700])
def test_a_rewound_queue_keeps_its_slots_and_takes_the_same_again(
    tmp_path: Path, position: int
) -> None:
    queues = open_queues(tmp_path)
    put(queues, list(range(9)), [100 * n for n in range(9)])
    before = stored(tmp_path)
    queues.rewind(position)
    rewound = (queues.end_of(TOPIC, 0), stored(tmp_path))
    count = put(queues, list(range(9)), [100 * n for n in range(9)])

    assert rewound == (position // 100, before)
    assert count == 9 - position // 100
    assert stored(tmp_path) == before


def test_what_stands_behind_a_hole_is_erased(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    put(queues, list(range(12)), [100 * n for n in range(12)])
    queues.close()
    with (tmp_path / "orders" / "0" / f"{100:020d}").open("r+b") as file:
        file.seek(40)
        file.write(bytes(20))
    again = open_queues(tmp_path, whole_below=0)
    touched = again.discard_tails()

    assert (touched, again.end_of(TOPIC, 0)) == (1, 7)
    assert stored(tmp_path)[100] == [(500, 10), (600, 10), NONE, NONE, NONE]
    assert list(stored(tmp_path)) == [0, 100]
    assert again.discard_tails() == 0


def test_more_queues_than_descriptors_can_be_written(tmp_path: Path) -> None:
    before = open_descriptors()
    queues = open_queues(tmp_path, descriptors_max=3)
    for number in range(3):
        for queue_id in range(20):
            put(queues, [number], [100 * number], queue_id)
    during = open_descriptors()
    queues.close()

    assert during - before == 3
    assert open_descriptors() == before
    assert all(
        stored(tmp_path, queue_id)[0][:4] == [(0, 10), (100, 10), (200, 10), NONE]
        for queue_id in range(20)
    )


def test_what_is_dirty_is_named_once(tmp_path: Path) -> None:
    root = tmp_path / "consumequeue"
    queues = open_queues(root)
    put(queues, [0], [0])
    first = set(queues.dirty_files), set(queues.dirty_directories)
    queues.dirty_files.clear()
    queues.dirty_directories.clear()
    put(queues, [1], [100])

    assert first == (
        {f"{root}/orders/0/{0:020d}"},
        {str(tmp_path), str(root), f"{root}/orders", f"{root}/orders/0"},
    )
    assert (queues.dirty_files, queues.dirty_directories) == (first[0], set())


def test_a_full_disk_changes_nothing_that_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = open_queues(tmp_path)
    put(queues, [0, 1, 2], [0, 100, 200])
    real = os.pwrite
    calls = 0

    def full(fd: int, data: Any, offset: int) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            return real(fd, data[:7], offset)
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(descriptor_cache.os, "pwrite", full)
    with pytest.raises(StorageError) as caught:
        put(queues, [3, 4, 5], [300, 400, 500])
    monkeypatch.undo()
    end = queues.end_of(TOPIC, 0)
    put(queues, [3, 4, 5], [300, 400, 500])

    assert (caught.value.errno, end) == (errno.ENOSPC, 3)
    assert [slot for file in stored(tmp_path).values() for slot in file][:7] == [
        *[(100 * n, 10) for n in range(6)],
        NONE,
    ]


@pytest.mark.parametrize(
    ("name", "size", "match"),
    [(f"{0:020d}", 60, "another size"), (f"{200:020d}", 100, "gap")],
)
def test_a_folder_with_other_files_is_kept_aside(
    tmp_path: Path, name: str, size: int, match: str, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path /= "consumequeue"
    folder = tmp_path / "orders" / "0"
    folder.mkdir(parents=True)
    if name == f"{200:020d}":
        (folder / f"{0:020d}").write_bytes(bytes(100))
    (folder / name).write_bytes(bytes(size))

    queues = open_queues(tmp_path)

    assert queues.lost == [str(folder)]
    assert queues.end_of(TOPIC, 0) == 0
    assert not folder.exists()
    (kept,) = (tmp_path.parent / "aside").iterdir()
    assert (kept / name).stat().st_size == size
    assert match in caplog.text


def test_a_setting_that_fits_no_file_is_refused_and_nothing_moved(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    put(queues, [0], [0])
    put(queues, [0], [100], queue_id=1)
    queues.close()
    before = stored(tmp_path)

    with pytest.raises(ConfigError, match="mapped_file_size_consume_queue"):
        open_queues(tmp_path, file_size=UNITS_PER_FILE * 40)

    assert stored(tmp_path) == before


@pytest.mark.parametrize("count", range(13))
def test_an_end_is_found_by_bisection_as_by_reading_all(tmp_path: Path, count: int) -> None:
    queues = open_queues(tmp_path)
    if count:
        put(queues, list(range(count)), [100 * n for n in range(count)])
    queues.close()
    ends = [
        (again.end_of(TOPIC, 0), again.log_end)
        for again in (open_queues(tmp_path), open_queues(tmp_path, whole_below=0))
    ]

    assert ends == [(count, 100 * count - 90 if count else -1)] * 2


def test_the_size_of_most_files_is_taken(tmp_path: Path) -> None:
    for queue_id, size in enumerate([40, 100, 100, 0]):
        (tmp_path / "orders" / str(queue_id)).mkdir(parents=True)
        (tmp_path / "orders" / str(queue_id) / f"{0:020d}").write_bytes(bytes(size))

    assert found_file_size(tmp_path) == 100


def test_a_file_that_was_created_and_not_extended_is_extended(tmp_path: Path) -> None:
    folder = tmp_path / "orders" / "0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").touch()
    queues = open_queues(tmp_path)
    put(queues, [0], [0])

    assert stored(tmp_path) == {0: [(0, 10), NONE, NONE, NONE, NONE]}


def test_folders_that_are_no_queues_are_passed(tmp_path: Path) -> None:
    (tmp_path / "orders" / "notes").mkdir(parents=True)

    assert open_queues(tmp_path).log_end == -1


def test_files_that_only_point_before_the_log_go_and_the_last_one_stays(tmp_path: Path) -> None:
    queues = open_queues(tmp_path, file_size=3 * 20)
    put(queues, list(range(8)), [number * 100 for number in range(8)])
    deleted = queues.delete_before(450)
    names = sorted(path.name for path in (tmp_path / "orders" / "0").iterdir())

    assert deleted == 1
    assert names == [f"{at:020d}" for at in (60, 120)]
    assert queues.delete_before(10**9) == 1
    assert put(queues, [8, 9], [800, 900]) == 2
    assert open_queues(tmp_path, file_size=3 * 20).end_of(b"orders", 0) == 10
    queues.close()


def test_who_works_at_many_queues_gives_signs_of_life(tmp_path: Path) -> None:
    signs: list[int] = []
    queues = open_queues(tmp_path, sign_of_life=lambda: signs.append(1))
    for queue_id in range(600):
        put(queues, [0], [100 * queue_id], queue_id)
    given = [len(signs)]
    for work in (
        lambda: queues.rewind(0),
        lambda: queues.truncate_beyond(0),
        queues.discard_tails,
        lambda: queues.delete_before(0),
    ):
        work()
        given.append(len(signs))
    queues.close()

    # Every 256 queues, and with each file that is made or goes.
    assert given == [603, 605, 608, 1_210, 1_212]


def put_next(queues: QueueFiles, offset: int, position: int) -> tuple[int, int]:
    """As the builder puts a single unit: whether it simply goes on, and how many were put."""
    unit = memoryview(units_at(position).tobytes())
    if queues.append_next((TOPIC, 0), offset, position + 10, unit):
        return 1, 1
    return 0, put(queues, [offset], [position])


def test_units_that_come_one_by_one_make_the_files_that_a_block_makes(tmp_path: Path) -> None:
    together = open_queues(tmp_path / "together")
    one_by_one = open_queues(tmp_path / "one by one")
    count, positions = 2 * UNITS_PER_FILE + 2, [100 * n for n in range(2 * UNITS_PER_FILE + 2)]
    put(together, list(range(count)), positions)
    new = [put_next(one_by_one, n, positions[n]) for n in range(count)]
    again = put_next(one_by_one, count - 1, positions[-1])
    gap = put_next(one_by_one, count + 3, 100 * count)
    late = put_next(one_by_one, count - 2, 100 * count + 50)

    # The first one of a file is not one that simply goes on.
    assert new == [(int(n % UNITS_PER_FILE > 0), 1) for n in range(count)]
    assert (again, gap, late) == ((0, 0), (0, 1), (0, 0))
    assert one_by_one.gaps == 1
    assert one_by_one.end_of(TOPIC, 0) == count + 1
    assert one_by_one.dirty_files == {
        path.replace("together", "one by one") for path in together.dirty_files
    }
    together_files, found = stored(tmp_path / "together"), stored(tmp_path / "one by one")
    last = found[2 * UNITS_PER_FILE * 20]
    assert last[2] == (100 * count, 10)
    last[2] = NONE
    assert found == together_files
