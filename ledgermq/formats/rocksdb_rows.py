"""Rows of RocketMQ 5's RocksDB folders: topics, groups, offsets, and where queues end.

``storeType=defaultRocksDB`` has them in one of three layouts, of which broker.conf says which:

    config/topics/, config/subscriptionGroups/, config/consumerOffsets/
        rows in the column family ``default``, the table's version in ``kvDataVersion``, forbidden
        topics of groups in ``forbidden``
    config/metadata/         useSingleRocksDBForAllConfigs=true: the same in families ``topic``,
                             ``subscriptionGroup``, ``consumerOffset``, with ``…Version`` beside
    config/rdb/              configManagerVersion=v2: one family, keys that begin with the table

Keys are names (of offsets ``topic@group``) and values JSON; those of ``rdb`` are

    1 table(2) 2 length(2) name                              value: 1, JSON
    1 1(2) 2 length(2) group 1 length(2) topic 1 queue(4)    value: offset(8)
    1 table(2) 1 "data_version"                              value: state, time, counter (8 each)

``consumequeue/`` has a family ``default`` with the units, and ``offset`` with the queues' bounds:

    length(4) 1 topic 1 queue(4) 1 queue offset(8)      value: position(8) size(4) tag(8) time(8)
    length(4) 1 topic 1 "max" 1 queue(4)                value: position(8) queue offset(8)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from struct import Struct
from typing import NamedTuple

from ledgermq.formats.config_json import OFFSET_TABLE, OFFSETS_FILE, decode_document
from ledgermq.model.errors import CorruptLogError

QUEUES_FOLDER = "consumequeue"
SEPARATE = ("config/topics", "config/subscriptionGroups", "config/consumerOffsets")
SINGLE = ("config/metadata",)
VERSION_2 = ("config/rdb",)
LAYOUTS = (SEPARATE, SINGLE, VERSION_2)
"""Folders below the store's, of each layout."""

DEFAULT_FAMILY = "default"
BOUNDS_FAMILY = "offset"
_VERSION_KEY = b"kvDataVersionKey"
_FORBIDDEN = "forbidden"
_JSON_TABLES = {
    "topics.json": "topicConfigTable",
    "subscriptionGroup.json": "subscriptionGroupTable",
    OFFSETS_FILE: OFFSET_TABLE,
}
_SEPARATE_FILES = dict(zip(SEPARATE, _JSON_TABLES, strict=True))
_SINGLE_FAMILIES = dict(
    zip(("topic", "subscriptionGroup", "consumerOffset"), _JSON_TABLES, strict=True)
)
_VERSION_2_TABLES = {3: "topics.json", 4: "subscriptionGroup.json"}
_VERSION_2_OFFSETS = 1
_VERSION_2_PULLED = 2
"""Offsets of clients that keep their own: RocketMQ has them nowhere in JSON."""
_OF_TABLE, _DATA_VERSION, _DATA, _AS_JSON = 1, 1, 2, 1
_ROW_HEAD = Struct(">BHB")
_NAME_SIZE = Struct(">H")
_QUEUE_ID = Struct(">i")
_OFFSET_VALUE = Struct(">q")
_VERSION_ROW = Struct(">qqq")
_CONTROL = b"\x01"
_BOUND = Struct(">qq")
_UNIT_ROW = Struct(">qiqq")
_CHECKPOINT_ROW = b"CHECKPOINT_TOPIC"
"""Topic of the row that says how far queues are built; its value is a position alone."""


class KeyedRow(NamedTuple):
    """One row of a RocksDB."""

    family: str
    key: bytes
    value: bytes


class QueueMax(NamedTuple):
    """Last message of a queue: where it is in the log, and which number it has."""

    position: int
    offset: int


class QueuedUnit(NamedTuple):
    """One unit of a queue."""

    offset: int
    position: int
    size: int
    tag: int


Documents = dict[str, dict[str, object]]
"""Tables by the names of their JSON files."""


