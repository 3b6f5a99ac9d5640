"""Queues whose messages the log has no more: what the table says, and what is put for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Position, QueueId
from ledgermq.store.files.checked_document import write_document
from ledgermq.store.queues.known_ends import known_queue_ends
from ledgermq.store.queues.queue_ends import (
    QueueEnds,
    decode_queue_ends,
    encode_queue_ends,
    ends_path,
    read_queue_ends,
    write_queue_ends,
)
from ledgermq.store.queues.queue_offsets import QueueOffsets
from ledgermq.store.queues.queue_reader import QueueReader
from tests.unit.store.test_queue_files import (
    PREFILLED,
    UNITS_PER_FILE,
    open_queues,
    put,
    stored,
)

FILE_SIZE = UNITS_PER_FILE * 20
LOG_START = 1_000
IDLE = (b"orders", 0)
GONE = (LOG_START - 1, 1)
"""The unit that ends a queue of which the log has no message."""

NAMES = st.binary(min_size=1, max_size=30).filter(
    lambda name: name not in (b".", b"..") and b"/" not in name and b"\0" not in name
)
TABLES = st.builds(
    QueueEnds,
    st.integers(0, 2**62),
    st.dictionaries(st.tuples(NAMES, st.integers(0, 2**31)), st.integers(1, 2**60), max_size=20),
)


@given(TABLES)
def test_a_table_survives_its_file(table: QueueEnds) -> None:
    assert decode_queue_ends(encode_queue_ends(table), file="it") == table


@pytest.mark.parametrize(
    "document",
    [
        {"version": 2, "position": 5, "ends": {}},
        {"version": 1, "position": -5, "ends": {}},
        {"version": 1, "ends": {}},
        {"version": 1, "position": 5, "ends": {"../x": {"0": 1}}},
        {"version": 1, "position": 5, "ends": {"x": {"..": 1}}},
        {"version": 1, "position": 5, "ends": {"x": {"0": -1}}},
        {"version": 1, "position": 5, "ends": {"x": {"0": "1"}}},
        {"version": 1, "position": 5, "ends": {"x": 1}},
    ],
)
def test_a_table_of_what_cannot_be_is_refused(tmp_path: Path, document: dict[str, object]) -> None:
    write_document(tmp_path / "it", document)

    with pytest.raises(CorruptLogError, match="table of queue ends"):
        read_queue_ends(tmp_path / "it")


@pytest.mark.parametrize("end", [1, 4, UNITS_PER_FILE, UNITS_PER_FILE + 1, 3 * UNITS_PER_FILE])
def test_a_queue_without_units_ends_where_the_table_says_and_goes_on_there(
    tmp_path: Path, end: int
) -> None:
    queues = open_queues(tmp_path)
    assert queues.put_ends({IDLE: end}, log_start=LOG_START) == 1
    first = (end - 1) // UNITS_PER_FILE * UNITS_PER_FILE
    units = stored(tmp_path)[first * 20]
    assert units[: end - first] == [PREFILLED] * (end - first - 1) + [GONE]
    queues.close()

    again = open_queues(tmp_path)
    assert again.end_of(*IDLE) == end
    assert again.log_end == LOG_START
    reader = QueueReader(tmp_path / "orders" / "0", file_size=FILE_SIZE)
    assert reader.bounds(LOG_START + 500, log_first=LOG_START) == (end, end)
    reader.close()
    assert put(again, [end], [LOG_START]) == 1
    assert again.gaps == 0
    reader = QueueReader(tmp_path / "orders" / "0", file_size=FILE_SIZE)
    assert reader.bounds(LOG_START + 500, log_first=LOG_START) == (end, end + 1)
    reader.close()
    again.close()


def test_a_queue_that_has_units_and_a_log_that_lost_nothing_stay_as_they_are(
    tmp_path: Path,
) -> None:
    queues = open_queues(tmp_path)
    put(queues, [0, 1], [LOG_START, LOG_START + 10])
    before = stored(tmp_path)

    assert queues.put_ends({IDLE: 7}, log_start=LOG_START) == 0
    assert queues.put_ends({(b"orders", 1): 7}, log_start=0) == 0
    assert stored(tmp_path) == before
    assert queues.ends() == {IDLE: 2}
    queues.close()


def test_what_java_takes_for_the_end_of_such_a_queue_in_the_log_is_not_behind_its_beginning(
    tmp_path: Path,
) -> None:
    """``ConsumeQueue.recover``: position and size of the last unit that is valid for it."""
    queues = open_queues(tmp_path)
    queues.put_ends({IDLE: 4}, log_start=LOG_START)
    queues.close()
    position, size = stored(tmp_path)[0][3]

    assert position + size == LOG_START
    assert position >= 0


def test_the_next_message_of_a_queue_that_only_the_table_knows_has_its_number(
    tmp_path: Path,
) -> None:
    queues = open_queues(tmp_path / "consumequeue")
    put(queues, [0, 1], [10, 20], queue_id=1)
    queues.close()
    ends = {(b"orders", 0): 9, (b"orders", 1): 7}
    offsets = QueueOffsets(
        tmp_path / "consumequeue", file_size=FILE_SIZE, log_end=Position(5_000), ends=ends
    )

    assert offsets.next_offset(b"orders", QueueId(0)) == 9
    assert offsets.next_offset(b"orders", QueueId(1)) == 2
    assert offsets.next_offset(b"orders", QueueId(2)) == 0


def test_queue_files_that_come_later_tell_their_size(tmp_path: Path) -> None:
    offsets = QueueOffsets(tmp_path / "consumequeue", file_size=None, log_end=Position(5_000))
    before = offsets.next_offset(b"orders", QueueId(0))
    queues = open_queues(tmp_path / "consumequeue")
    put(queues, [0, 1], [10, 20], queue_id=1)
    queues.close()

    assert before == 0
    assert offsets.next_offset(b"orders", QueueId(1)) == 2


def test_a_store_knows_its_ends_by_its_table_else_by_its_queues(tmp_path: Path) -> None:
    (tmp_path / "ledgermq").mkdir()
    queues = open_queues(tmp_path / "consumequeue")
    put(queues, list(range(7)), [990, 1_000, 1_010, 1_020, 1_030, 1_040, 1_050])
    queues.close()
    by_queues = QueueEnds(LOG_START, {IDLE: 1})

    def known(log_start: int) -> QueueEnds | None:
        return known_queue_ends(tmp_path, queue_file_size=FILE_SIZE, log_start=log_start)

    assert known(0) is None
    assert known(LOG_START) == by_queues
    table = QueueEnds(LOG_START + 10, {IDLE: 2, (b"else", 3): 5})
    write_queue_ends(ends_path(tmp_path), table)
    assert known(LOG_START) == table
    # Of a time before somebody else deleted files: it says nothing any more.
    assert known(LOG_START + 20) == QueueEnds(LOG_START + 20, {IDLE: 3})
    ends_path(tmp_path).write_bytes(b"torn")
    assert known(LOG_START) == by_queues
