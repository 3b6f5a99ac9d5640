"""Property columns: properties of many messages as Arrow maps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ledgermq.formats.kernels.kernel import find_property, split_properties
from ledgermq.formats.records.properties import decode_properties
from ledgermq.pipeline.columns.arrow_slices import Integers, Octets, as_text, checked_text, slices

PAIRS_PER_ROW = 8
"""For so many properties a message there is room at first; for as many more when it is short."""


class PropertyColumns:
    """The properties that lie in ``octets`` at ``[starts, ends)``, one row a message.

    Invariant: ``bounds`` has one item more than there are rows, and delimits the names and values
    of each; no name comes twice in a row.
    """

    def __init__(self, octets: Octets, starts: Integers, ends: Integers) -> None:
        """Find where all names and values lie; never fails, as in Java."""
        self._octets = octets
        self._starts, self._ends = np.ascontiguousarray(starts), np.ascontiguousarray(ends)
        count = len(starts)
        self.bounds: npt.NDArray[np.int32] = np.zeros(count + 1, np.int32)
        columns = [np.empty(0, np.int64) for _ in range(3)]
        done = 0
        while done < count:
            more = np.empty(PAIRS_PER_ROW * count, np.int64)
            columns = [np.concatenate((column, more)) for column in columns]
            places = [column.data for column in columns]
            rows = self._starts.data, self._ends.data
            done = split_properties(octets.data, *rows, done, self.bounds.data, *places)
        pairs = int(self.bounds[-1])
        self._name_starts, self._name_ends, self._value_ends = (c[:pairs] for c in columns)

    def map(self) -> pa.MapArray:
        """The properties of each row."""
        names = slices(self._octets, self._name_starts, self._name_ends)
        values = slices(self._octets, self._name_ends + 1, self._value_ends)
        try:
            items = checked_text(names), checked_text(values)
        except pa.ArrowInvalid:
            return self._decoded()
        return pa.MapArray.from_arrays(pa.array(self.bounds), *items)

    def values_of(self, name: str) -> pa.StringArray:
        """The property ``name``, which is ASCII, of each row; null where it is not."""
        found = np.empty(len(self.bounds) - 1, np.int64)
        columns = self.bounds.data, self._name_starts.data, self._name_ends.data
        count = find_property(self._octets.data, *columns, memoryview(name.encode()), found.data)
        if not count:
            return pa.nulls(len(found), pa.string())
        is_there = found >= 0
        starts, ends = self._name_ends[found] + 1, self._value_ends[found]
        if count == len(found):
            return as_text(slices(self._octets, starts, ends))
        starts[~is_there] = ends[~is_there] = 0
        return as_text(slices(self._octets, starts, ends, is_there=is_there))

    def _decoded(self) -> pa.MapArray:
        """Row by row, where something is not UTF-8: two names may be the same as texts."""
        rows = [
            decode_properties(self._octets[start:end].tobytes())
            for start, end in zip(self._starts.tolist(), self._ends.tolist(), strict=True)
        ]
        names = pa.array([name for row in rows for name in row], pa.string())
        values = pa.array([value for row in rows for value in row.values()], pa.string())
        bounds = np.cumsum([0, *map(len, rows)]).astype(np.int32)
        return pa.MapArray.from_arrays(pa.array(bounds), names, values)
