"""Archive marks: the log position of each archive.

Retention waits for it. ``ROOT/ledgermq/archives.json``:

    {"archives": {NAME: {"position": N, "at": MS}}}

``position`` is of the log: all that the archive takes below it is in the archive.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Self

from ledgermq.model.errors import ConfigError
from ledgermq.rules.tables.documents import Document, read_integer, read_table
from ledgermq.rules.tables.table import Table
from ledgermq.rules.tables.table_changes import ArchiveSet

FILE = "archives.json"
NAME_SIZE_MAX = 100

MIRROR_PREFIX = "mirror."
"""Prefix of the name of a mirror, whose mark is one of an archive."""

_TABLE = "archives"
_NAME_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


class ArchiveMark(NamedTuple):
    """How far one archive is.

    Attributes:
        at_ms: when it said so, epoch ms.
    """

    position: int
    at_ms: int

    @classmethod
    def read(cls, name: str, value: object) -> Self:
        """What the table has under ``name``.

        Raises:
            ConfigError: the name or a number is not what it should be.
        """
        check_name(name)
        if not isinstance(value, dict):
            raise ConfigError("mark of an archive is not a JSON object", file=FILE, archive=name)
        position, at_ms = (
            read_integer(value, key, -1, file=FILE, owner=name) for key in ("position", "at")
        )
        if position < 0 or at_ms < 0:
            raise ConfigError(
                "mark of an archive is negative", archive=name, position=position, at=at_ms
            )
        return cls(position, at_ms)

    def to_fields(self) -> dict[str, int]:
        """The JSON object."""
        return {"position": self.position, "at": self.at_ms}


class ArchiveTable(Table[ArchiveSet]):
    """All archives by name."""

    file = FILE
    takes = (ArchiveSet,)

    def __init__(self) -> None:
        super().__init__()
        self._marks: dict[str, ArchiveMark] = {}

    @classmethod
    def read(cls, document: Document) -> Self:
        table = cls()
        for name, fields in read_table(document, _TABLE, file=FILE).items():
            table.put(name, ArchiveMark.read(name, fields))
        return table

    def to_document(self) -> dict[str, object]:
        return {_TABLE: {name: mark.to_fields() for name, mark in self}}

    def __iter__(self) -> Iterator[tuple[str, ArchiveMark]]:
        """All archives by name."""
        return iter(sorted(self._marks.items()))

    def __len__(self) -> int:
        return len(self._marks)

    def get(self, name: str) -> ArchiveMark | None:
        """How far an archive is; None: nothing waits for it."""
        return self._marks.get(name)

    def last(self) -> int:
        """Position up to which all archives have the log; 0 without one."""
        return min((mark.position for mark in self._marks.values()), default=0)

    def apply(self, change: ArchiveSet, _place: int, _at_ms: int, /) -> None:
        if change.fields is None:
            self.delete(change.name)
        else:
            self.put(change.name, ArchiveMark.read(change.name, change.fields))

    def put(self, name: str, mark: ArchiveMark) -> None:
        """Have ``mark`` for ``name``."""
        self._marks[name] = mark
        self.revision += 1

    def delete(self, name: str) -> None:
        """Wait for ``name`` no more."""
        self._marks.pop(name, None)
        self.revision += 1

    def replace_with(self, other: ArchiveTable) -> None:
        self._marks = dict(other._marks)
        self.revision += 1


def is_mirror_name(name: str) -> bool:
    """Whether a mirror may be called ``name``: its mark is ``MIRROR_PREFIX`` and that."""
    is_short = 0 < len(name) <= NAME_SIZE_MAX - len(MIRROR_PREFIX)
    return is_short and _NAME_ALLOWED.issuperset(name)


def check_name(name: str) -> str:
    """A name of an archive.

    Raises:
        ConfigError: it is empty, too long, or has a character that is not allowed.
    """
    if not 0 < len(name) <= NAME_SIZE_MAX or not _NAME_ALLOWED.issuperset(name):
        raise ConfigError(
            "not a name of an archive",
            archive=name[:NAME_SIZE_MAX],
            allowed=f"1 to {NAME_SIZE_MAX} of a-z A-Z 0-9 - _ .",
        )
    return name
