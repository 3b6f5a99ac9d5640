"""Queue ends of a store: from its table of them, or from its ConsumeQueues."""

from __future__ import annotations

import os
from pathlib import Path

from ledgermq.formats.arrays import BATCH_UNIT
from ledgermq.formats.batch_unit import BATCH_FILE_SIZE, BATCH_FOLDER
from ledgermq.model.errors import CorruptLogError
from ledgermq.store.files.file_names import is_topic_name, queue_folders
from ledgermq.store.queues.queue_end import end_below
from ledgermq.store.queues.queue_ends import Queue, QueueEnds, ends_path, read_queue_ends
from ledgermq.store.queues.queue_files import found_batch_file_size


def known_queue_ends(
    root: Path, *, queue_file_size: int | None, log_start: int
) -> QueueEnds | None:
    """What a stopped store, or a copy of one, knows of its queues' ends; None if the log says all.

    That is its table. In a store that has none of use, as one of RocketMQ's or of an older version
    of ours, the ConsumeQueues say it.

    Args:
        log_start: first byte of the log's first file.

    Raises:
        StorageError: the operating system refused.
    """
    if log_start == 0:
        return None
    try:
        table = read_queue_ends(ends_path(root))
    except CorruptLogError:
        # A check tells it; the queues know as much.
        table = None
    if table is not None and table.position >= log_start:
        return table
    if queue_file_size is None:
        return QueueEnds(log_start, {})
    return ends_in_queues(root / "consumequeue", queue_file_size, position=log_start)


def ends_in_queues(queues: Path, file_size: int, *, position: int) -> QueueEnds:
    """The table as the ConsumeQueues say it, of messages before ``position``.

    A queue whose files are not those of a queue is left out, and so are those of no topic here.

    Args:
        queues: ``consumequeue/``.

    Raises:
        StorageError: a file cannot be read.
    """
    ends: dict[Queue, int] = {}
    of_batches = queues.parent / BATCH_FOLDER
    batch_size = found_batch_file_size(queues.parent) or BATCH_FILE_SIZE
    for folder in (*queue_folders(queues), *queue_folders(of_batches)):
        if not is_topic_name(folder.parent.name):
            continue
        try:
            if folder.parent.parent == of_batches:
                end = end_below(folder, batch_size, position, BATCH_UNIT)
            else:
                end = end_below(folder, file_size, position)
        except CorruptLogError:
            # It is built again from the log, and told there.
            continue
        if end:
            ends[os.fsencode(folder.parent.name), int(folder.name)] = end
    return QueueEnds(position, ends)
