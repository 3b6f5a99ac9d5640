"""Hash table of stored unique ids: positions of the newest messages, in bounded memory.

Ids are kept in *generations*, hash tables of one size that are filled one behind the other. What
is older than anybody looks for goes first; then, when memory is full, the oldest generation, if
the Index has all of it.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from ledgermq.formats.arrays import I64
from ledgermq.formats.kernels.kernel import find_ids, put_ids
from ledgermq.model.errors import BusyError


class IdsUnknownError(BusyError):
    """Whether unique ids are stored cannot be told now; nothing was stored."""


GENERATIONS_MAX = 16
"""An id is looked for in each: memory goes with the sixteenth part, and is not searched longer."""

SLOT_SIZE = 16
"""Bytes of a hash and its position."""


class _Generation:
    """At least every second slot is free."""

    __slots__ = ("count", "hashes", "last_ms", "last_position", "positions")

    def __init__(self, slots: int) -> None:
        self.hashes: I64 = np.zeros(slots, np.int64)
        self.positions: I64 = np.empty(slots, np.int64)
        self.count = 0
        self.last_position = -1
        self.last_ms = 0


class StoredIds:
    """Owned by the writer.

    Invariant: of the messages that count, all that were stored at ``complete_since_ms`` or later
    are here, by the clocks that stamped them; and all that stand at ``complete_from`` or behind,
    but for those that nobody looks for any more.
    """

    def __init__(self, memory_bytes: int) -> None:
        """An empty table.

        Args:
            memory_bytes: no more is taken, as ids come; it is enough for one in 64 bytes, at least.
        """
        self._memory_bytes = memory_bytes
        self._slots = 1 << ((memory_bytes // (GENERATIONS_MAX * SLOT_SIZE)).bit_length() - 1)
        self._ids = self._slots // 2
        self._generations: deque[_Generation] = deque()
        self.complete_since_ms = 0
        self.complete_from = 0

    def __len__(self) -> int:
        return sum(generation.count for generation in self._generations)

    def begin(self, position: int, now_ms: int) -> None:
        """Forget all; what stands behind ``position`` is put next, what was before is not here."""
        self._generations.clear()
        self.complete_since_ms = now_ms
        self.complete_from = position

    def find(self, hashes: I64) -> I64:
        """Positions of the newest messages that have these hashes, -1 where there is none."""
        found = np.full(len(hashes), -1, np.int64)
        # The newest first: the kernel leaves what it finds filled in.
        for generation in reversed(self._generations):
            find_ids(generation.hashes.data, generation.positions.data, hashes.data, found.data)
        return found

    def make_room(self, count: int, *, indexed: int, oldest_ms: int) -> None:
        """Have room for ``count`` more ids.

        Args:
            indexed: the Index has all messages before this position.
            oldest_ms: nobody looks for what was stored before.

        Raises:
            IdsUnknownError: memory is full of what the Index does not have yet.
        """
        generations = self._generations
        while generations and generations[0].last_ms < oldest_ms:
            self._forget_oldest()
        room = self._ids - generations[-1].count if generations else 0
        more = -(-max(0, count - room) // self._ids)
        while generations and len(generations) + more > GENERATIONS_MAX:
            if generations[0].last_position >= indexed:
                raise IdsUnknownError(
                    "unique ids that the index does not have yet fill their memory",
                    limit=self._memory_bytes,
                    setting="limits.deduplication_memory_bytes",
                )
            self.complete_from = generations[0].last_position + 1
            self._forget_oldest()

    def put(self, hashes: I64, positions: I64, store_ms: int) -> None:
        """Note messages that stand behind all that were noted; 0 is no hash.

        Args:
            store_ms: when the last of them was stored.
        """
        at = 0
        while at < len(hashes):
            if not self._generations or self._generations[-1].count >= self._ids:
                self._generations.append(_Generation(self._slots))
            newest = self._generations[-1]
            upto = at + self._ids - newest.count
            some, places = hashes[at:upto], positions[at:upto]
            newest.count += put_ids(
                newest.hashes.data,
                newest.positions.data,
                np.ascontiguousarray(some).data,
                np.ascontiguousarray(places).data,
            )
            newest.last_position = int(places[-1])
            newest.last_ms = max(newest.last_ms, store_ms)
            at = upto

    def _forget_oldest(self) -> None:
        gone = self._generations.popleft()
        self.complete_since_ms = max(self.complete_since_ms, gone.last_ms + 1)
