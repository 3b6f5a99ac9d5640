"""Upkeep of a reader: its maps, the damage that it meets, and the dispatcher that rests."""

from __future__ import annotations

from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.ipc.orders import Damaged, encode
from ledgermq.model.ids import Position
from ledgermq.process.clock import Clock
from ledgermq.process.environment import OrderBell

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


REPEAT_NS = 1_000_000_000
"""A damaged place is reported again after this long, if it is still asked for."""

TOLD_MAX = 1_024


class DamageReports:
    """Called with the position of a damaged record, as often as somebody asks for that."""

    def __init__(self, raft: OrderBell, clock: Clock) -> None:
        self._raft = raft
        self._clock = clock
        self._told_ns: dict[int, int] = {}

    def __call__(self, position: int) -> None:
        """Have raft look at the log at ``position``; consumers ask again and again."""
        now_ns = self._clock.monotonic_ns()
        told_ns = self._told_ns.get(position)
        if told_ns is not None and now_ns - told_ns < REPEAT_NS:
            return
        if len(self._told_ns) >= TOLD_MAX:
            self._told_ns.clear()
        self._told_ns[position] = now_ns
        self._raft.send(encode(Damaged(Position(position))))


class DispatcherRest:
    """Owned by a process that gives messages out.

    While nobody waits for messages the dispatcher looks at the log now and then, and hears no
    bells: each of its turns would cost those their processor who wait for an acknowledgement.
    """

    def __init__(self, page: CursorPage, bell: OrderBell) -> None:
        """``bell`` is the dispatcher's."""
        self._until = page.rest_cell()
        self._bell = bell

    def end(self, now_ns: int) -> None:
        """Somebody waits, and this process is about to sleep."""
        if self._until[0] > now_ns:
            self._bell.rouse()

    def close(self) -> None:
        """Close the bell."""
        self._bell.close()
