"""Watch on the flusher: whether what was written becomes durable in time, by the cursors alone."""

from __future__ import annotations

from ledgermq.ipc.cursor_page import CursorPage


class FlushWatch:
    """Watches how long the same bytes have been written and not durable.

    The age of the last flush alone would not do: after an idle hour it is an hour, and the first
    message then would look like a disk that hangs.
    """

    def __init__(self) -> None:
        self._durable = -1
        self._since_ns = 0

    def waiting_ms(self, page: CursorPage, now_ns: int) -> int:
        """How long what is not durable has waited since the last flush; 0 when all is durable."""
        durable, flushed_ns = page.read_durable()
        if page.read_written().position <= durable.position:
            self._durable = -1
            return 0
        if durable.position != self._durable:
            self._durable = durable.position
            self._since_ns = now_ns
        return max(0, now_ns - max(self._since_ns, flushed_ns)) // 1_000_000
