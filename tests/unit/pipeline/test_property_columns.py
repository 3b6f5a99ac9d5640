"""Properties of many rows are those that each row alone would have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.records.properties import decode_properties
from ledgermq.pipeline.columns.record_columns import PropertyColumns

PIECES = st.sampled_from([b"\x01", b"\x02", b"a", b"TAGS", b"KEYS", b"\xff", "ß".encode(), b" "])
ROWS = st.lists(st.lists(PIECES, max_size=12).map(b"".join), max_size=6)


def check(rows: list[bytes]) -> None:
    ends = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    octets = np.frombuffer(b"".join(rows), np.uint8)
    columns = PropertyColumns(octets, ends[:-1], ends[1:])
    expected = [decode_properties(row) for row in rows]
    found = columns.map().to_pylist()

    assert [dict(row) for row in found] == expected
    assert [len(row) for row in found] == [len(row) for row in expected]
    for name in ("TAGS", "KEYS", "a"):
        assert columns.values_of(name).to_pylist() == [row.get(name) for row in expected]


@given(ROWS)
def test_any_bytes_are_read_as_rocketmq_reads_them(rows: list[bytes]) -> None:
    check(rows)


@pytest.mark.parametrize(
    "row",
    [
        b"",
        b"TAGS\x01a",
        b"TAGS\x01a\x02",
        b"TAGS\x01a\x02TAGS\x01b",
        b"\x01a\x02TAGS\x01b",
        b"TAGS\x01\x02KEYS\x01k",
        b"KEYS\x01a\x01b",
        b"alone\x02KEYS\x01k",
        b"KEYS\x01\xff",
    ],
)
def test_a_row_beside_good_ones(row: bytes) -> None:
    check([b"TAGS\x01x\x02KEYS\x01y", row, b"KEYS\x01z"])


def test_many_names_are_looked_through_for_repeated_ones() -> None:
    row = b"\x02".join(b"name%d\x01%d" % (number, number) for number in range(100))

    check([row, row + b"\x02name7\x01again"])
