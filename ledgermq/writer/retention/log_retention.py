"""Log retention: deletion of old files of the log, once raft has released them.

A survey and the deletions run in a thread; the writer's loop decides (``store/retention.py``), and
goes step by step: publish where the log is to begin; raft stops reading before that, or says who
needs it; delete, the oldest file first; publish where the log begins now. The dispatcher deletes
queue and index files after that (``dispatcher/dispatcher.py``). Killed in between, what is left
begins at the oldest file there is.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol

from ledgermq.formats.dledger_index import ITEM_SIZE as INDEX_ITEM_SIZE
from ledgermq.ipc.cursor_page import Role
from ledgermq.ipc.orders import SnapshotWanted, encode
from ledgermq.ipc.page_slots import HeldBy
from ledgermq.model.config.settings import RetentionSection
from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError
from ledgermq.model.events import Event
from ledgermq.model.ids import Position
from ledgermq.process.node import Surroundings
from ledgermq.store.files.disk_sync import sync_directory
from ledgermq.store.files.file_names import file_name, starts_in
from ledgermq.store.files.store_checkpoint import read_checkpoint
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.retention import RetentionPlan, Survey, plan
from ledgermq.store.steady_time import SteadyTime
from ledgermq.writer.log.log_opening import OpenLog, entry_files
from ledgermq.writer.retention.log_survey import take_survey

logger = logging.getLogger(__name__)

LOOK_NS = 60_000_000_000
"""Files get too old without anything happening."""

LOOK_SOON_NS = 1_000_000_000
"""Nanoseconds until the next look while something is held that should go, and after a change."""

HELD_NS = 5_000_000_000

UNDER_WAY_MS = 100
"""Milliseconds between looks whether the thread has come to an end."""


class Retention(Protocol):
    """Deletes what is old; ``LogRetention`` is the real one."""

    @property
    def wanted(self) -> Position:
        """Nothing before it may be read any more."""

    @property
    def is_busy(self) -> bool:
        """Whether it waits for others: to be asked to go on in each turn."""

    def turn(self, now_ns: int, files_made: int) -> bool:
        """Go on; whether ``wanted`` has moved."""

    def sleep_ms(self, now_ns: int) -> int | None:
        """Milliseconds until ``turn`` has something to do by itself."""

    def take_settings(self, settings: RetentionSection) -> None:
        """The settings have changed."""

    def close(self) -> None:
        """End what is under way."""


class LogRetention:
    """Owned by the writer process. Invariant: ``begin <= wanted``, both starts of files."""

    def __init__(self, environment: Surroundings, log: OpenLog) -> None:
        """Nothing is deleted before raft has spoken."""
        self._settings = environment.settings
        self._retention = environment.settings.retention
        self._time = SteadyTime()
        self._page = environment.page
        self._raft = environment.bell(Role.RAFT)
        self._dispatcher = environment.bell(Role.DISPATCHER)
        self._broker = environment.bell(Role.BROKER)
        self._log = log
        self._family = StorePaths.of(environment.settings).log
        # A writer that died may have left the page with more than it has done.
        self.begin = Position(min(log.recovered.first, self._first()))
        self.wanted = self.begin
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="retention")
        self._survey: Future[RetentionPlan] | None = None
        self._deletion: Future[Position] | None = None
        self._due_ns = 0
        self._files_made = -1
        self._told = ""
        self._told_ns = -LOOK_NS
        self._page.publish_log_begin(self.wanted, self.begin)

    def take_settings(self, settings: RetentionSection) -> None:
        """The settings have changed: look again."""
        self._retention = settings
        self._due_ns = 0

    def turn(self, now_ns: int, files_made: int) -> bool:
        """Go on; whether ``wanted`` has moved, before which nothing may be read any more.

        Raises:
            StorageError: a file could not be deleted.
        """
        if files_made != self._files_made:
            self._files_made = files_made
            self._due_ns = min(self._due_ns, now_ns + LOOK_SOON_NS)
        if self._deletion is not None and self._deletion.done():
            self._finish_deletion(self._deletion, now_ns)
        if self.wanted > self.begin and self._deletion is None:
            self._delete_released()
        if self._survey is not None:
            return self._survey.done() and self._finish_survey(now_ns)
        if now_ns >= self._due_ns and self._deletion is None and self._page.has_committed():
            # Now, and not at its end: what happens meanwhile it may not see.
            self._due_ns = now_ns + LOOK_NS
            self._survey = self._thread.submit(self._take_survey)
        return False

    @property
    def is_busy(self) -> bool:
        """Whether it waits for the thread, or for raft to release what is to go."""
        return self.wanted > self.begin or not (self._survey is None and self._deletion is None)

    def sleep_ms(self, now_ns: int) -> int | None:
        if self._survey is not None or self._deletion is not None:
            # Their ends do not wake the loop.
            return UNDER_WAY_MS
        if not self._page.has_committed():
            # Until then no time is one to look at, however long a leader is awaited.
            return None
        return max(0, (self._due_ns - now_ns) // 1_000_000)

    def close(self) -> None:
        """Wait for what the thread is at."""
        self._thread.shutdown(cancel_futures=True)

    def _take_survey(self) -> RetentionPlan:
        survey = take_survey(self._settings, self._retention, self._page)
        now_ms = self._time.now_ms(self._newest_ms(survey))
        return plan(replace(survey, now_ms=now_ms), self._retention)

    def _newest_ms(self, survey: Survey) -> int:
        """When the newest message was stored; 0 when there is none, or a single file."""
        dispatched = self._page.read_dispatched().store_timestamp_ms
        # Before the dispatcher has spoken.
        saved = read_checkpoint(StorePaths.of(self._settings).root / "checkpoint").queues_timestamp
        files = [file.last_store_ms for file in survey.files[:-1]]
        return max(dispatched, saved) or max(files, default=0)

    def _finish_survey(self, now_ns: int) -> bool:
        assert self._survey is not None
        survey, self._survey = self._survey, None
        try:
            found = survey.result()
        except (ConfigError, CorruptLogError, StorageError, OSError) as error:
            # What cannot be looked at is not deleted; who reads it says so, too.
            self._tell(f"nothing is deleted: the store cannot be surveyed: {error}")
            return False
        self._tell(found.held and f"kept: {found.held}")
        if found.held:
            self._due_ns = min(self._due_ns, now_ns + HELD_NS)
        if found.held_end:
            # Its last snapshot may be all that is needed of the file.
            self._broker.send(encode(SnapshotWanted(Position(found.held_end))))
        if found.begin <= self.wanted:
            return False
        logger.info(
            "log is to begin at %d instead of %d: files=%d first: %s",
            found.begin,
            self.begin,
            len(found.reasons),
            found.reasons[0],
        )
        if found.unarchived:
            logger.warning("%s", found.unarchived, extra={"event": Event.ARCHIVE_PASSED})
        self.wanted = Position(found.begin)
        self._page.publish_log_begin(self.wanted, self.begin)
        self._raft.ring()
        return True

    def _delete_released(self) -> None:
        released, held_by = self._page.read_released()
        until = Position(min(released, self.wanted))
        if held_by is not HeldBy.NOBODY:
            self._tell(
                f"kept: {_HELD[held_by]}, so raft reads the log from {released} on,"
                f" and it is to begin at {self.wanted}"
            )
        if until > self.begin:
            self._deletion = self._thread.submit(self._delete_before, until)

    def _delete_before(self, position: Position) -> Position:
        """Delete whole files before ``position``, in the thread; where the log begins now."""
        for folder in self._family.folders:
            for file in folder.files():
                if file.end > position:
                    break
                file.path.unlink()
                # One by one: no power failure may leave a gap.
                sync_directory(folder.path)
        self._delete_items()
        return Position(self._first())

    def _delete_items(self) -> None:
        """Delete files of DLedger's index whose items are all of entries that are gone."""
        index, files = self._log.recovered.index, entry_files(self._log)
        if index is None or files is None:
            return
        try:
            first = files.first_index(self._log.writer.end.index_)
        finally:
            files.forget()
        for start in starts_in(index.directory):
            if start + index.file_size > first * INDEX_ITEM_SIZE:
                break
            (index.directory / file_name(start)).unlink()
            sync_directory(index.directory)

    def _finish_deletion(self, deletion: Future[Position], now_ns: int) -> None:
        self._deletion = None
        try:
            begin = deletion.result()
        except OSError as error:
            raise StorageError(
                "old files not deleted", errno=error.errno, reason=error.strerror
            ) from error
        if begin > self.begin:
            logger.info("log begins later: position=%d before=%d", begin, self.begin)
            self.begin = begin
            self._page.publish_log_begin(self.wanted, self.begin)
            self._dispatcher.ring()
            self._due_ns = min(self._due_ns, now_ns + LOOK_SOON_NS)

    def _first(self) -> int:
        first = self._family.first_file()
        return int(self._log.writer.end.position if first is None else first)

    def _tell(self, text: str) -> None:
        """What is not deleted and why; its numbers change with every look, so not too often."""
        now_ns = time.monotonic_ns()
        if text and (not self._told or now_ns - self._told_ns >= LOOK_NS):
            logger.warning("%s", text, extra={"event": Event.RETENTION_HELD})
            self._told_ns = now_ns
        self._told = text


_HELD = {
    HeldBy.MEMBER: "a member lags behind (retention.keep_for_members)",
    HeldBy.SHIPPING: "files are on their way to a member",
}
