"""Messages of queues by their offsets, for who hands them out: of the log, else of sealed pieces.

Nothing here waits: what is in pieces alone is asked for, and given to who asks again
(``ColdReads.stretch``). That a message is gone is said by pieces alone, where there are any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ledgermq.broker.deliveries.moves import Moves
from ledgermq.broker.pulls.cold_reads import ColdReads, ColdStretch
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.model.names.queue_name import QueueName


class Sizes(NamedTuple):
    """Sizes of messages that follow one another; all below ``end`` was looked at, and what has no
    size there is gone.
    """

    sizes: Sequence[int]
    end: int


class QueueMessages:
    """Owned by the broker process.

    Attributes:
        store: the log's part.
        poison: where messages that are stored are looked at.
    """

    def __init__(self, store: ReadableStore, moves: Moves, cold: ColdReads | None) -> None:
        """Without ``cold`` the log has all that there is."""
        self.store = store
        self.poison = moves.poison
        self._moves = moves
        self._cold = cold

    def bounds(self, queue: QueueName, low: int | None, *, surely: bool = True) -> range:
        """The offsets that a queue holds, for who needs none below ``low``; None: begins where the
        queue does.

        Args:
            surely: false: as far as it is known where it begins.

        Raises:
            ColdAwayError: ``surely``, and where it begins is not known now.
            NotLeaderError, CorruptLogError: as ``ReadableStore.bounds``.
        """
        first, end, _ = self.store.bounds(queue)
        if self._cold is not None and (low is None or low < first):
            first = self.store.told_bounds(queue, surely=surely).first
        return range(first, end)

    def sizes(self, queue: QueueName, first: int, count: int) -> Sizes:
        """Sizes of ``count`` messages from the offset ``first`` on, or of fewer.

        Raises:
            LedgerError: as ``read``.
        """
        stretch = self._stretch(queue, first)
        if stretch is None:
            units = self.store.units(queue, first, count)
            sizes = [] if units is None else units["size"].tolist()
            return Sizes(sizes, first + len(sizes))
        if not stretch.records:
            return Sizes((), stretch.end)
        at = first - stretch.first
        sizes = list(map(len, stretch.records[at : at + count]))
        return Sizes(sizes, first + len(sizes))

    def read(self, queue: QueueName, offsets: Sequence[int]) -> Iterator[tuple[int, memoryview]]:
        """The records at ``offsets``, which ascend; one that is gone is left out.

        Raises:
            DamagedLogError: one is not what was written.
            ColdAwayError: it is in pieces, and not here yet.
            LedgerError: the pieces cannot be read.
        """
        if self._cold is None:
            return self._moves.read(queue, offsets)
        return self._read(queue, offsets)

    def _read(self, queue: QueueName, offsets: Sequence[int]) -> Iterator[tuple[int, memoryview]]:
        for number, offset in enumerate(offsets):
            stretch = self._stretch(queue, offset)
            if stretch is None:
                yield from self._moves.read(queue, offsets[number:])
                return
            if stretch.records:
                yield offset, stretch.records[offset - stretch.first]

    def _stretch(self, queue: QueueName, offset: int) -> ColdStretch | None:
        """What pieces have from ``offset`` on; None: the log has it."""
        if self._cold is None:
            return None
        first = self.store.bounds(queue).first
        floor = self.store.floor(queue)
        if offset >= first or floor >= first:
            return None
        found = self._cold.stretch(queue, offset, floor=floor, log_first=first)
        return found if found.records else found._replace(end=min(found.end, first))
