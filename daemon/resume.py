"""From where on the log is not known to be dispatched."""

from __future__ import annotations

from ledgermq.daemon.log_opening import OpenLog
from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.model.ids import Position
from ledgermq.store import dispatch_checkpoint


def dispatched_position(page: CursorPage, log: OpenLog, *, end: Position) -> Position:
    """Everything before it is in the ConsumeQueues.

    The cursor page knows, if the dispatcher has run since the node was started; else the
    dispatcher's checkpoint; else, in a directory that another broker wrote, the log's beginning.

    Args:
        end: the log's end now.
    """
    if page.has_dispatched():
        return Position(min(page.read_dispatched().position, end))
    checkpoint = dispatch_checkpoint.read(log.paths.own / "dispatch-checkpoint")
    # A position below that is in the log that the store was taken over with.
    first = 0 if log.paths.old is not None and log.paths.old.is_dir() else log.recovered.first
    if checkpoint is not None and first <= checkpoint.position <= end:
        return Position(checkpoint.position)
    return log.recovered.first
