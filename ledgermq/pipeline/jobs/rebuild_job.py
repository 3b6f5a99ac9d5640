"""``rebuild`` job: ConsumeQueues and Index of a store from its log, by many workers at once.

The store itself is only read. What is built stands in a folder of its own, byte for byte what the
dispatcher builds, until ``ledgermq store install-derived`` puts it in place.
"""

from __future__ import annotations

import shutil
import time
import uuid
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ledgermq.formats.arrays import UNIT
from ledgermq.formats.index_file import ITEMS_DEFAULT, SLOTS_DEFAULT, IndexHeader, IndexLayout
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.model.config.settings import StoreSection
from ledgermq.model.delay_levels import delay_levels_ms
from ledgermq.model.errors import ConfigError, CorruptLogError, refused_as
from ledgermq.pipeline.jobs.derived_pieces import (
    KEY,
    BatchQueues,
    OrderedQueue,
    Piece,
    PieceTask,
    QueueName,
    QueueRun,
    append_queue,
    blocks_of,
    dispatch_piece,
    keys_path,
    log_splits,
    write_queue_part,
)
from ledgermq.pipeline.jobs.job_session import Job
from ledgermq.repair.install_derived import (
    StagedDerived,
    message_crc,
    queue_paths,
    read_staged,
    write_staged,
)
from ledgermq.store.files.descriptor_cache import DescriptorCache
from ledgermq.store.files.folders import delete_folder
from ledgermq.store.index.index_files import IndexFiles, NewKeys, index_file_name
from ledgermq.store.index.tag_items import has_tag_items
from ledgermq.store.log_reader import LogReader
from ledgermq.store.queues.batch_topics import batch_topics
from ledgermq.store.queues.queue_end import PREFILL_SIZE
from ledgermq.store.queues.queue_files import FILE_SIZE, found_batch_file_size
from ledgermq.store.store_directory import StoreDirectory

KEYS_AT_ONCE = 1 << 20
KeyRows = npt.NDArray[np.void]


class RebuiltByJob(NamedTuple):
    """What was built, and by how many tasks.

    Attributes:
        ordered: queues whose numbers repeat or leave some out, and those of batches, built in the
            order of the log.
    """

    staged: StagedDerived
    queues: int
    ordered: int
    index_files: int
    tasks: int


