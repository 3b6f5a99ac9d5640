"""State commands: changes of the broker's tables, as they stand in the log.

A command is a message of the system topic, ``STATE_QUEUE_ID``. Its body is one JSON object:

    tag ``state``            {"id": TEXT, "at": MS, "changes": [CHANGE, ...]}
    tag ``state-snapshot``   {"id": TEXT, "at": MS, "tables": {FILE: DOCUMENT, ...}}
                             and in "tables" "queue-ends", the leader's
                             (``store/queues/queue_ends.py``)

and a CHANGE is one of

    {"topic": NAME, "fields": {...}}                   fields as in topics.json; null deletes it
    {"group": NAME, "fields": {...}}                   as in subscriptionGroup.json; null deletes it
    {"consumed": "TOPIC@GROUP", "offsets": {ID: N}}    queue offsets; null forgets them all
    {"user": NAME, "fields": {...}}                    as in access.json; null deletes the user
    {"quota": OWNER, "fields": {...}}                  as in quotas.json; null deletes it
    {"archive": NAME, "fields": {...}}                 as in archives.json; null deletes it
    {"names": NAMESPACE, "fields": {KEY: TEXT}}        as in name-values.json; null deletes them all
    {"schema": SUBJECT, "fields": {...}}               a version or a rule, as in schemas.json;
                                                       a version alone deletes it, null all
    {"owned": "TOPIC@GROUP", "locks": {ID: [CLIENT, MS]}}    null: nobody owns that queue
    {"moved": ...}, {"ended": ...}                     see ``moves``
    {"sink": NAME, "fields": {...}}, {"sink_moved": ...}     see ``sinks``
    {"given_back": TOKEN}                              see ``given_back``
    {"level": N}                                       see ``feature_table``
    {"cluster": ...}, {"cluster_document": ...}        see ``cluster_commands``
    {"shared": ...}, {"unshared": ...}                 see ``share_changes``

A command that only versions from a feature level on understand says so, and so does a snapshot of
that level: ``"needs": N`` (not there for 0; ``model/features.py`` has the level of each kind of
change). Who knows less, or meets a kind of change or a table that it does not know, stops there, in
order, until a newer version is started (docs/decisions/0060).

A command that other records follow in the log has their sums, too: ``"follows": [N, ...]``.
All values are absolute: a command that is applied twice changes nothing the second time. The body
of a snapshot is compressed by zlib, as RocketMQ's clients do it, and cut into parts of at most
``PART_SIZE_MAX`` bytes, which follow one another; the property ``PART`` says which of how many.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, get_args

from ledgermq.formats.config_json import Rows, decode_in_steps
from ledgermq.model.errors import ConfigError, CorruptLogError, NewerVersionError
from ledgermq.model.features import LEVEL, LEVEL_MAX, LEVEL_OF_CHANGE
from ledgermq.model.names import system_topics
from ledgermq.rules.cluster import cluster_commands
from ledgermq.rules.cluster.cluster_commands import ClusterCommand
from ledgermq.rules.given_back import MessageGivenBack
from ledgermq.rules.state import feature_table
from ledgermq.rules.state.feature_table import check_known, level_told
from ledgermq.rules.tables.documents import ROWS_PER_STEP, Steps
from ledgermq.rules.tables.moves import Moved, MoveEnded, decode_move
from ledgermq.rules.tables.queue_locks import read_lock
from ledgermq.rules.tables.share_changes import (
    ShareChanged,
    ShareEnded,
    decode_share_change,
)
from ledgermq.rules.tables.sinks import SinkMoved, SinkSet, decode_sink_moved
from ledgermq.rules.tables.table_changes import (
    ArchiveSet,
    Change,
    Fields,
    GroupSet,
    LevelSet,
    Lock,
    LocksSet,
    NamedSet,
    NamesSet,
    OffsetsSet,
    QuotaSet,
    SchemaSet,
    TopicSet,
    UserSet,
)

STATE_QUEUE_ID = system_topics.STATE_QUEUE_ID
STATE_TAG = "state"
SNAPSHOT_TAG = system_topics.SNAPSHOT_TAG
PART_PROPERTY = system_topics.PART_PROPERTY
PART_SIZE_MAX = 1024 * 1024
SNAPSHOT_SIZE_MAX = 1024 * 1024 * 1024
"""Bytes of a snapshot's tables, uncompressed: more is a damaged length, not a broker's tables."""

_encode = json.JSONEncoder(separators=(",", ":")).encode

_ROW_DEPTH = 4
"""Depth of the rows in a snapshot, below its document, the tables, one file and a table in it."""


class StateCommand(NamedTuple):
    """Changes that are applied together.

    Attributes:
        identity: tells who proposed it that it is this one.
        at_ms: the proposer's time, epoch ms.
        follows: sums of the records that stand right behind it (``moves.record_sum``).
    """

    identity: str
    at_ms: int
    changes: tuple[Change, ...]
    follows: tuple[int, ...] = ()


class Snapshot(NamedTuple):
    """All tables; what a node had before is gone.

    Attributes:
        tables: documents by the name of their file, as ``config/`` has them.
    """

    identity: str
    at_ms: int
    tables: Mapping[str, Fields]


class Part(NamedTuple):
    """One message of a snapshot: ``number`` from 1 to ``parts``."""

    number: int
    parts: int
    content: bytes

    @property
    def label(self) -> str:
        """Value of the property ``PART``."""
        return f"{self.number}/{self.parts}"


def encode_command(command: StateCommand) -> bytes:
    """The body of a message with tag ``state``."""
    document: dict[str, object] = {
        "id": command.identity,
        "at": command.at_ms,
        "changes": [_change_fields(change) for change in command.changes],
    }
    needs = max(map(level_of, command.changes), default=0)
    if needs:
        document["needs"] = needs
    if command.follows:
        document["follows"] = command.follows
    return json.dumps(document, separators=(",", ":")).encode()


def decode_command(body: bytes) -> StateCommand:
    """The command in the body of a message with tag ``state``.

    Raises:
        CorruptLogError: it is none.
        NewerVersionError: a newer version wrote it, for those alike.
    """
    document = _object(_json(body), "command")
    _check_needs(document)
    changes = document.get("changes")
    if not isinstance(changes, list):
        raise CorruptLogError("command of the broker's state without changes", found=str(changes))
    decoded = (_decode_change(_object(change, "change")) for change in changes)
    return StateCommand(*_head(document), tuple(decoded), _follows(document.get("follows", [])))


def encode_snapshot_in_steps(snapshot: Snapshot) -> Steps[list[Part]]:
    """The parts of a snapshot, in the order in which they must stand in the log, made step by step:
    they are a second of work where there are 100,000 topics.

    The tables' own tables may be ``Rows``. What they are made of must not change meanwhile.
    """
    in_force = snapshot.tables.get(feature_table.FILE, {})
    needs = {"needs": level} if (level := level_told(in_force)) else {}
    document = {"id": snapshot.identity, "at": snapshot.at_ms, **needs, "tables": snapshot.tables}
    machine = zlib.compressobj()
    compressed: list[bytes] = []
    waiting: list[str] = []
    for piece in _pieces(document, _ROW_DEPTH):
        waiting.append(piece)
        if len(waiting) == 2 * ROWS_PER_STEP:
            compressed.append(machine.compress("".join(waiting).encode()))
            waiting.clear()
            yield
    compressed.append(machine.compress("".join(waiting).encode()) + machine.flush())
    content = b"".join(compressed)
    cuts = range(0, len(content), PART_SIZE_MAX)
    return [
        Part(number, len(cuts), content[cut : cut + PART_SIZE_MAX])
        for number, cut in enumerate(cuts, 1)
    ]


def _decompressed(parts: Sequence[Part]) -> Steps[str]:
    machine = zlib.decompressobj()
    found, size = [], 0
    try:
        for part in parts:
            content = part.content
            while content and size <= SNAPSHOT_SIZE_MAX and not machine.eof:
                found.append(machine.decompress(content, PART_SIZE_MAX))
                size += len(found[-1])
                content = machine.unconsumed_tail
                yield
        found.append(machine.decompress(b"", PART_SIZE_MAX))
    except zlib.error as error:
        raise CorruptLogError("snapshot cannot be decompressed", reason=str(error)) from error
    if not machine.eof:
        raise CorruptLogError("snapshot ends too early or is too large", limit=SNAPSHOT_SIZE_MAX)
    try:
        return b"".join(found).decode()
    except UnicodeDecodeError as error:
        raise CorruptLogError("snapshot of the broker's state is no text") from error


def _pieces(value: object, depth: int) -> Iterator[str]:
    """The JSON of ``value``; what lies ``depth`` objects below is a piece each."""
    if depth == 0 or not isinstance(value, Rows | Mapping):
        yield _encode(value)
        return
    mark = "{"
    for key, item in value if isinstance(value, Rows) else value.items():
        yield f"{mark}{_encode(str(key))}:"
        yield from _pieces(item, depth - 1)
        mark = ","
    yield "}" if mark == "," else "{}"


def decode_part(label: str, content: bytes) -> Part:
    """One part of a snapshot.

    Args:
        label: the message's property ``PART``.

    Raises:
        CorruptLogError: it is no such label.
    """
    number, slash, count = label.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise CorruptLogError("part of a snapshot without its number", part=label)
    return Part(int(number), int(count), content)


def decode_snapshot_in_steps(parts: Sequence[Part]) -> Steps[Snapshot]:
    """The snapshot of all its parts, in order, read step by step: that is a third of a second of
    work where there are 100,000 topics.

    Raises:
        CorruptLogError: they are none.
        NewerVersionError: a newer version wrote them, for those alike.
    """
    assert [part.number for part in parts] == list(range(1, parts[0].parts + 1)), parts
    text = yield from _decompressed(parts)
    try:
        found = yield from decode_in_steps(text, _ROW_DEPTH)
    except (ValueError, RecursionError) as error:
        raise CorruptLogError("snapshot of the broker's state is no JSON") from error
    document = _object(found, "snapshot")
    _check_needs(document)
    tables = _object(document.get("tables"), "tables")
    return Snapshot(*_head(document), {file: _object(tables[file], file) for file in tables})


_NAMED: Mapping[str, type[NamedSet]] = {
    "topic": TopicSet,
    "group": GroupSet,
    "user": UserSet,
    "quota": QuotaSet,
    "sink": SinkSet,
    "archive": ArchiveSet,
    "names": NamesSet,
    "schema": SchemaSet,
}
"""Changes of what has a name, and fields or nothing."""

_KEYS: Mapping[type, str] = {
    **{kind: key for key, kind in _NAMED.items()},
    OffsetsSet: "consumed",
    LocksSet: "owned",
    Moved: "moved",
    MoveEnded: "ended",
    SinkMoved: "sink_moved",
    MessageGivenBack: "given_back",
    LevelSet: "level",
    ShareChanged: "shared",
    ShareEnded: "unshared",
    **dict.fromkeys(get_args(ClusterCommand), cluster_commands.CLUSTER_KEY),
    cluster_commands.DocumentTaken: cluster_commands.DOCUMENT_KEY,
}
"""Keys by which a change of each kind is known in a command."""

assert {*_KEYS.values()} == LEVEL_OF_CHANGE.keys(), "a kind of change without a feature level"


def level_of(change: Change) -> int:
    """The feature level from which on ``change`` is understood."""
    if isinstance(change, LevelSet):
        return change.level
    return LEVEL_OF_CHANGE[_KEYS[type(change)]]


def check_in_force(changes: Sequence[Change], level: int) -> None:
    """Keep what a level brings out of the log before that is in force; ``level`` is in force.

    Raises:
        ConfigError: a change needs a higher one. That which puts a level in force is let through.
    """
    for change in changes:
        needed = level_of(change)
        if needed > level and not isinstance(change, LevelSet):
            raise ConfigError(
                f"this needs feature level {needed}, which is not in force in the group: see"
                " `ledgermq cluster features`",
                change=_KEYS[type(change)],
                in_force=level,
            )


def _check_needs(document: Fields) -> None:
    needs = document.get("needs", 0)
    if type(needs) is not int or needs < 0:
        raise CorruptLogError("feature level that a command needs is none", needs=str(needs)[:200])
    if needs > LEVEL:
        raise NewerVersionError("command of the log needs a higher feature level", level=needs)


def _change_fields(change: Change) -> Fields:
    if isinstance(change, MessageGivenBack):
        return {"given_back": change.token}
    if isinstance(change, LevelSet):
        return {"level": change.level}
    if isinstance(change, Moved | MoveEnded | SinkMoved | ShareChanged | ShareEnded):
        return change.to_fields()
    if isinstance(change, ClusterCommand):
        return cluster_commands.to_fields(change)
    if isinstance(change, LocksSet | OffsetsSet):
        return _queue_fields(change)
    key = next(key for key, kind in _NAMED.items() if isinstance(change, kind))
    name, fields = change
    return {key: name, "fields": fields}


def _queue_fields(change: LocksSet | OffsetsSet) -> Fields:
    owner = f"{change.topic}@{change.group}"
    if isinstance(change, LocksSet):
        return {"owned": owner, "locks": change.locks}
    return {"consumed": owner, "offsets": change.offsets}


def _decode_change(fields: Fields) -> Change:
    for key, kind in _NAMED.items():
        if isinstance(name := fields.get(key), str):
            return kind(name, _optional(fields.get("fields"), name))
    if isinstance(consumed := fields.get("consumed"), str):
        topic, at, group = consumed.partition("@")
        if topic and at and group:
            return OffsetsSet(group, topic, _decode_offsets(fields.get("offsets"), consumed))
    if isinstance(owned := fields.get("owned"), str):
        topic, at, group = owned.partition("@")
        if topic and at and group:
            return LocksSet(group, topic, _decode_locks(_object(fields.get("locks"), owned), owned))
    readers = (decode_move, decode_sink_moved, decode_share_change, cluster_commands.read_command)
    for decode in readers:
        if (found := decode(fields)) is not None:
            return found
    if isinstance(token := fields.get("given_back"), str):
        return MessageGivenBack(token)
    if type(level := fields.get("level")) is int and 0 < level <= LEVEL_MAX:
        check_known(level)
        return LevelSet(level)
    if fields and fields.keys().isdisjoint(LEVEL_OF_CHANGE):
        keys = str(list(fields))[:200]
        raise NewerVersionError(
            "change of the log is of no known kind", level=LEVEL + 1, found=keys
        )
    raise CorruptLogError("change of the broker's state that is not known", found=str(fields)[:200])


def _decode_offsets(value: object, owner: str) -> Mapping[int, int] | None:
    fields = _optional(value, owner)
    if fields is None:
        return None
    offsets: dict[int, int] = {}
    for queue, offset in fields.items():
        if not queue.isdecimal() or type(offset) is not int or offset < 0:
            raise CorruptLogError("not a queue and its offset", owner=owner, queue=queue)
        offsets[int(queue)] = offset
    return offsets


def _decode_locks(fields: Fields, owner: str) -> Mapping[int, Lock | None]:
    locks: dict[int, Lock | None] = {}
    for queue, value in fields.items():
        lock = read_lock(value)
        if not queue.isdecimal() or (lock is None and value is not None):
            raise CorruptLogError("not a queue and its lock", owner=owner, queue=queue)
        locks[int(queue)] = lock
    return locks


def _follows(value: object) -> tuple[int, ...]:
    # Thousands of rows follow a command of a sink's.
    if not isinstance(value, list) or not set(map(type, value)) <= {int}:
        raise CorruptLogError("not the sums of what follows a command", found=str(value)[:200])
    return tuple(value)


def _head(document: Fields) -> tuple[str, int]:
    identity, at_ms = document.get("id"), document.get("at")
    if not isinstance(identity, str) or type(at_ms) is not int:
        raise CorruptLogError("command of the broker's state without id and time")
    return identity, at_ms


def _optional(value: object, owner: str) -> Fields | None:
    return None if value is None else _object(value, owner)


def _object(value: object, what: str) -> Fields:
    if not isinstance(value, dict):
        raise CorruptLogError("not a JSON object in a command of the broker's state", at=what)
    return value


def _json(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise CorruptLogError("command of the broker's state is no JSON") from error
