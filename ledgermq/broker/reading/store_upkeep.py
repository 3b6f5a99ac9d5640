"""Upkeep of a reader's maps: deleted files closed, unused pages let go."""

from __future__ import annotations

from ledgermq.broker.reading.readable_store import ReadableStore

LOOK_AT_FILES_MS = 2_000
"""Files of the log that were deleted keep their space until this process has let go of them."""

IDLE_MS = 1_000
"""When nothing is asked for or read for this long the pages of the maps are given back."""


class StoreUpkeep:
    """Knows when the store was used last; owned by the process that reads it."""

    def __init__(self, store: ReadableStore) -> None:
        self._store = store
        self._used_ms = self._looked_ms = 0
        self._is_tidy = False

    def note_use(self, now_ms: int) -> None:
        """Somebody has asked for something."""
        self._used_ms = now_ms
        self._is_tidy = False

    def let_go(self, now_ms: int) -> bool:
        """Let go of deleted files, now and then; whether it was time to."""
        if now_ms - self._looked_ms < LOOK_AT_FILES_MS:
            return False
        self._store.notice_deleted()
        self._looked_ms = now_ms
        return True

    def tidy(self, now_ms: int) -> None:
        """Give pages back when the store has not been used for a while; at the end of a turn."""
        if self._store.take_touched():
            # Tables and timers are read although nobody asks.
            self.note_use(now_ms)
        if not self._is_tidy and now_ms - self._used_ms >= IDLE_MS:
            self._store.tidy()
            self._is_tidy = True
