"""Checkpoints of the log, ours and DLedger's, as the writer's flusher has them written."""

from __future__ import annotations

import logging

from ledgermq.model.errors import DiskFullError
from ledgermq.model.ids import Index
from ledgermq.store.files.disk_sync import sync_directory
from ledgermq.store.files.properties_file import DLedgerCheckpoint, encode_dledger_checkpoint
from ledgermq.store.files.small_file import replace_file
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.log.log_writer import LogEnd
from ledgermq.store.recovery import log_checkpoint

logger = logging.getLogger(__name__)


def write_checkpoints(paths: StorePaths, end: LogEnd, file_size: int, committed: Index) -> None:
    """Our checkpoint, and DLedger's with the last index known to be committed.

    Without space, and without a reserve, there is none: recovery then reads more of the log.

    Args:
        end: what is durable.
        file_size: of the log's files.
        committed: as the cursor says; where a majority's memory is enough to commit, it may be
            ahead of what is durable here.
    """
    checkpoint = log_checkpoint.LogCheckpoint(end, file_size)
    try:
        replace_file(paths.log_checkpoint, log_checkpoint.encode(checkpoint))
    except DiskFullError as error:
        logger.warning("no checkpoint of the log: %s", error)
        older = log_checkpoint.read(paths.log_checkpoint)
        if older is not None and older.end.position > end.position:
            # It lies behind the cut that comes next.
            paths.log_checkpoint.unlink(missing_ok=True)
            sync_directory(paths.own)
        return
    if paths.dledger_checkpoint is not None:
        content = encode_dledger_checkpoint(
            DLedgerCheckpoint(end.index_, min(committed, end.index_))
        )
        try:
            replace_file(paths.dledger_checkpoint, content)
        except DiskFullError as error:
            logger.warning("DLedger's checkpoint not written: %s", error)
