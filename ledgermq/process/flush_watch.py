"""Watch on a cursor: for how long what was written has waited for it, by the cursors alone."""

from __future__ import annotations

from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.model.ids import Position


class CursorWatch:
    """Watches how long a cursor has stood still before what is written."""

    def __init__(self) -> None:
        self._at = -1
        self._since_ns = 0

    def waiting_ms(self, page: CursorPage, at: Position, now_ns: int, *, moved_ns: int = 0) -> int:
        """How long the cursor has been ``at``, or since ``moved_ns``; 0 when it is at the end."""
        if page.read_written().position <= at:
            self._at = -1
            return 0
        if at != self._at:
            self._at = at
            self._since_ns = now_ns
        return max(0, now_ns - max(self._since_ns, moved_ns)) // 1_000_000


class FlushWatch:
    """Watches how long the same bytes have been written and not durable.

    The age of the last flush alone would not do: after an idle hour it is an hour, and the first
    message then would look like a disk that hangs.
    """

    def __init__(self) -> None:
        self._watch = CursorWatch()

    def waiting_ms(self, page: CursorPage, now_ns: int) -> int:
        """How long what is not durable has waited since the last flush; 0 when all is durable."""
        durable, flushed_ns = page.read_durable()
        return self._watch.waiting_ms(page, durable.position, now_ns, moved_ns=flushed_ns)
