"""Feature level in force: it only goes up. ``ROOT/ledgermq/features.json``:

    {"level": N}

At level 0 there is no such file, and a snapshot has no such table: versions from before there were
levels know neither.
"""

from __future__ import annotations

from typing import Self

from ledgermq.model.errors import ConfigError, NewerVersionError
from ledgermq.model.features import LEVEL
from ledgermq.rules.tables.documents import Document, read_integer
from ledgermq.rules.tables.table import Table
from ledgermq.rules.tables.table_changes import LevelSet

FILE = "features.json"
_LEVEL = "level"


class FeatureTable(Table[LevelSet]):
    """The level in force; 0 is that of groups that have agreed on none.

    Invariant: ``level`` never goes down, and is never above ``features.LEVEL``.
    """

    file = FILE
    takes = (LevelSet,)

    def __init__(self, level: int = 0) -> None:
        super().__init__()
        self.level = level

    @classmethod
    def read(cls, document: Document) -> Self:
        """The table in the document of ``features.json``.

        Raises:
            ConfigError: it has another shape.
            NewerVersionError: the level is above what this version knows.
        """
        level = level_told(document)
        check_known(level)
        return cls(level)

    def to_document(self) -> dict[str, object]:
        return {_LEVEL: self.level} if self.level else {}

    def apply(self, change: LevelSet, _place: int, _at_ms: int, /) -> None:
        self._raise_to(change.level)

    def replace_with(self, other: FeatureTable) -> None:
        """Have the level of ``other``, if it is higher."""
        self._raise_to(other.level)

    def _raise_to(self, level: int) -> None:
        if level > self.level:
            self.level = level
            self.revision += 1


def level_told(document: Document) -> int:
    """The level that a document of ``features.json`` says, also one that is not known here.

    Raises:
        ConfigError: it has another shape.
    """
    level = read_integer(document, _LEVEL, 0, file=FILE, owner=FILE)
    if level < 0:
        raise ConfigError("feature level is negative", file=FILE, level=level)
    return level


def check_known(level: int) -> None:
    """Go on where this version knows a level that is in force.

    Raises:
        NewerVersionError: it does not.
    """
    if level > LEVEL:
        raise NewerVersionError("feature level in force is not known to this version", level=level)
