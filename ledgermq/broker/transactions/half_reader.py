"""Reader of the half queue and the op queue, into the leader's table of half messages."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from ledgermq.broker.deliveries.moves import Moves
from ledgermq.broker.reading.applied_tables import AppliedTables
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.formats.records.message import Message, decode_message
from ledgermq.model.errors import CorruptLogError, NotLeaderError
from ledgermq.model.events import Event
from ledgermq.model.names.queue_name import QueueName
from ledgermq.rules.messages.half_table import HalfTable
from ledgermq.rules.messages.pull_rules import ReadableRange
from ledgermq.rules.messages.transactions import GROUP, HALF_QUEUE, OP_QUEUE, read_half, read_op

logger = logging.getLogger(__name__)

READ_MAX = 512
"""Messages of one turn, so that a long queue does not keep others waiting."""

REMEMBERED_OPS = 4_096
"""Last op messages that a new leader reads again, to know how transactions ended."""

STUCK_MAX = 10_000
"""Half messages of which it is remembered that they can be moved nowhere."""

Found = TypeVar("Found")


class HalfReader:
    """Owned by the broker process; it has a table while this node leads.

    Attributes:
        table: None until the first ``read``, and after ``forget``.
        is_current: the table has all that was dispatched when ``read`` was called last.
        has_more: there is more to read at once.
    """

    def __init__(self, store: ReadableStore, tables: AppliedTables, moves: Moves) -> None:
        self._store = store
        self._tables = tables
        self._moves = moves
        self._trouble = ""
        self._stuck: dict[int, None] = {}
        self.table: HalfTable | None = None
        self.is_current = False
        self.has_more = False

    def forget(self) -> None:
        """This node leads no more: the table will be another one when it leads again."""
        self.table = None
        self.is_current = self.has_more = False

    def pass_over(self, offset: int) -> None:
        """A half message can be moved nowhere: it waits no more, for this node."""
        self._stuck[offset] = None
        if len(self._stuck) > STUCK_MAX:
            del self._stuck[next(iter(self._stuck))]
        if self.table is not None:
            self.table.forget((offset,))

    def read(self) -> HalfTable | None:
        """The table with all that is dispatched; None while some is still to be read.

        A damaged message holds it up until it is repaired.
        """
        self.is_current = self.has_more = False
        try:
            halves, ops = self._store.bounds(HALF_QUEUE), self._store.bounds(OP_QUEUE)
            if self.table is None:
                self.table = self._fresh(halves, ops)
            self.is_current = self._read_new(self.table, halves, ops)
            self.has_more = not self.is_current
            self._trouble = ""
        except NotLeaderError:
            # Nobody knows yet what is dispatched.
            return None
        except CorruptLogError as error:
            if str(error) != self._trouble:
                logger.error(
                    "transactions are held up: %s",
                    error,
                    extra={"event": Event.TRANSACTIONS_HELD_UP},
                )
            self._trouble = str(error)
        return self.table if self.is_current else None

    def _fresh(self, halves: ReadableRange, ops: ReadableRange) -> HalfTable:
        """Begin where the half queue's consumer group says, ours or RocketMQ's."""
        offsets = self._tables.offsets
        consumed = offsets.offsets(GROUP, HALF_QUEUE.topic).get(HALF_QUEUE.queue_id, 0)
        moved = self._moves.source(HALF_QUEUE).next_offset
        done_ops = offsets.offsets(GROUP, OP_QUEUE.topic).get(OP_QUEUE.queue_id, 0)
        return HalfTable(
            next_half=_within(max(consumed, moved), halves),
            next_op=_within(min(done_ops, ops.end - REMEMBERED_OPS), ops),
        )

    def _read_new(self, table: HalfTable, halves: ReadableRange, ops: ReadableRange) -> bool:
        """Read a part of what is new; true when that was all of it."""
        table.skip_halves(halves.first)
        table.skip_ops(ops.first)
        # Half messages first: an op message then finds its own.
        end = min(halves.end, table.next_half + READ_MAX)
        for offset, record in self._moves.read(HALF_QUEUE, range(table.next_half, end)):
            half = self._guarded(HALF_QUEUE, offset, record, read_half)
            if half is not None and offset not in self._stuck:
                table.take_half(half._replace(offset=offset))
        table.skip_to(half=end)
        if end < halves.end:
            return False
        end = min(ops.end, table.next_op + READ_MAX)
        for offset, record in self._moves.read(OP_QUEUE, range(table.next_op, end)):
            op = self._guarded(OP_QUEUE, offset, record, read_op)
            if op is not None:
                table.take_op(offset, op)
        table.skip_to(op=end)
        return end == ops.end

    def _guarded(
        self, queue: QueueName, offset: int, record: memoryview, read: Callable[[Message], Found]
    ) -> Found | None:
        """What a message says; None when it is none that could be read here."""

        def use() -> Found | None:
            return read(decode_message(record))

        return self._moves.poison.guarded(f"{queue.topic}/{queue.queue_id}/{offset}", use, None)


def _within(offset: int, bounds: ReadableRange) -> int:
    return max(bounds.first, min(offset, bounds.end))
