"""Reader of the state log: commands applied to the tables in their order.

The broker does so, which proposes them (``state_log``), and whoever else of the node needs the
tables. What it reads is a queue like any other, as far as it is dispatched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ledgermq.broker.reading.applied_tables import AppliedTables
from ledgermq.broker.reading.poison_messages import PoisonMessages
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.formats.records.message import decode_message
from ledgermq.formats.records.properties import decode_properties
from ledgermq.ipc.counters import Counts, no_counts
from ledgermq.model.errors import CorruptLogError, NewerVersionError, NotLeaderError
from ledgermq.model.events import Event
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.model.names.queue_name import QueueName
from ledgermq.process.clock import MACHINE_CLOCK, Clock
from ledgermq.rules.given_back import KEPT_MS
from ledgermq.rules.messages.pull_rules import ReadableRange
from ledgermq.rules.state.broker_state import Applied
from ledgermq.rules.state.state_commands import PART_PROPERTY, SNAPSHOT_TAG, STATE_QUEUE_ID
from ledgermq.rules.tables.documents import Steps

logger = logging.getLogger(__name__)

QUEUE = QueueName(SYSTEM_TOPIC, STATE_QUEUE_ID)

UNITS_PER_READ = 512

APPLY_NS = 10_000_000
"""Commands are applied for so long in one turn: a log of ten thousand takes minutes, if each has
as many changes as it may."""

TakeApplied = Callable[[int, str, Applied], None]
"""Is told of each command: the position of its record, its label, and what it did."""


class _Later:
    """Instead of what came of a command: it is not applied yet."""


class StateReader:
    """Owned by a process with tables of its own.

    Invariant: commands are applied in the order of the queue, each once to each table.

    Attributes:
        trouble: the damaged place that ``apply`` waits for, or what it needs a newer version for;
            None while there is neither.
        is_behind: the last ``apply`` has left something for the next one.
    """

    def __init__(
        self,
        store: ReadableStore,
        tables: AppliedTables,
        take: TakeApplied,
        *,
        counts: Counts | None = None,
        sign_of_life: Callable[[], None] = lambda: None,
        clock: Clock = MACHINE_CLOCK,
    ) -> None:
        """Nobody is told what the tables say before they have all that was committed by now.

        Args:
            counts: the process's counters.
            sign_of_life: called again and again while much is applied.
        """
        self._poison = PoisonMessages(no_counts() if counts is None else counts)
        tables.is_starting = True
        self.trouble: CorruptLogError | NewerVersionError | None = None
        self.is_behind = False
        self._clock = clock
        self._sign_of_life = sign_of_life
        self._store = store
        self._tables = tables
        self._state = tables.state
        self._take = take
        self._next = -1
        self._preparing: tuple[int, Steps[None]] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether it is known where in the queue the tables are."""
        return self._next >= 0

    @property
    def level_needed(self) -> int:
        """The feature level that the next command needs and this version does not know; else 0."""
        return self.trouble.level if isinstance(self.trouble, NewerVersionError) else 0

    @property
    def next_offset(self) -> int:
        """Queue offset of the command that is applied next; -1 before it is known."""
        return self._next

    def apply(self) -> bool:
        """Apply what is new, as far as the store has looked, for a bounded time (``is_behind``);
        whether nothing holds that up.

        A damaged place holds it up until it is repaired: what stands behind it may undo it. So does
        what only a newer version understands, until that is started.
        """
        self.is_behind = False
        if isinstance(self.trouble, NewerVersionError):
            return False
        try:
            self._apply_new()
        except NotLeaderError:
            # Nobody knows yet what is dispatched, or where in the log the tables stand.
            return False
        except CorruptLogError as error:
            if self.trouble is None:
                logger.error(
                    "broker's tables are held up: %s", error, extra={"event": Event.TABLES_HELD_UP}
                )
            self.trouble = error
            return False
        except NewerVersionError as error:
            logger.error(
                "this node needs a newer version, and goes on with the log when it is started: "
                "at=%s/%s/%d: %s",
                QUEUE.topic,
                QUEUE.queue_id,
                self._next,
                error,
                extra={"event": Event.NEWER_VERSION_NEEDED},
            )
            self.trouble = error
            return False
        self.trouble = None
        return True

    def _apply_new(self) -> None:
        bounds = self._store.bounds(QUEUE)
        state = self._state
        if self._next < 0 and not self._tables.settle():
            raise NotLeaderError("node is starting: the tables have no place in the log yet")
        if self._next < 0 or self._next < bounds.first:
            self._next = self._recent(bounds, state.begin_at(bounds.first, bounds.end))
            if state.needs_snapshot:
                logger.warning(
                    "broker's tables lack commands that the log has no more; a snapshot is awaited"
                )
        if state.is_behind(bounds.end) and self._store.has_all_committed():
            logger.warning("broker's tables are those of another log: all of this one is applied")
            self._next = min(self._next, state.begin_again(bounds.end))
            # Before anything is applied, and answered: a later end may be behind what they say.
            self._tables.keep_places()
        until_ns = self._clock.monotonic_ns() + APPLY_NS
        while self._next < bounds.end:
            if not self._apply_span(min(UNITS_PER_READ, bounds.end - self._next), until_ns):
                # Deleted while it was read: the next look finds where the queue begins now.
                return
            self._sign_of_life()
            if self._next < bounds.end and self._clock.monotonic_ns() >= until_ns:
                self.is_behind = True
                return
        if self._tables.is_starting and self._store.has_caught_up():
            self._tables.is_starting = False

    def _recent(self, bounds: ReadableRange, begin: int) -> int:
        """Where to read from so that tokens of the last minutes are known again, too; what the
        tables have already changes nothing in them.
        """
        if bounds.first >= bounds.end:
            return begin
        last_ms = self._store.store_time(QUEUE, bounds.end - 1)
        return min(begin, self._store.first_since(QUEUE, last_ms - KEPT_MS))

    def _apply_span(self, count: int, until_ns: int) -> bool:
        """Apply some of the next ``count`` commands, at least one; false if they are gone."""
        units = self._store.units(QUEUE, self._next, count)
        if units is None:
            return False
        positions = units["position"].astype("i8")
        parts = self._store.records(positions, units["size"].astype("i8"))
        if parts is None:
            return False
        payload = memoryview(parts.payload)
        for position, start, size in zip(positions, parts.starts, parts.sizes, strict=False):
            record = payload[int(start) : int(start) + int(size)]
            if not self._apply_record(int(position), record, until_ns):
                break
            self._next += 1
            if self._clock.monotonic_ns() >= until_ns:
                break
        return True

    def _apply_record(self, position: int, record: memoryview, until_ns: int) -> bool:
        """Apply a command; pass over one that cannot be applied, as every node does: the log cannot
        be stopped for whoever wrote it. False when it goes on with the next turn.
        """
        place = f"{QUEUE.topic}/{QUEUE.queue_id}/{self._next}"
        found = self._poison.guarded(place, lambda: self._applied(record, until_ns), None)
        if isinstance(found, _Later):
            return False
        if found is None:
            self._state.pass_over(self._next)
        else:
            self._take(position, *found)
        return True

    def _applied(self, record: memoryview, until_ns: int) -> tuple[str, Applied] | _Later:
        message = decode_message(record)
        properties = decode_properties(message.properties)
        tag, label = properties.get("TAGS", ""), properties.get(PART_PROPERTY, "")
        body = bytes(message.body)
        if tag == SNAPSHOT_TAG and not self._is_prepared(label, body, until_ns):
            return _Later()
        return label, self._state.apply(self._next, tag, label, body)

    def _is_prepared(self, label: str, body: bytes, until_ns: int) -> bool:
        """Whether what takes long of a snapshot is done; some of it is, before that."""
        if self._preparing is None or self._preparing[0] != self._next:
            steps = self._state.prepare(self._next, SNAPSHOT_TAG, label, body)
            self._preparing = self._next, steps
        for _ in self._preparing[1]:
            if self._clock.monotonic_ns() >= until_ns:
                return False
        self._preparing = None
        return True
