"""Recovery of a stopped store's log for conversions, as the start of a node does it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Position
from ledgermq.store.files.mapped_files import MappedFiles
from ledgermq.store.files.store_checkpoint import certain_before_ms
from ledgermq.store.log.log_writer import LogEnd
from ledgermq.store.recovery import log_checkpoint
from ledgermq.store.recovery.log_damage import damage_path, read_damage
from ledgermq.store.recovery.recovery import NOTHING_KNOWN, foreign_end, recover_log


def recover_stopped(
    root: Path, dledger: Path | None, *, progress: Callable[[int, int], None]
) -> tuple[Position, LogEnd]:
    """Cut what a crash left behind the last record, and make durable what is before it.

    Who calls holds the store's locks.

    Args:
        dledger: folder of the DLedger log; None for the plain log in ``commitlog/``.
        progress: called with bytes done and bytes to do.

    Returns:
        where the log begins, and its end.

    Raises:
        CorruptLogError: the log is damaged, or lacks what it once had; nothing was cut.
        StorageError: the operating system refused.
    """
    known = read_damage(damage_path(root))
    if known is not None:
        raise CorruptLogError(
            "the log lacks entries that it once had: take the store of another member, start the"
            " node so that it fetches them, or go on without ('ledgermq store accept-loss')",
            directory=str(root),
            damage=known.describe(),
        )
    data = root / "commitlog" if dledger is None else dledger / "data"
    checkpoint = log_checkpoint.read(root / "ledgermq" / "log-checkpoint")
    noted = None if dledger is None else dledger / "checkpoint"
    recovered = recover_log(
        data,
        None if dledger is None else dledger / "index",
        # That of the files; a store of one file has no other word.
        file_size=MappedFiles(data).file_size,
        checkpoint=checkpoint,
        progress=progress,
        certain_before_ms=certain_before_ms(root),
        foreign=foreign_end(root, noted) if checkpoint is None else NOTHING_KNOWN,
    )
    recovered.data.close()
    if recovered.index is not None:
        recovered.index.close()
    return recovered.first, recovered.end
