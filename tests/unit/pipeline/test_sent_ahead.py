"""A batch is with the reader before the next one is made, however the writer buffers."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pytest

from ledgermq.pipeline.batch_reader import sent_ahead

ROWS = 4_096
BUFFER_SIZE = 65_536

Way = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Wire(io.RawIOBase):
    """What has left the buffer of the writing side."""

    def __init__(self) -> None:
        super().__init__()
        self.octets = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, octets: object) -> int:
        self.octets += (taken := memoryview(octets).cast("B"))  # type: ignore[arg-type]
        return len(taken)

    def rows(self) -> int:
        """Of the batches that the reading side has whole."""
        if not self.octets:
            return 0
        found = 0
        reader = pa.ipc.open_stream(pa.BufferReader(bytes(self.octets)))
        while True:
            try:
                found += reader.read_next_batch().num_rows
            except (StopIteration, pa.ArrowInvalid, OSError):
                return found


def batch_of(rows: int, body_size: int) -> pa.RecordBatch:
    """Bodies, and behind them columns that are small beside the buffer."""
    numbers = range(rows)
    bodies = [number.to_bytes(8, "big") * (body_size // 8) for number in numbers]
    properties = [[(f"name{number}", "value")] for number in numbers]
    arrays = [
        pa.array(bodies, pa.binary()),
        pa.array(properties, pa.map_(pa.string(), pa.string())),
        pa.array(numbers, pa.int64()),
        pa.array([number % 3 == 0 for number in numbers], pa.bool_()),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=["body", "properties", "number", "even"])


def rows_there(way: Way) -> int:
    """Rows of the first batch that are there when the second one is asked for."""
    wire = Wire()
    batch = batch_of(ROWS, 1_024)
    seen: list[int] = []

    def made() -> Iterator[pa.RecordBatch]:
        yield batch
        seen.append(wire.rows())

    with io.BufferedWriter(wire, BUFFER_SIZE) as out:
        writer = pa.RecordBatchStreamWriter(out, batch.schema)
        for part in way(made()):
            writer.write_batch(part)
        writer.close()
    assert wire.rows() == ROWS
    return seen[0]


def test_the_reader_has_most_of_a_batch_before_the_next_one_is_made() -> None:
    assert rows_there(iter) == 0

    assert rows_there(sent_ahead) > ROWS * 0.9


@pytest.mark.parametrize("body_size", [0, 8, 1_024])
def test_rows_stay_as_they_are(body_size: int) -> None:
    batches = [batch_of(rows, body_size) for rows in (1, 3_001, 7)]

    sent = list(sent_ahead(batches))

    assert pa.Table.from_batches(sent).equals(pa.Table.from_batches(batches))
    assert all(part.num_rows for part in sent)


def test_a_single_row_is_never_divided() -> None:
    batch = batch_of(3, 4 << 20)

    assert [len(part) for part in sent_ahead([batch])] == [2, 1]
    assert [len(part) for part in sent_ahead([batch.slice(0, 1)])] == [1]
