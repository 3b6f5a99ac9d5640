"""Conversion of RocketMQ 5's tables and queues in RocksDB into JSON tables and queue files.

First everything is read, and looked at as if it had been converted (``as_converted``): a folder of
links to the store's files beside the JSON tables that would be made. Only then is the store
changed, in an order that a crash cannot harm (docs/decisions/0144):

1. the JSON tables are written; where one of the same rows is there already, nothing changes
2. where queues end that the log has no message of any more goes to the table of queue ends
3. the RocksDB folders of tables are moved to ``ROOT/ledgermq/rocketmq-rocksdb``
4. queues and index are built from the log, and take the place of the RocksDB of queues, which is
   kept aside as by ``store rebuild``; until then a node refuses the store

Killed in between, the command is run again.

The library opens nothing in the store: it leaves a file of its own where it reads, and what it does
with damage is C++'s matter. So files of rows are links, all others are copied, and a process of its
own reads them (``rocksdb_child.py``).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ledgermq.conversion.rocksdb_child import (
    ALL_FAMILIES,
    EXIT_NO_LIBRARY,
    EXIT_NOT_PRINTED,
    EXIT_TOO_LARGE,
    LENGTHS,
)
from ledgermq.formats.arrays import UNIT
from ledgermq.formats.config_json import OFFSET_TABLE, OFFSETS_FILE, encode_document
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.formats.rocksdb_rows import (
    BOUNDS_FAMILY,
    DEFAULT_FAMILY,
    LAYOUTS,
    QUEUES_FOLDER,
    SEPARATE,
    SINGLE,
    VERSION_2,
    Documents,
    KeyedRow,
    QueuedUnit,
    QueueMax,
    ends_in,
    queue_prefix,
    tables_in,
    units_in,
)
from ledgermq.formats.timer_wheel import REVIVE_PREFIX, WHEEL_TOPIC
from ledgermq.model.config.settings import StoreSection
from ledgermq.model.errors import (
    ConfigError,
    CorruptLogError,
    StorageError,
    StoreLockedError,
    refused_as,
)
from ledgermq.model.names.group_topics import RETRY_PREFIX
from ledgermq.model.names.stored_name import is_file_name
from ledgermq.repair.rebuild import rebuild
from ledgermq.store.files.config_file import ConfigFile
from ledgermq.store.files.disk_sync import make_directories
from ledgermq.store.files.file_names import LIGHT_PREFIX, file_name
from ledgermq.store.files.kept_aside import move
from ledgermq.store.files.record_locks import lock_holder
from ledgermq.store.log_reader import LogReader
from ledgermq.store.origin_files import OriginFiles
from ledgermq.store.queues.queue_end import PREFILL_SIZE
from ledgermq.store.queues.queue_ends import QueueEnds, ends_path, write_queue_ends
from ledgermq.store.store_directory import StoreDirectory, open_directory

ROWS_BYTES_MAX = 1 << 30
"""Most bytes of rows that are read of one RocksDB: a million topics have a quarter of it."""

COPY_BYTES_MAX = 1 << 30
"""Most bytes of a RocksDB that are copied: all but its sorted files, which are links."""

SECONDS_MAX = 300
"""Longest time that one reading takes."""

EVERYTHING = (ALL_FAMILIES, b"")
"""The stretch of all rows of all column families."""

_SORTED = ".sst"
_TRIES_BESIDE_BROKER = 3
_TRY_PAUSE_S = 0.5
_COPIED_NAMES_MAX = 100_000


def read_rows(
    folder: Path, stretches: Iterable[tuple[str, bytes]], *, is_open: bool = False
) -> Iterator[KeyedRow]:
    """The rows of a RocksDB whose keys begin with one of these, in column families of that name.

    Nothing in ``folder`` is changed.

    Args:
        is_open: a broker writes to it meanwhile, so that files may go while they are copied: it is
            tried again.

    Raises:
        ConfigError: the library is not installed; names the extra.
        CorruptLogError: it is damaged, or larger than is read; names the folder, and what RocksDB
            said.
        StorageError: the operating system refused; or the reading took too long.
    """
    wanted = "".join(f"{family} {prefix.hex()}\n" for family, prefix in stretches)
    with tempfile.TemporaryFile(prefix="ledgermq-rocksdb-") as rows:
        for left in range(_TRIES_BESIDE_BROKER if is_open else 1, 0, -1):
            try:
                _read_copy(folder, wanted, rows)
                break
            except FileNotFoundError as error:
                if left == 1:
                    raise StorageError.of(
                        "RocketMQ's RocksDB not read", error, folder=folder
                    ) from error
            except OSError as error:
                raise StorageError.of(
                    "RocketMQ's RocksDB not read", error, folder=folder
                ) from error
            except CorruptLogError:
                if left == 1:
                    raise
            time.sleep(_TRY_PAUSE_S)
        yield from _decoded(rows)


def _read_copy(folder: Path, wanted: str, rows: BinaryIO) -> None:
    rows.seek(0)
    rows.truncate()
    with tempfile.TemporaryDirectory(prefix="ledgermq-rocksdb-") as scratch:
        copy = Path(scratch, "copy")
        _copy(folder, copy)
        _read(folder, copy, wanted, rows)
    rows.seek(0)


def _copy(folder: Path, copy: Path) -> None:
    copy.mkdir()
    names = sorted(path.name for path in folder.iterdir())
    if len(names) > _COPIED_NAMES_MAX:
        raise CorruptLogError(
            "RocketMQ's RocksDB has too many files",
            folder=str(folder),
            files=len(names),
            limit=_COPIED_NAMES_MAX,
        )
    left = COPY_BYTES_MAX
    for name in names:
        source = folder / name
        if not source.is_file():
            continue
        if source.suffix == _SORTED:
            (copy / name).symlink_to(source.resolve())
            continue
        left -= source.stat().st_size
        if left < 0:
            raise CorruptLogError(
                "RocketMQ's RocksDB is too large to be copied: stop the broker in order",
                folder=str(folder),
                file=name,
                limit=COPY_BYTES_MAX,
            )
        shutil.copyfile(source, copy / name)


def _read(folder: Path, copy: Path, wanted: str, rows: BinaryIO) -> None:
    command = [sys.executable, "-m", "ledgermq.conversion.rocksdb_child"]
    try:
        done = subprocess.run(  # noqa: S603 - a program of ours, without a shell
            [*command, str(copy), str(ROWS_BYTES_MAX)],
            input=wanted.encode(),
            stdout=rows,
            stderr=subprocess.PIPE,
            timeout=SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise StorageError(
            "RocketMQ's RocksDB not read in time", folder=str(folder), limit_s=SECONDS_MAX
        ) from error
    lines = done.stderr.decode(errors="replace").splitlines() or [""]
    if done.returncode == EXIT_NO_LIBRARY:
        raise ConfigError(
            "tables in RocksDB need the Python package rocksdict: pip install 'ledgermq[rocksdb]';"
            " the Debian package has no such library",
            folder=str(folder),
            reason=lines[-1],
        )
    if done.returncode == EXIT_NOT_PRINTED:
        raise StorageError(
            "rows of RocketMQ's RocksDB not written to the temporary folder (TMPDIR)",
            folder=str(folder),
            reason=lines[-1],
        )
    if done.returncode == EXIT_TOO_LARGE:
        raise CorruptLogError(
            "RocketMQ's RocksDB has too many rows",
            folder=str(folder),
            limit=ROWS_BYTES_MAX,
        )
    if done.returncode:
        reason = lines[-1].replace(str(copy), str(folder))[:500]
        raise CorruptLogError(
            "RocketMQ's RocksDB is damaged",
            folder=str(folder),
            reason=reason or f"the process that read it ended with status {done.returncode}",
        )


def _decoded(rows: BinaryIO) -> Iterator[KeyedRow]:
    while head := rows.read(LENGTHS.size):
        family, key, value = (rows.read(size) for size in LENGTHS.unpack(head))
        yield KeyedRow(family.decode(), key, value)


ASIDE = "rocketmq-rocksdb"
"""Folder of ``ROOT/ledgermq`` where RocketMQ's RocksDBs of tables are from the take-over on."""

