"""Disk watch: whether this node's disk and writer are fit for a leader.

The raft process looks at what the writer publishes; it touches no disk itself, so that it can tell
of one that hangs.
"""

from __future__ import annotations

from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.process.flush_watch import FlushWatch

LOOK_NS = 100_000_000
BLINK_NS = 1_500_000_000
"""Who did not look for so long was stopped itself, perhaps with the whole machine."""


class DiskWatch:
    """Sick after ``sick_after_ms`` without progress; well after as long without half of that."""

    def __init__(self, *, sick_after_ms: int, now_ns: int) -> None:
        self.is_sick = False
        self._limit_ms = sick_after_ms
        self._flushes = FlushWatch()
        self._looked_ns = now_ns
        self._look_from_ns = now_ns
        self._late_ns = now_ns

    def look(self, page: CursorPage, now_ns: int) -> str | None:
        """What is wrong, or an empty text, when that has changed; None when it has not."""
        if now_ns - self._looked_ns < LOOK_NS:
            return None
        if now_ns - self._looked_ns > BLINK_NS:
            self._look_from_ns = now_ns
        self._looked_ns = now_ns
        unflushed_ms = self._flushes.waiting_ms(page, now_ns)
        unflushed_ms = min(unflushed_ms, (now_ns - self._look_from_ns) // 1_000_000)
        silent_ms = self._silence_ms(page, now_ns)
        if max(unflushed_ms, silent_ms) * 2 >= self._limit_ms:
            self._late_ns = now_ns
        if self.is_sick:
            if (now_ns - self._late_ns) // 1_000_000 < self._limit_ms:
                return None
            self.is_sick = False
            return ""
        if max(unflushed_ms, silent_ms) < self._limit_ms:
            return None
        self.is_sick = True
        if unflushed_ms >= silent_ms:
            return f"what was written is not durable after {unflushed_ms} ms"
        return f"the writer gave no sign of life for {silent_ms} ms"

    def _silence_ms(self, page: CursorPage, now_ns: int) -> int:
        """How long the writer has been silent; one that was never there is not looked at."""
        slot = page.read_process(Role.WRITER)
        if not slot.beat_ns:
            return 0
        return max(0, now_ns - max(slot.beat_ns, self._look_from_ns)) // 1_000_000
