"""Same-log check: whether the pieces of a place are of this node's log.

Pieces of another log have queues of the same names, and other messages in them.
"""

from __future__ import annotations

from contextlib import closing

from ledgermq.conversion.stream.log_facts import StretchFacts
from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError, StorageError
from ledgermq.pipeline.pieces.piece_manifest import PieceManifest
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
