"""Records of one answer: the same bytes as in the log, whatever the way they were put together."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from ledgermq.formats.records.message import Message, encode_message
from ledgermq.model.errors import CorruptLogError
from ledgermq.store.log_family import LogFamily, LogFolder
from ledgermq.store.log_view import LogView
from ledgermq.store.record_parts import GATHERED_SIZE_MAX, RecordParts, take_records
from tests.plain_codecs import as_version_2

FILE_SIZE = 4 * 1024 * 1024


def write_log(
    folder: Path, bodies: list[int], *, gap: int, base: int = 0
) -> tuple[LogView, list[int], list[bytes]]:
    """A log of one file with messages of these sizes of body.

    ``gap`` bytes before each end with its number.
    """
    content = bytearray()
    positions, records = [], []
    for number, size in enumerate(bodies):
        content += number.to_bytes(gap, "big") if gap else b""
        position = base + len(content)
        message = Message(
            topic="t",
            queue_id=0,
            queue_offset=number,
            physical_offset=position,
            body=bytes([number % 251]) * size,
        )
        positions.append(position)
        record = encode_message(message)
        if number % 3 == 2:
            record = as_version_2(record, topic=b"t" * 200)
        records.append(record)
        content += records[-1]
    assert len(content) <= FILE_SIZE
    folder.mkdir(exist_ok=True)
    (folder / f"{base:020d}").write_bytes(content.ljust(FILE_SIZE, b"\0"))
    return LogView(LogFamily(LogFolder(folder, 0))), positions, records


def take(
    log: LogView, positions: list[int], records: list[bytes], *, with_headers: bool = False
) -> RecordParts:
    sizes = np.array([len(record) for record in records], np.int64)
    parts = take_records(log, np.array(positions, np.int64), sizes, with_headers=with_headers)
    assert parts is not None
    return parts


def given(parts: RecordParts) -> list[bytes]:
    view = memoryview(parts.payload)
    places = zip(parts.starts.tolist(), parts.sizes.tolist(), strict=True)
    return [bytes(view[start : start + size]) for start, size in places]


def test_neighbours_are_one_view_of_the_map_with_their_headers(tmp_path: Path) -> None:
    log, positions, records = write_log(tmp_path / "log", [500] * 20, gap=48)

    parts = take(log, positions[3:9], records[3:9])

    assert given(parts) == records[3:9]
    assert isinstance(parts.payload, memoryview)
    assert parts.payload.readonly
    assert len(parts.payload) == sum(map(len, records[3:9])) + 5 * 48


@pytest.mark.parametrize("gap", [0, 48])
def test_scattered_records_are_gathered_without_what_lies_between(tmp_path: Path, gap: int) -> None:
    log, positions, records = write_log(tmp_path / "log", [300] * 64, gap=gap)

    parts = take(log, positions[::8], records[::8])

    assert given(parts) == records[::8]
    assert len(parts.payload) == sum(map(len, records[::8]))


@pytest.mark.parametrize("step", [1, 8])
def test_headers_stand_before_their_records_where_they_are_wanted(
    tmp_path: Path, step: int
) -> None:
    _, positions, records = write_log(tmp_path / "log", [300] * 64, gap=48)
    log = LogView(LogFamily(LogFolder(tmp_path / "log", 48)))

    parts = take(log, positions[::step], records[::step], with_headers=True)
    view = memoryview(parts.payload)
    headers = [view[start - parts.header_size : start] for start in parts.starts.tolist()]

    assert given(parts) == records[::step]
    assert parts.header_size == 48
    assert [int.from_bytes(header, "big") for header in headers] == list(range(0, 64, step))
    assert take(log, positions, records).header_size == 0


def test_a_plain_log_has_no_headers_to_give(tmp_path: Path) -> None:
    log, positions, records = write_log(tmp_path / "log", [300] * 3, gap=0)
    parts = take(log, positions, records, with_headers=True)

    assert parts.header_size == 0
    assert given(parts) == records


def test_any_choice_of_records_comes_out_as_it_stands(tmp_path: Path) -> None:
    chance = random.Random(11)
    sizes = [chance.randrange(2_000) for _ in range(400)]
    log, positions, records = write_log(tmp_path / "log", sizes, gap=48)
    for _ in range(200):
        count = chance.randrange(1, 60)
        chosen = sorted(chance.sample(range(chance.choice((70, 400))), count))

        parts = take(log, [positions[n] for n in chosen], [records[n] for n in chosen])

        assert given(parts) == [records[number] for number in chosen]


def test_a_gathered_part_is_bounded_and_has_at_least_one_record(tmp_path: Path) -> None:
    sizes = [700_000, 100, 700_000, 100, 700_000, 100]
    log, positions, records = write_log(tmp_path / "log", [*sizes, 1], gap=0)
    apart = [*positions[1::2], positions[6]]
    wanted = [*records[1::2], records[6]]

    few = take(log, apart, wanted)
    first = take(log, [positions[0], positions[4]], [records[0], records[4]])

    assert given(few) == wanted
    assert given(first) == [records[0]]
    assert len(first.payload) < GATHERED_SIZE_MAX


def test_what_lies_in_the_next_file_is_left_for_the_next_answer(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    _, first_positions, first = write_log(folder, [100] * 3, gap=0)
    log, next_positions, second = write_log(folder, [100] * 3, gap=0, base=FILE_SIZE)

    parts = take(log, first_positions[1:] + next_positions, first[1:] + second)
    rest = take(log, next_positions, second)

    assert given(parts) == first[1:]
    assert given(rest) == second


def test_a_view_stays_valid_when_the_maps_are_dropped_and_the_file_deleted(tmp_path: Path) -> None:
    log, positions, records = write_log(tmp_path / "log", [5_000] * 4, gap=48)

    parts = take(log, positions, records)
    next((tmp_path / "log").iterdir()).unlink()
    log.drop()

    assert given(parts) == records
    with pytest.raises(CorruptLogError, match="no file"):
        take(log, positions, records)


@pytest.mark.parametrize(
    ("at", "field"), [(0, "total_size"), (4, "magic"), (35, "physical_offset")]
)
def test_a_record_that_is_not_what_its_unit_says_ends_the_answer(
    tmp_path: Path, at: int, field: str
) -> None:
    log, positions, records = write_log(tmp_path / "log", [100] * 5, gap=48)
    path = next((tmp_path / "log").iterdir())
    content = bytearray(path.read_bytes())
    content[positions[2] + at] ^= 0x40
    path.write_bytes(content)

    before = take(log, positions, records)
    with pytest.raises(CorruptLogError, match=field) as caught:
        take(log, positions[2:], records[2:])

    assert given(before) == records[:2]
    assert caught.value.details["offset"] == positions[2]
    assert caught.value.details["file"] == str(path)


def test_a_unit_behind_the_end_of_its_file_is_refused(tmp_path: Path) -> None:
    log, _, _ = write_log(tmp_path / "log", [100], gap=0)

    with pytest.raises(CorruptLogError, match="size"):
        take_records(log, np.array([FILE_SIZE - 10]), np.array([100]))


def test_the_store_time_is_that_of_the_message(tmp_path: Path) -> None:
    message = Message(topic="t", queue_id=0, store_timestamp=1_700_000_000_123, body=b"x")
    six = Message(
        topic="t",
        queue_id=0,
        store_timestamp=5,
        born_host=("::1", 9),
        store_host=("::1", 9),
        body=b"x",
    )
    records = [encode_message(message), encode_message(six)]
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / f"{0:020d}").write_bytes(b"".join(records).ljust(4_096, b"\0"))
    log = LogView(LogFamily(LogFolder(folder, 0)))

    assert log.store_time(0, len(records[0])) == 1_700_000_000_123
    assert log.store_time(len(records[0]), len(records[1])) == 5
    assert log.store_time(2_000, 91) == -1
    assert log.store_time(9_999, 91) == -1


def test_records_whose_file_was_deleted_are_removed_and_not_corrupt(tmp_path: Path) -> None:
    _, positions, records = write_log(tmp_path / "log", [500] * 3, gap=48)
    write_log(tmp_path / "log", [500] * 3, gap=48, base=FILE_SIZE)
    log = LogView(LogFamily(LogFolder(tmp_path / "log", 0)))
    (tmp_path / "log" / f"{0:020d}").unlink()
    sizes = np.array([len(record) for record in records], np.int64)

    assert take_records(log, np.array(positions, np.int64), sizes) is None
    assert log.first_position == FILE_SIZE
