"""The log as the broker sees it: where it begins, and what may be read of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ledgermq.formats.dledger_index import ITEM_SIZE
from ledgermq.store.log_reader import LogReader, LogRecord
from ledgermq.store.log_view import LogView
from ledgermq.store.queues.queue_reader import QueueReader
from ledgermq.store.record_parts import take_records
from ledgermq.store.store_directory import open_directory
from tests.small_store import INDEX_FILE_SIZE, LOG_FILE_SIZE, SIZES, write_store

FAR = 2**40


def records_of(root: Path) -> list[LogRecord]:
    reader = LogReader(open_directory(root))
    try:
        return [record._replace(message=record.message) for record in reader.iterate()]
    finally:
        reader.close()


def zero(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.write(bytes(size))


def rebase(root: Path, first: LogRecord) -> None:
    """As RocketMQ leaves a member's log that it began anew with ``first``; queues stay."""
    assert first.header is not None
    for path in sorted((root / "dledger-n0" / "data").iterdir()):
        gone = first.position - int(path.name)
        if gone >= LOG_FILE_SIZE:
            path.unlink()
        elif gone > 0:
            zero(path, gone)
    for path in sorted((root / "dledger-n0" / "index").iterdir()):
        gone = first.header.index * ITEM_SIZE - int(path.name)
        zero(path, min(max(gone, 0), INDEX_FILE_SIZE))


@pytest.mark.parametrize("number", [4, 5, 6])
def test_consumers_begin_with_the_first_message_of_a_log_that_begins_within_a_file(
    tmp_path: Path, number: int
) -> None:
    write_store(tmp_path)
    records = records_of(tmp_path)
    topic, first = records[0].message.topic, records[number]
    rebase(tmp_path, first)
    log = LogView(open_directory(tmp_path).log_family)
    sizes, offsets = [], []
    for queue_id in (0, 1):
        folder = tmp_path / "consumequeue" / topic / str(queue_id)
        queue = QueueReader(folder, file_size=SIZES["mapped_file_size_consume_queue"])
        begin, _ = queue.bounds(FAR, log_first=log.first_position)
        unit = queue.units(begin, 1)
        parts = take_records(log, unit["position"].astype(np.int64), unit["size"].astype(np.int64))
        assert parts is not None
        offsets.append(begin)
        sizes.append(parts.size)

    assert first.position % LOG_FILE_SIZE > 0 or number == 6
    assert log.first_position == first.position
    assert log.first_message == first.message.physical_offset
    left = [record.message for record in records[number:]]
    expected = [next(m for m in left if m.queue_id == queue_id) for queue_id in (0, 1)]
    assert offsets == [message.queue_offset for message in expected]
    assert sizes == [message.size for message in expected]


def test_a_log_without_a_file_begins_at_0(tmp_path: Path) -> None:
    write_store(tmp_path)
    for path in (tmp_path / "dledger-n0" / "data").iterdir():
        path.unlink()
    log = LogView(open_directory(tmp_path).log_family)

    assert (log.first_position, log.first_message) == (0, None)
