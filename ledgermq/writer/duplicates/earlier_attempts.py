"""Look-up of resent messages before the last bytes of the log, by the Index.

``RecentMessages`` has the last bytes. A client that is cut off while others go on may repeat a
message when that is further back: the Index knows where it stands then. Where an earlier attempt
can be first, the client tells as a position (``first_position`` of a SEND), which needs no clock; a
client of before protocol version 5 does not, and its messages are looked for by the time at which
they were made. What cannot be told by a bounded search is refused: it is not known whether the
message is stored, and it is not stored once more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ledgermq.formats.arrays import I64
from ledgermq.formats.records.message import Message
from ledgermq.model.errors import AttemptUnknownError
from ledgermq.store.index.index_lookup import NOT_ALL, WantedKeys
from ledgermq.wire.session import NOT_TOLD
from ledgermq.writer.duplicates.id_files import IdFiles
from ledgermq.writer.duplicates.recent_messages import (
    CANDIDATES_MAX,
    RecentMessages,
    StoredMessage,
)
from ledgermq.writer.duplicates.stored_ids import IdsUnknownError
from ledgermq.writer.duplicates.unique_ids import LogReach
from ledgermq.writer.log.log_ids import Candidates, IdColumns

UNTOLD_MS = 3_600_000
"""Milliseconds before a message was made from where on an earlier attempt is looked for, when the
client does not tell a position: clocks differ, and most clients give a message up after 15 s."""

LOOKS_PER_TURN = 1_024
"""Most files of the Index that are looked at for messages in one turn of the writer: each look is
some random reads, while others wait."""

SAME_RECORD = 2


class AttemptReach(NamedTuple):
    """Where an earlier attempt to send a frame may stand.

    Attributes:
        first_position: see ``SendFrame``.
        recent: has looked already, from its beginning on.
        log: how far it is.
        now_ms: by the clock that stamps messages.
    """

    first_position: int
    recent: RecentMessages
    log: LogReach
    now_ms: int


class EarlierAttempts:
    """Owned by the writer's ``MissingRecords``."""

    def __init__(self, files: IdFiles) -> None:
        """Nothing was looked for in this turn."""
        self._files = files
        self._left = LOOKS_PER_TURN
        self._is_first = True

    def begin_turn(self) -> None:
        """What was looked for before does not count any more."""
        self._left = LOOKS_PER_TURN

    def begin_frame(self) -> None:
        """The records of another frame are looked for next."""
        self._is_first = self._left == LOOKS_PER_TURN

    def find(
        self, record: memoryview, message: Message, attempt: AttemptReach
    ) -> StoredMessage | None:
        """Where an earlier attempt has stored a message that the last bytes of the log lack.

        Args:
            record: as the client has sent it.
            message: what it says.

        Raises:
            AttemptUnknownError: that cannot be told any more.
            IdsUnknownError: it cannot be told now.
            CorruptLogError: the log cannot be read.
        """
        recent, begin = attempt.recent, attempt.first_position
        since_ms = 0
        if begin == NOT_TOLD:
            since_ms = min(message.born_timestamp, attempt.now_ms) - UNTOLD_MS
            if recent.begins_before(since_ms):
                return None
            begin = 0
        if begin >= recent.begin:
            return None
        if not message.unique_id:
            raise AttemptUnknownError("a message without a unique id cannot be found again")
        first = self._files.log.first_position
        if first < recent.begin:
            found = self._look_up(record, message, attempt, begin=begin, since_ms=since_ms)
            if found is not None:
                return found
        if begin < first and not (since_ms and self._files.log.is_older(first, since_ms)):
            raise AttemptUnknownError(
                "an earlier attempt may have been stored and deleted since",
                position=begin,
                log_begins_at=first,
            )
        return None

    def _look_up(
        self,
        record: memoryview,
        message: Message,
        attempt: AttemptReach,
        *,
        begin: int,
        since_ms: int,
    ) -> StoredMessage | None:
        """The same by the Index, as far as that goes back."""
        files, log = self._files, attempt.log
        if not files.has_index:
            raise AttemptUnknownError(
                "an earlier attempt may be further back than is looked without an index",
                bytes=log.end - begin,
                limit=log.end - attempt.recent.begin,
                setting="limits.total_window_bytes; store.message_index_enable",
            )
        if log.indexed < attempt.recent.begin:
            raise IdsUnknownError(
                "the index is behind what is to be looked up in it", indexed=log.indexed
            )
        zero = np.zeros(1, np.int64)
        columns = IdColumns.of(record, zero, zero + len(record), with_halves=False)
        since = np.array([since_ms], np.int64)
        keys = WantedKeys(record, columns.id_starts, columns.id_ends, since)
        ((_, positions),) = files.find(
            (message.topic.encode(),), keys, begin=begin, look=self._look
        )
        found = self._compare(record, columns, positions[positions >= begin], log.end)
        if found is None and (positions == NOT_ALL).any():
            raise AttemptUnknownError(
                "more messages have the key of this one in the index than are looked at",
                unique_id=message.unique_id,
            )
        return found

    def _compare(
        self, record: memoryview, columns: IdColumns, positions: I64, end: int
    ) -> StoredMessage | None:
        """The newest of some messages of the log that is the very same."""
        if len(positions) > CANDIDATES_MAX:
            raise AttemptUnknownError(
                "more messages may be the same as are compared",
                messages=len(positions),
                limit=CANDIDATES_MAX,
            )
        if not len(positions):
            return None
        candidates = Candidates(
            np.zeros(len(positions), np.int64), positions, np.zeros(len(positions), np.bool_)
        )
        found = self._files.log.compare(record, columns, candidates, end=end)
        same = np.flatnonzero(found.sameness == SAME_RECORD)
        if not len(same):
            return None
        row = int(same[np.argmax(found.positions[same])])
        return StoredMessage(
            found.topics[row].decode(),
            int(found.queue_ids[row]),
            int(found.queue_offsets[row]),
            int(found.positions[row]),
            int(found.store_times[row]),
        )

    def _look(self) -> None:
        """One more file of the Index is looked at."""
        self._files.sign_of_life()
        if not self._left:
            if self._is_first:
                raise AttemptUnknownError(
                    "an earlier attempt may be further back than is looked",
                    index_files=LOOKS_PER_TURN,
                )
            raise IdsUnknownError("more is looked up in the index than in one turn; it comes next")
        self._left -= 1
