"""The dispatcher process: builds ConsumeQueues and Index from the committed log.

It alone writes ``consumequeue/``, ``index/``, ``ROOT/checkpoint``, our dispatch checkpoint and the
table of queue ends, and publishes the cursor ``dispatched``. It takes no orders: bells and ticks
make it look at the cursor ``committed``. Killed at any moment, it goes on where its page, its
checkpoint or the queues say.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Final

import numpy as np

from ledgermq.dispatcher.derived_scrub import DAMAGE_RETRY_NS, DerivedScrub
from ledgermq.dispatcher.log_spans import LogSpans
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import SCAN_ROWS, ScanStatus, scan_entries, whole_records
from ledgermq.ipc.counters import DispatcherCounter
from ledgermq.ipc.cursor_page import Dispatched, Role
from ledgermq.ipc.loop import LOOK_AGAIN_MS, SLEEP_MAX_MS, Pollable, StopFlag
from ledgermq.ipc.orders import Damaged, encode
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import CorruptLogError, DamagedLogError, DiskFullError
from ledgermq.model.events import Event
from ledgermq.model.ids import Position
from ledgermq.process.environment import Environment
from ledgermq.process.port_roles import port_roles
from ledgermq.process.worker_main import run_worker
from ledgermq.store.files.disk_space import with_reserve
from ledgermq.store.log_family import LogSpan
from ledgermq.store.queues.derived_files import DerivedFiles, clear_incomplete, load_derived_files
from ledgermq.store.queues.dispatch_build import DispatchBuilder, FlushJob
from ledgermq.store.queues.queue_ends import QueueEnds, ends_path, read_queue_ends, told_ends_path
from ledgermq.store.queues.unsure_queues import unsure_queues

logger = logging.getLogger(__name__)

SMALL_SPAN = 256 * 1024
"""Less than this may wait for a rest when dispatch has just run."""

REST_AWAITED_MS = 1
"""Somebody waits for messages: the broker sleeps, and wants to be woken."""

RETRY_NS = 500_000_000
"""A full disk is tried again after this long."""

REST_MS = 5
REST_AWAY_MS = 50
"""Consumers read at the leader: elsewhere fewer turns leave more to those who acknowledge. Whoever
begins to wait meanwhile ends the rest (``broker.reading.dispatcher_rest``)."""

FAR_BEHIND = 64 * 1024 * 1024
TELL_INTERVAL_NS = 1_000_000_000
"""Time between two log lines about how far dispatch is, while it is ``FAR_BEHIND`` bytes behind: at
a start, or while something is built again."""


FLUSHED_OFTEN_MAX = 1_000
FLUSH_PAUSE = 20
FLUSH_PAUSE_NS_MAX = 30_000_000_000
"""After a flush of more files nothing is flushed for so many times as long as it took: queues can
be built again from the log, and that is the only price of a later flush."""

SIGN_S = 0.5
"""Seconds between signs of life while a flush is waited for."""

SPAN_SIZE_MAX = 8 * 1024 * 1024
"""Bytes of the log dispatched in one turn, so that beats and flushes come in time."""


class EndTable:
    """Table of queue ends, as the dispatcher keeps it (``store/queues/queue_ends.py``).

    What the table says of a queue counts where the queue has no unit: its messages are gone from
    the log, and its files were not shipped, were lost, or are not those of a queue. Such a queue
    ends where it ended, before anybody reads it. Invariant: ``position`` is that of the file, 0
    without one.
    """

    def __init__(self, root: Path) -> None:
        """Nothing is read yet."""
        self._path = ends_path(root)
        self._told_path = told_ends_path(root)
        self._told_stamp = (0, 0)
        self._known: QueueEnds | None = None
        self._waiting: list[QueueEnds] = []

    @property
    def position(self) -> int:
        """Position up to which the table counts messages; what it knows nothing of is before."""
        return 0 if self._known is None else self._known.position

    @property
    def is_waiting(self) -> bool:
        """Whether a table is to be put when more is dispatched."""
        return bool(self._waiting)

    def open(self, log_start: int) -> None:
        """Read the table again; ``put`` has it put then.

        Args:
            log_start: first byte of the log's first file. A table of a position before that comes
                from before somebody else deleted files, and says nothing any more.

        Raises:
            StorageError: it cannot be read.
        """
        try:
            self._known = read_queue_ends(self._path)
        except CorruptLogError as error:
            # It is written anew of the queues that there are.
            logger.error("table of queue ends passed: %s", error)
            self._known = None
        if self._known is not None and self._known.position < log_start:
            self._known = None
        self._waiting = [] if self._known is None else [self._known]
        self._told_stamp = (0, 0)
        self.look()

    def look(self) -> None:
        """Take what a leader's snapshot has told since the last look, for ``put``.

        Raises:
            StorageError: it cannot be read.
        """
        try:
            found = self._told_path.stat()
        except FileNotFoundError:
            return
        stamp = (found.st_mtime_ns, found.st_ino)
        if stamp == self._told_stamp:
            return
        self._told_stamp = stamp
        try:
            told = read_queue_ends(self._told_path)
        except CorruptLogError as error:
            logger.error("queue ends that were told passed: %s", error)
            return
        if told is not None:
            self._waiting = sorted((*self._waiting, told), key=lambda one: one.position)

    def put(self, builder: DispatchBuilder, log_start: int) -> int:
        """Let queues without a unit end where a table says, once all before it is dispatched.

        Returns:
            how many queues had none.

        Raises:
            DiskFullError, StorageError: the operating system refused; to be called again.
        """
        put = 0
        while self._waiting and builder.position >= self._waiting[0].position:
            if self._waiting[0].position >= log_start:
                put += builder.queues.put_ends(self._waiting[0].ends, log_start=log_start)
            del self._waiting[0]
        if put:
            logger.info("queues end where they ended: queues=%d log_start=%d", put, log_start)
        return put

    def due(self, builder: DispatchBuilder, file_start: int) -> QueueEnds | None:
        """The table to be written now: when dispatch has come to another file; None before that.

        Args:
            file_start: first byte of the log's file in which ``builder`` stands.
        """
        if file_start <= self.position:
            return None
        return builder.all_ends(self._known)

    def written(self, ends: QueueEnds) -> None:
        """``ends`` are in the file."""
        self._known = ends


class DispatchWorker:
    """What one turn of the dispatcher does.

    Invariant: what is published is ``<= committed``, also while the queues know more from an
    earlier life of the node.
    """

    # The inbox is read when it tells of something.
    zmq_uses: Final = (0,)

    def __init__(self, environment: Environment, spans: LogSpans) -> None:
        self._environment = environment
        self._page = environment.page
        self._spans = spans
        self._readers = (Role.BROKER, *port_roles(environment.settings))
        self._bells = [environment.bell(role) for role in self._readers]
        self._writer = environment.bell(Role.WRITER)
        self._counters = self._page.counters(Role.DISPATCHER)
        self._builder: DispatchBuilder | None = None
        self._ends = EndTable(environment.settings.store.path_root_dir)
        self._file_start = 0
        self._published = self._page.read_dispatched()
        known = Position(self._published.position) if self._published.position > 0 else None
        self._found: DerivedFiles | None = self._load(known)
        self._thread = environment.background()
        self._flush: Future[None] | None = None
        self._flush_job: FlushJob | None = None
        self._flush_due_ns = 0
        self._flush_begun_ns = self._flush_files = 0
        self._rested_ns = 0
        self._rest = self._page.rest_cell()
        self._is_roused = False
        self._told_ns = 0
        self._cleaned = Position(0)
        self._is_starved = False
        self._retry_ns = 0
        self._raft = environment.bell(Role.RAFT)
        self._written_before = self._damaged_at = -1
        self._damage_until_ns = 0
        self._scrub = DerivedScrub(
            environment.settings,
            environment.clock.monotonic_ns(),
            lambda position: self._raft.send(encode(Damaged(position))),
            environment.background(),
        )

    def sources(self) -> list[Pollable]:
        """The inbox."""
        return [*self._environment.inbox.sources]

    def turn(self, ready: Mapping[Pollable, int], now_ns: int) -> None:
        """Dispatch one bounded span, flush when it is time."""
        self._environment.inbox.drain(ready)
        if ready and now_ns < self._rested_ns:
            # No bell rings now, so somebody has begun to wait.
            self._end_rest(now_ns)
        if not self._page.has_written():
            # The log is still being recovered.
            return
        if self._is_starved and now_ns < self._retry_ns:
            return
        try:
            # Half of the reserve is for those who vote and append.
            keep = self._environment.settings.retention.reserve_bytes // 2
            with_reserve(lambda: self._dispatch(now_ns), keep=keep)
        except DiskFullError as error:
            self._starve(error, now_ns)
            return
        if self._is_starved:
            logger.info(
                "disk has room again: dispatch goes on", extra={"event": Event.DISPATCH_GOES_ON}
            )
            self._is_starved = False
            self._page.publish_queue_begin(self._cleaned, waits=False)

    def _dispatch(self, now_ns: int) -> None:
        """One bounded span.

        Raises:
            DiskFullError: there is no space for queues or index; the same is tried again.
        """
        builder = self._opened()
        self._clean(builder)
        committed = self._page.read_committed().position
        if committed == 0:
            # Nothing is known of what is committed yet, or nothing is in the log.
            return
        if self._written_before < 0:
            self._written_before = committed
        if builder.position < committed and now_ns >= self._damage_until_ns:
            if committed - builder.position > FAR_BEHIND:
                self._tell_progress(builder.position, committed, now_ns)
            self._build_or_wait(builder, committed, now_ns)
            # Under steady small traffic one turn takes what came in a while: woken for every
            # message, dispatch would take the processor from those who wait for an answer.
            rest_ms = self._rest_ms()
            self._rested_ns = now_ns + rest_ms * 1_000_000
            # The short one is over before anybody could end it.
            self._rest[0] = 0 if rest_ms == REST_AWAITED_MS else self._rested_ns
            self._is_roused = False
        self._publish(builder, min(builder.position, committed), now_ns)
        self._compare_with_log(builder, Position(min(builder.position, committed)), now_ns)
        self._flush_when_due(builder, now_ns)

    def _compare_with_log(self, builder: DispatchBuilder, end: Position, now_ns: int) -> None:
        if builder.keys_from is not None:
            # It writes a checkpoint of its own when all keys are there.
            self._wait_for_flush()
        self._scrub.turn(builder, end, now_ns)
        counts = self._scrub.take_counts()
        self._counters[DispatcherCounter.SCRUBBED_BYTES] += counts.bytes
        self._counters[DispatcherCounter.REPAIRED_UNITS] += counts.units
        self._counters[DispatcherCounter.REPAIRED_INDEX_FILES] += counts.index_files

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again: those of the scrub count from now on."""
        self._scrub.change(settings.scrub, self._environment.clock.monotonic_ns())

    def _tell_progress(self, position: int, committed: int, now_ns: int) -> None:
        if now_ns - self._told_ns >= TELL_INTERVAL_NS:
            self._told_ns = now_ns
            logger.info("dispatching: position=%d of=%d", position, committed)

    def _starve(self, error: DiskFullError, now_ns: int) -> None:
        """The disk is full: wait, and try again; what is dispatched can be read meanwhile."""
        if not self._is_starved:
            logger.warning(
                "dispatch waits for space on the disk: %s",
                error,
                extra={"event": Event.DISPATCH_STARVED},
            )
        self._is_starved = True
        self._retry_ns = now_ns + RETRY_NS
        self._page.publish_queue_begin(self._cleaned, waits=True)

    def _clean(self, builder: DispatchBuilder) -> None:
        """Delete what points only before the log's beginning, once the writer has moved that."""
        begin = self._page.read_log_begin().position
        if begin <= self._cleaned:
            return
        self._wait_for_flush()
        deleted = builder.delete_before(begin)
        self._cleaned = begin
        self._page.publish_queue_begin(begin, waits=False)
        if deleted:
            logger.info("queue and index files deleted: files=%d log_begin=%d", deleted, begin)
            self._ring_readers()

    def _ring_readers(self) -> None:
        for bell in self._bells:
            bell.ring()

    def sleep_ms(self, now_ns: int) -> int:
        """Do not sleep while committed messages wait."""
        if self._is_starved:
            return max(0, (self._retry_ns - now_ns + 999_999) // 1_000_000)
        committed = self._page.read_committed().position
        if self._builder is None:
            return 0 if self._page.has_written() else LOOK_AGAIN_MS
        pending = committed - self._published.position
        if now_ns < self._damage_until_ns:
            return LOOK_AGAIN_MS
        if pending >= SMALL_SPAN or self._scrub.wants_turn(now_ns):
            return 0
        if now_ns < self._rested_ns:
            return (self._rested_ns - now_ns + 999_999) // 1_000_000
        return 0 if pending > 0 else self._idle_ms(self._builder, now_ns)

    def _idle_ms(self, builder: DispatchBuilder, now_ns: int) -> int:
        """How long it may sleep when all is dispatched."""
        # The ends of what threads are at ring no bell, nor does what has to be durable first.
        is_busy = builder.dirty or self._flush is not None or self._scrub.is_due(now_ns)
        return LOOK_AGAIN_MS if is_busy else SLEEP_MAX_MS

    def hears_bells(self, now_ns: int) -> bool:
        """Not while it rests: it looks again by itself."""
        return now_ns >= self._rested_ns

    def _end_rest(self, now_ns: int) -> None:
        self._rested_ns, self._rest[0] = now_ns, 0
        self._is_roused = True

    def _rest_ms(self) -> int:
        if self._is_roused:
            # Who has roused it may not sleep yet.
            return REST_AWAITED_MS
        if not self._page.read_grant().granted:
            return REST_AWAY_MS
        is_awaited = any(self._page.is_asleep(role) for role in self._readers)
        return REST_AWAITED_MS if is_awaited else REST_MS

    def finish(self) -> None:
        """Dispatch what is committed, and make it durable."""
        if self._builder is None:
            return
        committed = self._page.read_committed().position
        try:
            while self._builder.position < committed:
                self._build(self._builder, committed)
            self._wait_for_flush()
            ends = self._ends.due(self._builder, self._file_start)
            if self._builder.dirty or ends is not None:
                self._builder.flush(ends=ends)
        except DamagedLogError as error:
            logger.error("not all is dispatched: %s", error)
        except DiskFullError as error:
            # The next life of the node goes on where its files say.
            logger.warning("stops before everything is dispatched: %s", error)
        position = min(self._builder.position, committed)
        self._publish(self._builder, position, self._environment.clock.monotonic_ns())

    def close(self) -> None:
        """Close the files; a flush that runs is waited for."""
        self._thread.shutdown()
        self._scrub.close()
        self._spans.close()
        for bell in self._bells:
            bell.close()
        self._writer.close()
        self._raft.close()
        self._counters.release()
        if self._builder is not None:
            self._builder.close()
        elif self._found is not None:
            self._found.close()

    def _load(self, known: Position | None) -> DerivedFiles:
        """Look where queues and index end, while the log is being recovered or beside it.

        Args:
            known: where a dispatcher of this node's life stood, None when there was none.
        """
        store = self._environment.settings.store
        return load_derived_files(
            store,
            published=known,
            unsure=unsure_queues(store.path_root_dir, self._spans.family),
            sign_of_life=self._give_sign,
        )

    def _give_sign(self) -> None:
        self._page.give_sign(Role.DISPATCHER, self._environment.clock.monotonic_ns())

    def _opened(self) -> DispatchBuilder:
        """The builder; opened anew when the log became shorter than what was dispatched."""
        log_end = self._page.read_written().position
        builder = self._builder
        if builder is not None and builder.position <= log_end:
            return builder
        if builder is not None:
            logger.warning(
                "log is shorter than what was dispatched: log_end=%d dispatched=%d",
                log_end,
                builder.position,
            )
            self._wait_for_flush()
            builder.close()
            self._found = self._load(builder.position)
        found, self._found = self._found, None
        assert found is not None
        store = self._environment.settings.store
        try:
            builder = DispatchBuilder.open(
                store,
                log_start=self._spans.start(),
                log_end=log_end,
                published=found.published,
                files=found,
                log=self._spans.family,
            )
        except DiskFullError:
            # What was opened is closed; the next try looks again.
            self._found = self._load(found.published)
            raise
        self._counters[DispatcherCounter.TRUNCATED] += builder.truncated
        # Readers forget by it what they keep mapped of files that were cut
        # (``ReadableStore.look``).
        generation = self._published.log_generation + (builder.truncated > 0)
        self._published = self._published._replace(log_generation=generation)
        logger.info(
            "dispatch begins: position=%d log_end=%d queues_truncated=%d",
            builder.position,
            log_end,
            builder.truncated,
        )
        self._builder = builder
        if builder.position < self._published.position:
            # Something is to be built again: readers and the writer must not go beyond it.
            self._publish(builder, builder.position, self._published.changed_ns)
        clear_incomplete(store.path_root_dir)
        self._put_ends(builder, is_opened=True)
        self._page.publish_queues(builder.position)
        self._writer.ring()
        return builder

    def _put_ends(self, builder: DispatchBuilder, *, is_opened: bool) -> None:
        """Put the ends of queues into their table, before anybody reads so far: queues whose
        messages the log has no more have an end, too.

        Raises:
            DiskFullError, StorageError: the operating system refused.
        """
        first = self._spans.family.first_file() or Position(0)
        if is_opened:
            self._file_start = self._spans.family.file_start(builder.position)
            self._ends.open(first)
        self._ends.put(builder, first)

    def _build_or_wait(self, builder: DispatchBuilder, committed: Position, now_ns: int) -> None:
        """Dispatch; where the log is damaged, have it repaired, and try again a little later."""
        try:
            self._build(builder, committed)
        except DamagedLogError as error:
            if self._damaged_at != builder.position:
                self._damaged_at = builder.position
                logger.error("dispatch waits for the repair of the log: %s", error)
            self._damage_until_ns = now_ns + DAMAGE_RETRY_NS
            self._raft.send(encode(Damaged(builder.position)))

    def _build(self, builder: DispatchBuilder, committed: Position) -> None:
        """Dispatch from one file of the log, at most about ``SPAN_SIZE_MAX`` bytes."""
        before = builder.position
        span = self._spans.span(before)
        if span is None:
            # Deleted as too old before it was dispatched: as RocketMQ, go on with what is there.
            start = self._spans.start()
            assert start > before, "the log has no file for a committed position"
            logger.warning("log begins behind what was dispatched: start=%d at=%d", start, before)
            builder.position = start
            return
        end = Position(min(committed, span.end))
        near = Position(min(end, before + SPAN_SIZE_MAX))
        if before < self._written_before:
            # Of a log that was there before this process nobody has looked at every byte.
            near = _whole_end(span, before, near, end)
        built = builder.build(span.view, span.start, near, header_size=span.header_size)
        if built.position == before and near < end:
            # An entry larger than a turn's share.
            built = builder.build(span.view, span.start, end, header_size=span.header_size)
        if built.position == before:
            raise DamagedLogError("committed bytes end within an entry", position=before)
        self._spans.release_before(builder.position)
        self._file_start = span.start
        if self._ends.is_waiting:
            self._put_ends(builder, is_opened=False)
        counters = self._counters
        counters[DispatcherCounter.MESSAGES] += built.messages
        counters[DispatcherCounter.BYTES] += built.position - before
        counters[DispatcherCounter.SPANS] += 1
        counters[DispatcherCounter.UNITS] += built.units
        counters[DispatcherCounter.KEYS] += built.keys
        if built.skipped:
            counters[DispatcherCounter.SKIPPED] += built.skipped
            logger.warning(
                "messages not dispatched: count=%d from=%d to=%d",
                built.skipped,
                before,
                built.position,
                extra={"event": Event.MESSAGES_NOT_DISPATCHED},
            )
        if builder.queues.gaps:
            counters[DispatcherCounter.GAPS] += builder.queues.gaps
            logger.warning("queue offsets with a gap: count=%d at=%d", builder.queues.gaps, before)
            builder.queues.gaps = 0

    def _publish(self, builder: DispatchBuilder, position: Position, now_ns: int) -> None:
        published = Dispatched(
            position,
            self._counters[DispatcherCounter.MESSAGES],
            builder.store_timestamp,
            self._published.changed_ns,
            self._published.log_generation,
        )
        if published == self._published:
            return
        self._published = published._replace(changed_ns=now_ns)
        self._page.publish_dispatched(self._published)
        self._ring_readers()

    def _flush_when_due(self, builder: DispatchBuilder, now_ns: int) -> None:
        if self._flush is not None and self._flush.done():
            self._wait_for_flush()
            if self._flush_files >= FLUSHED_OFTEN_MAX:
                pause_ns = min((now_ns - self._flush_begun_ns) * FLUSH_PAUSE, FLUSH_PAUSE_NS_MAX)
                self._flush_due_ns = max(self._flush_due_ns, now_ns + pause_ns)
        if self._flush is not None or now_ns < self._flush_due_ns:
            return
        self._ends.look()
        if self._ends.is_waiting:
            self._put_ends(builder, is_opened=False)
        ends = self._ends.due(builder, self._file_start)
        if not builder.dirty and ends is None:
            return
        if self._page.read_durable()[0].position < builder.position:
            # A checkpoint may not promise what a power failure would take from the log itself.
            return
        self._flush_job = job = builder.begin_flush(ends=ends)
        self._flush = self._thread.submit(job.run)
        self._flush_begun_ns, self._flush_files = now_ns, len(job.files)
        self._flush_due_ns = now_ns + self._environment.settings.store.flush_interval_ms * 1_000_000

    def _wait_for_flush(self) -> None:
        if self._flush is not None:
            flush, self._flush = self._flush, None
            while wait([flush], SIGN_S).not_done:
                # Thousands of files may be synced.
                self._give_sign()
            flush.result()
            if self._flush_job is not None and self._flush_job.ends is not None:
                self._ends.written(self._flush_job.ends)
            self._flush_job = None
            self._counters[DispatcherCounter.FLUSHES] += 1


def _whole_end(span: LogSpan, begin: Position, near: Position, end: Position) -> Position:
    """Position behind the last whole record before ``near``, or behind one that is larger.

    Raises:
        DamagedLogError: the first one is not what was written.
    """
    starts, sizes = np.empty(SCAN_ROWS, np.int64), np.empty(SCAN_ROWS, np.int64)
    for limit in (near, end):
        count, reached, status = scan_entries(
            span.view,
            begin - span.start,
            limit - span.start,
            span.header_size,
            span.start,
            starts.data,
            sizes.data,
        )
        whole = whole_records(
            span.view, starts[:count].data, sizes[:count].data, span.header_size, crc32
        )
        if whole < count:
            reached = int(starts[whole]) - span.header_size
        if reached > begin - span.start:
            return Position(span.start + reached)
        if whole < count or status != ScanStatus.CUT:
            break
    raise DamagedLogError("log is damaged where dispatch is to go on", position=begin)


def run(settings: Settings, stop: StopFlag) -> int:
    """Run the dispatcher until it is told to stop; the exit status.

    Raises:
        StorageError: the disk refused, or a sync failed: the process must end.
        CorruptLogError: the committed log, or a file that is ours, is not what was written.
    """
    status = run_worker(
        Role.DISPATCHER,
        settings,
        stop,
        lambda environment: DispatchWorker(environment, LogSpans.of(settings)),
    )
    logger.info("dispatcher stopped: reason=%s", stop.reason)
    return status
