"""Splits of a store's committed log, at its records, one for each task."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import NamedTuple

from ledgermq.formats.dledger_index import ITEM_SIZE, decode_index_item
from ledgermq.pipeline.job_defaults import SPLIT_BYTES
from ledgermq.store.log_reader import LogReader


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
