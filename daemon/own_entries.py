"""Entries of a leader's own: they begin terms, and change members and tables."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from ledgermq.daemon.put_lock import PutLockHolder
from ledgermq.model.ids import QueueId, QueueOffset, Term
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.store.disk_space import with_reserve
from ledgermq.store.log_writer import LogWriter, Run
from ledgermq.store.queue_offsets import QueueOffsets


class OwnEntries(NamedTuple):
    """Records of one queue of the system topic, with their entry header holes.

    Attributes:
        store_timestamp: epoch ms.
    """

    records: Sequence[bytes]
    queue_id: QueueId
    term: Term
    store_timestamp: int


def append_own(
    log: LogWriter,
    offsets: QueueOffsets,
    put_lock: PutLockHolder,
    own: OwnEntries,
    *,
    has_reserve: bool,
) -> None:
    """Stamp them one behind the other, and publish them in the log.

    Args:
        has_reserve: they may take from the reserve of space, as the node's small files do.

    Raises:
        DiskFullError: there is no space; nothing has changed.
    """
    topic, count = SYSTEM_TOPIC.encode(), len(own.records)
    offset = offsets.next_offset(topic, own.queue_id)
    sizes = memoryview(array("I", map(len, own.records)))
    if has_reserve:
        with_reserve(lambda: log.reserve(sizes))
    else:
        log.reserve(sizes)
    with put_lock:
        log.put(
            b"".join(own.records),
            sizes,
            [Run(count, offset)],
            term=own.term,
            store_timestamp=own.store_timestamp,
        )
        log.publish()
    offsets.set_next(topic, own.queue_id, QueueOffset(offset + count))
