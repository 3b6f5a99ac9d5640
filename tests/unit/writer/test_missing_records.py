"""Parts of frames: what of a frame is stored, and how the answer is numbered."""

from __future__ import annotations

from array import array
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.store.log.log_writer import Span
from ledgermq.wire.send_frame import Duplicate, SendFrame, SendRun
from ledgermq.writer.duplicates.missing_records import _numbered, _part, _pieces, _with_twins


def frame_of(sizes: list[int], runs: list[int]) -> tuple[SendFrame, bytes]:
    """Records whose bytes are their number, in runs of so many records."""
    payload = b"".join(bytes([number]) * size for number, size in enumerate(sizes))
    made = [SendRun(count, queue, b"topic-%d" % queue) for queue, count in enumerate(runs)]
    nothing = memoryview(b"")
    view = memoryview(array("I", sizes))
    return SendFrame(7, False, False, view, made, len(payload), 0, 48, 8, nothing), payload


@st.composite
def frames_and_rows(draw: st.DrawFn) -> tuple[SendFrame, bytes, list[int]]:
    runs = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    sizes = draw(st.lists(st.integers(1, 9), min_size=sum(runs), max_size=sum(runs)))
    rows = draw(st.sets(st.integers(0, sum(runs) - 1)))
    return *frame_of(sizes, runs), sorted(rows)


@given(frames_and_rows())
def test_a_part_of_a_frame_has_its_records_in_their_runs(
    given_: tuple[SendFrame, bytes, list[int]],
) -> None:
    frame, payload, rows = given_
    part, kept = _part(frame, payload, np.array(rows, np.int64))
    queues = [run.queue_id for run in frame.runs for _ in range(run.records)]

    assert kept == b"".join(bytes([row]) * frame.sizes[row] for row in rows)
    assert part.sizes.tolist() == [frame.sizes[row] for row in rows]
    assert [run.queue_id for run in part.runs for _ in range(run.records)] == [
        queues[row] for row in rows
    ]
    assert part.payload_size == len(kept)
    assert all(run.records for run in part.runs)


@given(st.sets(st.integers(0, 30)))
def test_pieces_have_no_gap(rows: set[int]) -> None:
    pieces = _pieces(np.array(sorted(rows), np.int64))

    assert [row for first, last in pieces for row in range(first, last + 1)] == sorted(rows)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(pieces))


def test_spans_over_a_part_are_told_by_the_numbers_of_the_whole() -> None:
    rest, _ = frame_of([10, 20, 30, 40, 50], [5])
    rows = np.array([1, 2, 5, 6, 9], np.int64)

    # Two files: the first three records in one, the others in the next.
    assert _numbered([Span(0, 3, 1_000, 70), Span(3, 2, 5_000, 73)], rows, rest) == [
        Span(1, 2, 1_000, 70),
        Span(5, 1, 1_030, 72),
        Span(6, 1, 5_000, 73),
        Span(9, 1, 5_040, 74),
    ]


def test_a_twin_has_the_place_of_the_record_that_was_stored() -> None:
    frame, _ = frame_of([10, 20, 30, 40], [2, 2])
    spans, duplicates = _with_twins([Span(0, 2, 500, 7), Span(3, 1, 900, 1)], {2: 1}, frame, 99)

    assert spans == [Span(0, 2, 500, 7), Span(2, 1, 510, 8), Span(3, 1, 900, 1)]
    assert duplicates == [Duplicate(2, 0, 99, b"topic-0")]


def test_without_twins_nothing_changes() -> None:
    frame, _ = frame_of([10], [1])
    spans = [Span(0, 1, 500, 7)]

    assert _with_twins(spans, {}, frame, 99) == (spans, [])