_STORE_TYPE = "defaultRocksDB"
SPAN_MAX = 16_000_000
"""Most messages of a queue of timers or of POP's that is looked at before queues are built."""

_FILE_UNITS = 1_024
"""Units in a file of the queues that are looked at."""

Queue = tuple[bytes, int]


@dataclass(frozen=True)
class RocksTables:
    """What a store has in RocksDB.

    Attributes:
        folders: below the store's, those that are moved away.
        documents: the JSON tables that are to be written, by file.
        ends: of each queue its last message; empty where queues are files.
        units: of queues that hold timers and what POP has in flight.
    """

    folders: tuple[str, ...]
    documents: Documents = field(default_factory=dict)
    ends: Mapping[Queue, QueueMax] = field(default_factory=dict)
    units: Mapping[Queue, list[QueuedUnit]] = field(default_factory=dict)

    @property
    def has_queues(self) -> bool:
        """Whether queues are in RocksDB, too."""
        return QUEUES_FOLDER in self.folders

    @property
    def light_queues(self) -> int:
        """How many light queues RocksDB alone has."""
        return sum(topic.startswith(LIGHT_PREFIX.encode()) for topic, _ in self.ends)

    @property
    def text(self) -> str:
        """What they are, in words, with their numbers."""
        topics, groups, offsets = (
            len(table) if isinstance(table := self.documents.get(file, {}).get(key), dict) else 0
            for file, key in (
                ("topics.json", "topicConfigTable"),
                ("subscriptionGroup.json", "subscriptionGroupTable"),
                (OFFSETS_FILE, OFFSET_TABLE),
            )
        )
        parts = []
        if self.documents:
            parts.append(
                f"{topics} topics, {groups} groups and {offsets} rows of offsets are in RocksDB,"
                " and become JSON tables"
            )
        if self.has_queues:
            parts.append(f"{len(self.ends)} queues are in RocksDB, and are built from the log")
        return "; ".join(parts)


