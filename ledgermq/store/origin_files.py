"""Files and folders that tell RocketMQ 5's store from RocketMQ 4's, and what they hold.

Read-only; for ``store/origin.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from ledgermq.formats.config_json import decode_document
from ledgermq.formats.store_markers import BLANK, COMMITLOG_BLANK_MAGIC
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.names.strange_uses import StrangeUse
from ledgermq.store.files.mapped_files import MappedFiles

TABLE_BYTES_MAX = 256 * 1024 * 1024
"""Most bytes of a table that is looked at: a million topics have as many."""

FOLDERS_MAX = 100_000
"""Most folders that are gone through in search of a file."""

_OF_FIVE = (
    "rocksdbstore",
    "abort.bak",
    "timerwheel",
    "timerlog",
    "metadata",
    "batchconsumequeue",
    "compaction",
    "kvStore",
    "epochFileCheckpoint",
    "brokerIdentity",
)
_OF_FIVE_IN_CONFIG = (
    "timercheck",
    "timermetrics",
    "transactionMetrics",
    "consumerOrderInfo.json",
    "messageRequestMode.json",
    "topicQueueMapping.json",
    "topics",
    "subscriptionGroups",
    "consumerOffsets",
)
_ROCKSDB_MARK = "CURRENT"
_TABLES = {
    "topics": "topics.json",
    "subscriptionGroups": "subscriptionGroup.json",
    "consumerOffsets": "consumerOffset.json",
}
"""Folders below ``config/`` that RocketMQ 5 has in RocksDB, and the files that they replace."""

_OUR_MARKS = ("term", "queue-locks.json", "quotas.json", "features.json")
"""Files of ``ROOT/ledgermq`` that nothing but a node writes, and no conversion takes away at once.

Keys, accounts and what ``store rebuild`` makes may be there before the first start.
"""

_OURS_WRITTEN = (*_OUR_MARKS, "log-checkpoint", "state-snapshot")
_CONFIRMED = Struct(">q")
_CONFIRMED_AT = 32
"""Offset of RocketMQ 5's confirmPhyOffset in ``checkpoint``."""


class Found(NamedTuple):
    """What would be lost: which use, in words, and how many of it."""

    use: StrangeUse
    what: str
    number: int | None


class TooLargeError(Exception):
    """A table is too large to be looked at."""

    def __init__(self, path: Path, size: int) -> None:
        super().__init__(str(path))
        self.path = path
        self.size = size


class OriginFiles:
    """Names and tables of one directory, each read at most once.

    Attributes:
        names: what stands in the directory itself; nothing where there is none.
    """

    def __init__(self, root: Path) -> None:
        """Look at the names.

        Raises:
            OSError: the directory cannot be read.
        """
        self.root = root
        self.config = root / "config"
        self.names = _names(root)

    @property
    def is_ours(self) -> bool:
        """Whether a node has run on the directory, and RocketMQ 5 has not since.

        Its wheel's checkpoint is written each second: where that is younger than all of ours, it
        has gone on with the store.
        """
        if "ledgermq" not in self.names:
            return False
        own = self.root / "ledgermq"
        if not any((own / name).exists() for name in _OUR_MARKS):
            return False
        java = _changed_ns(self.config / "timercheck")
        return java is None or java <= max(
            filter(None, (_changed_ns(own / name) for name in _OURS_WRITTEN)), default=0
        )

    def signs(self) -> Iterator[str]:
        """Paths that only RocketMQ 5 has; its tables, where no name tells, are read for their keys.

        Raises:
            OSError: a folder cannot be read.
        """
        found = [name for name in _OF_FIVE if name in self.names]
        config = _names(self.config)
        found += [f"config/{name}" for name in _OF_FIVE_IN_CONFIG if name in config]
        if self.has_rocksdb("consumequeue"):
            found.append(f"consumequeue/{_ROCKSDB_MARK}")
        if "abort" in self.names and bounded_bytes(self.root / "abort", 32).strip().isdigit():
            found.append("abort")
        yield from found or self._signs_in_tables()

    def has_rocksdb(self, folder: str) -> bool:
        """Whether the folder below the directory is a RocksDB."""
        return (self.root / folder / _ROCKSDB_MARK).is_file()

    @cached_property
    def topics(self) -> dict[str, object]:
        """The topics' rows by name."""
        return self._table("topics.json", "topicConfigTable")

    @cached_property
    def groups(self) -> dict[str, object]:
        """The consumer groups' rows by name."""
        return self._table("subscriptionGroup.json", "subscriptionGroupTable")

    @cached_property
    def offsets(self) -> dict[str, object]:
        """Consumed offsets by ``topic@group``, each a table by queue id."""
        return self._table("consumerOffset.json", "offsetTable")

    def _signs_in_tables(self) -> Iterator[str]:
        try:
            if "groupTopicMap" in self.document("consumerOffset.json"):
                yield "config/consumerOffset.json: groupTopicMap"
            for file, rows in (
                ("topics.json", self.topics),
                ("subscriptionGroup.json", self.groups),
            ):
                if any(isinstance(row, dict) and "attributes" in row for row in rows.values()):
                    yield f"config/{file}: attributes"
        except TooLargeError:
            # No name says that it is one of RocketMQ 5: the node reads the table, or refuses it.
            return

    def _table(self, file: str, key: str) -> dict[str, object]:
        table = self.document(file).get(key)
        return table if isinstance(table, dict) else {}

    def document(self, file: str) -> dict[str, object]:
        """A table's file, or its copy; empty where neither can be read, which a start tells.

        Raises:
            TooLargeError: it has more than ``TABLE_BYTES_MAX``.
        """
        for path in (self.config / file, self.config / f"{file}.bak"):
            size = path.stat().st_size if path.is_file() else 0
            if size > TABLE_BYTES_MAX:
                raise TooLargeError(path, size)
            if not size:
                continue
            try:
                return decode_document(bounded_bytes(path, size), file=str(path))
            except CorruptLogError:
                continue
        return {}


