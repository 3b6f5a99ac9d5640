"""Properties of many messages as Arrow maps, by the rules of ``properties.decode_properties``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ledgermq.formats.properties import decode_properties

_MAP = pa.map_(pa.string(), pa.string())
_NAMES_COUNTED = 64


class PropertyColumns:
    """What ``encoded`` holds, one row a message.

    Invariant: ``offsets`` has one item more than there are rows, and delimits the names and values
    of each; no name comes twice in a row.
    """

    def __init__(self, encoded: pa.BinaryArray) -> None:
        """Parse all rows; never fails, as in Java."""
        try:
            texts = encoded.cast(pa.string())
        except pa.ArrowInvalid:
            self._take_rows(encoded)
            return
        rows = pc.split_pattern(texts, "\x02")
        parts = pc.split_pattern(rows.flatten(), "\x01", max_splits=1)
        offsets = rows.offsets.to_numpy().astype(np.int32)
        bounds = parts.offsets.to_numpy()
        pieces = parts.flatten()
        starts = bounds[:-1]
        lengths = pc.binary_length(pieces).to_numpy(zero_copy_only=False)
        is_pair = np.diff(bounds) == 2
        if not is_pair.all() or not lengths.all():
            # Neither a name without a value nor a value without a name is a property.
            is_good = is_pair.copy()
            pairs = starts[is_pair]
            is_good[is_pair] = (lengths[pairs] > 0) & (lengths[pairs + 1] > 0)
            starts = starts[is_good]
            offsets = np.concatenate(([0], np.cumsum(is_good))).astype(np.int32)[offsets]
        names = pieces.take(pa.array(starts.astype(np.int32))).dictionary_encode()
        self._names = names.dictionary.to_pylist()
        self._ids: npt.NDArray[np.int32] = names.indices.to_numpy()
        self._name_array = names
        self._values = pieces.take(pa.array((starts + 1).astype(np.int32)))
        self.offsets = offsets
        self._drop_repeated()

    def map(self) -> pa.MapArray:
        """The properties of each row."""
        names = self._name_array.dictionary_decode()
        return pa.MapArray.from_arrays(pa.array(self.offsets), names, self._values)

    def values_of(self, name: str) -> pa.StringArray:
        """The property ``name`` of each row; null where it is not."""
        count = len(self.offsets) - 1
        if name not in self._names:
            return pa.nulls(count, pa.string())
        found = np.flatnonzero(self._ids == self._names.index(name)).astype(np.int32)
        if len(found) == count:
            # Each row has it at most once, so that each has it.
            return self._values.take(pa.array(found))
        places = np.zeros(count, np.int32)
        is_null = np.ones(count, np.bool_)
        rows = self._rows()[found]
        places[rows] = found
        is_null[rows] = False
        return self._values.take(pa.array(places, mask=is_null))

    def _rows(self) -> npt.NDArray[np.int64]:
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def _drop_repeated(self) -> None:
        """Of a name that comes twice in a row the last one counts."""
        kinds = len(self._names)
        keys = self._rows() * max(kinds, 1) + self._ids
        if kinds <= _NAMES_COUNTED:
            is_repeated = bool(len(keys)) and int(np.bincount(keys).max()) > 1
        else:
            is_repeated = len(np.unique(keys)) < len(keys)
        if not is_repeated:
            return
        _, from_end = np.unique(keys[::-1], return_index=True)
        kept = np.sort(len(keys) - 1 - from_end)
        is_kept = np.zeros(len(keys), np.bool_)
        is_kept[kept] = True
        self.offsets = np.concatenate(([0], np.cumsum(is_kept))).astype(np.int32)[self.offsets]
        taken = pa.array(kept.astype(np.int32))
        self._ids = self._ids[kept]
        self._name_array = self._name_array.take(taken)
        self._values = self._values.take(taken)

    def _take_rows(self, encoded: pa.BinaryArray) -> None:
        """Row by row, where something is not UTF-8."""
        rows = [decode_properties(value) for value in encoded.to_pylist()]
        names = [name for row in rows for name in row]
        self._name_array = pa.array(names, pa.string()).dictionary_encode()
        self._names = self._name_array.dictionary.to_pylist()
        self._ids = self._name_array.indices.to_numpy()
        values = [value for row in rows for value in row.values()]
        self._values = pa.array(values, pa.string())
        self.offsets = np.cumsum([0, *map(len, rows)]).astype(np.int32)
