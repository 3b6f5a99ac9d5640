"""Files and folders that tell RocketMQ 5's store from RocketMQ 4's, and what they hold.

Read-only; for ``store/origin.py``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from ledgermq.formats.batch_unit import BATCH_FOLDER, OF_BATCHES, QUEUE_TYPE
from ledgermq.formats.config_json import decode_document
from ledgermq.formats.epoch_file import EPOCH_FILE
from ledgermq.formats.rocksdb_rows import LAYOUTS, QUEUES_FOLDER
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.names.message_types import (
    BY_PRIORITY,
    CLEANUP_POLICY,
    COMPACTION,
    MESSAGE_TYPE,
    TYPES_OBEYED,
)
from ledgermq.model.names.strange_uses import StrangeUse
from ledgermq.store.files.file_names import LIGHT_PREFIX

TABLE_BYTES_MAX = 256 * 1024 * 1024
"""Most bytes of a table that is looked at: a million topics have as many."""

FOLDERS_MAX = 100_000
"""Most folders that are gone through in search of a file."""

_OF_FIVE = (
    "rocksdbstore",
    "abort.bak",
    "timerwheel",
    "timerlog",
    BATCH_FOLDER,
    "compaction",
    "kvStore",
    EPOCH_FILE,
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
    "metadata",
    "rdb",
)
_ROCKSDB_MARK = "CURRENT"
_LITE_PREFIX = f"{LIGHT_PREFIX}$"
"""Folders ``%LMQ%$TOPIC$NAME`` are the queues of lite topics, whose messages are in TOPIC, too."""

_USUAL = {CLEANUP_POLICY: "delete", QUEUE_TYPE: "simplecq"}
_OF_TOPICS = "topics.json: "
_SENT_BY_GRPC = "gRPC clients may send nothing else, as with RocketMQ's proxy"
_BY_PRIORITY = "share groups are handed the higher ones first, as with RocketMQ's POP"
_CONTINUED = "their queues are read, and go on as RocketMQ's do"
_RESERVE_TIME = re.compile(r"topics\.json: reserve\.time=[1-9][0-9]*")
_KEPT_IN_PIECES = "hours that sealed pieces keep it (ledgermq piece prune)"

_OUR_MARKS = ("term", "queue-locks.json", "quotas.json", "features.json")
"""Files of ``ROOT/ledgermq`` that nothing but a node writes, and no conversion takes away at once.