def read_rocksdb(
    root: Path, broker_conf: Mapping[str, str], *, is_open: bool = False
) -> RocksTables | None:
    """What the store in ``root`` has in RocksDB; None where that is nothing. Nothing is changed.

    Args:
        broker_conf: values by key: which of several layouts the broker used.
        is_open: a broker runs on it.

    Raises:
        ConfigError: two places have the same table, and nobody can tell which one counts; or the
            library is not installed.
        CorruptLogError: something is damaged, or not there; names the folder.
        StorageError: the operating system refused.
    """
    files = OriginFiles(root)
    layout = _layout(files, broker_conf)
    tables = [folder for folder in layout if files.has_rocksdb(folder)]
    folders = [folder for one in LAYOUTS for folder in one if files.has_rocksdb(folder)]
    has_queues = files.has_rocksdb(QUEUES_FOLDER)
    if not folders and not has_queues:
        is_cut = was_converted(root) and not (root / QUEUES_FOLDER).exists()
        return RocksTables((QUEUES_FOLDER,)) if is_cut else None
    if not is_open:
        for folder in (*folders, *([QUEUES_FOLDER] if has_queues else [])):
            _refuse_open(root / folder)
    rows = {folder: read_rows(root / folder, [EVERYTHING], is_open=is_open) for folder in tables}
    documents = tables_in(rows)
    for file, document in documents.items():
        _refuse_ambiguous(root, file, document, broker_conf)
    _refuse_missing(root, layout, tables)
    ends: dict[Queue, QueueMax] = {}
    units: dict[Queue, list[QueuedUnit]] = {}
    if has_queues:
        queues = root / QUEUES_FOLDER
        ends = ends_in(read_rows(queues, [(BOUNDS_FAMILY, b"")], is_open=is_open))
        wanted = [
            (DEFAULT_FAMILY, queue_prefix(topic))
            for topic in sorted({topic for topic, _ in ends})
            if topic == WHEEL_TOPIC.encode()
            or topic.startswith((REVIVE_PREFIX.encode(), RETRY_PREFIX.encode()))
        ]
        if wanted:
            for queue, unit in units_in(read_rows(queues, wanted, is_open=is_open)):
                units.setdefault(queue, []).append(unit)
        _refuse_spread(queues, units)
    found = (*folders, QUEUES_FOLDER) if has_queues else tuple(folders)
    return RocksTables(found, documents, ends, units)


