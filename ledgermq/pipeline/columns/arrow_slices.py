"""Arrow columns from slices of the log's bytes: each byte is copied once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ledgermq.formats.kernels.kernel import join_slices

Integers = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]
_NOT_ASCII = 128
_ROWS_AT_ONCE = 256


def slices(
    octets: Octets,
    starts: Integers,
    ends: Integers,
    *,
    is_there: npt.NDArray[np.bool_] | None = None,
    before: Callable[[int, int], None] | None = None,
) -> pa.BinaryArray:
    """A copy of the slices ``[starts, ends)``, none of which ends before it begins.

    Args:
        is_there: false for those that are null; they have no bytes.
        before: called with the rows, half-open, that are copied next, to look at them while the
            processor's cache has them.
    """
    count = len(starts)
    starts, ends = np.ascontiguousarray(starts), np.ascontiguousarray(ends)
    # Arrow's pool gives memory that was used before; fresh pages cost as much as the copy.
    out = pa.allocate_buffer(int((ends - starts).sum()) + 1)
    bounds = pa.allocate_buffer(4 * (count + 1))
    out_octets, places = np.frombuffer(out, np.uint8), np.frombuffer(bounds, np.int32)
    places[0] = 0
    step = _ROWS_AT_ONCE if before is not None else max(1, count)
    for first in range(0, count, step):
        end = min(first + step, count)
        if before is not None:
            before(first, end)
        join_slices(octets.data, starts.data, ends.data, first, end, places.data, out_octets.data)
    out_octets[-1] = 0
    valid = None if is_there is None else pa.array(is_there).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), count, [valid, bounds, out])


def as_text(values: pa.BinaryArray) -> pa.StringArray:
    """The same as texts; what is not UTF-8 has U+FFFD in it."""
    try:
        return checked_text(values)
    except pa.ArrowInvalid:
        texts = [
            None if value is None else value.decode(errors="replace")
            for value in values.to_pylist()
        ]
        return pa.array(texts, pa.string())


def checked_text(values: pa.BinaryArray) -> pa.StringArray:
    """The same as texts, for slices as ``slices`` makes them.

    Raises:
        ArrowInvalid: something is not UTF-8.
    """
    valid, bounds, data = values.buffers()
    octets = np.frombuffer(data, np.uint8)
    # Arrow looks at each value by itself; most logs have nothing but ASCII in their texts.
    if int(octets.max(initial=0)) >= _NOT_ASCII:
        return values.cast(pa.string())
    return pa.Array.from_buffers(pa.string(), len(values), [valid, bounds, data])
