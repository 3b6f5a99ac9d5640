"""What does the driver of Spark need to plan jobs over a log of 100 TB, which there is not?

A simulation with the real planners: sizes and positions are made up, files are sparse. Estimate
beforehand: 100 TB are 93,000 files of 1 GiB and 83 billion messages. A task is some 100 bytes in
the driver with one queue, and 60 more for each further queue that it reads; looking for where a
part begins in a queue takes 30 steps of 1 µs. So 16 queues are planned in a minute and 1,000 queues
in ten with parts of 4 GiB; with parts of 128 MiB it is 30 times that, and memory goes first.

    python -m bench.pipeline_plan [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import os
import pickle
import resource
import tempfile
import time
from array import array
from collections.abc import Callable
from pathlib import Path

from bench.machine import write
from bench.made_store import BODY_SIZE
from ledgermq.formats.index_file import IndexLayout
from ledgermq.formats.records.host_address import encode_host
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.model.ids import Index, Position, QueueOffset, Term
from ledgermq.pipeline.jobs.derived_pieces import KEY, Piece, QueueRun, keys_path, log_splits
from ledgermq.pipeline.jobs.log_digests import (
    ReplicaLog,
    cells_between,
    digest_tasks,
    grid_size,
    log_files,
)
from ledgermq.pipeline.jobs.rebuild_job import index_tasks
from ledgermq.pipeline.queue_ranges import MessageRange
from ledgermq.pipeline.source.split_plan import RangeExtent, split_ranges
from ledgermq.store.files.append_files import AppendFiles
from ledgermq.store.files.file_names import file_name
from ledgermq.store.log.log_writer import LogEnd, LogWriter, StampedRun
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory

TB = 10**12
FILE_SIZE = 1 << 30
MESSAGE_SIZE = 1_200
KEYS_PER_MESSAGE = 2
REPLICAS = 3
HOST = ("127.0.0.1", 10_911)
Figures = dict[str, object]


def measured(work: Callable[[], Figures]) -> Figures:
    """What ``work`` counts, its seconds, and what it needed of memory, in a child of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begin = time.perf_counter()
        found = work()
        found["seconds"] = round(time.perf_counter() - begin, 3)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        found["memory_mib"] = round(grown / 1_024, 1)
        os.write(writer, pickle.dumps(found))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as said:
        content = said.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    figures: Figures = pickle.loads(content)
    return figures


