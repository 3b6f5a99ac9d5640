"""Appends of the node's own records: terms, members, tables, and moved messages."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import groupby

from ledgermq.formats.records.message import queue_of
from ledgermq.model.errors import StorageError
from ledgermq.store.files.disk_space import with_reserve
from ledgermq.wire.send_frame import SendRun
from ledgermq.writer.log.put_batch import PutBatch
from ledgermq.writer.log.put_lock import PutLockHolder


def append_own(
    batch: PutBatch,
    records: Sequence[bytes],
    put_lock: PutLockHolder,
    *,
    header_size: int,
    has_reserve: bool,
) -> None:
    """Stamp records of any topics and queues one behind the other, and publish them in the log.

    Nothing else stands between them; a crash may leave the first of them without the others.

    Args:
        batch: a fresh one.
        records: whole and well-formed, each with its entry header hole.
        has_reserve: they may take from the reserve of space, as the node's small files do.

    Raises:
        DiskFullError: there is no space; nothing has changed.
    """
    sizes = memoryview(array("I", map(len, records)))
    queues = (queue_of(memoryview(record)[header_size:]) for record in records)
    runs = [
        SendRun(sum(1 for _ in run), queue_id, topic) for (topic, queue_id), run in groupby(queues)
    ]
    if has_reserve:
        with_reserve(lambda: batch.make_room(sizes))
    else:
        batch.make_room(sizes)
    with put_lock:
        try:
            batch.stage(b"", 0, b"".join(records), sizes, runs)
            batch.publish()
        except StorageError as error:
            # For the queue offsets alone: nobody has sent these, and nobody is refused.
            batch.take_back(error)
            raise
