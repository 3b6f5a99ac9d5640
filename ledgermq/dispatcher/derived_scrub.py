"""Scrub of derived files: queues and index compared with the log in use, and put right.

Owned by the dispatcher, which alone writes these files. A thread reads the log once more, block by
block at ``scrub.rate_bytes_per_s``, makes units and keys of it as dispatch does, and compares:

found                             what is done
units that are not the messages'  written in place; what readers get is whole again at once
an index file that differs        it and all later ones are dropped, and their keys put again, a
                                  portion a turn, while dispatch goes on
a record of the log itself        told to raft, which has it repaired if anybody has it
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from ledgermq.dispatcher.log_spans import LogSpans
from ledgermq.formats.kernels.kernel import ScanStatus
from ledgermq.formats.records.message import (
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    SIZE_MIN,
)
from ledgermq.model.config.settings import ScrubSection, Settings
from ledgermq.model.delay_levels import delay_levels_ms
from ledgermq.model.errors import DamagedLogError, StorageError
from ledgermq.model.events import Event
from ledgermq.model.ids import Position
from ledgermq.repair.derived_scrub import IndexFault, IndexScrub, UnitPatch, UnitScrub
from ledgermq.repair.scrub_pace import ScrubPace
from ledgermq.store.queues.dispatch_build import DispatchBuilder
from ledgermq.store.queues.dispatch_tables import DispatchTables

logger = logging.getLogger(__name__)

KEYS_SPAN_MAX = 8 * 1024 * 1024
DAMAGE_RETRY_NS = 500_000_000

SOON_NS = 1_000_000_000
"""A step that may begin within this time is one that is waited for."""


@dataclass(slots=True)
class Checked:
    """What one step found.

    Attributes:
        position: where to go on; None at the end of the pass.
        damaged: a record of the log that is not what was written.
    """

    position: Position | None
    size: int = 0
    patches: list[UnitPatch] = field(default_factory=list)
    fault: IndexFault | None = None
    damaged: Position | None = None


class DerivedCheck:
    """The reading half; used by one thread at a time, and only reads."""

    def __init__(self, settings: Settings, builder: DispatchBuilder) -> None:
        """Compare with the files of ``builder``; it may be closed meanwhile."""
        index = builder.index
        self._spans, self._looks = LogSpans.of(settings), LogSpans.of(settings)
        self._index = None if index is None else IndexScrub(index.root, index.layout)
        self._units = UnitScrub(builder.queues.root, builder.queues.file_size, self._is_message)
        self._tables = DispatchTables(
            delay_levels_ms(settings.store.message_delay_level),
            with_keys=index is not None,
            with_tags=builder.with_tags,
        )

    def step(self, begun: Position | None, end: Position, size: int) -> Checked:
        """Read on from where the last step ended, or begin a pass; ``end`` is dispatched, too.

        Raises:
            StorageError, OSError: a file cannot be read.
        """
        at = self._spans.start() if begun is None else begun
        if begun is None and self._index is not None:
            self._index.begin(at)
        span = self._spans.span(at) if at < end else None
        if span is None:
            # Deleted as too old meanwhile.
            start = self._spans.start()
            return Checked(start) if at < start < end else self._ended(end)
        begin: int = at - span.start
        file_end: int = min(end, span.end) - span.start
        count, reached, status = 0, int(begin), ScanStatus.FULL
        # A record that is larger than a step is looked at as a whole.
        for stop in (min(begin + size, file_end), file_end):
            count, reached, status = self._tables.scan(
                span.view, begin, stop, header_size=span.header_size, base=span.start
            )
            if count or reached > begin or status.corrupt:
                break
        whole = self._tables.whole(span.view, count, header_size=span.header_size)
        found = Checked(Position(span.start + reached), reached - begin)
        self._compare(span.view, span.start, whole, found)
        if whole < count:
            row_at, row_size = self._tables.place(whole)
            found.damaged = Position(span.start + row_at - span.header_size)
            found.position = Position(span.start + row_at + row_size)
        elif reached == begin or status.corrupt:
            found.damaged = Position(span.start + reached)
            # Where the next record begins nobody knows: on with the next file.
            found.position = Position(span.end)
        if found.damaged is not None and self._index is not None:
            # Not all keys are known.
            self._index.stop()
        return found

    def close(self) -> None:
        """Unmap."""
        self._spans.close()
        self._looks.close()

    def _compare(self, view: memoryview, base: Position, count: int, found: Checked) -> None:
        for portion in self._tables.portions(view, base, count):
            for block in self._tables.blocks(view, portion):
                found.patches += self._units.wrong_units(block)
            if self._index is not None:
                self._index.compare(portion.keys)
                found.fault = self._index.fault

    def _ended(self, end: Position) -> Checked:
        self.close()
        if self._index is None:
            return Checked(None)
        self._index.end(end)
        return Checked(None, fault=self._index.fault)

    def _is_message(self, position: int, size: int, queue_id: int, queue_offset: int) -> bool:
        span = self._looks.span(Position(position))
        if span is None or size < SIZE_MIN:
            return False
        record = span.view[position - span.start : position - span.start + PHYSICAL_OFFSET_AT + 8]
        wanted = (
            (0, 4, size),
            (QUEUE_ID_AT, 4, queue_id),
            (QUEUE_OFFSET_AT, 8, queue_offset),
            (PHYSICAL_OFFSET_AT, 8, position),
        )
        return all(int.from_bytes(record[at : at + n], "big") == value for at, n, value in wanted)


@dataclass(slots=True)
class DerivedScrubCounts:
    """What was done since it was asked last."""

    bytes: int = 0
    units: int = 0
    index_files: int = 0


class DerivedScrub:
    """The writing half: called by the dispatcher once a turn."""

    def __init__(
        self,
        settings: Settings,
        now_ns: int,
        report_damage: Callable[[Position], object],
        background: Executor | None = None,
    ) -> None:
        """Nothing is read before the first pass is due.

        Args:
            report_damage: called with the position of a record that is damaged.
            background: reads; shut down with this. A thread, when nobody gives one.
        """
        self._counts = DerivedScrubCounts()
        self._settings = settings
        self._pace = ScrubPace(settings.scrub, now_ns)
        self._report_damage = report_damage
        self._thread = background or ThreadPoolExecutor(1, thread_name_prefix="scrub")
        self._spans = LogSpans.of(settings)
        self._builder: DispatchBuilder | None = None
        self._check: DerivedCheck | None = None
        self._job: Future[Checked] | None = None
        self._at: Position | None = None
        self._keys_due_ns = 0

    def change(self, settings: ScrubSection, now_ns: int) -> None:
        """Take other settings while it runs."""
        self._pace.change(settings, now_ns)

    def turn(self, builder: DispatchBuilder, end: Position, now_ns: int) -> None:
        """Go on, bounded; all before ``end`` is committed and dispatched.

        Raises:
            StorageError: what differs cannot be written.
        """
        job = self._job
        if job is not None:
            if not job.done():
                return
            self._job = None
            self._take(builder, job, now_ns)
        if builder is not self._builder:
            self._begin_anew(builder)
        if builder.keys_from is not None:
            self._put_keys(builder, now_ns)
            return
        if now_ns >= self._pace.due_ns:
            self._begin_step(end, now_ns)

    def take_counts(self) -> DerivedScrubCounts:
        """What was read and put right since the last call."""
        counts, self._counts = self._counts, DerivedScrubCounts()
        return counts

    def wants_turn(self, now_ns: int) -> bool:
        """Whether keys have to be put again now; the pass itself goes on when the process wakes
        anyway.
        """
        builder = self._builder
        is_behind = builder is not None and builder.keys_from is not None
        return is_behind and now_ns >= self._keys_due_ns

    def is_due(self, now_ns: int) -> bool:
        """Whether a step of the pass is under way, or may begin soon."""
        return self._job is not None or now_ns + SOON_NS >= self._pace.due_ns

    def close(self) -> None:
        """End the thread; what it reads is finished."""
        self._thread.shutdown(cancel_futures=True)
        self._spans.close()
        if self._check is not None:
            self._check.close()

    def _begin_anew(self, builder: DispatchBuilder) -> None:
        """The files were opened, again: the log may have become shorter meanwhile."""
        if self._check is not None:
            self._check.close()
        self._builder = builder
        self._check = DerivedCheck(self._settings, builder)
        self._go_on_at(None)

    def _go_on_at(self, position: Position | None) -> None:
        """The next step begins there; None: the pass is over."""
        self._at = position
        if position is None:
            self._pace.end_pass()

    def _begin_step(self, end: Position, now_ns: int) -> None:
        check, at = self._check, self._at
        assert check is not None
        size = self._pace.begin_step(now_ns)
        self._job = self._thread.submit(check.step, at, end, size)

    def _take(self, builder: DispatchBuilder, job: Future[Checked], now_ns: int) -> None:
        """Put right what a step has found."""
        try:
            found = job.result()
        except (StorageError, OSError) as error:
            # Whoever needs the file says so, too; a file that retention deleted nobody needs.
            logger.warning("queues and index not compared with the log: %s", error)
            self._go_on_at(None)
            return
        self._go_on_at(found.position)
        self._counts.bytes += found.size
        # The files were opened anew since: what differed may be what was cut.
        if builder is not self._builder:
            return
        if found.damaged is not None:
            self._report_damage(found.damaged)
        for patch in found.patches:
            if builder.queues.replace(patch.path, patch.offset, patch.data):
                self._counts.units += patch.units
                logger.warning(
                    "queue is repaired: file=%s offset=%d units=%d",
                    patch.path,
                    patch.offset,
                    patch.units,
                    extra={"event": Event.QUEUES_REPAIRED},
                )
        if found.fault is not None:
            self._drop_keys(builder, found.fault)
            self._go_on_at(None)

    def _drop_keys(self, builder: DispatchBuilder, fault: IndexFault) -> None:
        """Have keys put again from the index file on that differs from the log."""
        index = builder.index
        if index is None or fault.name not in index.file_names:
            return
        files = len(index.file_names) - index.file_names.index(fault.name)
        path = os.fspath(index.root / fault.name)
        builder.drop_keys(fault.name, self._spans.start())
        self._counts.index_files += files
        logger.warning(
            "index is damaged, keys are put again: file=%s offset=%d files=%d",
            path,
            fault.offset,
            files,
        )

    def _put_keys(self, builder: DispatchBuilder, now_ns: int) -> None:
        """A portion of the keys that were dropped."""
        assert builder.keys_from is not None
        if now_ns < self._keys_due_ns:
            return
        at = builder.keys_from
        if at >= builder.position:
            builder.finish_keys()
            logger.warning(
                "index is repaired: position=%d",
                builder.position,
                extra={"event": Event.QUEUES_REPAIRED},
            )
            return
        span = self._spans.span(at)
        if span is None:
            builder.keys_from = max(self._spans.start(), at)
            return
        try:
            end = Position(min(builder.position, span.end))
            near = Position(min(end, at + KEYS_SPAN_MAX))
            reached = builder.build_keys(span.view, span.start, near, header_size=span.header_size)
            if reached == at and near < end:
                reached = builder.build_keys(
                    span.view, span.start, end, header_size=span.header_size
                )
            if reached == at:
                raise DamagedLogError("committed bytes end within an entry", position=at)
        except DamagedLogError as error:
            logger.error("index waits for the repair of the log: %s", error)
            self._keys_due_ns = now_ns + DAMAGE_RETRY_NS
            self._report_damage(at)
