"""Numbered rows: what all groups of a cluster shall have, each row with the change that wrote it.

A row that was removed stays as a tombstone, until it is forgotten: so "what changed above number N"
can be said exactly, for every N from ``floor`` on. The digest goes over all changes in their order;
two copies with the same number and digest had the same changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

from ledgermq.formats.digest import content_digest
from ledgermq.model.errors import ConfigError
from ledgermq.rules.cluster.json_objects import Object, to_json

POINTS_KEPT = 256
"""Changes back to which another copy can be compared; what lags more takes all rows anew."""

KIND_SIZE_MAX = 16
ROW_NAME_SIZE_MAX = 255


class RowKey(NamedTuple):
    """Which row: ``kind`` says what its value is about, as ``cluster_table.GROUP_KIND``."""

    kind: str
    name: str


class Row(NamedTuple):
    """One row as it is since change ``number``; without ``value`` it was removed by it."""

    key: RowKey
    number: int
    value: Object | None


class Point(NamedTuple):
    """How far a copy of the rows is: the number of its last change, and the digest of all."""

    number: int
    digest: str


NOWHERE = Point(0, "")


class NumberedRows:
    """All rows; iteration has those that are, in the order of their last changes.

    Attributes:
        floor: tombstones of changes up to here may be forgotten.
    """

    def __init__(self) -> None:
        # In the order of numbers: a row that changes goes to the end.
        self._rows: dict[RowKey, Row] = {}
        self._points = deque([NOWHERE], maxlen=POINTS_KEPT)
        self.floor = 0

    @property
    def at(self) -> Point:
        """The last change."""
        return self._points[-1]

    @classmethod
    def of(cls, rows: Iterable[Row], points: Sequence[Point], *, floor: int) -> NumberedRows:
        """The rows, tombstones among them, with the last points of their changes.

        Raises:
            ConfigError: there is no point.
        """
        if not points:
            raise ConfigError("numbered rows have no point", floor=floor)
        found = cls()
        found._rows = {row.key: row for row in rows}
        found._points = deque(points, maxlen=POINTS_KEPT)
        found.floor = floor
        return found

    def points(self) -> Sequence[Point]:
        """The points of the last changes, that of the last one at the end."""
        return list(self._points)

    def has_passed(self, point: Point) -> bool | None:
        """Whether a copy at ``point`` has a part of the same changes; None: it cannot be told."""
        if point.number > self.at.number or point.number < self._points[0].number:
            return None
        return point in self._points

    def __iter__(self) -> Iterator[Row]:
        return (row for row in self._rows.values() if row.value is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def value(self, key: RowKey) -> Object | None:
        """The row; None when there is none."""
        row = self._rows.get(key)
        return row.value if row else None

    def of_kind(self, kind: str) -> Iterator[tuple[str, Object]]:
        """All rows of a kind: name and value."""
        for row in self._rows.values():
            if row.key.kind == kind and row.value is not None:
                yield row.key.name, row.value

    def change(self, key: RowKey, value: Object | None) -> Row:
        """Write the row with the next number; without ``value``, remove it."""
        row = Row(key, self.at.number + 1, value)
        self._put(row)
        self._points.append(Point(row.number, _digest(self.at.digest, row)))
        return row

    def above(self, number: int) -> list[Row]:
        """Rows and tombstones that changed after ``number``, in their order.

        Returns:
            all that a copy needs which has all changes up to ``number``, if that is at least
            ``floor``; from 0 on, all rows.
        """
        newest = takewhile(lambda row: row.number > number, reversed(self._rows.values()))
        return list(newest)[::-1]

    def take(self, rows: Iterable[Row], at: Point) -> None:
        """Have the changed ``rows`` of another copy, which is at ``at``."""
        for row in rows:
            self._put(row)
        self._points.append(at)

    def replace(self, rows: Sequence[Row], at: Point) -> None:
        """Have these rows and no other ones."""
        self._rows = {row.key: row for row in rows}
        self._points = deque([at], maxlen=POINTS_KEPT)
        self.floor = at.number

    def has_tombstones(self, number: int) -> bool:
        """Whether there are some of changes up to ``number``."""
        return any(row.value is None and row.number <= number for row in self._rows.values())

    def forget(self, number: int) -> None:
        """Let tombstones of changes up to ``number`` go."""
        self.floor = max(self.floor, min(number, self.at.number))
        gone = [
            row.key for row in self._rows.values() if row.value is None and row.number <= self.floor
        ]
        for key in gone:
            del self._rows[key]

    def _put(self, row: Row) -> None:
        self._rows.pop(row.key, None)
        self._rows[row.key] = row


def _digest(before: str, row: Row) -> str:
    told = {"before": before, "kind": row.key.kind, "name": row.key.name, "value": row.value}
    return content_digest(to_json(told)).hex()
