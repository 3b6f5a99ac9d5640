"""Files of log and Index as the writer looks up unique ids in them; opened when they are needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ledgermq.formats.arrays import I64
from ledgermq.formats.index_file import ITEMS_DEFAULT, SLOTS_DEFAULT, IndexLayout
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import CorruptLogError, StorageError
from ledgermq.store.index.index_lookup import WantedKeys, find_positions
from ledgermq.store.index.index_reader import IndexReader
from ledgermq.store.log_view import LogView
from ledgermq.store.queues.derived_files import is_incomplete
from ledgermq.writer.duplicates.stored_ids import IdsUnknownError
from ledgermq.writer.log.log_ids import LogIds


class IdFiles:
    """Owned by the writer.

    Attributes:
        has_index: whether the node keeps one.
        sign_of_life: to be called again and again while files are read.
    """

    def __init__(self, settings: Settings, sign_of_life: Callable[[], None]) -> None:
        """Nothing is open."""
        self.has_index = settings.store.message_index_enable
        self.sign_of_life = sign_of_life
        self._settings = settings
        self._root: Path = settings.store.path_root_dir
        self._layout = IndexLayout(
            slots=settings.store.max_hash_slot_num or SLOTS_DEFAULT,
            items=settings.store.max_index_num or ITEMS_DEFAULT,
        )
        self._index: IndexReader | None = None
        self._log: LogIds | None = None

    @property
    def log(self) -> LogIds:
        """What the log holds.

        Raises:
            CorruptLogError, StorageError: its files cannot be opened.
        """
        if self._log is None:
            self._log = LogIds(LogView.of(self._settings), self.sign_of_life)
        return self._log

    def let_go(self) -> None:
        """Files of log and Index may be deleted: keep none of them mapped."""
        self._log = None
        self._index = None

    def find(
        self,
        places: tuple[bytes, ...],
        keys: WantedKeys,
        *,
        begin: int = 0,
        look: Callable[[], None] = lambda: None,
    ) -> list[tuple[I64, I64]]:
        """What the Index says of some ids, of each topic; see ``find_positions``.

        Raises:
            IdsUnknownError: the Index is not whole now, or cannot be read.
        """
        if is_incomplete(self._root):
            raise IdsUnknownError(
                "the index is being put right, and unique ids are looked up in it"
            )
        try:
            index = self._refreshed()
            return [find_positions(index, place, keys, begin=begin, look=look) for place in places]
        except (CorruptLogError, StorageError) as error:
            self._index = None
            raise IdsUnknownError("unique ids cannot be looked up", cause=str(error)) from error

    def _refreshed(self) -> IndexReader:
        if self._index is None:
            self._index = IndexReader(self._root / "index", layout=self._layout)
        else:
            self._index.refresh()
        return self._index
