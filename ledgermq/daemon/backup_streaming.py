"""Backup stream of a running node: a turn every few seconds, for ever.

A turn puts what was committed since the last one, and now and then the broker's tables. It begins
sooner where much is waiting: so a stream is behind by seconds at any load. What fails
is tried again with the next turn, since what made it fail may pass; only what no other turn would
change ends the stream. It holds nothing open between turns: files may come and go, and the node may
be started anew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ledgermq.conversion.last_backup import STREAM_NAME, LastBackup, write_last_backup
from ledgermq.conversion.stream.log_stream import LogStream, Streamed, Told, keep_since, newest_ms
from ledgermq.conversion.stream.repository import Repository, StreamAbout
from ledgermq.conversion.stream.table_pieces import mark_of, put_tables
from ledgermq.daemon.backup_source import committed_end, committed_position, describe_running
from ledgermq.daemon.store_lock import acting_as_owner
from ledgermq.formats.dledger_index import FILE_SIZE as INDEX_FILE_SIZE
from ledgermq.members.peer_identity import identity_of
from ledgermq.model.errors import ConfigError, LedgerError, StorageError
from ledgermq.model.units import MIB
from ledgermq.store.files.mapped_files import MappedFiles
from ledgermq.store.log_reader import LogReader
from ledgermq.store.steady_time import SteadyTime
from ledgermq.store.store_directory import StoreDirectory, open_directory

logger = logging.getLogger(__name__)

TABLES_EVERY_S = 1_800
"""What a restored store has to apply when it starts is what came since; each file of the log gets
tables of its own besides."""

SOON_BYTES = 128 * MIB
"""With so much waiting a turn begins at once. Of a file of 1 GiB these are eight pieces: not so
many that they are put once more as one."""

LOOK_S = 0.5
"""How often it is looked between turns, by the cursors of the node alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOrder:
    """What is streamed, and how.

    Attributes:
        runtime: ``listen.runtime_dir`` of the node.
        keep_ms: how old messages get in the repository; None: they stay.
    """

    root: Path
    runtime: Path
    self_id: str | None
    keep_ms: int | None


class BackupStreaming:
    """Turns of one stream; ``repository`` lists the place anew when it is called."""

    def __init__(
        self,
        order: StreamOrder,
        repository: Callable[[], Repository],
        *,
        told: Told = lambda _done, _all: None,
    ) -> None:
        """Nothing is looked at before the first turn."""
        self._order = order
        self._repository_of = repository
        self._told = told
        self._repository: Repository | None = None
        self._stream: LogStream | None = None
        self._time = SteadyTime()
        self._tables_at_s = 0.0
        self._tables_end = -1
        self._tables_mark: int | None = None
        self._begin = 0

    def run(self, interval_s: float, *, pause: Callable[[float], None] = time.sleep) -> None:
        """A turn each ``interval_s`` seconds, or when ``SOON_BYTES`` are waiting; returns never.

        Raises:
            ConfigError: no other turn would do better.
        """
        failed = ""
        while True:
            until_s = time.monotonic() + interval_s
            end: int | None = None
            try:
                done = self.turn()
                if failed:
                    logger.info("backup stream goes on: end=%d", done.end)
                failed, end = "", done.end
            except ConfigError:
                raise
            except LedgerError as error:
                # What is there may not be what was remembered.
                self._repository = None
                if str(error) != failed:
                    logger.warning("backup stream waits: %s", error)
                failed = str(error)
            self._wait(until_s, end, pause)

    def turn(self) -> Streamed:
        """Put all that is committed now.

        Raises:
            ConfigError: the repository is that of another log, or of another key.
            LedgerError: the node does not run, or a place refused, or the log is damaged.
        """
        order = self._order
        now_ms = time.time_ns() // 1_000_000
        try:
            directory = open_directory(order.root, self_id=order.self_id)
            committed = committed_position(directory, order.runtime)
        except ConfigError as error:
            # A node that has never run, or is just being made anew, may come.
            raise StorageError(f"no node to stream: {error}") from error
        repository, stream = self._opened(directory)
        mark = mark_of(directory)
        has_tables = self._wants_tables(committed, directory.log_file_size or 1, mark)
        if has_tables:
            self._tables_mark = mark
            # Before the log: what is put up to now can be restored when it is there.
            self._tables_end = put_tables(
                repository, directory, lambda: describe_running(directory, order.runtime)
            )
            self._tables_at_s = time.monotonic()
            committed = committed_position(directory, order.runtime)
        reader = LogReader(directory)
        try:
            done = stream.step(reader, committed)
        finally:
            reader.close()
        if done.gap:
            logger.warning("retention was faster than the backup stream: lost=%d", done.gap)
            self._tables_end = -1
        if has_tables or done.gap:
            runs = repository.runs()
            self._begin = runs[-1].start if runs else 0
        if has_tables and order.keep_ms is not None:
            size = directory.log_file_size or 1
            # What is deleted here is nowhere else: a clock that jumps is not to decide it.
            steady_ms = self._time.now_ms(newest_ms(repository))
            keep_since(repository, steady_ms - order.keep_ms, file_size=size)
        if done.end <= committed:
            with acting_as_owner(order.root):
                write_last_backup(order.root, LastBackup(now_ms, done.end), name=STREAM_NAME)
        return done

    def _wait(self, until_s: float, end: int | None, pause: Callable[[float], None]) -> None:
        """Wait until ``until_s``, or until much is behind ``end``; None: a turn has failed."""
        while (left_s := until_s - time.monotonic()) > 0:
            pause(min(left_s, LOOK_S))
            if end is None:
                continue
            try:
                if committed_end(self._order.runtime) - end >= SOON_BYTES:
                    return
            except LedgerError:
                # The node is away: the next turn says so.
                end = None

    def _opened(self, directory: StoreDirectory) -> tuple[Repository, LogStream]:
        if self._repository is None or self._stream is None:
            repository = self._repository_of()
            repository.claim(about_of(directory))
            self._stream = LogStream(repository, told=self._told)
            self._repository = repository
            self._tables_end = -1
        return self._repository, self._stream

    def _wants_tables(self, committed: int, file_size: int, mark: int | None) -> bool:
        if self._tables_end < 0:
            return True
        if committed <= self._tables_end:
            return False
        if self._tables_mark is not None and self._tables_mark < self._begin <= (mark or 0):
            # By those of a broker that has just begun nothing is restored of a log that begins
            # behind what they need.
            return True
        is_late = time.monotonic() - self._tables_at_s >= TABLES_EVERY_S
        return is_late or committed // file_size > self._tables_end // file_size


def about_of(directory: StoreDirectory) -> StreamAbout:
    """What a stream of the store says of it.

    Raises:
        CorruptLogError: the identity is damaged.
        StorageError: it cannot be read, or there is no file of the log yet.
    """
    identity = identity_of(directory.root / "ledgermq" / "identity")
    index = None if directory.dledger is None else MappedFiles(directory.dledger / "index")
    return StreamAbout(
        log=directory.log.value,
        self_id=directory.self_id,
        cluster=None if identity is None else identity[0].hex(),
        log_file_size=directory.log_file_size or 0,
        index_file_size=index.file_size if index is not None and index.starts else INDEX_FILE_SIZE,
    )
