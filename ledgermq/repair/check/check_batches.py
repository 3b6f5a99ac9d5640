"""Check of queues of batches: each unit is compared with the record that it points to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ledgermq.formats.arrays import BATCH_UNIT
from ledgermq.formats.batch_unit import BATCH_FILE_SIZE, BATCH_FOLDER, Numbers
from ledgermq.formats.findings import Finding
from ledgermq.formats.records.inner_batch import numbers_of
from ledgermq.model.errors import CorruptLogError
from ledgermq.repair.check.file_family import derived
from ledgermq.store.files.file_names import queue_folders
from ledgermq.store.log_reader import LogReader
from ledgermq.store.queues.queue_end import CHUNK_UNITS, QueueEnd, file_starts, find_end, read_units
from ledgermq.store.queues.queue_files import found_batch_file_size


def check_batches(
    root: Path, log: LogReader, ends: dict[tuple[str, int], int]
) -> Iterator[Finding]:
    """What is wrong with the queues of batches of the store in ``root``, one finding a queue.

    Args:
        ends: gets the queue offsets behind their last messages.

    Raises:
        StorageError: a file cannot be read.
    """
    folder = root / BATCH_FOLDER
    file_size = found_batch_file_size(root) or BATCH_FILE_SIZE
    for directory in queue_folders(folder):
        name = directory.parent.name, int(directory.name)
        try:
            queue = find_end(directory, file_size, whole_below=None, unit=BATCH_UNIT)
            _check(queue, log, name)
        except CorruptLogError as error:
            path = str(directory.relative_to(root))
            yield derived(path, None, str(error))
            continue
        ends[name] = queue.next_offset


def _check(queue: QueueEnd, log: LogReader, name: tuple[str, int]) -> None:
    """Compare all units of a queue with the log, as far as it goes back.

    Raises:
        CorruptLogError: a unit is not that of a message of the queue.
    """
    for start in file_starts(Path(queue.directory), queue.file_size):
        first = start // queue.unit.itemsize
        for at in range(0, min(queue.units_per_file, queue.end - first), CHUNK_UNITS):
            count = min(CHUNK_UNITS, queue.units_per_file - at, queue.end - first - at)
            for unit in read_units(queue.path_of(start), at, count, queue.unit):
                position, size = int(unit["position"]), int(unit["size"])
                if not log.first <= position < log.end:
                    continue
                message = log.message_at(position, size, check_crc=False)
                numbers = Numbers(int(unit["base"]), int(unit["count"]))
                found = numbers_of(message)
                # RocketMQ's DLedger broker counts one message in each record.
                is_right = numbers in {found, found._replace(messages=1)}
                if (message.topic, message.queue_id) != name or not is_right:
                    raise CorruptLogError(
                        "unit points to no message of its queue",
                        position=position,
                        **numbers._asdict(),
                    )
