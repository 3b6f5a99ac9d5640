"""Store checkpoint codec: store times up to which log, queues and index are on disk.

Layout, big-endian (RocketMQ ``StoreCheckpoint``), 4,096 bytes:

    offset  size  field              unit
    0       8     log_timestamp      epoch ms of the last message (physicMsgTimestamp)
    8       8     queues_timestamp   epoch ms (logicsMsgTimestamp)
    16      8     index_timestamp    epoch ms (indexMsgTimestamp)
    24      8     master_flushed     position up to which the master had its log on disk
                                     (masterFlushedOffset)
    32      8     confirmed          position up to which the log is confirmed (confirmPhyOffset)
    40      8     queues_position    position up to which queues are built (logicsPhysicalOffset)
    48      4048  zeros

The positions are RocketMQ 5's; RocketMQ 4.9 writes zeros there, and does not look.
"""

from __future__ import annotations

import logging
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from ledgermq.model.errors import CorruptLogError
from ledgermq.store.files.small_file import read_file

logger = logging.getLogger(__name__)

_CHECKPOINT = Struct(">qqqqqq")

FILE_SIZE = 4_096

_SAFETY_MS = 3_000

_SYNC_INTERVAL_MS = 20_000
"""Twice what RocketMQ lets pass between two syncs of all of the log
(``flushCommitLogThoroughInterval``)."""


class StoreCheckpoint(NamedTuple):
    """Store times of the last messages on disk, epoch ms; 0 when there is none.

    ``master_flushed`` and ``confirmed`` are kept for RocketMQ 5; nothing here goes by them.
    """

    log_timestamp: int
    queues_timestamp: int
    index_timestamp: int
    master_flushed: int = 0
    confirmed: int = 0
    queues_position: int = 0

    @property
    def recovery_timestamp(self) -> int:
        """Where recovery of log and queues begins (``getMinTimestamp``), three seconds early."""
        return max(0, min(self.log_timestamp, self.queues_timestamp) - _SAFETY_MS)


def encode_checkpoint(checkpoint: StoreCheckpoint) -> bytes:
    """The whole file."""
    return _CHECKPOINT.pack(*checkpoint).ljust(FILE_SIZE, b"\0")


def decode_checkpoint(data: bytes | memoryview, *, file: str = "") -> StoreCheckpoint:
    """The checkpoint in the file's content; all zero when that is empty, as after a crash.

    Raises:
        CorruptLogError: the file has another size, or a time before 1970.
    """
    if not len(data):
        return StoreCheckpoint(0, 0, 0)
    if len(data) != FILE_SIZE:
        raise CorruptLogError(
            "checkpoint of another size",
            file=file,
            offset=0,
            field="size",
            value=len(data),
            expected=FILE_SIZE,
        )
    checkpoint = StoreCheckpoint(*_CHECKPOINT.unpack_from(data))
    for number, field in enumerate(("log_timestamp", "queues_timestamp", "index_timestamp")):
        value = checkpoint[number]
        if value < 0:
            raise CorruptLogError(
                "timestamp is negative", file=file, offset=8 * number, field=field, value=value
            )
    return checkpoint


def read_checkpoint(path: Path) -> StoreCheckpoint:
    """The checkpoint at ``path``; all zero when there is none, or none that is whole.

    A wrong one is told in the process's log and costs a longer start: what it says can be found out
    from the log's files again.

    Raises:
        StorageError: the file is there and cannot be read.
    """
    content = read_file(path)
    if content is None:
        return StoreCheckpoint(0, 0, 0)
    try:
        return decode_checkpoint(content, file=str(path))
    except CorruptLogError as error:
        logger.warning("checkpoint not used, more of the log is looked through: %s", error)
        return StoreCheckpoint(0, 0, 0)


def with_positions_of(path: Path, content: bytes) -> bytes:
    """A checkpoint with what the one at ``path`` says for RocketMQ 5 of the log.

    Raises:
        CorruptLogError: ``content`` is no checkpoint.
        StorageError: the file is there and cannot be read.
    """
    old = read_checkpoint(path)
    fresh = decode_checkpoint(content)
    return encode_checkpoint(
        fresh._replace(master_flushed=old.master_flushed, confirmed=old.confirmed)
    )


def certain_before_ms(root: Path) -> int | None:
    """Store time up to which a broker that crashed had synced its log; None after a clean stop.

    A master notes what it has synced. A slave, and a broker of a DLedger group, note what is in the
    queues, and may sync it later.

    Raises:
        StorageError: the checkpoint of the store in ``root`` is there and cannot be read.
    """
    if not (root / "abort").exists():
        return None
    checkpoint = read_checkpoint(root / "checkpoint")
    return max(0, checkpoint.recovery_timestamp - _SYNC_INTERVAL_MS)
