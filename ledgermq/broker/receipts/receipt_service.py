"""Receipt service: the leader has checkpoints made of what comes to topics with receipts.

A checkpoint is a message of the topic of receipts: the last one says up to where the log is in the
tree, and what the tree was before it. So who leads next goes on from there, and nothing about it is
kept elsewhere. About a second after something has come the process of receipts of this node is
ordered to make the next one (``receipt_process.py``), which this service proposes. One is under way
at most: no two of a tree's checkpoints are ever in the log of which neither goes on from the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from ledgermq.broker.callers import NODE_ITSELF
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.broker.receipts.checkpoint_maker import CheckpointTask
from ledgermq.broker.service import Service
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_log import RETRY_MS, StateLog
from ledgermq.broker.state.state_requests import StateRequest
from ledgermq.formats.receipts.checkpoint import ReceiptCheckpoint
from ledgermq.formats.receipts.merkle_tree import Peaks
from ledgermq.formats.records.message import decode_message
from ledgermq.ipc.orders import CheckpointMade, encode
from ledgermq.members.system_entries import checkpoint_record
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import CorruptLogError, LedgerError
from ledgermq.model.limits import RECEIPTS_TOPIC
from ledgermq.model.names.queue_name import QueueName
from ledgermq.process.clock import Clock, epoch_ms
from ledgermq.process.environment import OrderBell
from ledgermq.rules.tables.table_changes import TopicSet
from ledgermq.rules.tables.topics import Permission, Topic

logger = logging.getLogger(__name__)

INTERVAL_MS = 1_000
"""From what has come first since a checkpoint to the next one, at least."""

ORDER_MS = 600_000
"""After so long an order that was not answered is given again, although its process lives: where
others leave it no processor it takes its time."""

FAILED_MS = 10_000
"""Pause behind what could not be made."""

QUEUE = QueueName(RECEIPTS_TOPIC, 0)


class _Chain(NamedTuple):
    """Where the next checkpoint goes on.

    Attributes:
        at: position of the last one's message; -1: there is none.
        begin: position up to which the log is in the tree.
    """

    at: int
    begin: int
    tree: Peaks


class ReceiptService(Service):
    """Owned by the broker process; a node without a key of receipts has none."""

    name = "receipts"
    can_rest = True

    def __init__(
        self,
        store: ReadableStore,
        tables: BrokerTables,
        log: StateLog,
        maker: OrderBell,
        *,
        settings: Settings,
        clock: Clock,
        generation: Callable[[], int],
    ) -> None:
        """Nothing is ordered yet.

        Args:
            maker: leads to the process of receipts.
            generation: which life of that process is running.
        """
        self._store = store
        self._tables = tables
        self._log = log
        self._maker = maker
        self._settings = settings
        self._clock = clock
        self._generation = generation
        self._topics: tuple[str, ...] = ()
        self._topics_seen = -1, -1
        # What this node has looked at as a leader without a topic with receipts.
        self._floor = 0
        self._term = 0
        self._chain: _Chain | None = None
        # Answers to an earlier life of the broker have others.
        self._number = clock.seed() >> 33
        self._ordered_of = self._ordered_until_ms = -1
        self._is_ordered = self._is_proposed = self._renews = False
        self._due_ms: int | None = 0

    def notice_growth(self, now_ms: int) -> None:
        """Something was stored: it may be of a topic with receipts."""
        if self._due_ms is None:
            self._due_ms = now_ms + INTERVAL_MS

    def next_deadline_ms(self) -> int | None:
        return self._due_ms if self._term and not self._is_proposed else None

    def begin_again(self) -> None:
        """The last checkpoint is read again."""
        self._chain, self._is_ordered, self._is_proposed = None, False, False
        self._due_ms = 0

    def take_settings(self, settings: Settings) -> None:
        self._settings = settings

    def oldest_position(self) -> int | None:
        """Where the last checkpoint lies: the next one goes on from there. None: there is none."""
        found = self._last_position()
        return None if found < 0 else found

    def make_way(self, before: int) -> None:
        """Have the last checkpoint again, so that the log before a position may go."""
        if self._log.leads and 0 <= self._last_position() < before:
            self._renews = True
            self._due_ms = 0

    def turn(self, now_ms: int) -> None:
        """Order what is due, if nothing is under way."""
        term = self._log.tables_term
        if term != self._term:
            self._term = term
            self.begin_again()
        if not term or self._is_proposed or self._due_ms is None or now_ms < self._due_ms:
            return
        self._due_ms = None
        if self._is_ordered and self._is_carried_out(now_ms):
            self._due_ms = now_ms + RETRY_MS
            return
        # Tables that lag behind the store would not know a topic whose messages it shows.
        if self._log.is_behind or (self._chain is None and not self._log.is_settled):
            self._due_ms = now_ms + RETRY_MS
            return
        topics = self._with_receipts()
        if not topics and not self._renews:
            self._floor = self._store.position
            if self._chain is not None:
                self._chain = self._chain._replace(begin=self._floor)
            return
        if self._chain is None:
            self._chain = self._read_chain()
        chain = self._chain
        renews = self._renews or chain.at < 0
        if chain.begin >= self._store.position and not renews:
            return
        self._order(chain, topics, renews, now_ms)

    def _order(self, chain: _Chain, topics: tuple[str, ...], renews: bool, now_ms: int) -> None:
        self._number += 1
        self._ordered_of, self._ordered_until_ms = self._generation(), now_ms + ORDER_MS
        task = CheckpointTask(chain.begin, self._store.position, renews, chain.tree, topics)
        self._is_ordered = self._maker.send(encode(task.order(self._number)))
        self._due_ms = now_ms + RETRY_MS

    def _is_carried_out(self, now_ms: int) -> bool:
        """Whether who was ordered may still answer."""
        return self._generation() == self._ordered_of and now_ms < self._ordered_until_ms

    def take(self, made: CheckpointMade, now_ms: int) -> None:
        """The process of receipts has answered."""
        if not self._is_ordered or made.number != self._number or self._chain is None:
            return
        self._is_ordered = False
        if made.end < 0:
            self._due_ms = now_ms + FAILED_MS
            return
        self._due_ms = now_ms + (0 if made.is_behind else INTERVAL_MS)
        if made.content:
            self._propose(made, self._chain.tree, now_ms)
        else:
            # The log says so with the next checkpoint; who leads before that looks again.
            self._chain = self._chain._replace(begin=made.end)

    def _propose(self, made: CheckpointMade, tree: Peaks, now_ms: int) -> None:
        try:
            checkpoint = ReceiptCheckpoint.decode(made.content)
            if checkpoint.before != tree:
                raise CorruptLogError("checkpoint of another tree than was ordered", size=tree.size)
        except LedgerError as error:
            self.begin_again()
            self._due_ms = now_ms + FAILED_MS
            logger.error("checkpoint of receipts not taken: %s", error)
            return
        at_ms = epoch_ms(self._clock)
        record = checkpoint_record(made.content, self._settings, now_ms=at_ms)

        def plan() -> list[TopicSet]:
            if self._tables.topics.get(RECEIPTS_TOPIC) is not None:
                return []
            return [
                TopicSet(RECEIPTS_TOPIC, Topic(RECEIPTS_TOPIC, 1, 1, Permission.READ).to_fields())
            ]

        def done() -> None:
            self._is_proposed = self._renews = False
            self._chain = _Chain(self._last_position(), checkpoint.end, checkpoint.after())
            self._due_ms = now_ms if made.is_behind else now_ms + INTERVAL_MS

        def refused(error: LedgerError) -> None:
            # It may be in the log all the same: what is there is read again.
            self.begin_again()
            self._due_ms = now_ms + RETRY_MS
            logger.warning("checkpoint of receipts is not in the log yet: %s", error)

        request = StateRequest(
            NODE_ITSELF,
            plan,
            frozenset({RECEIPTS_TOPIC, f"topic {RECEIPTS_TOPIC}"}),
            done,
            lambda: [record],
            refused,
        )
        self._is_proposed = True
        try:
            self._log.submit(request, now_ms)
        except LedgerError as error:
            refused(error)

    def _with_receipts(self) -> tuple[str, ...]:
        seen = self._tables.topics.changes, self._tables.state.snapshots
        if seen != self._topics_seen:
            self._topics_seen = seen
            self._topics = tuple(
                topic.name
                for topic in self._tables.topics
                if topic.receipts and not topic.has_batches
            )
        return self._topics

    def _last_position(self) -> int:
        """Where the message of the last checkpoint lies; -1: the log has none."""
        bounds = self._store.bounds(QUEUE)
        if bounds.first >= bounds.end:
            return -1
        units = self._store.units(QUEUE, bounds.end - 1, 1)
        # Nobody can say where it lies: all of the log is kept.
        return 0 if units is None or len(units) == 0 else int(units["position"][0])

    def _read_chain(self) -> _Chain:
        """What the last checkpoint of the log says.

        Raises:
            LedgerError: it cannot be read.
        """
        at = self._last_position()
        if at < 0:
            if self._store.bounds(QUEUE).end:
                logger.error(
                    "the last checkpoint of receipts is gone from the log: a new tree begins, of"
                    " which older checkpoints are no part"
                )
            return _Chain(-1, self._floor, Peaks())
        record = self._store.record_at(at)
        if record is None:
            raise CorruptLogError("last checkpoint of receipts cannot be read", position=at)
        message = decode_message(record)
        if message.topic != RECEIPTS_TOPIC:
            raise CorruptLogError("last checkpoint of receipts cannot be read", position=at)
        last = ReceiptCheckpoint.decode(message.body)
        # A log that was converted has other positions.
        return _Chain(at, min(last.end, at), last.after())
