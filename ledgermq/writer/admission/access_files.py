"""Users and quotas as the writer reads them, from the files that the broker writes."""

from __future__ import annotations

from pathlib import Path

from ledgermq.rules.access import access
from ledgermq.rules.access.access import UserTable
from ledgermq.rules.tables import quotas
from ledgermq.rules.tables.quotas import QuotaTable
from ledgermq.store.files.config_file import ConfigFile


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
