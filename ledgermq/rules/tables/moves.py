"""Moves: exactly-once deliveries from one queue into another, delayed messages among them.

A *move* is a command (``Moved``) with the moved messages right behind it in the log, and the
command that they are all there (``MoveEnded``) right behind these. A leader appends such a group in
one go, but a crash may cut it, and then the command stands there with a part of what should follow.
It has the sum of each message that follows, so whoever goes on sees how many are there
(``count_present``) and appends the rest (``rest_of``): nothing is lost, nothing is there twice.

The table has for each source queue up to where it is moved, and whether a group is *open*: begun,
and not known to be whole. Commands as JSON:

    {"moved": "TOPIC/ID", "offsets": [[FIRST, COUNT], ...], "done": N, "before": N, "records": N,
     "next": N, "marks": {NAME: N, ...}, "again": true, "sums": false}
    {"ended": "TOPIC/ID"}

The marks of a source queue are numbers by name (``moves``). Here they are

    FIRST   END    the dead letters from offset FIRST up to END were replayed
    token   N      what the client called the last replay, so that it may ask again
    origin  0 | 1  whether the last replay went to the topics that the messages were first sent to
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import ClassVar, NamedTuple, Self
from zlib import crc32

from ledgermq.formats.records.message import BODY_CRC_AT, QUEUE_ID_AT, properties_in, queue_of
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.limits import DELAY_TOPIC
from ledgermq.model.names.queue_name import QueueName
from ledgermq.model.offset_ranges import offsets_in, ranges_of
from ledgermq.rules.tables.documents import Document, read_integer, read_table
from ledgermq.rules.tables.table import Table

TOKEN = "token"  # noqa: S105 - a property's name
ORIGIN = "origin"


class Replayed(NamedTuple):
    """The marks of one queue.

    Attributes:
        ranges: offsets that were replayed, half-open, ascending, apart from one another.
    """

    ranges: tuple[tuple[int, int], ...] = ()
    token: int = 0
    is_origin: bool = False

    @classmethod
    def read(cls, marks: Mapping[str, int]) -> Replayed:
        """What the marks of the table say."""
        ranges = ((int(name), end) for name, end in marks.items() if name.isdecimal())
        return cls(tuple(sorted(ranges)), marks.get(TOKEN, 0), bool(marks.get(ORIGIN, 0)))

    def to_marks(self) -> dict[str, int]:
        """The marks for the table."""
        marks = {str(first): end for first, end in self.ranges}
        return {**marks, TOKEN: self.token, ORIGIN: int(self.is_origin)}

    def has(self, offset: int) -> bool:
        """Whether the dead letter at ``offset`` was replayed."""
        return any(first <= offset < end for first, end in self.ranges)

    def with_offsets(self, offsets: Iterable[int], *, first: int) -> Replayed:
        """The same, with ``offsets`` replayed, too.

        Args:
            first: the first offset that the queue holds; what is before it is forgotten.
        """
        merged: list[tuple[int, int]] = []
        for begin, end in sorted([*self.ranges, *((offset, offset + 1) for offset in offsets)]):
            if end <= first:
                continue
            if merged and begin <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((begin, end))
        return self._replace(ranges=tuple(merged))


FILE = "moves.json"
_NUMBERS = Struct(">ii")

GROUP_RECORDS_MAX = 2_048
GROUP_SIZE_MAX = 1024 * 1024
"""Most records and bytes of a group: it is one order to the writer, and one hold of the put lock.
One record may be larger. A group goes once around all processes: under load, when a round takes 40
ms, so many keep up with 20,000 a second and more."""


class Moved(NamedTuple):
    """Messages of a source queue are being moved: what they become follows the command.

    All values are absolute, as those of each command.

    Attributes:
        offsets: of the source messages, in the order in which what they become follows.
        done: so many of the records that they become stand in the log already, before the command.
        before: so many records of the command's group stand before those of this move.
        records: so many records follow for this move.
        next_offset: everything below it in the source queue is done with.
        marks: what the service that moves wants to find again; replaces what was there.
        again: the messages themselves follow, at the end of the queue that they were in.
        has_sums: the command has the sums of its records; else they are compared with what the
            messages become, which is always the same.
    """

    queue: QueueName
    offsets: tuple[int, ...]
    records: int
    next_offset: int
    marks: Mapping[str, int]
    done: int = 0
    before: int = 0
    again: bool = False
    has_sums: bool = True

    def to_fields(self) -> dict[str, object]:
        """The fields of the command."""
        fields: dict[str, object] = {
            "moved": _key_of(self.queue),
            "offsets": ranges_of(self.offsets),
            "done": self.done,
            "before": self.before,
            "records": self.records,
            "next": self.next_offset,
            "marks": dict(self.marks),
        }
        if self.again:
            fields["again"] = True
        if not self.has_sums:
            fields["sums"] = False
        return fields


class MoveEnded(NamedTuple):
    """All that a move has written is in the log."""

    queue: QueueName

    def to_fields(self) -> dict[str, object]:
        """The fields of the command."""
        return {"ended": _key_of(self.queue)}


def decode_move(fields: Document) -> Moved | MoveEnded | None:
    """The change in a command's ``fields``; None when it is of another kind.

    Raises:
        CorruptLogError: a number or the queue's name is none.
    """
    try:
        if isinstance(ended := fields.get("ended"), str):
            return MoveEnded(_queue_of(ended))
        if not isinstance(moved := fields.get("moved"), str):
            return None
        numbers = {
            key: read_integer(fields, key, 0, file=FILE, owner=moved)
            for key in ("records", "next", "done", "before")
        }
        if min(numbers.values()) < 0:
            raise CorruptLogError("negative number in a move", queue=moved, **numbers)
        return Moved(
            _queue_of(moved),
            tuple(_offsets_of(fields.get("offsets"), moved)),
            numbers["records"],
            numbers["next"],
            _read_marks(fields, moved),
            numbers["done"],
            numbers["before"],
            fields.get("again") is True,
            fields.get("sums") is not False,
        )
    except ConfigError as error:
        raise CorruptLogError("move that cannot be read", reason=str(error)) from error


@dataclass(frozen=True, slots=True)
class Source:
    """How far a source queue is moved.

    Attributes:
        next_offset: everything below it is done with, but for what an open group lacks.
        marks: of the service that moves.
        open_at: the last command's queue offset in the state's queue, when its group is open.
        open_from: lowest source offset of an open group.
    """

    next_offset: int = 0
    marks: Mapping[str, int] = field(default_factory=dict)
    open_at: int | None = None
    open_from: int | None = None

    @property
    def safe_offset(self) -> int:
        """Whoever moves on from here, and knows no groups, loses nothing."""
        if self.open_from is None:
            return self.next_offset
        return min(self.next_offset, self.open_from)


class MoveTable(Table[Moved | MoveEnded]):
    """The sources by queue; those of delay levels have a table of their own (``delays``).

    Attributes:
        key: of the table in the file's document.
    """

    file = FILE
    takes = (Moved, MoveEnded)
    key: ClassVar[str] = "moves"

    def __init__(self) -> None:
        super().__init__()
        self._sources: dict[QueueName, Source] = {}

    @classmethod
    def read(cls, document: Document) -> Self:
        table, file = cls(), cls.file
        for name, value in read_table(document, cls.key, file=file).items():
            if not isinstance(value, Mapping):
                raise ConfigError("not a JSON object", file=file, key=name)
            queue = _queue_of(name)
            at = read_integer(value, "open", -1, file=file, owner=name)
            first = read_integer(value, "from", -1, file=file, owner=name)
            table._sources[queue] = Source(
                read_integer(value, "next", 0, file=file, owner=name),
                _read_marks(value, name),
                None if at < 0 else at,
                None if first < 0 else first,
            )
        return table

    def to_document(self) -> dict[str, object]:
        return {self.key: self.to_table()}

    def to_table(self) -> dict[str, object]:
        """The sources by the name of their queue."""
        table: dict[str, object] = {}
        for queue, source in sorted(self._sources.items()):
            fields: dict[str, object] = {"next": source.next_offset}
            if source.marks:
                fields["marks"] = dict(source.marks)
            if source.open_at is not None:
                fields["open"] = source.open_at
            if source.open_from is not None:
                fields["from"] = source.open_from
            table[_key_of(queue)] = fields
        return table

    def __iter__(self) -> Iterator[tuple[QueueName, Source]]:
        return iter(self._sources.items())

    def __getitem__(self, queue: QueueName) -> Source:
        """How far ``queue`` is moved; one that never was is at its begin."""
        return self._sources.get(queue, Source())

    @classmethod
    def has(cls, topic: str) -> bool:
        """Whether it is this table that says how far the queues of ``topic`` are moved."""
        return topic != DELAY_TOPIC

    def apply(self, change: Moved | MoveEnded, place: int, _at_ms: int, /) -> None:
        if not self.has(change.queue.topic):
            return
        if isinstance(change, MoveEnded):
            known = self[change.queue]
            self.put(change.queue, Source(known.next_offset, known.marks))
        elif change.records:
            first = min(change.offsets, default=None)
            self.put(change.queue, Source(change.next_offset, change.marks, place, first))
        else:
            self.put(change.queue, Source(change.next_offset, change.marks))

    def put(self, queue: QueueName, source: Source) -> None:
        """Know ``source`` from now on."""
        self._sources[queue] = source
        self.revision += 1

    def replace_with(self, other: MoveTable) -> None:
        self._sources = other._sources
        self.revision += 1


def record_sum(record: memoryview) -> int:
    """What tells a record from others whoever stamped it: queue, topic, properties, body's CRC."""
    topic, queue_id = queue_of(record)
    number = crc32(_NUMBERS.pack(queue_id, len(topic)), crc32(record[BODY_CRC_AT:QUEUE_ID_AT]))
    return crc32(properties_in(record), crc32(topic, number))


