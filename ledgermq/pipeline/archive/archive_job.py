"""``archive`` job: messages beyond the archive's end, of a store or a cluster, as Parquet files.

Queues say what there is, and how far the archive has each of them. A run adds what is new, in files
by topic and day, and one document of the manifest; without anything new it adds nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from ledgermq.model.errors import ConfigError
from ledgermq.pipeline.archive.archive_folder import writable_archive
from ledgermq.pipeline.archive.archive_layout import (
    PLAIN,
    STORED,
    ArchiveRun,
    ArchiveState,
    Gap,
    QueueMark,
    TopicDocument,
)
from ledgermq.pipeline.archive.archive_store import ArchiveStore, StagingArea
from ledgermq.pipeline.archive.archive_writer import (
    ArchivedPart,
    ArchivedRange,
    ArchiveTask,
    FileForm,
    archive_part,
)
from ledgermq.pipeline.job_defaults import LEVEL_DEFAULT, LEVELS
from ledgermq.pipeline.jobs.job_session import Tasks
from ledgermq.pipeline.queue_ranges import MessageRange, Queue
from ledgermq.pipeline.source.file_source import steady
from ledgermq.pipeline.source.row_source import RowSource, check_queued, name_of, open_to_plan
from ledgermq.pipeline.source_options import SourceOptions, subjects_of
from ledgermq.pipeline.typed.subject_type import SubjectType, subject_type

WORKERS_SHARE = 2
"""Tasks for each worker, so that none waits long for the last one."""

PART_BYTES_MIN = 16 * 1024 * 1024
"""Fewest bytes of the log for one task: each makes a file of its own for each topic and day."""


class ArchiveTarget(Protocol):
    """What a run adds to: an archive, or a table."""

    @property
    def form(self) -> FileForm:
        """What its files are like."""

    @property
    def state(self) -> ArchiveState:
        """What all runs before have added."""

    def as_text(self) -> str:
        """Its name, for errors."""

    def staging(self) -> StagingArea:
        """Where the workers write the files of a run.

        Raises:
            StorageError: the store refused.
        """

    def add_fields(self, bodies: SubjectType) -> None:
        """Let bodies of the next run be fields, too, of the type that ``bodies`` says or a wider
        one.

        Raises:
            ConfigError: it cannot have them.
            StorageError: the store refused.
        """

    def commit(self, run: ArchiveRun, staged: StagingArea) -> None:
        """Let the files of ``run`` be part of it, all or none, and durable on return.

        Raises:
            StoreLockedError: another run has added something meanwhile.
            StorageError: the store refused.
        """

    def discard(self) -> None:
        """Nothing is to be added.

        Raises:
            StorageError: the store refused.
        """


class Archived(NamedTuple):
    """What a run has done.

    Attributes:
        run: None when there was nothing new.
        made_anew: queues whose offsets have begun again since the last run: the topic was deleted,
            and made again by a broker that numbers from 0.
        position: of the log: the archive has all that it takes below it; None where no source has
            told.
        tasks: of Spark.
    """

    run: ArchiveRun | None
    runs: int
    made_anew: tuple[Queue, ...]
    position: int | None
    tasks: int

    @property
    def rows(self) -> int:
        """Messages that were added."""
        return sum(file.rows for file in self.run.files) if self.run else 0

    @property
    def damaged(self) -> int:
        """Messages among them whose body is not what was sent."""
        return sum(file.damaged for file in self.run.files) if self.run else 0

    @property
    def unparsed(self) -> int:
        """Messages among them whose body is not there as fields, where it should be."""
        return sum(file.unparsed for file in self.run.files) if self.run else 0

    @property
    def missing(self) -> int:
        """Messages that were deleted before they were archived."""
        return sum(gap.end - gap.first for gap in self.run.gaps) if self.run else 0


class _Wanted(NamedTuple):
    """What of a queue is to be archived; a range without messages only moves its mark."""

    range_: MessageRange
    generation: int
    first: int
    gap: Gap | None


class _Plan(NamedTuple):
    wanted: dict[Queue, _Wanted]
    made_anew: tuple[Queue, ...]
    parts: list[tuple[MessageRange, ...]]


def archive(
    job: Tasks,
    options: SourceOptions,
    store: ArchiveStore,
    *,
    split_bytes: int,
    level: int = LEVEL_DEFAULT,
) -> Archived:
    """Add to the archive in ``store`` what the source has beyond it.

    Args:
        options: the source, and which topics; their offsets are those of the archive.
        store: seen by all workers alike.
        split_bytes: of the log, for one task.
        level: of zstd, one of ``LEVELS``.

    Raises:
        ConfigError: the directory is no archive, or one of another store, or the store has no
            queues, or there is no such level, or bodies are to be fields and no schema says which.
        StoreLockedError: another run writes the archive.
        CorruptLogError: the store or the manifest is damaged.
        StorageError: something cannot be read or written.
        JobFailedError: Spark gave up.
    """
    check_level(level)
    with writable_archive(store) as folder:
        return archive_into(job, options, folder, split_bytes=split_bytes, level=level)


def check_level(level: int) -> None:
    """Whether zstd has such a level.

    Raises:
        ConfigError: it has none.
    """
    if level not in LEVELS:
        raise ConfigError(
            "no such level of zstd",
            option="--level",
            value=level,
            allowed=f"{LEVELS[0]} to {LEVELS[-1]}",
        )


def archive_into(
    job: Tasks,
    options: SourceOptions,
    target: ArchiveTarget,
    *,
    split_bytes: int,
    level: int,
) -> Archived:
    """Add to ``target`` what the source has beyond it.

    Args:
        level: one that ``check_level`` has let through.

    Raises:
        LedgerError: as ``archive`` does.
    """
    bodies = PLAIN if options.inflate else STORED
    topics = _topics_of(options)
    subjects = subjects_of(options) if options.typed else ()
    target.state.check_choice(bodies, topics, subjects)
    if subjects:
        target.add_fields(subject_type(options))
        # Another run may have begun it meanwhile.
        target.state.check_choice(bodies, topics, subjects)
    source = open_to_plan(options)
    try:
        before = source.queued()
        plan = steady(
            lambda: _plan(source, options, target, split_bytes, job.slots),
            again=source.refresh,
        )
        after = source.queued()
    finally:
        source.close()
    # Queues that another leader has listed may have less than the first one had.
    is_same = before is not None and after is not None and before.node == after.node
    position = before.position if is_same and before is not None else None
    staged = target.staging()
    number = target.state.runs + 1
    tasks = [
        ArchiveTask(
            number=task,
            run=number,
            options=options,
            ranges=ranges,
            generations=tuple(plan.wanted[range_.queue].generation for range_ in ranges),
            staging=staged,
            level=level,
            form=target.form,
        )
        for task, ranges in enumerate(plan.parts)
    ]
    # Each part is a task of its own already.
    parts = job.each(tasks, archive_part, size=len(tasks), split_bytes=1)
    marks, gaps = _outcome(plan.wanted, parts, target.state.marks)
    is_further = position is not None and position > (target.state.position or 0)
    if not marks and not is_further:
        target.discard()
        return Archived(None, target.state.runs, plan.made_anew, target.state.position, 0)
    run = ArchiveRun(
        number=number,
        at_ms=time.time_ns() // 1_000_000,
        source=name_of(options),
        bodies=bodies,
        topics=topics,
        position=position,
        marks=marks,
        gaps=tuple(gaps),
        files=tuple(file for part in parts for file in part.files),
        subjects=subjects,
    )
    target.commit(run, staged)
    return Archived(run, number, plan.made_anew, target.state.position, len(tasks))


def _plan(
    source: RowSource,
    options: SourceOptions,
    target: ArchiveTarget,
    split_bytes: int,
    slots: int,
) -> _Plan:
    check_queued(source)
    bounds = _bounds(source, options, target)
    found = {queue: _wanted(source, held, target) for queue, held in bounds.items()}
    wanted = {queue: one for queue, one in found.items() if one is not None}
    marks = target.state.marks
    made_anew = tuple(
        queue
        for queue, one in wanted.items()
        if queue in marks and one.generation > marks[queue].generation
    )
    ranges = [one.range_ for one in wanted.values() if one.range_.first < one.range_.end]
    parts = source.plan(ranges, split_bytes=min(split_bytes, PART_BYTES_MIN), splits_min=1)
    smallest = min(split_bytes, PART_BYTES_MIN)
    count = max(min(len(parts), slots * WORKERS_SHARE), len(parts) * smallest // split_bytes)
    if count < len(parts):
        parts = source.plan(ranges, split_bytes=1 << 62, splits_min=count)
    return _Plan(wanted, made_anew, parts)


def _bounds(
    source: RowSource, options: SourceOptions, target: ArchiveTarget
) -> dict[Queue, MessageRange]:
    """What the queues hold that are archived; a topic that has been deleted since has none.

    Raises:
        ConfigError: a topic that is named is neither there nor in the archive.
    """
    queues = source.queues()
    options.choice.check_found({*queues, *target.state.marks})
    return source.bounds(queue for queue in queues if options.choice.has(queue))


def _topics_of(options: SourceOptions) -> TopicDocument:
    choice = options.choice
    if choice.topics is not None:
        return {"topics": sorted(choice.topics)}
    return {} if choice.pattern is None else {"pattern": choice.pattern}


def _wanted(source: RowSource, held: MessageRange, target: ArchiveTarget) -> _Wanted | None:
    """What the archive lacks of a queue; None when that is nothing."""
    mark = target.state.marks.get(held.queue)
    if mark is None:
        return _Wanted(held, 0, held.first, None) if held.first < held.end else None
    if _is_made_anew(source, held, mark, target):
        return _Wanted(held, mark.generation + 1, held.first, None)
    if held.end <= mark.end:
        return None
    first = max(held.first, mark.end)
    gap = None
    if first > mark.end:
        gap = Gap(*held.queue, mark.generation, mark.end, first)
    return _Wanted(held._replace(first=first), mark.generation, mark.first, gap)


def _is_made_anew(
    source: RowSource, held: MessageRange, mark: QueueMark, target: ArchiveTarget
) -> bool:
    """Whether the messages of a queue are numbered from the beginning once more.

    Positions of the log only ascend: what has the number of an archived message, or a smaller one,
    and stands behind it, is of a queue that was made later.

    Raises:
        ConfigError: the log has something else at the archive's place: it is that of another store.
    """
    if held.first == held.end:
        return False
    last = mark.end - 1
    if held.end < mark.end:
        # A replica or a backup that has less, or a queue that has not grown as long yet.
        return source.position_of(held, held.end - 1) > mark.position
    if held.first > last:
        position = source.position_of(held, held.first)
        is_anew, is_strange = False, position <= mark.position
    else:
        position = source.position_of(held, last)
        is_anew, is_strange = position > mark.position, position < mark.position
    if is_strange:
        raise ConfigError(
            "archive is of another store: a message that came later stands before an archived one",
            directory=target.as_text(),
            topic=held.topic,
            queueId=held.queue_id,
            position=position,
            archived=mark.position,
        )
    return is_anew


def _outcome(
    wanted: Mapping[Queue, _Wanted],
    parts: Iterable[ArchivedPart],
    marks_before: Mapping[Queue, QueueMark],
) -> tuple[dict[Queue, QueueMark], list[Gap]]:
    """The new marks, and what was deleted before it was read."""
    read: dict[Queue, list[ArchivedRange]] = {}
    for part in parts:
        for found in part.ranges:
            read.setdefault(found.range_.queue, []).append(found)
    marks: dict[Queue, QueueMark] = {}
    gaps: list[Gap] = []
    for queue, one in wanted.items():
        if one.gap is not None:
            gaps.append(one.gap)
        for found in read.get(queue, ()):
            # Retention takes the oldest: what is missing is missing at the beginning.
            missing = found.range_.end - found.range_.first - found.rows
            if missing:
                first = found.range_.first
                gaps.append(Gap(*queue, one.generation, first, first + missing))
        before = marks_before.get(queue)
        position = -1 if before is None else before.position
        stored = -1 if before is None else before.stored
        with_rows = [found for found in read.get(queue, ()) if found.rows]
        if with_rows:
            last = max(with_rows, key=_end)
            position, stored = last.position, last.stored
        marks[queue] = QueueMark(one.generation, one.first, one.range_.end, position, stored)
    return marks, gaps


def _end(found: ArchivedRange) -> int:
    return found.range_.end
