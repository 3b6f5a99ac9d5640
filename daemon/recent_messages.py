"""Finding messages that are in the log already, by the unique id that their client gave them.

A producer that was cut off does not know what became of its unanswered frames, and sends them
again. Those are looked up among the last messages of the log: as many bytes as clients may have had
in flight. The table is built when the first such frame comes, and extended later.
"""

from __future__ import annotations

import mmap
import re
from bisect import bisect_right
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Position
from ledgermq.store.append_files import file_name
from ledgermq.store.kernel import scan_entries
from ledgermq.store.message import decode_message

_UNIQUE_KEY = re.compile(rb"UNIQ_KEY\x01([0-9A-Za-z]{8,64})")
_ROWS = 65_536


class StoredMessage(NamedTuple):
    """Where a message stands: queue, queue offset and physical offset."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int


class RecentMessages:
    """Table of the messages between two positions of the log; owned by the writer."""

    def __init__(
        self, directory: Path, *, file_size: int, header_size: int, first: Position, begin: int
    ) -> None:
        """An empty table.

        Args:
            directory: the log's files.
            first: position of the first file.
            begin: messages before it are not looked at.
        """
        self._directory = directory
        self._file_size = file_size
        self._header_size = header_size
        self._end = max(int(first), begin - begin % file_size)
        self._begin = begin
        self._messages: dict[bytes, StoredMessage] = {}

    def extend(self, end: Position) -> None:
        """Take the messages up to ``end``, the log's end.

        Raises:
            CorruptLogError: the log cannot be read there.
        """
        while self._end < end:
            start = self._end - self._end % self._file_size
            with (self._directory / file_name(start)).open("rb") as file:
                map_ = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            high = min(end - start, self._file_size)
            with memoryview(map_) as view, view[:high] as span:
                self._take(span, start, self._end - start)
            map_.close()
            self._end = start + high

    def find(self, unique_id: bytes) -> StoredMessage | None:
        """The message with that id, if it is among those taken."""
        return self._messages.get(unique_id)

    def _take(self, span: memoryview, base: int, at: int) -> None:
        starts = np.empty(_ROWS, np.int64)
        sizes = np.empty(_ROWS, np.int64)
        while at < len(span):
            count, reached, _ = scan_entries(
                span, at, len(span), self._header_size, base, starts.data, sizes.data
            )
            if count == 0:
                if reached == at:
                    raise CorruptLogError("record not whole", position=base + at)
                at = reached
                continue
            if base + reached > self._begin:
                offsets = starts[:count].tolist()
                for match in _UNIQUE_KEY.finditer(span, max(at, self._begin - base), reached):
                    row = bisect_right(offsets, match.start()) - 1
                    if row >= 0:
                        self._note(span, offsets[row], match[1])
            at = reached

    def _note(self, span: memoryview, at: int, unique_id: bytes) -> None:
        message = decode_message(span, at, check_crc=False)
        # The pattern may as well stand in a body: what counts is the message's own property.
        if message.unique_id.encode() == unique_id:
            self._messages[unique_id] = StoredMessage(
                message.topic, message.queue_id, message.queue_offset, message.physical_offset
            )
