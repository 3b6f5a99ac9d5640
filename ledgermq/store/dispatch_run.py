"""Offline dispatch: ConsumeQueues and Index of a whole log, while nothing else runs."""

from __future__ import annotations

from collections.abc import Callable

from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Position
from ledgermq.store.log_family import MappedLog
from ledgermq.store.queues.dispatch_build import DispatchBuilder

Progress = Callable[[int, int], None]
"""Called with bytes done, and bytes to do."""


def dispatch_log(
    builder: DispatchBuilder, log: MappedLog, end: Position, progress: Progress
) -> int:
    """Dispatch from where ``builder`` stands up to ``end``, file by file; how many messages.

    What is built is not flushed.

    Args:
        log: its parts stand right behind one another.
        end: behind the last record, or behind the blank of its file.

    Raises:
        CorruptLogError: the log has no record where one must begin.
        StorageError: the operating system refused.
    """
    begun = builder.position
    messages = 0
    while builder.position < end:
        part = log.part_with(builder.position)
        if part is None:
            raise CorruptLogError(
                "not within the log",
                position=builder.position,
                folders=[str(part.files.directory) for part in log.parts],
            )
        start = part.files.start_of(builder.position)
        upto = min(end, start + part.files.file_size)
        before = builder.position
        built = builder.build(
            part.files.view(start, part.files.file_size),
            Position(start),
            Position(upto),
            header_size=part.header_size,
        )
        messages += built.messages
        part.files.release_pages()
        if built.position == before:
            raise CorruptLogError(
                "log ends within a record", file=str(part.files.path(start)), offset=before - start
            )
        progress(built.position - begun, end - begun)
    return messages