def count_present(sums: Sequence[int], records: Iterable[memoryview]) -> int:
    """How many of a group's records are in the log.

    Args:
        sums: of the group's records, as its command has them.
        records: what stands right behind the command.
    """
    present = 0
    for wanted, record in zip(sums, records, strict=False):
        if record_sum(record) != wanted:
            break
        present += 1
    return present


def rest_of(moved: Moved, present: int) -> Moved:
    """What is left to do of a move.

    Args:
        present: records of its group that are in the log, from the first one on.
    """
    own = min(max(present - moved.before, 0), moved.records)
    return moved._replace(done=moved.done + own, records=moved.records - own, before=0)


def _offsets_of(value: object, owner: str) -> Iterator[int]:
    def refuse(found: object) -> CorruptLogError:
        return CorruptLogError("not the offsets of a move", queue=owner, found=str(found)[:200])

    return offsets_in(value, limit=GROUP_RECORDS_MAX, refuse=refuse)


def _read_marks(fields: Document, owner: str) -> dict[str, int]:
    marks = read_table(fields, "marks", file=FILE)
    return {name: read_integer(marks, name, 0, file=FILE, owner=owner) for name in marks}


def _key_of(queue: QueueName) -> str:
    return f"{queue.topic}/{queue.queue_id}"


def _queue_of(key: str) -> QueueName:
    topic, slash, number = key.rpartition("/")
    if not (topic and slash and number.isdecimal()):
        raise ConfigError("not the name of a queue", file=FILE, key=key)
    return QueueName(topic, int(number))
