"""Files of users and quotas, as the broker writes them, for processes that read them."""

from __future__ import annotations

from pathlib import Path

from ledgermq.rules.access import access
from ledgermq.rules.access.access import UserTable
from ledgermq.rules.tables import quotas
from ledgermq.rules.tables.quotas import QuotaTable
from ledgermq.store.files.config_file import ConfigFile
from ledgermq.store.files.disk_space import storage_error


class AccessFiles:
    """Read at the start, and whenever the broker says that they have changed.

    Attributes:
        users, quotas: the same objects for ever; ``revision`` of each grows with ``reload``.
    """

    def __init__(self, folder: Path) -> None:
        """Read the files in ``folder``; what is not there is empty.

        Raises:
            CorruptLogError, ConfigError, StorageError: a file cannot be read.
        """
        self._files = ConfigFile(folder / access.FILE), ConfigFile(folder / quotas.FILE)
        self.users = UserTable()
        self.quotas = QuotaTable()
        self._seen = self._marks()
        self.reload()

    def reload(self) -> None:
        """Read the files again.

        Raises:
            CorruptLogError, ConfigError, StorageError: a file cannot be read; what was known stays.
        """
        users, limits = (file.load() for file in self._files)
        fresh = UserTable.read(users), QuotaTable.read(limits)
        self.users.replace_with(fresh[0])
        self.quotas.replace_with(fresh[1])

    def read_changes(self) -> bool:
        """Read the files again if they are others than before, as who is told nothing has to look;
        whether they were.

        Raises:
            CorruptLogError, ConfigError, StorageError: as ``reload``; the next call tries again.
        """
        seen = self._marks()
        if seen == self._seen:
            return False
        self.reload()
        self._seen = seen
        return True

    def _marks(self) -> list[tuple[int, int]]:
        return [_mark(file.path) for file in self._files]


def _mark(path: Path) -> tuple[int, int]:
    """What is another one when the file was put in place anew."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    except OSError as error:
        raise storage_error("file not looked at", error, file=str(path)) from error
    return found.st_ino, found.st_mtime_ns
