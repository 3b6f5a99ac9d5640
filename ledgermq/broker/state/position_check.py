"""Check of all positions of the broker's tables, before this node's tables become those of all."""

from __future__ import annotations

from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.names.queue_name import QueueName
from ledgermq.process.clock import MACHINE_CLOCK, Clock
from ledgermq.process.table_files import tell_outliers
from ledgermq.rules.state.outlying_positions import Outlier, find_outliers, put_right
from ledgermq.rules.tables.documents import Steps

CHECK_NS = 10_000_000
"""Positions are looked at for so long in one turn: a queue that nobody has read yet costs a tenth
of a millisecond."""


class PositionCheck:
    """Owned by the broker process.

    RocketMQ's files were put right when they were taken over (``process/table_files.py``); others
    were not: those of an older version, of a log that was cut or replaced, or ones that an operator
    has changed and left their place in. What members commit is within its queue.
    """

    def __init__(
        self, store: ReadableStore, tables: BrokerTables, *, clock: Clock = MACHINE_CLOCK
    ) -> None:
        self._store = store
        self._tables = tables
        self._clock = clock
        self._term = 0
        self._steps: Steps[list[Outlier]] | None = None

    def is_done(self, term: int) -> bool:
        """Look on, for a bounded time; whether all positions are within their queues.

        To be called when everything is applied that was in the log at the begin of ``term``, which
        this node leads, and again until it is true.
        """
        if self._steps is None or term != self._term:
            state = self._tables.state
            self._term = term
            ends = self._tables.known_ends()
            self._steps = find_outliers(
                state.offsets, (state.delays, state.moves), self._end_of, at_least=ends
            )
        until_ns = self._clock.monotonic_ns() + CHECK_NS
        try:
            while True:
                next(self._steps)
                if self._clock.monotonic_ns() >= until_ns:
                    return False
        except StopIteration as ended:
            found: list[Outlier] = ended.value
        self._steps = None
        state = self._tables.state
        put_right(found, state.offsets, (state.delays, state.moves))
        tell_outliers(found)
        return True

    def _end_of(self, queue: QueueName) -> int | None:
        try:
            return self._store.end(queue)
        except CorruptLogError:
            # Whoever reads it says so; it is repaired, and a later leader looks again.
            return None
