"""Bulk look-up in the Index: positions of the messages that may have any of many keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ledgermq.formats.arrays import I64
from ledgermq.formats.index_file import SLOT_SIZE
from ledgermq.formats.kernels.kernel import find_keys, hash_keys, java_hash
from ledgermq.store.index.index_reader import IndexReader

STEPS_MAX = 100_000
"""Items of one chain that are looked at: a key that millions of messages share fills one."""

FOUND_MAX = 1_024
"""Messages that are found of one key in one file, the newest ones."""

_ROOM = 4 * FOUND_MAX


class WantedKeys(NamedTuple):
    """Keys of one topic; ``starts`` and ``ends`` say where they lie in ``text``.

    Attributes:
        since: oldest store time that is wanted of each, epoch ms.
    """

    text: memoryview
    starts: I64
    ends: I64
    since: I64


NOT_ALL = -1
"""Mark in the place of a position: there may be more messages of the key, which were not looked
at."""


def find_positions(
    index: IndexReader,
    topic: bytes,
    keys: WantedKeys,
    *,
    begin: int = 0,
    look: Callable[[], None] = lambda: None,
) -> tuple[I64, I64]:
    """Numbers of keys, and positions of messages of ``topic`` that may have them.

    Only hashes are compared: who asks compares the keys themselves. Messages of one key come with
    the newest first; ``NOT_ALL`` among them where a bound was reached.

    Args:
        begin: messages before this position need not be found.
        look: called before each file in which is looked; what it raises ends the search.

    Raises:
        CorruptLogError: a header of the index cannot be.
    """
    prefix = memoryview(topic + b"#")
    hashes = np.empty(len(keys.starts), np.int64)
    seed = java_hash(prefix, 0, len(prefix), 0)
    hash_keys(keys.text, keys.starts.data, keys.ends.data, seed, hashes.data)
    oldest = int(keys.since.min(initial=0x7FFF_FFFF_FFFF_FFFF))
    found_rows: list[I64] = []
    found_positions: list[I64] = []
    layout = index.layout
    for header, view in index.newest_first():
        assert layout is not None
        if header.index_count <= 1:
            # A file in which nothing is yet says nothing of those before it.
            continue
        if header.end_timestamp < oldest or header.end_physical_offset < begin:
            break
        look()
        first = 0
        while first < len(hashes):
            rows, positions = np.empty(_ROOM, np.int64), np.empty(_ROOM, np.int64)
            count, first = find_keys(
                view, layout.slots, layout.items, header.begin_timestamp, hashes.data,
                keys.since.data, first, rows.data, positions.data, STEPS_MAX, FOUND_MAX,
            )  # fmt: skip
            found_rows.append(rows[:count])
            found_positions.append(positions[:count])
    if not found_rows:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return np.concatenate(found_rows), np.concatenate(found_positions)


assert SLOT_SIZE == 4  # as the kernel has it
