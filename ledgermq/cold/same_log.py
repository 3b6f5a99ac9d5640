"""Same-log check and sealed end: whether pieces are of this node's log, and how far they have it.

Pieces of another log have queues of the same names, and other messages in them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from threading import Event

from ledgermq.cold.watched_place import WatchedPlace
from ledgermq.conversion.stream.log_facts import StretchFacts
from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError, StorageError
from ledgermq.pipeline.pieces.piece_manifest import PieceManifest, PieceRow
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory


class SameLog:
    """Owned by the process; compares a record that both must have."""

    def __init__(self, settings: Settings, page: CursorPage) -> None:
        """Nothing is read yet."""
        self._settings = settings
        self._page = page

    def check(self, manifest: PieceManifest) -> None:
        """Refuse pieces that lack the last record which they and what is committed here should
        have. Where there is none, because all of it was deleted or has not come yet, nothing is
        known, and nothing refused.

        Raises:
            ConfigError: the log is another one.
            CorruptLogError, StorageError: the own log cannot be read, or not yet.
        """
        if not self._page.has_committed():
            raise StorageError("node is starting: it does not know yet what is committed")
        committed = self._page.read_committed().position
        for row in reversed(manifest.rows):
            facts = row.facts
            if facts.records and facts.last_at + facts.last_size <= committed:
                break
        else:
            return
        with closing(own_log(self._settings)) as log:
            check_record(log, facts, self._settings)


def own_log(settings: Settings) -> LogReader:
    """The log of this node, to be closed.

    Raises:
        CorruptLogError, StorageError: it cannot be read.
    """
    store = settings.store
    self_id = settings.node.self_id if store.log.has_terms else None
    return LogReader(open_directory(store.path_root_dir, self_id=self_id))


def check_record(log: LogReader, facts: StretchFacts, settings: Settings) -> None:
    """Refuse the pieces where their last record is not what ``log`` has in its place.

    Raises:
        ConfigError: the log is another one.
    """
    if log.has_record(facts.last_at, facts.last_size, facts.last_crc) is False:
        raise ConfigError(
            "the log is not the one whose pieces are there",
            place=settings.cold.place,
            position=facts.last_at,
            setting="cold.place",
        )


class SealedEnd:
    """Up to where pieces that are there have all of this node's log.

    Retention of the log waits for it (``writer/retention/log_survey.py``). What it is told was read
    from the place, and not from the manifest alone: each piece once in the life of the process, as
    long as the log has what is in it. After that it may be the only copy.

    Used by one thread at a time; ``stopped`` ends a look between two pieces.
    """

    def __init__(self, settings: Settings, page: CursorPage, place: WatchedPlace) -> None:
        """Nothing is known yet."""
        self._settings = settings
        self._page = page
        self._place = place
        self._checked: frozenset[str] = frozenset()
        self.stopped = Event()

    def look(self, manifest: PieceManifest, told: Callable[[int], None]) -> None:
        """Go through the pieces from the begin of the log on, and tell each position up to which
        all of it is sealed, beginning with that begin.

        What was dropped, because it was beyond its age, counts as sealed: it has been.

        Raises:
            ConfigError: a piece is of another log.
            CorruptLogError: a piece is missing, or not what was sealed; or the log is not whole.
            StorageError: place or log refused.
        """
        if not self._page.has_committed():
            return
        committed = self._page.read_committed().position
        parts: list[tuple[int, int, PieceRow | None]] = [
            *((row.start, row.end, row) for row in manifest.rows),
            *((gone.start, gone.end, None) for gone in manifest.gone),
        ]
        with closing(own_log(self._settings)) as log:
            end = int(log.first)
            told(end)
            # What is not of the log any more is not asked for again.
            self._checked &= {row.name for row in manifest.rows if row.end > end}
            for start, part_end, row in sorted(parts, key=lambda part: part[:2]):
                if part_end <= end:
                    continue
                if start > end or part_end > committed or self.stopped.is_set():
                    return
                if row is not None and row.name not in self._checked:
                    self._place.check(row)
                    if row.facts.records:
                        check_record(log, row.facts, self._settings)
                    self._checked |= {row.name}
                end = part_end
                told(end)