def _refuse_open(folder: Path) -> None:
    """Refuse a RocksDB that a process has open, which its own lock tells."""
    lock = folder / "LOCK"
    try:
        with lock.open("r+b") as file:
            pid = lock_holder(file.fileno(), length=0)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError.of(
            "lock of RocketMQ's RocksDB not looked at", error, file=lock
        ) from error
    if pid:
        raise StoreLockedError(
            "RocketMQ's RocksDB is open: stop the broker in order", folder=str(folder), pid=pid
        )


def _refuse_spread(folder: Path, units: Mapping[Queue, list[QueuedUnit]]) -> None:
    """Refuse names that are no folder's, and numbers that no queue has."""
    for (topic, queue_id), found in units.items():
        span = found[-1].offset - found[0].offset
        if not is_file_name(os.fsdecode(topic)) or queue_id >= 1 << 31 or span >= SPAN_MAX:
            raise CorruptLogError(
                "a queue in RocketMQ's RocksDB cannot be one",
                folder=str(folder),
                topic=ascii(topic[:128]),
                queue=queue_id,
                messages=span + 1,
                limit=SPAN_MAX,
            )


def _layout(files: OriginFiles, broker_conf: Mapping[str, str]) -> tuple[str, ...]:
    """The folders that count: those that broker.conf names, or the only ones there are."""
    if broker_conf.get("configManagerVersion", "").strip().lower() == "v2":
        said: tuple[str, ...] = VERSION_2
    elif broker_conf.get("useSingleRocksDBForAllConfigs", "").strip().lower() == "true":
        said = SINGLE
    else:
        said = SEPARATE
    there = [one for one in LAYOUTS if any(files.has_rocksdb(folder) for folder in one)]
    if said in there or not there:
        return said
    if len(there) > 1:
        raise ConfigError(
            "tables are in several RocksDBs, and broker.conf names none of them: move those away"
            " that RocketMQ did not use last",
            directory=str(files.root),
            found=[folder for one in there for folder in one],
            setting="useSingleRocksDBForAllConfigs, configManagerVersion",
        )
    return there[0]


def _refuse_ambiguous(
    root: Path, file: str, document: Mapping[str, object], broker_conf: Mapping[str, str]
) -> None:
    """Refuse a JSON table with other rows, but for one that RocketMQ left when it began with
    RocksDB: it takes those over, with their version, and counts on.
    """
    beside = ConfigFile(root / "config" / file).load()
    if not beside or _rows_of(beside) == _rows_of(document):
        return
    used = broker_conf.get("storeType", "").strip()
    if used == _STORE_TYPE and _counter(beside) <= _counter(document):
        return
    raise ConfigError(
        "a table is in JSON and in RocksDB, with other rows: move the one away that RocketMQ did"
        " not use last",
        file=str(root / "config" / file),
        json_version=_counter(beside),
        rocksdb_version=_counter(document),
        storeType=used or "not set",
    )


def _rows_of(document: Mapping[str, object]) -> dict[str, object]:
    """What a document says, without its version and what is empty."""
    return {key: value for key, value in document.items() if key.endswith("Table") and value != {}}


def _counter(document: Mapping[str, object]) -> int:
    version = document.get("dataVersion")
    counter = version.get("counter") if isinstance(version, dict) else None
    return counter if isinstance(counter, int) else 0


def _refuse_missing(root: Path, layout: tuple[str, ...], tables: list[str]) -> None:
    """Refuse a store of which one folder is there and another one is not, nor its JSON table.

    RocketMQ makes all three when it starts.
    """
    if layout is not SEPARATE or not tables:
        return
    for folder, file in zip(
        SEPARATE, ("topics.json", "subscriptionGroup.json", OFFSETS_FILE), strict=True
    ):
        if folder not in tables and not ConfigFile(root / "config" / file).load():
            raise CorruptLogError(
                "a table is neither in RocksDB nor in JSON",
                folder=str(root / folder),
                file=str(root / "config" / file),
            )


