"""What do readers of old messages cost the producers, and what do they push out of the page cache?

Two consumers read gigabytes that are not in memory, again and again, while producers send at full
speed. Estimate beforehand: the page cache loses nothing, for what was fetched is dropped behind the
readers; the disk reads some hundred MB a second beside the producers' writes. On two cores the
readers' share of the CPU is what producers lose, which old reads' limit is there to bound: at most
a fifth.

    python -m bench.old_reads [--smoke] [--directory DIR] [--gib N]

The store is made on a disk: files in memory cannot be dropped from it.
"""

from __future__ import annotations

import argparse
import mmap
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from bench.idle import fill
from bench.machine import spread, write
from bench.node import BenchNode, bench_node
from bench.produce_throughput import producers
from ledgermq.broker.reading.old_pages import resident_pages
from ledgermq.client import Consumer

READERS = 2
BODY_SIZE = 1_024
TAIL_SIZE = 256 * 1024 * 1024
"""The hot tail that is looked at, as far as there is that much behind the old messages."""


def read_old(address: str, end: dict[int, int], result: Connection) -> None:
    """One reader process: from the first messages to ``end`` of each queue, until told to stop."""
    size = 0
    with Consumer(address, topic="bench", start="first") as consumer:
        consumer.poll(20.0)
        result.send("ready")
        result.recv()
        begin = time.perf_counter()
        while not result.poll():
            batch = consumer.poll(1.0)
            size += batch.size
            if len(batch) and batch.next_offset >= end[batch.queue_id]:
                consumer.seek(batch.queue_id, 0)
        result.send(size / (time.perf_counter() - begin) / 1e6)


@contextmanager
def reading(address: str, end: dict[int, int]) -> Iterator[list[float]]:
    """``READERS`` processes that read while the block runs; then the list has their MB/s."""
    context = multiprocessing.get_context("spawn")
    pairs = [context.Pipe() for _ in range(READERS)]
    processes = [
        context.Process(target=read_old, args=(address, end, theirs)) for _, theirs in pairs
    ]
    rates: list[float] = []
    for process in processes:
        process.start()
    try:
        for ours, _ in pairs:
            ours.recv()
        for ours, _ in pairs:
            ours.send("go")
        yield rates
        for ours, _ in pairs:
            ours.send("stop")
        rates += [ours.recv() for ours, _ in pairs]
    finally:
        for process in processes:
            process.join(30)
            process.kill()


def log_files(node: BenchNode) -> list[Path]:
    """The data files of the node's log, oldest first."""
    return sorted((node.directory / "store" / "dledger-n0" / "data").iterdir())


def forget(node: BenchNode, end: int) -> None:
    """Have the kernel drop what it can of the log before ``end``."""
    for path in log_files(node):
        start = int(path.name)
        if start >= end:
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, end - start, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def resident_share(node: BenchNode, begin: int, end: int) -> float:
    """How much of the log from ``begin`` to ``end`` is in the page cache."""
    resident = total = 0
    for path in log_files(node):
        start = int(path.name)
        low = max(begin - start, 0) // mmap.PAGESIZE * mmap.PAGESIZE
        high = min(end - start, path.stat().st_size)
        if low >= high:
            continue
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as map_:
            view = memoryview(map_)[low:high]
            resident += resident_pages(view)
            total += -(-(high - low) // mmap.PAGESIZE)
            view.release()
    return round(resident / max(total, 1), 4)


def measure(
    node: BenchNode, old_end: int, ends: dict[int, int], seconds: float
) -> dict[str, float]:
    """Producers alone, and then beside the readers."""
    with producers(node.address, size=BODY_SIZE, seconds=seconds) as go:
        alone = sum(go())
    forget(node, old_end)
    cold = resident_share(node, 0, old_end)
    tail_end = node.page.read_written().position
    tail_begin = max(old_end, tail_end - TAIL_SIZE)
    before = resident_share(node, tail_begin, tail_end)
    with (
        producers(node.address, size=BODY_SIZE, seconds=seconds) as go,
        reading(node.address, ends) as rates,
    ):
        beside = sum(go())
    return {
        "messages_per_second_alone": alone,
        "messages_per_second_beside": beside,
        "ratio": beside / alone,
        "readers_mb_per_second": sum(rates),
        "old_messages_in_memory_before": cold,
        "old_messages_in_memory_after": resident_share(node, 0, old_end),
        "hot_tail_in_memory_before": before,
        "hot_tail_in_memory_after": resident_share(node, tail_begin, tail_end),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    parser.add_argument("--gib", type=float, default=2.0, help="old messages (default: 2)")
    given = parser.parse_args()
    old_size = 192 * 2**20 if given.smoke else int(given.gib * 2**30)
    seconds, runs = (2.0, 1) if given.smoke else (15.0, 3)
    more = f"[reads]\nold_read_cache_bytes = {16 * 2**20}\n" if given.smoke else ""
    with (
        tempfile.TemporaryDirectory(dir=given.directory) as scratch,
        bench_node(Path(scratch), ack="majority-memory", more=more) as node,
    ):
        fill(node.address, old_size)
        old_end = node.page.read_written().position
        with Consumer(node.address, topic="bench") as consumer:
            ends = consumer.ends()
        rows = [measure(node, old_end, ends, seconds) for _ in range(runs)]
    figures: dict[str, object] = {
        "old_bytes": old_size,
        "readers": READERS,
        "body_bytes": BODY_SIZE,
        "seconds": seconds,
        "runs": runs,
        **{name: spread([row[name] for row in rows]) for name in rows[0]},
    }
    if given.smoke:
        print(figures)
    else:
        write("old_reads", figures)


if __name__ == "__main__":
    main()
