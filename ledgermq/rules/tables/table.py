"""Table of the broker's state: the interface that all of them have.

``state_tables.StateTables`` is the list of them. Whoever reads, writes, replaces or changes tables
goes by that list, and by what each says of itself here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, Self, TypeVar

from ledgermq.rules.tables.documents import Document, Steps

Taken = TypeVar("Taken")


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
