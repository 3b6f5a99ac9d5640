"""Damage of a plain CommitLog: reported and watched, for nobody has another copy.

Owned by the raft process, as the repairs of a DLedger log are (``scrub.py``). Readers and the
dispatcher's scrub say where they found a record that is not what was written.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np

from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import scan_entries, whole_records
from ledgermq.members.damage_report import LISTED_MAX, DamageStatus, write_report
from ledgermq.model.events import Event
from ledgermq.store.files.file_names import file_name, starts_in

logger = logging.getLogger(__name__)

LOOK_NS = 15_000_000_000
"""A file may have been put back meanwhile, as far as it can be while the node runs."""

KEPT_MAX = 1_000
REASON = "there is no other member"
_SIZE_FIELD = 4


class PlainDamages:
    """What is damaged now, by position.

    Attributes:
        count: how many records.
    """

    def __init__(self, folder: Path, report: Path, now_ns: int) -> None:
        """Nothing is known to be damaged.

        Args:
            folder: the log's files.
            report: the file that tells the operator what is damaged.
        """
        self._folder = folder
        self._report = report
        self._report.unlink(missing_ok=True)
        self._known: dict[int, DamageStatus] = {}
        self.count = 0
        self._due_ns = now_ns + LOOK_NS

    def take(self, position: int) -> None:
        """Somebody says that the record at ``position`` is damaged.

        Raises:
            OSError: the log cannot be read.
        """
        if position in self._known or len(self._known) >= KEPT_MAX:
            return
        found = self._look(position)
        if found is None:
            logger.warning(
                "log is whole where a reader found damage: the queue or index file that led there"
                " may be damaged: position=%d",
                position,
            )
            return
        self._known[position] = found
        self.count = len(self._known)
        logger.error(
            "log stays damaged: file=%s offset=%d position=%d reason=%s",
            found["file"],
            found["offset"],
            position,
            REASON,
            extra={"event": Event.LOG_STAYS_DAMAGED},
        )
        self._tell()

    def turn(self, now_ns: int) -> None:
        """Look at the damaged records again, now and then.

        Raises:
            OSError: the log cannot be read.
        """
        if not self._known or now_ns < self._due_ns:
            return
        self._due_ns = now_ns + LOOK_NS
        whole = [position for position in self._known if self._look(position) is None]
        self.count -= len(whole)
        for position in whole:
            del self._known[position]
            logger.warning(
                "log is whole again, or its file was deleted: position=%d",
                position,
                extra={"event": Event.LOG_REPAIRED},
            )
        if whole:
            self._tell()

    def _look(self, position: int) -> DamageStatus | None:
        """What is wrong with the record at ``position``; None if nothing is, or it is gone."""
        starts = (one for one in starts_in(self._folder) if one <= position)
        start = max(starts, default=None)
        if start is None:
            return None
        path = self._folder / file_name(start)
        try:
            size, is_whole = _record_at(path, position - start, start)
        except FileNotFoundError:
            return None
        if is_whole:
            return None
        return DamageStatus(
            file=str(path),
            offset=position - start,
            position=position,
            first_index=position + size,
            last_index=position + size,
            fault="record",
            unrepairable=REASON,
        )

    def _tell(self) -> None:
        write_report(self._report, list(self._known.values())[:LISTED_MAX])


def _record_at(path: Path, offset: int, start: int) -> tuple[int, bool]:
    """Size of a record by its first field, 0 if that cannot be, and whether it is whole."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        room = os.fstat(fd).st_size - offset
        size = int.from_bytes(os.pread(fd, _SIZE_FIELD, offset), "big")
        if not _SIZE_FIELD < size <= room:
            return 0, False
        data = memoryview(os.pread(fd, size, offset))
    finally:
        os.close(fd)
    starts, sizes = np.zeros(1, np.int64), np.zeros(1, np.int64)
    count, _, _ = scan_entries(data, 0, size, 0, start + offset, starts.data, sizes.data)
    if count != 1 or int(sizes[0]) != size:
        return size, False
    return size, whole_records(data, starts.data, sizes.data, 0, crc32) == 1