def planned_read(size: int, *, queues: int, split_bytes: int) -> Figures:
    """``spark.read`` of the whole log: parts with their queue offsets, as tasks are sent."""
    each = size // MESSAGE_SIZE // queues
    ranges = [MessageRange(f"topic-{number // 8}", number % 8, 0, each) for number in range(queues)]
    extents = [RangeExtent(0, size, size // queues)] * queues
    steps = 0

    def offset_at(range_: MessageRange, position: int) -> int:
        # As ``FileSource`` looks for it, in units that lie evenly.
        nonlocal steps
        low, high = range_.first, range_.end
        while low < high:
            middle = (low + high) // 2
            steps += 1
            if middle * MESSAGE_SIZE * queues < position:
                low = middle + 1
            else:
                high = middle
        return low

    parts = split_ranges(ranges, extents, offset_at, split_bytes=split_bytes, splits_min=1)
    assert sum(range_.end - range_.first for part in parts for range_ in part) == each * queues
    largest = max(len(pickle.dumps(part)) for part in parts[:: max(1, len(parts) // 100)])
    return {"tasks": len(parts), "units_looked_at": steps, "task_bytes": largest}


def sparse_log(root: Path, *, files: int) -> None:
    """A plain log of so many files of 1 GiB, of which the last one alone has a message."""
    folder = root / "commitlog"
    folder.mkdir(parents=True)
    for number in range(files - 1):
        with (folder / file_name(number * FILE_SIZE)).open("wb") as file:
            file.truncate(FILE_SIZE)
    position = Position((files - 1) * FILE_SIZE)
    data = AppendFiles(folder, file_size=FILE_SIZE, position=position)
    end = LogEnd(position, Index(0), Term(0), 0)
    writer = LogWriter(data, None, end=end, store_host=encode_host(HOST))
    record = encode_message(
        Message(
            topic="bench", queue_id=0, body=bytes(BODY_SIZE), properties=b"", born_timestamp=1,
            born_host=HOST,
        )
    )  # fmt: skip
    sizes = memoryview(array("I", [len(record)]))
    writer.put(record, sizes, [StampedRun(1, QueueOffset(0))], term=Term(0), store_timestamp=1)
    writer.publish()
    writer.close()


def planned_walk(root: Path) -> Figures:
    """``rebuild``'s parts of a log, which is listed, and whose end is looked for."""
    reader = LogReader(open_directory(root))
    splits = log_splits(reader)
    reader.close()
    return {"tasks": len(splits), "task_bytes": len(pickle.dumps(splits[-1]))}


def planned_audit(root: Path) -> Figures:
    """``audit``'s digests of three such replicas."""
    files = log_files(root, self_id=None)
    logs = [ReplicaLog(files, 0, files[-1].start + FILE_SIZE) for _ in range(REPLICAS)]
    cells = cells_between(logs, 0, logs[0].end, grid=grid_size(0, logs[0].end))
    tasks = digest_tasks(logs, cells, split_bytes=FILE_SIZE)
    return {"tasks": len(tasks), "cells": len(cells), "task_bytes": len(pickle.dumps(tasks[-1]))}


def planned_index(folder: Path, *, files: int, queues: int) -> Figures:
    """``rebuild``'s index files, from what as many parts as there are files have told."""
    messages = FILE_SIZE // MESSAGE_SIZE
    keys = messages * KEYS_PER_MESSAGE
    names = [(f"topic-{number // 8}".encode(), number % 8) for number in range(queues)]
    each = messages // queues
    pieces = [
        Piece(
            number, (number + 1) * FILE_SIZE, messages, messages, 0, keys,
            number * FILE_SIZE, (number * FILE_SIZE, 1), (number * FILE_SIZE, 1),
            tuple(
                QueueRun(name, number * each, (number + 1) * each, True, (number + 1) * FILE_SIZE)
                for name in names
            ),
        )
        for number in range(files)
    ]  # fmt: skip
    told = len(pickle.dumps(pieces[-1]))
    layout = IndexLayout(slots=5_000_000, items=20_000_000)
    # The driver looks at one key before each file.
    (folder / "keys").mkdir(exist_ok=True)
    room = layout.items - 1
    for ordinal in range(room - 1, keys * files, room):
        path = Path(keys_path(folder, ordinal // keys))
        if not path.exists():
            with path.open("wb") as file:
                file.truncate(keys * KEY.itemsize)
    tasks = index_tasks(pieces, folder, layout, now_ms=1_600_000_000_000)
    return {"tasks": len(tasks), "piece_bytes": told}


def main() -> None:
    """Plan all of it, write the figures down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--directory", type=Path)
    arguments = parser.parse_args()
    size = TB if arguments.smoke else 100 * TB
    files = size // FILE_SIZE
    figures: dict[str, object] = {"log_bytes": size, "files": files}
    for queues, split_bytes in ((16, 4 << 30), (16, 1 << 30), (200, 4 << 30)):
        figures[f"read_{queues}_queues_{split_bytes >> 20}_mib"] = measured(
            lambda q=queues, s=split_bytes: planned_read(size, queues=q, split_bytes=s)  # type: ignore[misc]
        )
    with tempfile.TemporaryDirectory(dir=arguments.directory) as scratch:
        folder = Path(scratch)
        sparse_log(folder / "store", files=files)
        figures["rebuild_parts"] = measured(lambda: planned_walk(folder / "store"))
        figures["audit_parts"] = measured(lambda: planned_audit(folder / "store"))
        for queues in (16, 200):
            figures[f"rebuild_index_{queues}_queues"] = measured(
                lambda q=queues: planned_index(folder, files=files, queues=q)  # type: ignore[misc]
            )
    if arguments.smoke:
        print(figures)
    else:
        write("pipeline_plan", figures)


if __name__ == "__main__":
    main()
