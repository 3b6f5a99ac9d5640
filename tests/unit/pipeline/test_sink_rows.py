"""Columns of a sink as properties and queues of messages, as a producer would have made them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.client.sending.outgoing import properties_bytes
from ledgermq.client.sending.record_encoder import Column, RowColumns
from ledgermq.formats.java_hash import java_hash
from ledgermq.formats.records.properties import decode_properties
from ledgermq.model.errors import MessageIllegalError
from ledgermq.pipeline.sink.spark_sink import RowStager, encoded_properties

QUEUES = 4
MAP = pa.map_(pa.string(), pa.string())
TEXTS = st.text(
    st.characters(exclude_characters="\x01\x02 ", codec="utf-8"), min_size=1, max_size=6
)
NAMES = TEXTS.filter(lambda name: name not in ("TAGS", "KEYS", "UNIQ_KEY"))


class Written:
    """What a ``StageWriter`` is given."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, int, list[bytes], list[int] | None]] = []

    def add_rows(self, topic: str, queue_id: int, rows: RowColumns) -> None:
        bodies, properties = values(rows.bodies), values(rows.properties)
        assert len(bodies) == len(properties) == len(rows.drawn)
        assert set(rows.drawn) == {1}
        assert all(one.endswith(b"UNIQ_KEY\x01") for one in properties)
        self.runs.append((topic, queue_id, bodies, rows.flags.tolist() or None))


def values(column: Column) -> list[bytes]:
    return [bytes(column.data[first:end]) for first, end in pairwise(column.bounds)]


def stager(written: Written, topic: str = "t", first_queue: int = 0) -> RowStager:
    return RowStager(written, lambda _: QUEUES, topic, first_queue)


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def bodies(count: int) -> pa.Array:
    return pa.array([b"%d" % number for number in range(count)])


@given(
    st.lists(
        st.tuples(
            st.none() | TEXTS,
            st.none() | st.lists(TEXTS, max_size=3),
            st.none() | st.dictionaries(NAMES, TEXTS, max_size=3),
        ),
        min_size=1,
        max_size=8,
    ),
    st.booleans(),
    st.integers(0, 3),
)
def test_properties_are_those_of_a_producer(
    rows: list[tuple[Any, Any, Any]], are_keys_texts: bool, skipped: int
) -> None:
    tags = pa.array([tag for tag, _, _ in rows], pa.string())
    keys = pa.array([own for _, own, _ in rows], pa.list_(pa.string()))
    if are_keys_texts:
        texts = [" ".join(own) if own else None for _, own, _ in rows]
        keys = pa.array(texts, pa.string())
    own = [None if own is None else list(own.items()) for _, _, own in rows]
    columns = {"tags": tags, "keys": keys, "properties": pa.array(own, MAP)}
    columns = {name: column[skipped:] for name, column in columns.items()}
    wanted = [properties_bytes(tag, own or (), more) for tag, own, more in rows[skipped:]]

    found = encoded_properties(columns, len(wanted)).to_pylist() if wanted else []

    assert [decode_properties(one + b"0") for one in found] == [
        decode_properties(one + b"0") for one in wanted
    ]


@pytest.mark.parametrize(
    "columns",
    [
        {"tags": pa.array([""])},
        {"tags": pa.array(["a\x02b"])},
        {"keys": pa.array(["a\x01b"])},
        {"keys": pa.array([["a", ""]])},
        {"properties": pa.array([[("", "1")]], MAP)},
        {"properties": pa.array([[("a", "")]], MAP)},
        {"properties": pa.array([[("a", "b\x01")]], MAP)},
        {"properties": pa.array([[("a\x02", "b")]], MAP)},
        {"properties": pa.array([[("a", None)]], MAP)},
        {"properties": pa.array([[("TAGS", "b")]], MAP)},
        {"properties": pa.array([[("UNIQ_KEY", "b")]], MAP)},
    ],
)
def test_what_properties_cannot_hold_is_refused(columns: dict[str, pa.Array]) -> None:
    with pytest.raises(MessageIllegalError) as caught:
        encoded_properties(columns, 1)

    assert caught.value.details["column"] == next(iter(columns))


def test_rows_go_to_the_queue_that_they_name_or_their_key_does() -> None:
    written = Written()
    keys = ["a", None, "b", "a", None, "ü"]
    rows = batch(
        body=bodies(6),
        queueId=pa.array([3, 1, None, None, None, None], pa.int32()),
        queueKey=pa.array(keys),
    )
    stager(written, first_queue=2).add(rows)
    found = {body: queue for _, queue, of_run, _ in written.runs for body in of_run}
    hashed = [abs(java_hash(key)) % QUEUES if key else 2 for key in keys]

    assert found == {b"%d" % row: [3, 1, *hashed[2:]][row] for row in range(6)}
    assert all(of_run == sorted(of_run) for _, _, of_run, _ in written.runs)


def test_rows_without_a_queue_take_turns_by_batches() -> None:
    written = Written()
    made = stager(written, first_queue=3)
    for _ in range(3):
        made.add(batch(body=bodies(2)))
    made.add(batch(body=bodies(0)))

    assert [queue for _, queue, _, _ in written.runs] == [3, 0, 1]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_rows_of_a_part_of_a_batch_are_those_of_that_part(kind: pa.DataType) -> None:
    written = Written()
    rows = batch(body=pa.array([f"body {number}" for number in range(9)]).cast(kind))
    stager(written).add(rows[3:7])
    stager(written).add(batch(body=pa.array([""]).cast(kind)))

    assert [of_run for _, _, of_run, _ in written.runs] == [
        [b"body 3", b"body 4", b"body 5", b"body 6"],
        [b""],
    ]


def test_rows_go_to_their_topics_with_their_flags() -> None:
    written = Written()
    rows = batch(
        body=pa.array(["0", "1", "2"]),
        topic=pa.array(["a", None, "a"]),
        flag=pa.array([1, None, -1], pa.int32()),
    )
    stager(written, "other").add(rows)

    assert [(topic, of_run, flags) for topic, _, of_run, flags in written.runs] == [
        ("a", [b"0", b"2"], [1, -1]),
        ("other", [b"1"], [0]),
    ]


@pytest.mark.parametrize(
    "columns",
    [
        {"body": pa.array([b"0", None])},
        {"body": bodies(1), "queueId": pa.array([QUEUES], pa.int32())},
        {"body": bodies(1), "queueId": pa.array([-1], pa.int32())},
        {"body": bodies(1), "topic": pa.array([None], pa.string())},
    ],
)
def test_a_row_that_has_no_place_is_refused(columns: dict[str, pa.Array]) -> None:
    with pytest.raises(MessageIllegalError):
        stager(Written(), "").add(batch(**columns))
