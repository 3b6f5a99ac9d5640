"""Positions at a start: up to where the log is dispatched, and where the state log ends in it."""

from __future__ import annotations

from collections.abc import Callable

from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.members.log_trouble import has_others, report
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import NO_INDEX, Index, Position, QueueId
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.model.names.queue_name import QueueName
from ledgermq.rules.state.outlying_positions import EndOf
from ledgermq.rules.state.state_commands import STATE_QUEUE_ID
from ledgermq.store.log.entry_files import EntryFiles
from ledgermq.store.recovery.recovery import foreign_end
from ledgermq.writer.log.log_opening import OpenLog, open_queue_offsets


def dispatched_position(page: CursorPage, *, end: Position) -> Position:
    """Everything before it is in the ConsumeQueues.

    The dispatcher has looked at them since the node was started (``CursorPage.has_queues``): what
    its checkpoint says is worth nothing for a queue that is lost.

    Args:
        end: the log's end now.
    """
    assert page.has_queues()
    return min(max(page.read_queues(), page.read_dispatched().position), end)


def certain_state_end(
    log: OpenLog, settings: Settings, page: CursorPage, *, sign_of_life: Callable[[], None]
) -> int:
    """Queue offset behind the last command in the log that no other member can take back.

    All commands of a node that is alone count. Of a member's, those do that are dispatched, or that
    are noted to be committed: others may give way to what a leader has instead of them, and
    whoever counted those would pass over that.

    Args:
        page: the dispatcher has looked at the queues (``CursorPage.has_queues``).
        sign_of_life: called again and again while much of the log is read.

    Raises:
        CorruptLogError: a record of the log is not whole; names its position.
        StorageError: the operating system refused.
    """
    end = log.writer.end
    begin = dispatched_position(page, end=end.position)
    certain = _noted(log) if has_others(settings) else end.position
    found = 0
    # What is dispatched counts, also behind what is noted.
    for part in ((end.position, end.position), (begin, max(begin, certain))):
        try:
            offsets = open_queue_offsets(
                log, settings, begin=part[0], end=part[1], sign_of_life=sign_of_life
            )
        except CorruptLogError as error:
            last = (end.position, end.index_, end.term)
            raise report(settings, error, last=last) from error
        found = max(found, offsets.next_offset(SYSTEM_TOPIC.encode(), QueueId(STATE_QUEUE_ID)))
    return found


def ends_of_queues(
    log: OpenLog, settings: Settings, page: CursorPage, *, sign_of_life: Callable[[], None]
) -> EndOf:
    """Tells the end of a queue by all that the log has; None of one that cannot be read.

    Raises:
        CorruptLogError, StorageError: as ``certain_state_end``, which has read the log before.
    """
    end = log.writer.end.position
    offsets = open_queue_offsets(
        log, settings, begin=dispatched_position(page, end=end), end=end, sign_of_life=sign_of_life
    )

    def end_of(queue: QueueName) -> int | None:
        sign_of_life()
        try:
            return offsets.next_offset(queue.topic.encode(), QueueId(queue.queue_id))
        except (CorruptLogError, UnicodeEncodeError):
            return None

    return end_of


def _noted(log: OpenLog) -> Position:
    """End of what DLedger's checkpoint calls committed, of what the log has."""
    recovered, paths = log.recovered, log.paths
    assert recovered.index is not None
    noted = foreign_end(paths.root, paths.dledger_checkpoint).committed
    files = EntryFiles(
        paths.data,
        paths.index or paths.data,
        file_size=recovered.data.file_size,
        index_file_size=recovered.index.file_size,
    )
    try:
        last = log.writer.end.index_
        first = files.first_index(last)
        if first == NO_INDEX or noted < first:
            return Position(0)
        return files.end_of(Index(min(noted, last))).position
    finally:
        files.forget()
