"""Table files of the broker, and the log positions of those that come from outside.

Each file says under ``ledgermqApplied`` which commands of the log are in it. RocketMQ drops the
key, and an operator may write a file without it: such a file is newer than what the log has when
the store is opened with it, and knows nothing of what comes then. That is settled once, by the
writer, before the log takes anything new; until then nobody applies a command to the tables
(docs/decisions/0044).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from ledgermq.model.errors import DiskFullError
from ledgermq.rules.access import access
from ledgermq.rules.state.broker_state import APPLIED_KEY, FROM_FIRST, BrokerState
from ledgermq.rules.state.state_tables import FILES, OWN_FILES, YOUNGER_FILES
from ledgermq.store.files.config_file import ConfigFile

logger = logging.getLogger(__name__)

PUBLIC_MODE = 0o640
SECRET_MODE = 0o600
"""Of the file that has the users' secrets."""


def table_files(directory: Path) -> dict[str, ConfigFile]:
    """The files by their names, whether they are there or not.

    Args:
        directory: ``ROOT/config``; those that RocketMQ does not know are in ``ROOT/ledgermq``.
    """
    own = directory.parent / "ledgermq"
    return {
        file: ConfigFile(
            (own if file in OWN_FILES else directory) / file,
            mode=SECRET_MODE if file == access.FILE else PUBLIC_MODE,
        )
        for file in FILES
    }


class UnsettledTables:
    """Files from outside, as they were when they were looked at."""

    def __init__(
        self,
        files: Mapping[str, ConfigFile],
        documents: Mapping[str, dict[str, object]],
        unsettled: frozenset[str],
    ) -> None:
        self._files = files
        self._documents = documents
        self._unsettled = unsettled

    @classmethod
    def find(cls, directory: Path) -> Self | None:
        """Those in ``directory``, see ``table_files``; ``None`` when every file says its place.

        Raises:
            ConfigError, CorruptLogError: a file cannot be understood; names file, key and value.
            StorageError: the operating system refused.
        """
        files = table_files(directory)
        documents = {file: one.load() for file, one in files.items()}
        unsettled = BrokerState(documents).unsettled
        return cls(files, documents, unsettled) if unsettled else None

    def settle(self, end: int) -> None:
        """Write into each file that it is newer than the commands before ``end``; durable on
        return. Killed in between it is repeated: nothing comes into the log before.

        Raises:
            DiskFullError: there is no space; says what to do.
            StorageError: the operating system refused.
        """
        empty = BrokerState({}).tables()
        try:
            for file in YOUNGER_FILES:
                # First: what is missing beside a file from outside applies all that the log has.
                if not self._documents[file]:
                    self._files[file].save({**empty.get(file, {}), APPLIED_KEY: FROM_FIRST})
            for file in sorted(self._unsettled):
                settled = {**self._documents[file], APPLIED_KEY: end}
                # Twice: the copy of the content before is what counts when the file is lost.
                self._files[file].save(settled)
                self._files[file].save(settled)
        except DiskFullError as error:
            raise DiskFullError(
                "the disk has no space for saying where in the log the tables of RocketMQ, or of"
                " an operator, stand: make room, and start the node again",
                errno=error.errno,
                files=sorted(self._unsettled),
                reason=str(error),
            ) from error
        logger.info(
            "tables from outside are newer than the log so far: files=%s commands=%d",
            ",".join(sorted(self._unsettled)),
            end,
        )
