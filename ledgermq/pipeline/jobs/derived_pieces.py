"""Task of ``rebuild``: units into queue files, keys aside.

Queue offsets say where units belong, so tasks write them into the same files side by side, without
a shuffle; no two write the same bytes, and a task that is run again writes what it wrote before.
Where RocketMQ's rule is another one (numbers that repeat or leave some out, and all queues of
batches), a task tells so, and the queue is built in the order of the log (``blocks_of``,
``append_queue``).

Files below the folder that is being built:

    consumequeue/TOPIC/QUEUE/       queue files
    batchconsumequeue/TOPIC/QUEUE/  those of queues of batches
    keys/NUMBER                     keys of the part NUMBER (``KEY``); gone when the index is built
"""

from __future__ import annotations

import os
import shutil
import uuid
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ledgermq.formats.arrays import BATCH_UNIT, UNIT
from ledgermq.formats.batch_unit import BATCH_FOLDER
from ledgermq.formats.dledger_index import ITEM_SIZE, decode_index_item
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.model.errors import CorruptLogError, refused_as
from ledgermq.model.names.stored_name import is_file_name
from ledgermq.pipeline.job_defaults import SPLIT_BYTES
from ledgermq.store.files.descriptor_cache import DescriptorCache, write_fully
from ledgermq.store.log_reader import LogReader
from ledgermq.store.queues.dispatch_tables import DispatchTables, Portion, QueueBlock
from ledgermq.store.queues.queue_files import QueueFiles
from ledgermq.store.store_directory import open_directory


class LogSplit(NamedTuple):
    """Positions ``[first, end)`` within one file of the log; a record begins at each of them.

    Only the last split may end where its file goes on.
    """

    first: int
    end: int


def log_splits(reader: LogReader, *, split_bytes: int = SPLIT_BYTES) -> list[LogSplit]:
    """The log from its first record to its committed end.

    A DLedger log is divided within its files, since its index tells where entries begin; a plain
    one has nothing that tells without being read, and is divided into its files.

    Raises:
        CorruptLogError: an item of the index, or the checkpoint, cannot be read.
    """
    end = int(reader.committed_end())
    splits: list[LogSplit] = []
    for part in reader.parts:
        for start in part.files.starts:
            first = max(start, int(reader.first))
            upto = min(start + part.files.file_size, end)
            if first >= upto:
                continue
            cuts = [first, upto]
            if part.header_size:
                wanted = range(first + split_bytes, upto, split_bytes)
                cuts = sorted({first, upto, *(_entry_from(reader, at) for at in wanted)})
            splits += [LogSplit(*cut) for cut in pairwise(at for at in cuts if at <= upto)]
    return splits


