"""Table files of the broker, and the log positions of those that come from outside.

Each file says under ``ledgermqApplied`` which commands of the log are in it. RocketMQ drops the
key, and an operator may write a file without it: such a file is newer than what the log has when
the store is opened with it, and knows nothing of what comes then. That is settled once, by the
writer, before the log takes anything new; until then nobody applies a command to the tables
(docs/decisions/0044).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from ledgermq.model.errors import DiskFullError
from ledgermq.model.events import Event
from ledgermq.rules.access import access
from ledgermq.rules.state.broker_state import APPLIED_KEY, FROM_FIRST, BrokerState
from ledgermq.rules.state.outlying_positions import EndOf, Outlier, find_outliers, put_right
from ledgermq.rules.state.state_tables import FILES, OWN_FILES, YOUNGER_FILES
from ledgermq.rules.tables.documents import finish
from ledgermq.store.files.config_file import ConfigFile

logger = logging.getLogger(__name__)

PUBLIC_MODE = 0o640
SECRET_MODE = 0o600
"""Of the file that has the users' secrets."""

OUTLIERS_TOLD_MAX = 100
"""Positions that were put right, a line of the log each; of more the number."""


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


def outliers_in(directory: Path, end_of: EndOf) -> list[Outlier]:
    """Positions outside of their queues in the files of ``directory``; nothing is changed.

    Raises:
        ConfigError, CorruptLogError: a file cannot be understood; names file, key and value.
        StorageError: the operating system refused.
    """
    state = BrokerState({file: one.load() for file, one in table_files(directory).items()})
    return finish(find_outliers(state.offsets, (state.delays, state.moves), end_of))


def tell_outliers(outliers: Sequence[Outlier]) -> None:
    """Say in the log which positions were put right."""
    for one in outliers[:OUTLIERS_TOLD_MAX]:
        logger.warning(
            "position outside of its queue put right: file=%s group=%s topic=%s queue=%d was=%d "
            "is=%d",
            one.file,
            one.group or "-",
            one.queue.topic,
            one.queue.queue_id,
            one.was,
            one.position,
            extra={"event": Event.POSITION_PUT_RIGHT},
        )
    if len(outliers) > OUTLIERS_TOLD_MAX:
        logger.warning(
            "more positions outside of their queues put right: count=%d",
            len(outliers) - OUTLIERS_TOLD_MAX,
            extra={"event": Event.POSITION_PUT_RIGHT},
        )


class UnsettledTables:
    """Files from outside, as they were when they were looked at."""

    def __init__(
        self,
        files: Mapping[str, ConfigFile],
        documents: Mapping[str, dict[str, object]],
        state: BrokerState,
    ) -> None:
        self._files = files
        self._documents = documents
        self._state = state
        self._unsettled = state.unsettled

    @classmethod
    def find(cls, directory: Path) -> Self | None:
        """Those in ``directory``, see ``table_files``; ``None`` when every file says its place.

        Raises:
            ConfigError, CorruptLogError: a file cannot be understood; names file, key and value.
            StorageError: the operating system refused.
        """
        files = table_files(directory)
        documents = {file: one.load() for file, one in files.items()}
        state = BrokerState(documents)
        return cls(files, documents, state) if state.unsettled else None

    def settle(self, end: int, end_of: EndOf) -> None:
        """Write into each file that it is newer than the commands before ``end``, with all its
        positions within their queues; durable on return. Killed in between it is repeated: nothing
        comes into the log before.

        Args:
            end_of: by the log that is there.

        Raises:
            DiskFullError: there is no space; says what to do.
            StorageError: the operating system refused.
        """
        empty = BrokerState({}).tables()
        contents = self._put_right(end_of)
        try:
            for file in YOUNGER_FILES:
                # First: what is missing beside a file from outside applies all that the log has.
                if not self._documents[file]:
                    self._files[file].save({**empty.get(file, {}), APPLIED_KEY: FROM_FIRST})
            for file in sorted(self._unsettled):
                settled = {**contents.get(file, self._documents[file]), APPLIED_KEY: end}
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

    def _put_right(self, end_of: EndOf) -> dict[str, dict[str, object]]:
        """The documents in which a position lies outside of its queue, without that."""
        state = self._state
        moved = (state.delays, state.moves)
        found = finish(find_outliers(state.offsets, moved, end_of))
        found = [one for one in found if one.file in self._unsettled]
        put_right(found, state.offsets, moved)
        tell_outliers(found)
        tables = {table.file: table for table in (state.offsets, *moved)}
        return {file: tables[file].to_document() for file in {one.file for one in found}}
