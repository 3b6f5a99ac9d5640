"""Slices of the log's bytes as Arrow columns: each byte is copied once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ledgermq.formats.kernel import join_slices

Integers = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]


def slices(
    octets: Octets,
    starts: Integers,
    ends: Integers,
    *,
    is_there: npt.NDArray[np.bool_] | None = None,
) -> pa.BinaryArray:
    """A copy of the slices ``[starts, ends)``, none of which ends before it begins.

    Args:
        is_there: false for those that are null; they have no bytes.
    """
    count = len(starts)
    # Arrow's pool gives memory that was used before; fresh pages cost as much as the copy.
    out = pa.allocate_buffer(int((ends - starts).sum()) + 1)
    bounds = pa.allocate_buffer(4 * (count + 1))
    join_slices(
        octets.data,
        np.ascontiguousarray(starts).data,
        np.ascontiguousarray(ends).data,
        np.frombuffer(bounds, np.int32).data,
        np.frombuffer(out, np.uint8).data,
    )
    valid = None if is_there is None else pa.array(is_there).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), count, [valid, bounds, out])


def as_text(values: pa.BinaryArray) -> pa.StringArray:
    """The same as texts; what is not UTF-8 has U+FFFD in it."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [
            None if value is None else value.decode(errors="replace")
            for value in values.to_pylist()
        ]
        return pa.array(texts, pa.string())
