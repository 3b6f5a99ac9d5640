"""Row source: the one interface of store directories, of running clusters and of pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from ledgermq.model.errors import ConfigError
from ledgermq.pipeline.columns.queued_records import QueuedRecords
from ledgermq.pipeline.queue_ranges import (
    MessageRange,
    Offsets,
    Place,
    Queue,
    Queued,
    placed,
    ranges_between,
)
from ledgermq.pipeline.source.file_source import FileSource, steady
from ledgermq.pipeline.source.node_source import NodeSource
from ledgermq.pipeline.source.piece_source import PieceSource
from ledgermq.pipeline.source.replica_source import ReplicaSource
from ledgermq.pipeline.source.store_source import StoreSource
from ledgermq.pipeline.source_options import SourceOptions


class RowSource(Protocol):
    """Queues of messages; what they hold is as of the last ``refresh``."""

    def refresh(self) -> None:
        """Look for what came and went since."""

    def close(self) -> None:
        """Let go of everything."""

    def queues(self) -> list[Queue]:
        """All queues, those of the system, too."""

    def bounds(self, queues: Iterable[Queue]) -> dict[Queue, MessageRange]:
        """What each of ``queues`` holds of committed messages."""

    def offset_at_time(self, range_: MessageRange, timestamp_ms: int) -> int:
        """Queue offset of the first message of a range that was stored at that time or later."""

    def position_of(self, range_: MessageRange, offset: int) -> int:
        """Where a message that a range has stands in the log."""

    def queued(self) -> Queued | None:
        """Position up to which the log is in the queues that are listed from now on, if that is
        known.
        """

    def plan(
        self, ranges: Sequence[MessageRange], *, split_bytes: int, splits_min: int
    ) -> list[tuple[MessageRange, ...]]:
        """``ranges`` divided into parts for a task each."""

    def read(
        self, ranges: Sequence[MessageRange], *, fail_on_data_loss: bool
    ) -> Iterator[QueuedRecords]:
        """The messages of ``ranges``, some thousands at once."""


def open_source(options: SourceOptions) -> RowSource:
    """The store, the replicas, the cluster, or the pieces, that the options name.

    Raises:
        LedgerError: it cannot be opened or reached.
    """
    if options.nodes:
        return NodeSource(
            options.nodes,
            timeout_ms=options.answer_ms or options.timeout_ms,
            from_followers=options.read_from == "followers",
        )
    if options.pieces:
        store = StoreSource(options.paths[0], self_id=options.self_id) if options.paths else None
        return PieceSource(options.pieces, as_of=options.as_of, store=store)
    if len(options.paths) > 1:
        return ReplicaSource(options.paths)
    return StoreSource(options.paths[0], self_id=options.self_id)


def open_to_plan(options: SourceOptions) -> RowSource:
    """The same for the driver, which plans what all tasks read.

    Raises:
        LedgerError: it cannot be opened or reached.
        ConfigError: several directories are not replicas of one group.
    """
    source = open_source(options)
    if isinstance(source, ReplicaSource):
        try:
            steady(source.check_same_group, again=source.refresh)
        except BaseException:
            source.close()
            raise
    return source


def name_of(options: SourceOptions) -> str:
    """Directories or addresses, for people."""
    if options.pieces:
        return ",".join([options.pieces, *(str(path) for path in options.paths)])
    return ",".join(options.nodes or (str(path) for path in options.paths))


def check_queued(source: RowSource) -> None:
    """Whether there are queues to go by.

    Raises:
        ConfigError: there are none, but a log that can only be walked through.
    """
    if isinstance(source, FileSource) and not source.has_queues:
        raise ConfigError(
            "store has no queues, and this job goes by them: ledgermq spark rebuild makes them",
            directory=source.place,
        )


def chosen_bounds(source: RowSource, options: SourceOptions) -> dict[Queue, MessageRange]:
    """What the queues hold that the options choose.

    Raises:
        ConfigError: one that is named is not there.
    """
    queues = source.queues()
    options.choice.check_found(set(queues))
    return source.bounds(queue for queue in queues if options.choice.has(queue))


def chosen_ranges(source: RowSource, options: SourceOptions) -> list[MessageRange]:
    """What of the queues lies between the places or times that the options name.

    Raises:
        LedgerError: the options do not fit what there is, or it cannot be read.
    """
    bounds = chosen_bounds(source, options)
    starts = offsets_at(
        source, bounds, options.starting, options.starting_ms, option="startingOffsets"
    )
    ends = offsets_at(source, bounds, options.ending, options.ending_ms, option="endingOffsets")
    return ranges_between(starts, ends, bounds, fail=options.fail_on_data_loss)


def offsets_at(
    source: RowSource,
    bounds: dict[Queue, MessageRange],
    place: Place,
    timestamp_ms: int | None,
    *,
    option: str,
) -> Offsets:
    """The queue offset of each queue at a place, or of a time where one is given."""
    if timestamp_ms is None:
        return placed(place, bounds, option=option)
    return {queue: source.offset_at_time(range_, timestamp_ms) for queue, range_ in bounds.items()}
