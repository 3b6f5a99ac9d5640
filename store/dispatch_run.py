"""Offline dispatch: ConsumeQueues and Index of a whole log, while nothing else runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Position
from ledgermq.store.dispatch_build import DispatchBuilder
from ledgermq.store.log_reader import LogPart

Progress = Callable[[int, int], None]
"""Called with bytes done, and bytes to do."""


def dispatch_log(
    builder: DispatchBuilder, parts: Sequence[LogPart], end: Position, progress: Progress
) -> int:
    """Dispatch from where ``builder`` stands up to ``end``, file by file; how many messages.

    What is built is not flushed.

    Args:
        parts: the log's files, oldest first, one part right behind the other.
        end: behind the last record, or behind the blank of its file.

    Raises:
        CorruptLogError: the log has no record where one must begin.
        StorageError: the operating system refused.
    """
    begun = builder.position
    messages = 0
    while builder.position < end:
        part = _part_of(parts, builder.position)
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


def _part_of(parts: Sequence[LogPart], position: int) -> LogPart:
    for part in reversed(parts):
        if part.files.first <= position < part.files.end:
            return part
    raise CorruptLogError(
        "not within the log", position=position, folders=[str(p.files.directory) for p in parts]
    )
