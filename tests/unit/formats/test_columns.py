"""The kernel of columns, compiled and plain, against the scalar codecs."""

from __future__ import annotations

from itertools import pairwise
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats import kernel
from ledgermq.formats.properties import decode_properties

KERNELS = [kernel, kernel.load_plain("ledgermq.formats._columns")]
PIECES = st.sampled_from([b"\x01", b"\x02", b"a", b"TAGS", b"KEYS", b"value", b" "])
ROWS = st.lists(st.lists(PIECES, max_size=20).map(b"".join), max_size=5)


def edges(rows: list[bytes]) -> tuple[memoryview, np.ndarray, np.ndarray]:
    """Rows one behind the other, and where each begins and ends."""
    ends = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return memoryview(b"".join(rows) + b"\0"), ends[:-1].copy(), ends[1:].copy()


@pytest.mark.parametrize("columns", KERNELS)
@given(rows=st.lists(st.binary(max_size=300), max_size=9), skipped=st.integers(0, 3))
def test_slices_stand_one_behind_the_other(
    columns: ModuleType, rows: list[bytes], skipped: int
) -> None:
    span, starts, ends = edges(rows)
    starts = np.minimum(starts + skipped, ends)
    expected = [row[skipped:] for row in rows]
    bounds = np.empty(len(rows) + 1, np.int32)
    out = np.zeros(sum(map(len, expected)) + 1, np.uint8)
    columns.join_slices(span, starts.data, ends.data, bounds.data, out.data)

    assert out.tobytes()[:-1] == b"".join(expected)
    assert bounds.tolist() == [0, *np.cumsum([len(one) for one in expected], dtype=int)]


@pytest.mark.parametrize("columns", KERNELS)
@pytest.mark.parametrize("room", [1, 3, 100])
@given(rows=ROWS)
def test_pairs_are_those_that_rocketmq_reads(
    columns: ModuleType, room: int, rows: list[bytes]
) -> None:
    span, starts, ends = edges(rows)
    bounds = np.zeros(len(rows) + 1, np.int32)
    places = [np.empty(0, np.int64) for _ in range(3)]
    done = 0
    while done < len(rows):
        # It goes on with the row for which there was no room.
        places = [np.concatenate((one, np.empty(room, np.int64))) for one in places]
        done = columns.split_properties(
            span, starts.data, ends.data, done, bounds.data, *(one.data for one in places)
        )
    names = [bytes(span[a:b]).decode() for a, b in zip(*places[:2], strict=True)]
    values = [bytes(span[a + 1 : b]).decode() for a, b in zip(*places[1:], strict=True)]
    expected = [decode_properties(row) for row in rows]
    pairs = list(zip(names, values, strict=True))
    found = [pairs[a:b] for a, b in pairwise(bounds.tolist())]

    assert [dict(row) for row in found] == expected
    assert [len(row) for row in found] == [len(row) for row in expected]
    for name in ("TAGS", "a"):
        numbers = np.empty(len(rows), np.int64)
        count = columns.find_property(
            span, bounds.data, places[0].data, places[1].data, name.encode(), numbers.data
        )
        said = [values[number] if number >= 0 else None for number in numbers.tolist()]

        assert said == [row.get(name) for row in expected]
        assert count == sum(name in row for row in expected)
