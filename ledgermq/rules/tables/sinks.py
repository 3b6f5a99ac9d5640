"""Sink table: writers of numbered batches, and the last batch of each that was committed.

A sink is a streaming query of Spark, or one job. Its rows wait in packs (``wire/staged_pack.py``),
messages of ``STAGED_TOPIC``. One command names the packs of a batch: from then on they will become
messages, whoever leads, and a batch with that number or a lower one is not taken again. Packs
become messages in the order of the command, each by a move (``moves``) in whose command stands how
many of the batch are moved. ``ROOT/ledgermq/sinks.json``:

    {"sinks": {NAME: {"batch": N, "at": MS, "rows": N, "packs": [[FIRST, COUNT], ...],
                      "moved": N, "once": BOOL, "owner": USER}}}

Changes of a command:

    {"sink": NAME, "fields": {...}}                    as in the table; null forgets the sink
    {"sink_moved": NAME, "batch": N, "packs": N}       so many packs of that batch are moved
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from ledgermq.formats.records.message import Message
from ledgermq.formats.records.properties import STAGE
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.limits import STAGED_TOPIC
from ledgermq.model.names.queue_name import QueueName
from ledgermq.model.names.stages import Stage
from ledgermq.model.offset_ranges import offsets_in, ranges_of
from ledgermq.rules.tables.documents import Document, read_flag, read_integer, read_table
from ledgermq.rules.tables.table import Table

FILE = "sinks.json"
QUEUE = QueueName(STAGED_TOPIC, 0)
PACKS_MAX = 1_000_000
"""Packs of one batch: a terabyte."""

_TABLE = "sinks"


class SinkSet(NamedTuple):
    """The sink is so from now on; without ``fields`` nothing is known of it."""

    name: str
    fields: Document | None


class SinkMoved(NamedTuple):
    """The first ``packs`` packs of a sink's batch are messages now, or in this very group."""

    name: str
    batch: int
    packs: int

    def to_fields(self) -> dict[str, object]:
        """The fields of the command."""
        return {"sink_moved": self.name, "batch": self.batch, "packs": self.packs}


def decode_sink_moved(fields: Document) -> SinkMoved | None:
    """The change in a command's ``fields``; None when it is of another kind.

    Raises:
        CorruptLogError: a number is none.
    """
    if not isinstance(name := fields.get("sink_moved"), str):
        return None
    numbers = [fields.get(key) for key in ("batch", "packs")]
    match numbers:
        case [int(batch), int(packs)] if min(batch, packs) >= 0:
            return SinkMoved(name, batch, packs)
    raise CorruptLogError("not a batch and its packs", sink=name, found=str(numbers))


@dataclass(frozen=True, slots=True)
class Sink:
    """The last batch of a sink.

    Attributes:
        batch: its number; it and all lower ones are committed.
        at_ms: when it was committed, epoch ms.
        rows: it has so many.
        packs: offsets in the staged queue, in the order in which they become messages; empty once
            all have.
        moved: so many of them have.
        is_once: there is no other batch: nobody asks for it after a while.
        owner: the user who has committed its first batch, and whose it is; empty: nobody's.
    """

    batch: int
    at_ms: int
    rows: int
    packs: tuple[int, ...] = ()
    moved: int = 0
    is_once: bool = False
    owner: str = ""

    @property
    def left(self) -> tuple[int, ...]:
        """The packs that are not messages yet."""
        return self.packs[self.moved :]

    @classmethod
    def read(cls, name: str, value: object) -> Self:
        """The sink that the table has under ``name``.

        Raises:
            ConfigError: a field is not what it should be; names it.
        """
        if not isinstance(value, Mapping):
            raise ConfigError("not a JSON object", file=FILE, key=name)
        numbers = [
            read_integer(value, key, 0, file=FILE, owner=name)
            for key in ("batch", "at", "rows", "moved")
        ]
        if min(numbers) < 0:
            raise ConfigError("negative number", file=FILE, key=name, value=str(numbers))
        batch, at_ms, rows, moved = numbers
        packs = tuple(packs_in(value.get("packs", [])))
        once = read_flag(value, "once", False, file=FILE, owner=name)
        # Versions before 0.10 have none.
        owner = value.get("owner", "")
        if not isinstance(owner, str):
            raise ConfigError("not a text", file=FILE, owner=name, key="owner", value=owner)
        return cls(batch, at_ms, rows, packs, moved, once, owner)

    def to_fields(self) -> dict[str, object]:
        """The sink's row in the table."""
        fields: dict[str, object] = {
            "batch": self.batch,
            "at": self.at_ms,
            "rows": self.rows,
            "packs": ranges_of(self.packs),
            "moved": self.moved,
            "once": self.is_once,
        }
        return {**fields, "owner": self.owner} if self.owner else fields


class SinkTable(Table[SinkSet | SinkMoved]):
    """The sinks by their names.

    Attributes:
        unmoved: sinks with packs that are not messages yet.
    """

    file = FILE
    takes = (SinkSet, SinkMoved)

    def __init__(self) -> None:
        super().__init__()
        self.unmoved: set[str] = set()
        self._sinks: dict[str, Sink] = {}

    @classmethod
    def read(cls, document: Document) -> Self:
        table = cls()
        for name, value in read_table(document, _TABLE, file=FILE).items():
            table._put(name, Sink.read(name, value))
        return table

    def to_document(self) -> dict[str, object]:
        return {_TABLE: {name: sink.to_fields() for name, sink in sorted(self._sinks.items())}}

    def __iter__(self) -> Iterator[tuple[str, Sink]]:
        return iter(self._sinks.items())

    def __len__(self) -> int:
        return len(self._sinks)

    def get(self, name: str) -> Sink | None:
        """The sink's last batch; None when nothing is known of it."""
        return self._sinks.get(name)

    def apply(self, change: SinkSet | SinkMoved, _place: int, _at_ms: int, /) -> None:
        if isinstance(change, SinkMoved):
            self._move(change)
        elif change.fields is None:
            self._sinks.pop(change.name, None)
            self.unmoved.discard(change.name)
        else:
            self._put(change.name, Sink.read(change.name, change.fields))
        self.revision += 1

    def replace_with(self, other: SinkTable) -> None:
        self._sinks, self.unmoved = other._sinks, other.unmoved
        self.revision += 1

    def _move(self, change: SinkMoved) -> None:
        sink = self._sinks.get(change.name)
        if sink is None or sink.batch != change.batch:
            # A later batch is only taken once all packs of this one are moved.
            return
        if change.packs >= len(sink.packs):
            self._put(change.name, replace(sink, packs=(), moved=0))
        else:
            self._put(change.name, replace(sink, moved=change.packs))

    def _put(self, name: str, sink: Sink) -> None:
        self._sinks[name] = sink
        if sink.left:
            self.unmoved.add(name)
        else:
            self.unmoved.discard(name)


def stage_of(message: Message) -> Stage | None:
    """Whose pack a message of the staged queue is; None when it is none."""
    return Stage.read(message.parsed_properties().get(STAGE, ""))


def packs_in(value: object) -> Iterator[int]:
    """The offsets of a batch's packs, in ``ranges_of`` of them.

    Raises:
        ConfigError: it is no such list, or names too many.
    """

    def refuse(found: object) -> ConfigError:
        return ConfigError("not the packs of a batch", found=str(found)[:200], limit=PACKS_MAX)

    return offsets_in(value, limit=PACKS_MAX, refuse=refuse)
