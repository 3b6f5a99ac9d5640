"""Dispatched position at a start: behind it the log is not known to be dispatched."""

from __future__ import annotations

from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.model.ids import Position


def dispatched_position(page: CursorPage, *, end: Position) -> Position:
    """Everything before it is in the ConsumeQueues.

    The dispatcher has looked at them since the node was started (``CursorPage.has_queues``): what
    its checkpoint says is worth nothing for a queue that is lost.

    Args:
        end: the log's end now.
    """
    assert page.has_queues()
    return min(max(page.read_queues(), page.read_dispatched().position), end)