def _entry_from(reader: LogReader, position: int) -> int:
    """Where the first entry at or behind ``position`` begins; far away when there is none."""
    files = reader.index_files
    assert files is not None

    def begins(number: int) -> int:
        at = number * ITEM_SIZE
        item = decode_index_item(files.view(at, ITEM_SIZE), file=str(files.path(at)))
        return 1 << 62 if item is None else int(item.position)

    numbers = range(-(-files.first // ITEM_SIZE), files.end // ITEM_SIZE)
    found = bisect_left(numbers, position, key=begins)
    return begins(numbers[found]) if found < len(numbers) else 1 << 62


KEY = np.dtype([("hash", "<i4"), ("position", "<i8"), ("time", "<i8")])
"""A key on its way into the index: hash, position and store time of its message."""

BUFFERED_UNITS = 1 << 20
"""Units held back, to be written in long runs where there are many queues."""

QueueName = tuple[bytes, int]
Integers = npt.NDArray[np.int64]


class BatchQueues(NamedTuple):
    """Topics whose queues are of batches, and the size of their files (``QueueFiles``)."""

    topics: frozenset[str] = frozenset()
    file_size: int | None = None


@dataclass(frozen=True)
class PieceTask:
    """One part of the log of ``root``, and the folder in which is built."""

    number: int
    split: LogSplit
    root: Path
    self_id: str | None
    staging: Path
    queue_file_size: int
    batches: BatchQueues
    delays_ms: tuple[int, ...]
    with_keys: bool
    with_tags: bool


class QueueRun(NamedTuple):
    """Units of one queue from one part of the log.

    Attributes:
        first, end: queue offsets, half-open.
        is_whole: each number comes once, in order, and it is no queue of batches; else nothing
            of it counts as written.
        log_end: position behind the last message.
    """

    queue: QueueName
    first: int
    end: int
    is_whole: bool
    log_end: int


class Piece(NamedTuple):
    """What became of one part.

    Attributes:
        reached: position behind its last record, or behind the blank of the file.
        keys: how many were put into the part's file.
        last: position of the last message, and its CRC with all before it in the record; -1, 0.
        last_key: position and store time of the last message with a key; -1, 0.
        unit_time: position and store time of the last message with a unit; -1, 0.
    """

    number: int
    reached: int
    messages: int
    units: int
    skipped: int
    keys: int
    last: int
    last_key: tuple[int, int]
    unit_time: tuple[int, int]
    runs: tuple[QueueRun, ...]


def dispatch_piece(task: PieceTask) -> Piece:
    """Write the units and keys of one part.

    Raises:
        CorruptLogError: a record is not whole; names file, offset and field.
        StorageError: a file cannot be read or written.
    """
    queues = _QueueParts(task.staging / "consumequeue", task.queue_file_size)
    keys = _KeyPart(task) if task.with_keys else None
    portions = _Portions(task)
    messages = units = skipped = 0
    last, last_key, unit_time = -1, (-1, 0), (-1, 0)
    try:
        for portion in portions:
            messages += len(portion.rows)
            skipped += portion.malformed
            for block in portions.blocks(portion):
                if is_file_name(block.topic):
                    units += block.messages
                    queues.put(block)
                else:
                    skipped += block.messages
            tables = portions.tables
            last = int(tables.positions[portion.rows.stop - 1])
            row = tables.last_unit_row(portion)
            if row >= 0:
                unit_time = (int(tables.positions[row]), int(tables.store_times[row]))
            if keys is not None and len(portion.keys.rows):
                last_key = keys.put(portion)
        queues.flush()
        count = 0 if keys is None else keys.finish()
    finally:
        queues.close()
        portions.close()
        if keys is not None:
            keys.discard()
    return Piece(
        task.number,
        portions.reached,
        messages,
        units,
        skipped,
        count,
        last,
        last_key,
        unit_time,
        queues.runs(),
    )


class OrderedBlock(NamedTuple):
    """Units of a queue that must be put in the order of the log, as bytes for the shuffle."""

    part: int
    number: int
    queue_offsets: bytes
    units: bytes


def blocks_of(
    task: PieceTask, queues: frozenset[QueueName]
) -> Iterator[tuple[QueueName, OrderedBlock]]:
    """The units of some queues in one part.

    Raises:
        CorruptLogError: a record is not whole.
    """
    portions = _Portions(task)
    number = 0
    try:
        for portion in portions:
            for block in portions.blocks(portion):
                name = (block.topic, block.queue_id)
                if name in queues:
                    offsets = block.queue_offsets.astype("<i8").tobytes()
                    yield name, OrderedBlock(task.number, number, offsets, block.units.tobytes())
                    number += 1
    finally:
        portions.close()


class OrderedQueue(NamedTuple):
    """A queue that was built in the order of the log.

    Attributes:
        units: up to its end, as ``QueueFiles.all_units`` counts them; ``gaps`` as there.
    """

    queue: QueueName
    units: int
    log_end: int
    gaps: int


def append_queue(
    queue: QueueName,
    blocks: Iterable[OrderedBlock],
    *,
    staging: Path,
    file_size: int,
    batches: BatchQueues,
) -> OrderedQueue:
    """Build one queue as the dispatcher does, message by message where it must be.

    Raises:
        StorageError: a file cannot be written.
    """
    topic = os.fsdecode(queue[0])
    is_of_batches = topic in batches.topics
    place = Path(BATCH_FOLDER if is_of_batches else "consumequeue", topic, str(queue[1]))
    private = staging / f"ordered-{uuid.uuid4().hex}"
    target = staging / place
    files = QueueFiles(
        private / "consumequeue",
        file_size=file_size,
        aside=private,
        batch_topics=batches.topics,
        batch_file_size=batches.file_size,
    )
    try:
        for block in sorted(blocks):
            if is_of_batches:
                files.append_batches(*queue, np.frombuffer(block.units, BATCH_UNIT))
                continue
            offsets = np.frombuffer(block.queue_offsets, "<i8").astype(np.int64)
            files.append(*queue, offsets, np.frombuffer(block.units, UNIT))
        ordered = OrderedQueue(queue, files.all_units, files.log_end, files.gaps)
    finally:
        files.close()
    with refused_as("queue not put in place", writes=True, file=target):
        if target.exists():
            shutil.rmtree(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        (private / place).rename(target)
        shutil.rmtree(private)
    return ordered


class _Portions:
    """The portions of one part; each is valid until the next one."""

    def __init__(self, task: PieceTask) -> None:
        self.tables = DispatchTables(
            task.delays_ms, with_keys=task.with_keys, with_tags=task.with_tags
        )
        self.reached = task.split.first
        self._reader = LogReader(open_directory(task.root, self_id=task.self_id))
        self._split = task.split
        self._batch_topics = frozenset(map(os.fsencode, task.batches.topics))
        self._span = memoryview(b"")

    def __iter__(self) -> Iterator[Portion]:
        first, end = self._split
        if first == end:
            return
        span = self._reader.span(first)
        self._span = span.view
        at, is_full = 0, True
        while is_full:
            count, at, status = self.tables.scan(
                span.view, at, end - first, header_size=span.header_size, base=first
            )
            yield from self.tables.portions(span.view, first, count)
            self.reached = first + at
            if status.corrupt:
                files = self._reader.part_of(first).files
                raise CorruptLogError(
                    "record is not whole",
                    file=str(files.path(first)),
                    offset=self.reached - files.start_of(first),
                    field=status.name.lower().removeprefix("bad_"),
                )
            is_full = status == status.FULL

    def blocks(self, portion: Portion) -> Iterator[QueueBlock]:
        return self.tables.blocks(self._span, portion, self._batch_topics)

    def close(self) -> None:
        self._span = memoryview(b"")
        self._reader.close()


class _QueueParts:
    """Units of one part of the log, on their way into the files that all parts share."""

    def __init__(self, root: Path, file_size: int) -> None:
        self._root = root
        self._file_size = file_size
        self._runs: dict[QueueName, QueueRun] = {}
        self._held: dict[QueueName, list[bytes]] = {}
        self._held_units = 0
        self._files = DescriptorCache()

    def put(self, block: QueueBlock) -> None:
        name = (block.topic, block.queue_id)
        offsets = block.queue_offsets
        first, end = int(offsets[0]), int(offsets[-1]) + 1
        is_whole = end - first == len(offsets) and bool((np.diff(offsets) == 1).all())
        is_whole = is_whole and not block.is_of_batches
        log_end = int(block.units["position"][-1]) + int(block.units["size"][-1])
        run = self._runs.get(name)
        if run is not None:
            is_whole = is_whole and run.is_whole and run.end == first
            first = run.first
        self._runs[name] = QueueRun(name, first, end, is_whole, log_end)
        if not is_whole:
            # It is built in another way; what is written of it is thrown away.
            self._held.pop(name, None)
            return
        self._held.setdefault(name, []).append(block.units.tobytes())
        self._held_units += len(block.units)
        if self._held_units >= BUFFERED_UNITS:
            self.flush()

    def flush(self) -> None:
        for name, blocks in self._held.items():
            data = b"".join(blocks)
            self._write(name, self._runs[name].end * UNIT_SIZE - len(data), memoryview(data))
        self._held.clear()
        self._held_units = 0

    def runs(self) -> tuple[QueueRun, ...]:
        return tuple(self._runs.values())

    def close(self) -> None:
        self._files.close()

    def _write(self, name: QueueName, at: int, data: memoryview) -> None:
        folder = f"{self._root}/{os.fsdecode(name[0])}/{name[1]}"
        with refused_as("queue folder not made", writes=True, file=folder):
            Path(folder).mkdir(parents=True, exist_ok=True)
        done = 0
        while done < len(data):
            start = (at + done) // self._file_size * self._file_size
            room = start + self._file_size - (at + done)
            write_queue_part(
                self._files,
                f"{folder}/{start:020d}",
                self._file_size,
                at + done - start,
                data[done : done + room],
            )
            done += room


def write_queue_part(
    files: DescriptorCache, path: str, file_size: int, offset: int, data: memoryview
) -> None:
    """Write into a queue file that others may be making and writing at the same time.

    Raises:
        StorageError: the operating system refused.
    """
    fd = files.descriptor(path, create=True)
    with refused_as("queue file not created", writes=True, file=path):
        if os.fstat(fd).st_size != file_size:
            os.ftruncate(fd, file_size)
    write_fully(fd, data, offset, path)


class _KeyPart:
    """Keys of one part, written under a name of their own until they are complete."""

    def __init__(self, task: PieceTask) -> None:
        self._path = keys_path(task.staging, task.number)
        self._fresh = self._path.with_name(f"{uuid.uuid4().hex}.tmp")
        self._count = 0
        with refused_as("keys not kept", writes=True, file=self._fresh):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._fresh.open("xb")

    def put(self, portion: Portion) -> tuple[int, int]:
        keys = portion.keys
        rows = np.empty(len(keys.rows), KEY)
        rows["hash"] = keys.hashes
        rows["position"] = keys.positions[keys.rows]
        rows["time"] = keys.store_times[keys.rows]
        with refused_as("keys not kept", writes=True, file=self._fresh):
            self._file.write(rows.tobytes())
        self._count += len(rows)
        return int(rows["position"][-1]), int(rows["time"][-1])

    def finish(self) -> int:
        with refused_as("keys not kept", writes=True, file=self._path):
            self._file.close()
            self._fresh.replace(self._path)
        return self._count

    def discard(self) -> None:
        if not self._file.closed:
            self._file.close()
            self._fresh.unlink(missing_ok=True)


def keys_path(staging: Path, number: int) -> Path:
    """The file of the keys of one part."""
    return staging / "keys" / f"{number:08d}"
