"""The kernel of de-duplication, compiled and plain, against dictionaries and the scalar codecs."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.kernels import kernel
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.formats.records.properties import encode_properties
from tests.plain_codecs import as_version_2

PLAIN = kernel.load_plain("ledgermq.formats.kernels._ids")
KERNELS = [kernel, PLAIN]
DELAY_TOPIC = b"SCHEDULE_TOPIC_XXXX"

I64 = npt.NDArray[np.int64]


@pytest.fixture(params=KERNELS, ids=["loaded", "plain"])
def ids(request: pytest.FixtureRequest) -> ModuleType:
    """The kernel that was loaded (compiled, where it is built), and the plain one."""
    kernel_: ModuleType = request.param
    return kernel_


def topic_hash(ids: ModuleType, topic: bytes) -> int:
    value: int = ids.text_hash(memoryview(topic), 0, len(topic))
    return value


def message(topic: str, body: bytes, **properties: str) -> Message:
    return Message(
        topic=topic, queue_id=1, body=body, properties=encode_properties(properties),
        born_timestamp=1_600_000_000_000, born_host=("10.0.0.1", 1_234),
    )  # fmt: skip


def made(topic: str, body: bytes = b"body", **properties: str) -> bytes:
    return encode_message(message(topic, body, **properties))


class Scanned:
    """Columns of some records, 7 bytes between them."""

    def __init__(self, ids: ModuleType, records: list[bytes]) -> None:
        self.span = memoryview(b"".join(b"between" + record for record in records))
        sizes = np.array([len(record) for record in records])
        self.ends: I64 = np.cumsum(sizes + 7).astype(np.int64)
        self.starts: I64 = (self.ends - sizes).astype(np.int64)
        self.columns = [np.full(len(records), -1, np.int64) for _ in range(6)]
        waiting = np.array([topic_hash(ids, DELAY_TOPIC)], np.int64)
        ids.scan_ids(
            self.span, self.starts.data, self.ends.data, waiting.data,
            *(column.data for column in self.columns), np.zeros(4, np.int64).data,
        )  # fmt: skip
        self.topics, self.ids = self.columns[:2]

    def text(self, row: int, column: int) -> bytes:
        return bytes(self.span[self.columns[column][row] : self.columns[column + 1][row]])

    def places(self) -> I64:
        columns = (self.starts, self.ends, *self.columns[2:])
        return np.ascontiguousarray(np.stack(columns, axis=1)).ravel()


def test_an_id_counts_for_the_topic_that_its_message_is_for(ids: ModuleType) -> None:
    scanned = Scanned(
        ids,
        [
            made("orders", UNIQ_KEY="a"),
            made("orders", b"another body", KEYS="a b", UNIQ_KEY="a"),
            made("SCHEDULE_TOPIC_XXXX", REAL_TOPIC="orders", UNIQ_KEY="a", DELAY="3"),
            made("other", UNIQ_KEY="a"),
            # A delivered message keeps its properties: its topic is its own.
            made("other", REAL_TOPIC="orders", UNIQ_KEY="a"),
            made("orders", UNIQ_KEY="b"),
            as_version_2(made("orders", UNIQ_KEY="c"), topic=b"t" * 200),
        ],
    )
    hashes = scanned.ids.tolist()

    assert hashes[0] == hashes[1] == hashes[2] > 0
    assert hashes[3] == hashes[4] > 0
    assert len(set(hashes)) == 4
    assert scanned.topics[:3].tolist() == [topic_hash(ids, b"orders")] * 3
    assert [scanned.text(row, 2) for row in range(7)] == [
        b"a", b"a", b"a", b"a", b"a", b"b", b"c"
    ]  # fmt: skip
    assert [scanned.text(row, 4) for row in (0, 2, 4)] == [b"orders", b"orders", b"other"]
    assert scanned.text(6, 4) == b"t" * 200


def test_a_message_without_an_id_or_a_topic_has_no_hash(ids: ModuleType) -> None:
    scanned = Scanned(
        ids,
        [
            made("orders", KEYS="a", UNIQ_KEYS="a", XUNIQ_KEY="a"),
            made("SCHEDULE_TOPIC_XXXX", UNIQ_KEY="a"),
            made("orders"),
        ],
    )

    assert scanned.ids.tolist() == [0, 0, 0]
    assert scanned.topics.tolist() == [topic_hash(ids, b"orders"), 0, topic_hash(ids, b"orders")]


def test_both_kernels_hash_alike() -> None:
    records = [made(f"topic-{row}", UNIQ_KEY=f"id-{row}" * (1 + row % 5)) for row in range(40)]
    loaded, plain = (Scanned(one, records) for one in KERNELS)

    for mine, other in zip(loaded.columns, plain.columns, strict=True):
        assert mine.tolist() == other.tolist()


@given(st.lists(st.tuples(st.sampled_from([0, 1, 5, 9, 17, 2**62 + 1]), st.integers(0, 99))))
@pytest.mark.parametrize("ids", KERNELS, ids=["loaded", "plain"])
def test_a_table_has_the_last_position_of_each_hash(
    ids: ModuleType, rows: list[tuple[int, int]]
) -> None:
    table, places = np.zeros(8, np.int64), np.zeros(8, np.int64)
    model: dict[int, int] = {}
    fresh = 0
    for hash_, position in rows:
        one = np.array([hash_], np.int64), np.array([position], np.int64)
        fresh += ids.put_ids(table.data, places.data, one[0].data, one[1].data)
        if hash_:
            model[hash_] = position
    wanted = np.array([0, 1, 5, 9, 17, 2**62 + 1, 33], np.int64)
    found = np.full(len(wanted), -1, np.int64)
    ids.find_ids(table.data, places.data, wanted.data, found.data)

    assert found.tolist() == [model.get(hash_, -1) for hash_ in wanted.tolist()]
    assert fresh == len(model)


def test_what_is_found_already_is_not_looked_for(ids: ModuleType) -> None:
    table, places = np.zeros(4, np.int64), np.zeros(4, np.int64)
    one = np.array([7], np.int64)
    ids.put_ids(table.data, places.data, one.data, one.data)
    found = np.array([3], np.int64)
    ids.find_ids(table.data, places.data, one.data, found.data)

    assert found.tolist() == [3]


def test_the_same_record_is_told_from_another_of_its_id(ids: ModuleType) -> None:
    def record(**changes: object) -> Message:
        return replace(message("orders", b"body", UNIQ_KEY="a"), **changes)  # type: ignore[arg-type]

    sent = [record()] * 7
    kept = [
        record(queue_offset=17, physical_offset=4_096, store_timestamp=99),
        record(born_timestamp=5),
        record(body=b"other"),
        record(queue_id=3),
        record(flag=2),
        record(properties=encode_properties({"UNIQ_KEY": "b"})),
        record(topic="other"),
    ]
    mine = Scanned(ids, [encode_message(one) for one in sent])
    theirs = Scanned(ids, [encode_message(one) for one in kept])
    told = [np.full(len(sent), -1, np.int64) for _ in range(4)]
    ids.compare_ids(
        mine.span, mine.places().data, theirs.span, theirs.places().data,
        *(column.data for column in told),
    )  # fmt: skip
    queue_ids, offsets, times, sameness = (column.tolist() for column in told)

    assert sameness == [2, 1, 1, 1, 1, 0, 0]
    assert (queue_ids[3], offsets[0], times[0]) == (3, 17, 99)