@contextmanager
def as_converted(root: Path, tables: RocksTables) -> Iterator[Path]:
    """A folder that looks as the store in ``root`` would when it was converted, for who only reads.

    It has links to all that stays, the JSON tables, and of the queues those of timers and POP.

    Raises:
        StorageError: the operating system refused.
    """
    with tempfile.TemporaryDirectory(prefix="ledgermq-converted-") as scratch:
        fresh = Path(scratch)
        with refused_as("store not looked at", why="", directory=root, folder=scratch):
            (fresh / "config").mkdir()
            left_out = {"config", "ledgermq", "lock"}
            _link_all(root, fresh, left_out | ({QUEUES_FOLDER} if tables.has_queues else set()))
            gone = {Path(folder).name for folder in tables.folders} | set(tables.documents)
            gone |= {f"{file}.bak" for file in tables.documents}
            if (root / "config").is_dir():
                _link_all(root / "config", fresh / "config", gone)
            for file, document in tables.documents.items():
                (fresh / "config" / file).write_bytes(encode_document(document))
            if tables.has_queues:
                (fresh / QUEUES_FOLDER).mkdir()
            for (topic, queue_id), units in tables.units.items():
                folder = fresh / QUEUES_FOLDER / os.fsdecode(topic) / str(queue_id)
                _write_queue(folder, units)
        yield fresh


def _link_all(source: Path, target: Path, left_out: set[str]) -> None:
    for path in source.iterdir():
        if path.name not in left_out:
            (target / path.name).symlink_to(path.absolute())


def _write_queue(folder: Path, units: list[QueuedUnit]) -> None:
    """Write a queue's files; units that RocksDB has no more are those that stand before a queue."""
    folder.mkdir(parents=True)
    first = units[0].offset // _FILE_UNITS * _FILE_UNITS
    count = -(-(units[-1].offset + 1 - first) // _FILE_UNITS) * _FILE_UNITS
    content = np.zeros(count, UNIT)
    content["size"][: units[0].offset - first] = PREFILL_SIZE
    for unit in units:
        content[unit.offset - first] = (unit.position, unit.size, unit.tag)
    for start in range(0, count, _FILE_UNITS):
        path = folder / file_name((first + start) * UNIT_SIZE)
        path.write_bytes(content[start : start + _FILE_UNITS].tobytes())


def convert(
    root: Path,
    tables: RocksTables,
    section: StoreSection,
    *,
    self_id: str | None,
    told: Callable[[int, int], None],
) -> StoreDirectory:
    """Make JSON tables and queue files of what a stopped store has in RocksDB; durable on return.

    The caller has the store's locks, and has looked at it as it will be. Killed at any moment, it
    is done again.

    Args:
        section: sizes of the files that are built.
        told: bytes of the log that were dispatched, and how many there are.

    Raises:
        CorruptLogError: the log is damaged.
        StorageError: the operating system refused; to be done again.
    """
    for file, document in tables.documents.items():
        target = ConfigFile(root / "config" / file)
        if _rows_of(target.load()) != _rows_of(document):
            target.save(document)
    directory = open_directory(root, self_id=self_id)
    _keep_ends(directory, tables.ends)
    aside = root / "ledgermq" / ASIDE
    with refused_as("RocketMQ's RocksDB not moved away", directory=root):
        make_directories(aside)
        for folder in tables.folders:
            if folder == QUEUES_FOLDER:
                continue
            target_folder = aside / folder.replace("/", "-")
            if target_folder.is_dir():
                shutil.rmtree(target_folder)
            if (root / folder).is_dir():
                move(root / folder, target_folder)
    if tables.has_queues:
        rebuild(directory, section, told=told)
    return open_directory(root, self_id=self_id)


def _keep_ends(directory: StoreDirectory, ends: Mapping[Queue, QueueMax]) -> None:
    """Note where the queues end that the log has no message of any more."""
    reader = LogReader(directory)
    log_start = reader.parts[0].files.first if reader.parts else 0
    reader.close()
    old = {
        queue: last.offset + 1
        for queue, last in ends.items()
        if last.position < log_start and not queue[0].startswith(LIGHT_PREFIX.encode())
    }
    if old:
        path = ends_path(directory.root)
        make_directories(path.parent)
        write_queue_ends(path, QueueEnds(log_start, old))


def was_converted(root: Path) -> bool:
    """Whether RocksDBs of RocketMQ were moved away here."""
    return (root / "ledgermq" / ASIDE).is_dir()