Keys, accounts and what ``store rebuild`` makes may be there before the first start.
"""

_OURS_WRITTEN = (*_OUR_MARKS, "log-checkpoint", "state-snapshot")


class Found(NamedTuple):
    """What is there: which use, in words, and how many of it; it would be lost, or is taken."""

    use: StrangeUse
    what: str
    number: int | None
    is_taken: bool = False


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
        if self.has_rocksdb(QUEUES_FOLDER):
            found.append(f"{QUEUES_FOLDER}/{_ROCKSDB_MARK}")
        if "abort" in self.names and bounded_bytes(self.root / "abort", 32).strip().isdigit():
            found.append("abort")
        yield from found or self._signs_in_tables()

    def has_rocksdb(self, folder: str) -> bool:
        """Whether the folder below the directory is a RocksDB, or what damage has left of one."""
        names = _names(self.root / folder)
        return _ROCKSDB_MARK in names or any(
            name.startswith("MANIFEST-") or name.endswith(".sst") for name in names
        )

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
    if files.has_rocksdb(QUEUES_FOLDER):
        yield Found(StrangeUse.TABLES, "all queues are in RocksDB (consumequeue/)", None)


def tables_elsewhere(files: OriginFiles) -> Iterator[Found]:
    """Tables and queues that RocksDB has: topics, groups and offsets would be gone."""
    folders = [*chain.from_iterable(LAYOUTS), QUEUES_FOLDER]
    found = [folder for folder in folders if files.has_rocksdb(folder)]
    if found:
        what = f"tables are in RocksDB, not in JSON ({', '.join(f'{one}/' for one in found)})"
        yield Found(StrangeUse.TABLES, what, len(found))


def batch_queues(files: OriginFiles) -> Iterator[Found]:
    """Topics that have queues of batches, or are to have some."""
    folder = files.root / BATCH_FOLDER
    topics = {name for name in _names(folder) if _first_file(folder / name)}
    topics |= set(_with_attribute(files, QUEUE_TYPE, OF_BATCHES))
    if topics:
        what = f"{len(topics)} topics have queues of batches ({_some(sorted(topics))})"
        yield Found(StrangeUse.BATCH, what, len(topics), True)


def compacted(files: OriginFiles) -> Iterator[Found]:
    """Topics that keep the newest message of a key for ever, whatever the log has lost: by their
    attribute, or by their logs, which RocketMQ leaves of topics that are deleted. Its marks in
    ``compaction/`` alone are none.
    """
    topics = set(_with_attribute(files, CLEANUP_POLICY, COMPACTION.lower()))
    if "compaction" in files.names:
        for name in ("compactionLog", "compactionCq"):
            folder = files.root / "compaction" / name
            found = _names(folder) if _first_file(folder) else frozenset()
            topics |= found & files.topics.keys() if files.topics else found
    if topics:
        what = (
            f"{len(topics)} compacted topics ({_some(sorted(topics))}): what the log has of them is"
            " read; they take no messages here, and compaction/ stays for RocketMQ, with what the"
            " log has lost"
        )
        yield Found(StrangeUse.COMPACTED, what, len(topics), True)


def static_topics(files: OriginFiles) -> Iterator[Found]:
    """Topics whose queues are spread over brokers: their offsets are not those of the files."""
    table = files.document("topicQueueMapping.json").get("topicQueueMappingInfoMap")
    if isinstance(table, dict) and table:
        what = f"{len(table)} static topics are spread over brokers ({_some(list(table))})"
        yield Found(StrangeUse.STATIC, what, len(table))


class Setting(NamedTuple):
    """What rows of RocketMQ 5's tables say, and which topics or groups say so.

    Attributes:
        obeyed: what goes by it here; empty where nothing does.
    """

    what: str
    names: list[str]
    obeyed: str = ""


def settings_in(topics: Mapping[str, object], groups: Mapping[str, object]) -> list[Setting]:
    """What these rows say beyond what RocketMQ 4.9 knows, but for what each topic has that says
    nothing (``cleanup.policy=DELETE``). All of it stays in the tables.
    """
    found: dict[str, list[str]] = {}
    for name, row in topics.items():
        for key, value in _attributes(row).items():
            if _USUAL.get(key.lstrip("+")) != str(value).lower():
                found.setdefault(f"{_OF_TOPICS}{key.lstrip('+')}={value}", []).append(name)
    for name, row in groups.items():
        if not isinstance(row, dict):
            continue
        policy = row.get("groupRetryPolicy")
        if isinstance(policy, dict) and any(key != "type" and policy[key] for key in policy):
            found.setdefault("subscriptionGroup.json: groupRetryPolicy", []).append(name)
        if row.get("consumeMessageOrderly") is True:
            found.setdefault("subscriptionGroup.json: consumeMessageOrderly", []).append(name)
        for attribute in _attributes(row).keys() - {"priority.factor"}:
            found.setdefault(f"subscriptionGroup.json: {attribute.lstrip('+')}", []).append(name)
    return [Setting(what, names, _obeyed(what)) for what, names in found.items()]


def _obeyed(what: str) -> str:
    if _RESERVE_TIME.fullmatch(what):
        return _KEPT_IN_PIECES
    attribute, _, value = what.removeprefix(_OF_TOPICS).partition("=")
    if (attribute, value.lower()) == (QUEUE_TYPE, OF_BATCHES):
        return _CONTINUED
    if attribute != MESSAGE_TYPE or value.upper() not in TYPES_OBEYED:
        return ""
    return _BY_PRIORITY if value.upper() == BY_PRIORITY else _SENT_BY_GRPC


def settings_of(files: OriginFiles) -> Iterator[tuple[str, int, str, bool]]:
    """The same of a directory's tables, light topics, and queues of which POP keeps the order:
    what, how many, in words, and whether it is obeyed.

    Raises:
        TooLargeError: a table is too large to be looked at.
    """
    for what, names, obeyed in settings_in(files.topics, files.groups):
        text = f"{what} of {len(names)} ({_some(names)})"
        yield f"config/{what}", len(names), f"{text}: {obeyed}" if obeyed else text, bool(obeyed)
    lights = [
        parts[1]
        for name in _names(files.root / QUEUES_FOLDER)
        if name.startswith(_LITE_PREFIX) and len(parts := name.split("$", 2)) == 3
    ]
    if lights:
        parents = sorted(set(lights))
        text = (
            f"{len(lights)} lite topics of {len(parents)} topics ({_some(parents)}): nobody is"
            " served from their queues here, their messages are in these topics"
        )
        yield f"{QUEUES_FOLDER}/{_LITE_PREFIX}…", len(lights), text, False
    order = files.document("consumerOrderInfo.json").get("table")
    if isinstance(order, dict) and order:
        what = "config/consumerOrderInfo.json"
        yield what, len(order), f"{what}: order of {len(order)} topics that POP kept", False


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


def _with_attribute(files: OriginFiles, key: str, value: str) -> list[str]:
    return [
        name
        for name, row in files.topics.items()
        if str(_attributes(row).get(key, "")).lower() == value
    ]


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
