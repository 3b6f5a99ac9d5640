"""Scrub of ConsumeQueues: units compared with their messages by reading the log again.

Only units of messages that the log still has are judged, in files that are there: what a start
finds missing it builds again by itself. A unit of an earlier message with the same queue offset
stays, as RocketMQ lets it (``queue_files``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ledgermq.formats.arrays import UNIT, Units
from ledgermq.formats.java_hash import HASH_MIN
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.model.names.stored_name import is_file_name
from ledgermq.store.queues.dispatch_tables import QueueBlock

SCHEDULE_TOPIC = b"SCHEDULE_TOPIC_XXXX"
"""Its units hold times of delivery, by the delay levels of the day when they were put."""


IsMessage = Callable[[int, int, int, int], bool]
"""Whether the log has, at a position and of a size, a message of a queue id and queue offset."""


class UnitPatch(NamedTuple):
    """What belongs at ``offset`` of a queue file, in place of units that are wrong."""

    path: str
    offset: int
    data: bytes

    @property
    def units(self) -> int:
        """How many are wrong."""
        return len(self.data) // UNIT_SIZE


class UnitScrub:
    """Compares blocks of units with the files below one ``consumequeue`` folder; only reads."""

    def __init__(self, root: Path, file_size: int, is_message: IsMessage) -> None:
        """Nothing is read yet."""
        self._root = root
        self._file_size = file_size
        self._is_message = is_message
        self._has_extensions = root.with_name("consumequeue_ext").is_dir()

    def wrong_units(self, block: QueueBlock) -> Iterator[UnitPatch]:
        """What belongs where the block's units stand, where they are others.

        Raises:
            OSError: a queue file cannot be read.
        """
        if not is_file_name(block.topic):
            return
        offsets, units = block.queue_offsets, block.units
        starts = [0, *(np.flatnonzero(np.diff(offsets) != 1) + 1).tolist(), len(offsets)]
        per_file = self._file_size // UNIT_SIZE
        for first, last in pairwise(starts):
            at = first
            while at < last:
                offset = int(offsets[at])
                count = min(last - at, per_file - offset % per_file)
                yield from self._compare(block, offset, units[at : at + count])
                at += count

    def _compare(self, block: QueueBlock, offset: int, units: Units) -> Iterator[UnitPatch]:
        """Units side by side in one file."""
        at = offset * UNIT_SIZE % self._file_size
        folder = f"{self._root}/{os.fsdecode(block.topic)}/{block.queue_id}"
        path = f"{folder}/{offset * UNIT_SIZE - at:020d}"
        wanted = units.tobytes()
        content = _read(path, len(wanted), at)
        if content is None or content == wanted:
            return
        found = np.frombuffer(content, UNIT)
        wrong = self._is_wrong(block, units, found)
        for row in np.flatnonzero(wrong).tolist():
            position, size = int(found["position"][row]), int(found["size"][row])
            is_earlier = 0 <= position < int(units["position"][row]) and size > 0
            if is_earlier and self._is_message(position, size, block.queue_id, offset + row):
                wrong[row] = False
        edges = np.flatnonzero(np.diff(wrong.astype(np.int8))) + 1
        for first, last in pairwise([0, *edges.tolist(), len(wrong)]):
            if wrong[first]:
                data = wanted[first * UNIT_SIZE : last * UNIT_SIZE]
                yield UnitPatch(path, at + first * UNIT_SIZE, data)

    def _is_wrong(self, block: QueueBlock, units: Units, found: Units) -> npt.NDArray[np.bool_]:
        same = (found["position"] == units["position"]) & (found["size"] == units["size"])
        if block.topic != SCHEDULE_TOPIC:
            # Below all hashes are addresses of units in consumequeue_ext.
            is_address = (found["tags"] < HASH_MIN) & self._has_extensions
            same &= (found["tags"] == units["tags"]) | is_address
        wrong: npt.NDArray[np.bool_] = ~same
        return wrong


def _read(path: str, size: int, at: int) -> bytes | None:
    """``size`` bytes; None where the file is not there, or ends before."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        content = os.pread(fd, size, at)
    finally:
        os.close(fd)
    return content if len(content) == size else None
