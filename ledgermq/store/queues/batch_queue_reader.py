"""Reader of one queue of batches: a unit for each message, as ``QueueReader`` has them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ledgermq.formats.arrays import BATCH_UNIT, I64, UNIT, Units
from ledgermq.formats.batch_unit import BASE_END, BATCH_FOLDER, BATCH_TAGS
from ledgermq.formats.records.inner_batch import numbers_of
from ledgermq.formats.records.message import Message
from ledgermq.model.errors import CorruptLogError, refused_as
from ledgermq.store.queues import dispatch_checkpoint
from ledgermq.store.queues.derived_files import own_path
from ledgermq.store.queues.queue_reader import QueueReader, StoreTimeOf

_GONE = -1
"""Position of an offset that no message has: RocketMQ leaves some out."""

_NO_MESSAGE = 0
"""Code of tags there."""


class Recount(NamedTuple):
    """RocketMQ's DLedger broker puts units that count one message in each record, and the first
    start of a node puts others in their place.

    Attributes:
        behind: position from which on units may be such.
        messages_at: messages of the record at a position and of a size; 1 where none is whole.
    """

    behind: int
    messages_at: Callable[[int, int], int]


MessageAt = Callable[[int, int], Message]


def recount_of(root: Path, message_at: MessageAt) -> Recount | None:
    """What units of the store in ``root`` are to be counted anew; None: none.

    Args:
        message_at: the record at a position and of a size, whose body need not be whole.

    Raises:
        StorageError: the folders cannot be read.
    """
    with refused_as("folder not listed", why="", folder=root):
        if not any(root.glob("dledger-*")):
            return None
    saved = dispatch_checkpoint.read(own_path(root))

    def messages_at(position: int, size: int) -> int:
        try:
            message = message_at(position, size)
        except CorruptLogError:
            # Whoever reads it is told.
            return 1
        return numbers_of(message).messages

    return Recount(0 if saved is None else saved.position, messages_at)


class BatchQueueReader(QueueReader):
    """The messages of the queue in ``directory``, which need not exist yet.

    All messages of a record have its position and its size, and say by their code of tags which of
    its messages they are (``BATCH_TAGS``). An offset that no message has is before the log.
    """

    def __init__(
        self, directory: Path, *, fills: bool = False, recount: Recount | None = None
    ) -> None:
        """Look at the queue's files; no unit is read yet.

        Args:
            fills: an offset that no message has is at the place of the message before, so that
                places ascend; ``are_messages`` tells them apart.
            recount: of units that may say too few messages; None: there are none.

        Raises:
            CorruptLogError: as ``QueueReader``.
        """
        super().__init__(directory, file_size=None, unit=BATCH_UNIT)
        self._fills = fills
        self._recount = recount

    def bounds(self, log_end: int, *, log_first: int = 0) -> tuple[int, int]:
        """Queue offsets of the first message and behind the last one; equal when there is none."""
        low, high = super().bounds(log_end, log_first=log_first)
        if high == self._file_first:
            return 0, 0
        _, end = self._numbers_of(high - 1)
        first = self._numbers_of(low)[0] if low < high else end
        if first > end:
            raise CorruptLogError(
                "units of a queue of batches do not ascend: ledgermq store rebuild",
                directory=str(self.files.directory),
                first=first,
                end=end,
            )
        return first, end

    def units(self, first: int, count: int) -> Units:
        """The units of the messages from queue offset ``first`` on, ``count`` of them or as many as
        there are.
        """
        low, high = self._file_first, self._max
        end = self._numbers_of(high - 1)[1] if low < high else 0
        offsets = np.arange(first, max(first, min(first + count, end)))
        while low < high:
            middle = (low + high) // 2
            if self._numbers_of(middle)[0] <= first:
                low = middle + 1
            else:
                high = middle
        # Each has one message at least.
        found = self._counted(max(low - 1, self._file_first), len(offsets) + 1)
        if not len(offsets):
            return np.empty(0, UNIT)
        return _spread(found, offsets, fills=self._fills)

    def next_file(self, offset: int) -> int:
        """First queue offset that is there, where that of ``offset`` is gone."""
        first = self._numbers_of(self._min)[0] if self._min < self._max else 0
        return max(offset + 1, first)

    def offset_by_time(self, timestamp: int, store_time_of: StoreTimeOf, log_first: int) -> int:
        """Offset of the first message of the first record of that time or later; of the last record
        where all are older (``BatchConsumeQueue.getOffsetInQueueByTime``).
        """
        low, high = self._min, self._max
        if low == high:
            return 0
        while low < high:
            middle = (low + high) // 2
            if int(super().units(middle, 1)["store_time"][0]) < timestamp:
                low = middle + 1
            else:
                high = middle
        return self._numbers_of(min(low, self._max - 1))[0]

    def _counted(self, number: int, count: int) -> Units:
        """The units themselves, each with as many messages as its record has."""
        found = super().units(number, count)
        if self._recount is None:
            return found
        rows = np.flatnonzero(found["position"] >= self._recount.behind)
        if not len(rows):
            return found
        found = found.copy()
        for row in rows.tolist():
            position, size = int(found["position"][row]), int(found["size"][row])
            found["count"][row] = self._recount.messages_at(position, size)
        return found

    def _numbers_of(self, number: int) -> tuple[int, int]:
        """Queue offsets of the first message of a unit, and behind its last one.

        Raises:
            CorruptLogError: no unit has such numbers; names folder, unit and numbers.
        """
        unit = self._counted(number, 1)
        base, count = int(unit["base"][0]), int(unit["count"][0])
        if not 0 <= base < BASE_END or count <= 0:
            raise CorruptLogError(
                "unit of a queue of batches has no numbers of messages: ledgermq store rebuild",
                directory=str(self.files.directory),
                unit=number,
                base=base,
                count=count,
            )
        return base, base + count


def are_messages(units: Units) -> npt.NDArray[np.bool_]:
    """Which units of a queue of batches are those of a message, where offsets are filled."""
    found: npt.NDArray[np.bool_] = units["tags"] != _NO_MESSAGE
    return found


def _spread(units: Units, offsets: I64, *, fills: bool) -> Units:
    """Units of the messages at ``offsets``, which are consecutive; those before and behind may be
    among ``units``.
    """
    bases = units["base"].astype(np.int64)
    rows = np.maximum(np.searchsorted(bases, offsets, "right") - 1, 0)
    inside = offsets - bases[rows]
    is_there = (inside >= 0) & (inside < units["count"].astype(np.int64)[rows])
    found = np.zeros(len(offsets), UNIT)
    is_placed = is_there | fills
    found["position"] = np.where(is_placed, units["position"][rows], _GONE)
    found["size"] = np.where(is_placed, units["size"][rows], 0)
    found["tags"] = np.where(is_there, BATCH_TAGS + inside, _NO_MESSAGE)
    return found


def queue_reader(
    queues: Path,
    topic: str,
    queue_id: int,
    *,
    file_size: int | None,
    of_batches: Collection[str],
    fills: bool = False,
    recount: Recount | None = None,
) -> QueueReader:
    """The reader of a queue of either kind.

    Args:
        queues: ``consumequeue/``.
        of_batches: topics whose queues are of batches.
        fills, recount: as ``BatchQueueReader`` takes them.

    Raises:
        CorruptLogError: as ``QueueReader``.
    """
    if topic in of_batches:
        folder = queues.parent / BATCH_FOLDER / topic / str(queue_id)
        return BatchQueueReader(folder, fills=fills, recount=recount)
    return QueueReader(queues / topic / str(queue_id), file_size=file_size)
