"""Table files of the broker, and the log positions of those that come from outside.

Each file says under ``ledgermqApplied`` which commands of the log are in it. RocketMQ drops the
key, and an operator may write a file without it: such a file is newer than what the log has when
the store is opened with it, and knows nothing of what comes then. That is settled once, by the
writer, before the log takes anything new; until then nobody applies a command to the tables
(docs/decisions/0044).
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

from ledgermq.formats.config_json import APPLIED_KEY, OFFSETS_FILE, decode_document, is_plain
from ledgermq.model.errors import ConfigError, CorruptLogError, DiskFullError, StorageError
from ledgermq.model.events import Event
from ledgermq.rules.access import access
from ledgermq.rules.state.broker_state import FROM_FIRST, BrokerState
from ledgermq.rules.state.outlying_positions import EndOf, Outlier, find_outliers, put_right
from ledgermq.rules.state.state_tables import FILES, KINDS, OWN_FILES, YOUNGER_FILES
from ledgermq.rules.tables import topics
from ledgermq.rules.tables.documents import finish
from ledgermq.rules.tables.table import Table
from ledgermq.store.files.config_file import ConfigFile
from ledgermq.store.files.kept_aside import FOLDER, keep_aside, keep_copy_aside
from ledgermq.store.files.offsets_file import OffsetsFile
from ledgermq.store.files.small_file import read_file

logger = logging.getLogger(__name__)

PUBLIC_MODE = 0o640
SECRET_MODE = 0o600
"""Mode of the file that has the users' secrets."""

OUTLIERS_TOLD_MAX = 100
"""Positions that were put right, a line of the log each; of more the number."""


def table_files(directory: Path) -> dict[str, ConfigFile]:
    """The files by their names, whether they are there or not.

    Args:
        directory: ``ROOT/config``; those that RocketMQ does not know are in ``ROOT/ledgermq``.
    """
    own = directory.parent / "ledgermq"
    files = {
        file: ConfigFile(
            (own if file in OWN_FILES else directory) / file,
            mode=SECRET_MODE if file == access.FILE else PUBLIC_MODE,
        )
        for file in FILES
    }
    return {**files, OFFSETS_FILE: OffsetsFile(directory, mode=PUBLIC_MODE)}


class UnreadableTable(NamedTuple):
    """A table's file that cannot be read.

    Attributes:
        reason: why not.
        copy_reason: why its copy cannot, either, ``missing`` where there is none; None where it
            can, and counts.
    """

    path: Path
    reason: str
    copy_reason: str | None


def unreadable_tables(directory: Path) -> list[UnreadableTable]:
    """The files of which nobody can make a table; all are read.

    Raises:
        StorageError: the operating system refused.
    """
    found = []
    files = table_files(directory)
    for kind in KINDS:
        one = files[kind.file]
        reason = _fault_in(kind, one.path)
        if reason is not None:
            has_copy = bool(read_file(one.backup))
            copy_reason = _fault_in(kind, one.backup) if has_copy else "missing"
            found.append(UnreadableTable(one.path, reason, copy_reason))
    return found


def tables_by_hand(directory: Path) -> list[str]:
    """Names of the files that are not as brokers write them, and are read all the same."""
    contents = ((one.path.name, read_file(one.path)) for one in table_files(directory).values())
    return [file for file, content in contents if content and not is_plain(content)]


def offsets_taken(directory: Path) -> str:
    """Which file has the consumed offsets, in words; the one that does not count is named, too.

    Raises:
        StorageError: the operating system refused.
    """
    file = OffsetsFile(directory)
    if file.passed_over is None:
        return file.path.name
    return f"{file.path.name}, and not {file.passed_over.name}, which was written before it"


def load_tables(
    files: Mapping[str, ConfigFile], *, keeps: bool
) -> tuple[dict[str, dict[str, object]], BrokerState]:
    """What the files say, by their names, and the tables of that.

    Args:
        files: see ``table_files``.
        keeps: this process may write them. What cannot be read is moved away before that, to
            ``ROOT/ledgermq/set-aside``, and told at WARNING; its copy counts from then on.

    Raises:
        ConfigError, CorruptLogError: a file cannot be understood, nor can its copy; names file, key
            and value. Nothing is moved then.
        StorageError: the operating system refused.
    """
    documents = {file: one.load() for file, one in files.items()}
    try:
        state = BrokerState(documents)
    except ConfigError:
        if not (keeps and _keep_unreadable(files)):
            raise
        documents = {file: one.load() for file, one in files.items()}
        return documents, BrokerState(documents)
    if keeps:
        _tell_of_loaded(files)
    return documents, state


def _tell_of_loaded(files: Mapping[str, ConfigFile]) -> None:
    """Tell in the log of files that are not as a broker writes them, and keep a copy: they are
    about to be written anew.
    """
    if any(one.loaded.is_copy for one in files.values()):
        _keep_unreadable(files)
    for one in files.values():
        if one.loaded.is_copy:
            logger.warning("table's copy is taken: file=%s copy=%s", one.path, one.backup.name)
        elif not one.loaded.is_plain:
            reason = (
                "table is not a JSON document as brokers write it, and is read as RocketMQ does"
            )
            with _another_may_be_faster():
                keep_copy_aside(one.path, _aside(files), reason=reason)


@contextmanager
def _another_may_be_faster() -> Iterator[None]:
    """Writer and broker, who both write tables, begin at the same time."""
    try:
        yield
    except StorageError as error:
        if error.errno not in (errno.ENOENT, errno.EEXIST):
            raise


def _tell_of_offsets(directory: Path) -> None:
    """Say which file they are taken from, where that is not the only one that it can be."""
    file = OffsetsFile(directory)
    if file.passed_over is not None:
        logger.warning(
            "consumed offsets are taken from the file that was written last: file=%s not=%s",
            file.path,
            file.passed_over,
        )
    elif file.path.name != OFFSETS_FILE:
        logger.info("consumed offsets are those of a broker with light queues: file=%s", file.path)


def _aside(files: Mapping[str, ConfigFile]) -> Path:
    return files[topics.FILE].path.parents[1] / "ledgermq" / FOLDER


def _keep_unreadable(files: Mapping[str, ConfigFile]) -> bool:
    """Whether there were some, and all have copies that count now."""
    directory = files[topics.FILE].path.parent
    found = unreadable_tables(directory)
    if not found or any(table.copy_reason is not None for table in found):
        return False
    for table in found:
        reason = f"table cannot be read, its copy is taken: {table.reason}"
        with _another_may_be_faster():
            keep_aside(table.path, _aside(files), reason=reason)
    return True


def _fault_in(kind: type[Table[Any]], path: Path) -> str | None:
    """Why a file cannot be read; None where it can, or there is nothing in it."""
    content = read_file(path)
    if not content:
        return None
    try:
        kind.read(decode_document(content, file=str(path)))
    except (ConfigError, CorruptLogError) as error:
        return str(error)
    return None


def outliers_in(directory: Path, end_of: EndOf) -> list[Outlier]:
    """Positions outside of their queues in the files of ``directory``; nothing is changed.

    Raises:
        ConfigError, CorruptLogError: a file cannot be understood; names file, key and value.
        StorageError: the operating system refused.
    """
    _, state = load_tables(table_files(directory), keeps=False)
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

        What cannot be read is kept aside (``load_tables``).

        Raises:
            ConfigError, CorruptLogError: a file cannot be understood; names file, key and value.
            StorageError: the operating system refused.
        """
        files = table_files(directory)
        documents, state = load_tables(files, keeps=True)
        if OFFSETS_FILE in state.unsettled:
            _tell_of_offsets(directory)
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