def rebuild(
    job: Job, directory: StoreDirectory, section: StoreSection, staging: Path, *, split_bytes: int
) -> RebuiltByJob:
    """Build everything that follows from the committed log of ``directory`` in ``staging``.

    Args:
        section: sizes of the files.
        staging: seen by all workers under this name; what an earlier run left there is deleted.
        split_bytes: of the log, for one task.

    Raises:
        ConfigError: ``staging`` has something else in it.
        CorruptLogError: the log is damaged.
        StorageError: something cannot be read or written.
        JobFailedError: Spark gave up.
    """
    batches = BatchQueues(batch_topics(directory.root), found_batch_file_size(directory.root))
    _begin(staging)
    reader = LogReader(directory)
    try:
        queue_file_size = section.mapped_file_size_consume_queue or FILE_SIZE
        queue_file_size = -(-queue_file_size // UNIT_SIZE) * UNIT_SIZE
        with_tags = section.message_index_enable and has_tag_items(
            directory.root, directory.log_family
        )
        tasks = [
            PieceTask(
                number=number,
                split=split,
                root=directory.root,
                self_id=directory.self_id,
                staging=staging,
                queue_file_size=queue_file_size,
                batches=batches,
                delays_ms=delay_levels_ms(section.message_delay_level),
                with_keys=section.message_index_enable,
                with_tags=with_tags,
            )
            for number, split in enumerate(log_splits(reader, split_bytes=split_bytes))
        ]
        size = sum(task.split.end - task.split.first for task in tasks)
        pieces = job.each(tasks, dispatch_piece, size=size, split_bytes=split_bytes)
        _check_reached(reader, tasks, pieces)
        regular, ordered_names = _sorted_out(pieces)
        ordered = _build_ordered(job, tasks, ordered_names)
        for run in regular:
            _prefill(staging, run, queue_file_size)
        index_files = _build_index(job, pieces, staging, section)
        last = max((piece.last for piece in pieces), default=-1)
        slots, items = section.max_hash_slot_num, section.max_index_num
        with_index = section.message_index_enable
        staged = StagedDerived(
            complete=True,
            first=int(reader.first),
            end=pieces[-1].reached if pieces else int(reader.first),
            messages=sum(piece.messages for piece in pieces),
            units=sum(piece.units for piece in pieces),
            keys=sum(piece.keys for piece in pieces),
            skipped=sum(piece.skipped for piece in pieces),
            ends=sum(run.end for run in regular) + sum(queue.units for queue in ordered),
            queue_files=len(queue_paths(staging)),
            index_end=max((piece.last_key for piece in pieces), default=(-1, 0))[0],
            store_timestamp=max((piece.unit_time for piece in pieces), default=(-1, 0))[1],
            last=last,
            last_crc=message_crc(reader, last) if last >= 0 else 0,
            queue_file_size=queue_file_size,
            hash_slots=(slots or SLOTS_DEFAULT) if with_index else None,
            index_items=(items or ITEMS_DEFAULT) if with_index else None,
        )
    finally:
        reader.close()
    delete_folder(staging / "keys")
    write_staged(staging, staged)
    return RebuiltByJob(staged, len(regular) + len(ordered), len(ordered), index_files, len(tasks))


def _begin(staging: Path) -> None:
    """An empty folder that says that it is not complete."""
    if staging.is_dir() and any(staging.iterdir()) and read_staged(staging) is None:
        raise ConfigError("not empty, and not of an earlier run", directory=str(staging))
    delete_folder(staging)
    with refused_as("folder not made", file=staging):
        (staging / "consumequeue").mkdir(parents=True)
    write_staged(staging, StagedDerived(complete=False))


def _check_reached(reader: LogReader, tasks: Sequence[PieceTask], pieces: Sequence[Piece]) -> None:
    """Only the last part may end before its end: what is behind the last entry of the log."""
    for task, piece in zip(tasks[:-1], pieces[:-1], strict=True):
        if piece.reached != task.split.end:
            files = reader.part_of(task.split.first).files
            raise CorruptLogError(
                "log ends within a record",
                file=str(files.path(piece.reached)),
                offset=piece.reached - files.start_of(piece.reached),
                field="size",
            )


def _sorted_out(pieces: Sequence[Piece]) -> tuple[list[QueueRun], frozenset[QueueName]]:
    """Queues whose parts join, each as one run, and the names of the others."""
    joined: dict[QueueName, QueueRun] = {}
    for piece in pieces:
        for run in piece.runs:
            before = joined.get(run.queue)
            if before is not None:
                is_whole = before.is_whole and run.is_whole and before.end == run.first
                run = run._replace(first=before.first, is_whole=is_whole)  # noqa: PLW2901
            joined[run.queue] = run
    regular = [run for run in joined.values() if run.is_whole]
    return regular, frozenset(name for name, run in joined.items() if not run.is_whole)


def _build_ordered(
    job: Job, tasks: Sequence[PieceTask], names: frozenset[QueueName]
) -> list[OrderedQueue]:
    if not names:
        return []
    task = tasks[0]
    blocks = job.pieces(tasks).flatMap(partial(_blocks, names))
    count = min(len(names), len(tasks))
    append = partial(
        _append, staging=task.staging, file_size=task.queue_file_size, batches=task.batches
    )
    return job.collected(blocks.groupByKey(count).map(append), count)


def _blocks(names: frozenset[QueueName], task: PieceTask) -> list[tuple[QueueName, object]]:
    return list(blocks_of(task, names))


def _append(  # type: ignore[no-untyped-def]
    queue, *, staging: Path, file_size: int, batches: BatchQueues
) -> OrderedQueue:
    name, blocks = queue
    return append_queue(name, blocks, staging=staging, file_size=file_size, batches=batches)


def _prefill(staging: Path, run: QueueRun, file_size: int) -> None:
    """A queue that begins with another message than number 0 has units of none before it."""
    per_file = file_size // UNIT_SIZE
    count = run.first % per_file
    if not count:
        return
    topic = run.queue[0].decode(errors="surrogateescape")
    start = (run.first - count) * UNIT_SIZE
    path = staging / "consumequeue" / topic / str(run.queue[1]) / f"{start:020d}"
    block = np.zeros(count, UNIT)
    block["size"] = PREFILL_SIZE
    files = DescriptorCache()
    try:
        write_queue_part(files, str(path), file_size, 0, memoryview(block.tobytes()))
    finally:
        files.close()


def _build_index(job: Job, pieces: Sequence[Piece], staging: Path, section: StoreSection) -> int:
    if not section.message_index_enable:
        return 0
    layout = IndexLayout(
        slots=section.max_hash_slot_num or SLOTS_DEFAULT,
        items=section.max_index_num or ITEMS_DEFAULT,
    )
    (staging / "index").mkdir()
    tasks = index_tasks(pieces, staging, layout, now_ms=time.time_ns() // 1_000_000)
    size = sum(piece.keys for piece in pieces) * KEY.itemsize
    job.each(tasks, build_index_file, size=size, split_bytes=layout.file_size)
    return len(tasks)


@dataclass(frozen=True)
class IndexFileTask:
    """One file of the index, which is built without the others.

    A key's number in the log says into which file it goes, and the last key before a file is all
    that its header takes over from the file before it.

    Attributes:
        slices: parts of the log with numbers of their keys, half-open, in order.
        follows: last key's store time and position before the file; None for the first file.
        trailing: position of a message behind all keys, for the file that only it opens.
    """

    staging: Path
    name: str
    layout: IndexLayout
    slices: tuple[tuple[int, int, int], ...]
    follows: tuple[int, int] | None
    trailing: int


def index_tasks(
    pieces: Sequence[Piece], staging: Path, layout: IndexLayout, *, now_ms: int
) -> list[IndexFileTask]:
    """The files into which the keys of ``pieces`` go, named for ``now_ms``."""
    room = layout.items - 1
    begins = list(accumulate((piece.keys for piece in pieces), initial=0))
    keys = begins[-1]
    last = max((piece.last for piece in pieces), default=-1)
    last_key = max((piece.last_key for piece in pieces), default=(-1, 0))
    # A full file is followed by an empty one as soon as a message follows.
    opens = keys % room == 0 and last > last_key[0]
    first_name = int(index_file_name(now_ms))
    tasks: list[IndexFileTask] = []
    for number in range(-(-keys // room) + opens):
        first = number * room
        tasks.append(
            IndexFileTask(
                staging,
                f"{first_name + number:017d}",
                layout,
                tuple(_slices(pieces, begins, first, min(first + room, keys))),
                _key_at(staging, pieces, begins, first - 1) if number else None,
                last,
            )
        )
    return tasks


def build_index_file(task: IndexFileTask) -> int:
    """Build one file; how many keys it has.

    Raises:
        StorageError: the operating system refused.
    """
    private = task.staging / f"index-{uuid.uuid4().hex}"
    follows = None
    if task.follows is not None:
        time, position = task.follows
        follows = IndexHeader(0, time, 0, position, 0, task.layout.items)
    files = IndexFiles(private, task.layout, aside=private, clock_ms=lambda: 0, follows=follows)
    count = 0
    try:
        for rows in _chunks(task):
            numbers = np.arange(len(rows), dtype=np.int32)
            columns = (rows["hash"].astype(np.int32), numbers)
            places = (rows["position"].astype(np.int64), rows["time"].astype(np.int64))
            count += files.put(NewKeys(*columns, *places), range(len(rows)))
        if not count:
            nothing = np.empty(0, np.int32)
            at = np.array([task.trailing], np.int64)
            files.put(NewKeys(nothing, nothing, at, at), range(1))
        (name,) = files.file_names
    finally:
        files.close()
    with refused_as("index file not put in place", writes=True, file=task.name):
        (task.staging / "index").mkdir(exist_ok=True)
        (private / name).replace(task.staging / "index" / task.name)
        shutil.rmtree(private)
    return count


def _chunks(task: IndexFileTask) -> Iterator[KeyRows]:
    """The file's keys, some at once; keys of one message come together."""
    for number, first, end in task.slices:
        rows = np.memmap(keys_path(task.staging, number), KEY, "r")[first:end]
        at = 0
        while at < len(rows):
            until = min(at + KEYS_AT_ONCE, len(rows))
            position = rows["position"][until - 1]
            until = at + int(np.searchsorted(rows["position"][at:], position, side="right"))
            yield np.array(rows[at:until])
            at = until


def _slices(
    pieces: Sequence[Piece], begins: Sequence[int], first: int, end: int
) -> Iterator[tuple[int, int, int]]:
    """Where the keys ``[first, end)`` are; ``begins`` has each piece's first one, and the end."""
    at = bisect_right(begins, first) - 1
    while at < len(pieces) and begins[at] < end:
        low, high = max(first, begins[at]) - begins[at], min(end, begins[at + 1]) - begins[at]
        if low < high:
            yield pieces[at].number, low, high
        at += 1


def _key_at(
    staging: Path, pieces: Sequence[Piece], begins: Sequence[int], number: int
) -> tuple[int, int]:
    """Store time and position of the key with this number."""
    ((part, at, _),) = _slices(pieces, begins, number, number + 1)
    row = np.memmap(keys_path(staging, part), KEY, "r")[at]
    return int(row["time"]), int(row["position"])