def tables_in(rows: Mapping[str, Iterable[KeyedRow]]) -> Documents:
    """The JSON tables that say what RocksDB folders say.

    Args:
        rows: of each folder of one layout, all rows.

    Raises:
        CorruptLogError: a row is none of RocketMQ's; names the folder and the key.
    """
    documents: Documents = {
        file: {"dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 0}, table: {}}
        for file, table in _JSON_TABLES.items()
        if not rows.keys() <= set(SEPARATE) or file in {_SEPARATE_FILES[folder] for folder in rows}
    }
    for folder, found in rows.items():
        for row in found:
            try:
                _take(documents, folder, row)
            except (ValueError, LookupError, struct.error, CorruptLogError) as error:
                raise _corrupt(folder, row.key, error) from error
    return documents


def _take(documents: Documents, folder: str, row: KeyedRow) -> None:
    if folder in VERSION_2:
        _take_of_version_2(documents, row)
        return
    family = row.family
    if folder in SEPARATE:
        file = _SEPARATE_FILES[folder]
        is_version = family == "kvDataVersion"
    else:
        name = "subscriptionGroup" if family == _FORBIDDEN else family.removesuffix("Version")
        if name not in _SINGLE_FAMILIES:
            raise ValueError(f"unknown column family {family[:64]!r}")
        file, is_version = _SINGLE_FAMILIES[name], family.endswith("Version")
    if is_version:
        if row.key == _VERSION_KEY:
            documents[file]["dataVersion"] = decode_document(row.value)
        return
    if family == _FORBIDDEN:
        _table(documents, file, "forbiddenTable")[row.key.decode()] = decode_document(row.value)
        return
    _put(documents, file, row.key.decode(), decode_document(row.value))


def _put(documents: Documents, file: str, name: str, value: dict[str, object]) -> None:
    rows = _table(documents, file, _JSON_TABLES[file])
    if file != OFFSETS_FILE:
        rows[name] = value
        return
    offsets = value[OFFSET_TABLE]
    if not isinstance(offsets, dict):
        raise ValueError("no table of offsets")
    rows[name] = offsets


def _table(documents: Documents, file: str, key: str) -> dict[str, object]:
    found = documents[file].setdefault(key, {})
    assert isinstance(found, dict), key
    return found


def _take_of_version_2(documents: Documents, row: KeyedRow) -> None:
    prefix, table, kind = _ROW_HEAD.unpack_from(row.key)
    if prefix != _OF_TABLE:
        raise ValueError("unknown kind of row")
    rest = row.key[_ROW_HEAD.size :]
    if kind == _DATA_VERSION:
        state, timestamp, counter = _VERSION_ROW.unpack(row.value)
        file = OFFSETS_FILE if table == _VERSION_2_OFFSETS else _VERSION_2_TABLES.get(table)
        if file is not None:
            version = {"counter": counter, "stateVersion": state, "timestamp": timestamp}
            documents[file]["dataVersion"] = version
        return
    if kind != _DATA:
        raise ValueError("unknown kind of row")
    if table in _VERSION_2_TABLES:
        name, behind = _name(rest)
        if behind or row.value[0] != _AS_JSON:
            raise ValueError("unknown form of a row")
        _put(documents, _VERSION_2_TABLES[table], name, decode_document(row.value[1:]))
        return
    if table not in (_VERSION_2_OFFSETS, _VERSION_2_PULLED):
        raise ValueError("unknown table")
    group, behind = _name(rest)
    topic, behind = _name(_behind_mark(behind))
    (queue,) = _QUEUE_ID.unpack(_behind_mark(behind))
    (offset,) = _OFFSET_VALUE.unpack(row.value)
    if table == _VERSION_2_OFFSETS:
        offsets = _table(documents, OFFSETS_FILE, OFFSET_TABLE).setdefault(f"{topic}@{group}", {})
        assert isinstance(offsets, dict), topic
        offsets[str(queue)] = offset


def _name(data: bytes) -> tuple[str, bytes]:
    (size,) = _NAME_SIZE.unpack_from(data)
    text = data[_NAME_SIZE.size : _NAME_SIZE.size + size]
    if len(text) != size:
        raise ValueError("a name is cut off")
    return text.decode(), data[_NAME_SIZE.size + size :]


def _behind_mark(data: bytes) -> bytes:
    if data[:1] != _CONTROL:
        raise ValueError("a separator is missing")
    return data[1:]


def queue_prefix(topic: bytes) -> bytes:
    """What the keys of a topic's units in ``consumequeue/`` begin with."""
    return _QUEUE_ID.pack(len(topic)) + _CONTROL + topic + _CONTROL


def ends_in(rows: Iterable[KeyedRow]) -> dict[tuple[bytes, int], QueueMax]:
    """The last message of each queue that ever had one, by topic and queue id.

    Args:
        rows: of ``consumequeue/``, family ``offset``.

    Raises:
        CorruptLogError: a row is none of RocketMQ's.
    """
    found: dict[tuple[bytes, int], QueueMax] = {}
    for row in rows:
        topic, rest = _topic_of(row)
        kind, queue = rest[:3], rest[4:]
        if topic == _CHECKPOINT_ROW or kind == b"min":
            continue
        if kind != b"max" or rest[3:4] != _CONTROL or len(queue) != 4 or len(row.value) != 16:
            raise _corrupt(QUEUES_FOLDER, row.key, "unknown form of a bound")
        last = QueueMax(*_BOUND.unpack(row.value))
        if last.position < 0 or last.offset < 0:
            raise _corrupt(QUEUES_FOLDER, row.key, f"a bound of {last.offset} at {last.position}")
        found[topic, int.from_bytes(queue, "big")] = last
    return found


def units_in(rows: Iterable[KeyedRow]) -> Iterator[tuple[tuple[bytes, int], QueuedUnit]]:
    """Units with their topic and queue id, in the order of their keys: a queue's stand together.

    Args:
        rows: of ``consumequeue/``, family ``default``.

    Raises:
        CorruptLogError: a row is none of RocketMQ's.
    """
    for row in rows:
        topic, rest = _topic_of(row)
        if len(rest) != 13 or rest[4:5] != _CONTROL or len(row.value) != _UNIT_ROW.size:
            raise _corrupt(QUEUES_FOLDER, row.key, "unknown form of a unit")
        position, size, tag, _ = _UNIT_ROW.unpack(row.value)
        offset = int.from_bytes(rest[5:], "big")
        yield (topic, int.from_bytes(rest[:4], "big")), QueuedUnit(offset, position, size, tag)


def _topic_of(row: KeyedRow) -> tuple[bytes, bytes]:
    """A key's topic, and what stands behind it."""
    size = int.from_bytes(row.key[:4], "big")
    topic = row.key[5 : 5 + size]
    if row.key[4:5] != _CONTROL or len(topic) != size or row.key[5 + size : 6 + size] != _CONTROL:
        raise _corrupt(QUEUES_FOLDER, row.key, "unknown form of a key")
    return topic, row.key[6 + size :]


def _corrupt(folder: str, key: bytes, reason: object) -> CorruptLogError:
    return CorruptLogError(
        "a row of RocketMQ's RocksDB is not understood",
        folder=folder,
        key=ascii(key[:64]),
        reason=str(reason)[:200],
    )
