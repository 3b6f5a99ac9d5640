"""Table of the broker's state: the interface that all of them have.

``state_tables.StateTables`` is the list of them. Whoever reads, writes, replaces or changes tables
goes by that list, and by what each says of itself here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from ledgermq.formats.config_json import Rows, with_field_names
from ledgermq.rules.tables.documents import (
    DataVersion,
    Document,
    Steps,
    finish,
    read_table,
    rows_in_steps,
)

Taken = TypeVar("Taken")


class NamedRow(Protocol):
    """A row of one of RocketMQ's tables."""

    @property
    def name(self) -> str: ...

    def to_fields(self) -> dict[str, object]: ...


Row = TypeVar("Row", bound=NamedRow)


class Table(ABC, Generic[Taken]):
    """Rows that commands of the log change, and a file that has them.

    Attributes:
        file: name of the file.
        takes: the kinds of changes that ``apply`` is given.
        is_own: RocketMQ does not know it; its file is not in RocketMQ's folder.
        is_younger: stores from before there was such a table have no file of it.
        revision: grows with every change; who has written revision ``r`` has everything to write
            again exactly when it is above ``r``.
    """

    file: ClassVar[str]
    takes: ClassVar[tuple[type, ...]]
    is_own: ClassVar[bool] = True
    is_younger: ClassVar[bool] = True

    def __init__(self) -> None:
        self.revision = 0

    @classmethod
    @abstractmethod
    def read(cls, document: Document) -> Self:
        """The table in the document of its file; an empty one is that of a new store.

        Raises:
            ConfigError: it has another shape; names the file and the row.
        """

    @classmethod
    def read_in_steps(cls, document: Document) -> Steps[Self]:
        """The table in the document of its file, read step by step where there may be many rows.

        Raises:
            ConfigError: it has another shape; names the file and the row.
        """
        yield from ()
        return cls.read(document)

    @abstractmethod
    def to_document(self) -> dict[str, object]:
        """What its file has to say."""

    def to_document_later(self) -> dict[str, object]:
        """The same; rows of a large table are made when they are written, by whichever thread."""
        return self.to_document()

    @abstractmethod
    def apply(self, change: Taken, place: int, at_ms: int, /) -> None:
        """Take a change of a command; one that is about another table changes nothing.

        Args:
            change: one of ``takes``.
            place: queue offset of the command in the state's queue.
            at_ms: when it was proposed, epoch ms.

        Raises:
            ConfigError: its fields are none of a row.
        """

    @abstractmethod
    def replace_with(self, other: Self) -> None:
        """Have what ``other`` has, which nobody uses any more."""


class VersionedTable(Table[Taken], Generic[Row, Taken]):
    """One of RocketMQ's tables that have a version: rows by their names.

    Invariant: ``version`` grows by one with every change that must be written to the file.

    Attributes:
        rows_key: what has the rows in the document.
        own_keys: what else of ours is in it; whatever else there is stays as it is.
    """

    is_own = is_younger = False
    rows_key: ClassVar[str]
    own_keys: ClassVar[frozenset[str]] = frozenset()

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[str, Row] = {}
        self._version = DataVersion()
        self._unknown: dict[str, object] = {}

    @classmethod
    @abstractmethod
    def read_row(cls, name: str, value: object) -> Row:
        """The row called ``name``, from what the document has for it.

        Raises:
            ConfigError: it has another shape; names row and field.
        """

    @classmethod
    def read(cls, document: Document) -> Self:
        return finish(cls.read_in_steps(document))

    @classmethod
    def read_in_steps(cls, document: Document) -> Steps[Self]:
        table = cls()
        known = {"dataVersion", cls.rows_key}
        document = with_field_names(document, frozenset(known))
        table._version = DataVersion.read(document, file=cls.file)
        rows = read_table(document, cls.rows_key, file=cls.file)
        table._rows = yield from rows_in_steps(rows, cls.read_row)
        table._read_own(document)
        table._unknown = {key: document[key] for key in document.keys() - known - cls.own_keys}
        return table

    def to_document(self) -> dict[str, object]:
        return self._with({name: row.to_fields() for name, row in self._rows.items()})

    def to_document_later(self) -> dict[str, object]:
        present = list(self._rows.values())
        return self._with(Rows((row.name, row.to_fields()) for row in present))

    @property
    def version(self) -> int:
        """How many changes the table has seen."""
        return self._version.counter

    @property
    def data_version(self) -> dict[str, object]:
        """The version as RocketMQ writes it."""
        return self._version.to_fields()

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, name: str) -> Row | None:
        """The row called ``name``, if there is one."""
        return self._rows.get(name)

    def replace_with(self, other: Self) -> None:
        self._rows, self._version, self._unknown = other._rows, other._version, other._unknown
        self.revision += 1

    def _read_own(self, document: Document) -> None:
        """Take what the document has at ``own_keys``."""

    def _own(self) -> dict[str, object]:
        """What the document is to have at ``own_keys``."""
        return {}

    def _with(self, rows: object) -> dict[str, object]:
        head = {"dataVersion": self._version.to_fields(), **self._own()}
        return {**head, self.rows_key: rows, **self._unknown}

    def _is_news(self, row: Row) -> bool:
        known = self._rows.get(row.name)
        return known is None or known.to_fields() != row.to_fields()

    def _advance(self, now_ms: int) -> None:
        self._version = self._version.next_version(now_ms)
        self.revision += 1
