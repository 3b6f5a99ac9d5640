"""The kernel of pulls, compiled and plain: what is chosen, and the records as one piece."""

from __future__ import annotations

from array import array
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.arrays import UNIT
from ledgermq.formats.kernels import kernel
from ledgermq.formats.records.message import MAGIC_V2, Message, encode_message
from ledgermq.model.ids import Index, Position, Term
from ledgermq.store.queues.queue_end import PREFILL_SIZE
from tests.plain_codecs import encode_entry

PULLS = [kernel, kernel.load_plain("ledgermq.formats.kernels._pulls")]
BASE = 1 << 40
HEADER = 48

UNITS = st.lists(
    st.tuples(
        st.integers(0, 2**40),
        st.sampled_from([100, 300, 5_000, PREFILL_SIZE]),
        st.sampled_from([0, 7, -7, 2**31 - 1, -(2**31), 2**32 + 7, -(2**31) - 1, 2**62]),
    ),
    min_size=1,
    max_size=30,
)


def chosen(module: ModuleType, units: np.ndarray, **given: object) -> tuple[object, ...]:
    """What ``choose_units`` says, and what it has chosen."""
    hashes, told = given["hashes"], given["told"]
    assert isinstance(hashes, list) and isinstance(told, bytes)
    columns = np.full((2, len(units)), -1, np.int64)
    result = module.choose_units(
        units.view(np.uint8).data,
        memoryview(array("i", sorted(hashes))),
        memoryview(told),
        given["first"],
        given["disk_below"],
        *given["limits"],  # type: ignore[misc]
        columns[0].data,
        columns[1].data,
    )
    return result, columns.tolist()


@given(
    rows=UNITS,
    hashes=st.lists(st.sampled_from([0, 7, -7, -(2**31), 5]), max_size=4, unique=True),
    told=st.binary(min_size=30, max_size=30) | st.just(b""),
    first=st.integers(0, 2**40),
    disk_below=st.integers(0, 2**40),
    limits=st.tuples(
        st.integers(0, 9_000), st.integers(1, 9), st.integers(0, 9_000), st.integers(1, 9)
    ),
)
def test_compiled_and_plain_choose_the_same(
    *,
    rows: list[tuple[int, int, int]],
    hashes: list[int],
    told: bytes,
    first: int,
    disk_below: int,
    limits: tuple[int, int, int, int],
) -> None:
    units = np.array(sorted(rows), UNIT)
    asked = {
        "hashes": hashes,
        "told": bytes(octet % 2 for octet in told[: len(rows)]),
        "first": first,
        "disk_below": disk_below,
        "limits": limits,
    }

    compiled, plain = (chosen(module, units, **asked) for module in PULLS)

    assert compiled == plain


@pytest.mark.parametrize("module", PULLS)
def test_what_is_told_not_to_fulfil_is_passed_over(module: ModuleType) -> None:
    units = np.array([(100 * row, 100, 0) for row in range(4)], UNIT)

    result, columns = chosen(
        module, units, hashes=[], told=bytes((1, 0, 1, 1)), first=0, disk_below=0,
        limits=(250, 9, 1, 1),
    )  # fmt: skip

    assert (result, columns) == ((2, 200, 3, 200, 300), [[0, 200, -1, -1], [100, 100, -1, -1]])


@pytest.mark.parametrize("module", PULLS)
@given(st.data())
def test_records_are_joined_in_their_order(module: ModuleType, data: st.DataObject) -> None:
    span = data.draw(st.binary(max_size=200))
    places = data.draw(
        st.lists(st.tuples(st.integers(0, len(span)), st.integers(0, len(span))).map(sorted))
    )
    starts = np.array([start for start, _ in places], np.uint32)
    sizes = np.array([end - start for start, end in places], np.uint32)

    joined = module.join_records(memoryview(span), starts.data, sizes.data)

    assert bytes(joined) == b"".join(span[start:end] for start, end in places)


def written(count: int) -> tuple[bytearray, np.ndarray, np.ndarray]:
    """Entries with their headers, and where their records lie."""
    span = bytearray()
    positions, sizes = [], []
    for number in range(count):
        position = BASE + len(span)
        record = encode_message(
            Message(
                topic="orders",
                queue_id=1,
                queue_offset=number,
                physical_offset=position + HEADER,
                body=bytes([number]) * 300,
            )
        )
        entry = encode_entry(
            record,
            index=Index(number),
            term=Term(1),
            position=Position(position),
            previous_chain_crc=0,
        )
        positions.append(position + HEADER)
        sizes.append(len(record))
        span += entry
    return span, np.array(positions, np.int64), np.array(sizes, np.int64)


@pytest.mark.parametrize("module", PULLS)
def test_a_record_is_the_one_that_its_unit_has(module: ModuleType) -> None:
    span, positions, sizes = written(3)

    def matching(span: bytearray, at: np.ndarray = positions, size: np.ndarray = sizes) -> int:
        starts = np.zeros(len(at), np.int64)
        count: int = module.match_heads(
            memoryview(span), at.data, size.data, BASE, HEADER, starts.data
        )
        assert (starts[:count] + BASE).tolist() == at[:count].tolist()
        return count

    assert matching(span) == 3
    of_version_2 = bytearray(span)
    of_version_2[int(positions[1]) - BASE + 7] = MAGIC_V2 & 0xFF
    assert matching(of_version_2) == 3
    for at in (0, 3, 4, 7, 28, 35):
        changed = bytearray(span)
        changed[int(positions[1]) - BASE + at] ^= 1
        assert matching(changed) == 1, at
    assert matching(span[:-1]) == 2
    assert matching(span, positions + np.array([0, 0, 1])) == 2
    assert matching(span, size=sizes + np.array([0, 2**40, 0])) == 1
    assert matching(span, size=sizes * np.array([1, -1, 1])) == 1
    assert matching(span, size=sizes * np.array([0, 1, 1])) == 0
    assert matching(span, positions - HEADER) == 0
    assert matching(span, positions - 2**50) == 0