def bounded_bytes(path: Path, size: int) -> bytes:
    """The first ``size`` bytes of a plain file; none of what is no plain file, or not there."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(size)


def hidden_queues(files: OriginFiles) -> Iterator[Found]:
    """Queues that RocksDB has."""
    if files.has_rocksdb("consumequeue"):
        yield Found(StrangeUse.TABLES, "all queues are in RocksDB (consumequeue/)", None)


def tables_elsewhere(files: OriginFiles) -> Iterator[Found]:
    """Tables and queues that RocksDB has: topics, groups and offsets would be gone."""
    found = [f"config/{name}" for name in _TABLES if files.has_rocksdb(f"config/{name}")]
    if files.has_rocksdb("consumequeue"):
        found.append("consumequeue")
    if "metadata" in files.names and _first_file(files.root / "metadata"):
        found.append("metadata")
    if found:
        what = f"tables are in RocksDB, not in JSON ({', '.join(f'{one}/' for one in found)})"
        yield Found(StrangeUse.TABLES, what, len(found))


def batch_files(files: OriginFiles) -> Iterator[Found]:
    """Queues whose units are batches."""
    folder = files.root / "batchconsumequeue"
    if "batchconsumequeue" in files.names and _first_file(folder):
        count = len(_names(folder))
        what = f"{count} topics have queues of batches (batchconsumequeue/)"
        yield Found(StrangeUse.BATCH, what, count)


def batch_topics(files: OriginFiles) -> Iterator[Found]:
    """Topics that are to have such queues, where there are no files yet."""
    if next(batch_files(files), None) is not None:
        return
    topics = [
        name
        for name, row in files.topics.items()
        if str(_attributes(row).get("queue.type", "")).lower() == "batchcq"
    ]
    if topics:
        what = f"{len(topics)} topics have queue.type=BatchCQ ({_some(topics)})"
        yield Found(StrangeUse.BATCH, what, len(topics))


def compacted(files: OriginFiles) -> Iterator[Found]:
    """Logs of topics that keep the newest message of a key; RocketMQ's marks alone are none."""
    folders = (files.root / "compaction" / name for name in ("compactionLog", "compactionCq"))
    if "compaction" in files.names and any(_first_file(folder) for folder in folders):
        count = len(_names(files.root / "compaction" / "compactionLog"))
        what = f"{count} compacted topics have messages that the log may have no more (compaction/)"
        yield Found(StrangeUse.COMPACTED, what, count)


def static_topics(files: OriginFiles) -> Iterator[Found]:
    """Topics whose queues are spread over brokers: their offsets are not those of the files."""
    table = files.document("topicQueueMapping.json").get("topicQueueMappingInfoMap")
    if isinstance(table, dict) and table:
        what = f"{len(table)} static topics are spread over brokers ({_some(list(table))})"
        yield Found(StrangeUse.STATIC, what, len(table))


def rocksdb_stores(files: OriginFiles) -> Iterator[Found]:
    """RocksDBs of timers, transactions and POP that are not as empty as RocketMQ makes them."""
    for name in ("rocksdbstore", "kvStore"):
        if name not in files.names:
            continue
        filled = [
            path
            for path in _plain_files(files.root / name)
            if path.suffix == ".sst" or (path.suffix == ".log" and path.stat().st_size)
        ]
        if filled:
            what = f"{name}/ holds timers, transactions or marks of POP in RocksDB"
            yield Found(StrangeUse.ROCKSDB, what, None)


def unconfirmed(files: OriginFiles) -> Iterator[Found]:
    """Whether a controller's log goes on behind the offset that its members have confirmed."""
    content = bounded_bytes(files.root / "checkpoint", _CONFIRMED_AT + _CONFIRMED.size)
    if len(content) < _CONFIRMED_AT + _CONFIRMED.size:
        yield Found(StrangeUse.UNCONFIRMED, "checkpoint does not say what is confirmed", None)
        return
    (confirmed,) = _CONFIRMED.unpack_from(content, _CONFIRMED_AT)
    try:
        has_more = _goes_on(MappedFiles(files.root / "commitlog"), max(0, confirmed))
    except CorruptLogError as error:
        what = f"the log cannot be compared with what is confirmed: {error.message}"
        yield Found(StrangeUse.UNCONFIRMED, what, None)
        return
    if has_more:
        what = f"the log goes on behind the confirmed offset {confirmed:,}, which may be taken back"
        yield Found(StrangeUse.UNCONFIRMED, what, None)


def _goes_on(log: MappedFiles, position: int) -> bool:
    """Whether anything stands at ``position``, or behind the blank there."""
    if position < log.first:
        return True
    if position + BLANK.size > log.end:
        return False
    begin = bytes(log.view(position, min(BLANK.size, log.room(position))))
    if len(begin) == BLANK.size and BLANK.unpack(begin)[1] == COMMITLOG_BLANK_MAGIC:
        return _goes_on(log, position + log.room(position))
    return any(begin)


def _names(folder: Path) -> frozenset[str]:
    try:
        return frozenset(path.name for path in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()


def _plain_files(folder: Path) -> Iterator[Path]:
    for number, (at, _, names) in enumerate(os.walk(folder)):
        if number >= FOLDERS_MAX:
            return
        yield from (Path(at, name) for name in names)


def _first_file(folder: Path) -> Path | None:
    return next(_plain_files(folder), None)


def _changed_ns(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def _attributes(row: object) -> dict[str, object]:
    found = row.get("attributes") if isinstance(row, dict) else None
    return found if isinstance(found, dict) else {}


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
