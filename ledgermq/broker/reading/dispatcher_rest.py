"""Rest of the dispatcher, which ends when somebody begins to wait for what it builds."""

from __future__ import annotations

from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.process.environment import OrderBell


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
