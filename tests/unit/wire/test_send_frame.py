"""SEND and SENT: round trips, and nothing but ProtocolError for any other bytes."""

from __future__ import annotations

import contextlib
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.model.errors import ProtocolError
from ledgermq.model.limits import FRAME_RECORDS_MAX, FRAME_SIZE_MAX
from ledgermq.wire.header import Kind, decode_header, encode_header
from ledgermq.wire.send_frame import (
    SEND_TABLES_AT,
    Duplicate,
    SendRun,
    SentSpan,
    decode_send,
    decode_sent,
    encode_send,
    encode_sent,
    encode_tables,
)

_U32 = st.integers(0, 2**32 - 1)
_I64 = st.integers(-(2**63), 2**63 - 1)
_RUNS = st.lists(
    st.builds(
        SendRun,
        st.integers(1, 20),
        st.integers(0, 65_535),
        st.binary(min_size=1, max_size=127),
    ),
    min_size=1,
    max_size=6,
)
_SPANS = st.lists(st.builds(SentSpan, _U32, _U32, _I64, _I64), max_size=6)


def _encoded(runs: list[SendRun], *, payload_size: int = 1_000, is_retry: bool = False) -> bytes:
    records = sum(run.records for run in runs)
    return encode_send(
        7,
        tables=encode_tables(array("I", range(100, 100 + records)).tobytes(), runs),
        records=records,
        runs=len(runs),
        topics_size=sum(len(run.topic) for run in runs),
        payload_size=payload_size,
        checksum=0xDEADBEEF,
        entry_header_size=48,
        store_host_size=8,
        is_retry=is_retry,
    )


@given(_RUNS, st.booleans())
def test_a_send_comes_back(runs: list[SendRun], is_retry: bool) -> None:
    message = _encoded(runs, is_retry=is_retry)

    frame = decode_send(message)

    assert frame.runs == runs
    assert list(frame.sizes) == list(range(100, 100 + sum(run.records for run in runs)))
    assert (frame.request_id, frame.is_retry, frame.payload_size) == (7, is_retry, 1_000)
    assert (frame.checksum, frame.entry_header_size, frame.store_host_size) == (0xDEADBEEF, 48, 8)
    assert frame.tables == message[SEND_TABLES_AT:]


@given(_RUNS)
def test_a_cut_or_longer_send_is_refused(runs: list[SendRun]) -> None:
    message = _encoded(runs)

    for size in range(len(message)):
        with pytest.raises(ProtocolError):
            decode_send(message[:size])
    with pytest.raises(ProtocolError):
        decode_send(message + b"\0")


@given(_RUNS, st.data())
def test_a_changed_byte_is_read_or_refused(runs: list[SendRun], data: st.DataObject) -> None:
    message = bytearray(_encoded(runs))
    message[data.draw(st.integers(0, len(message) - 1))] ^= data.draw(st.integers(1, 255))

    with contextlib.suppress(ProtocolError):
        frame = decode_send(bytes(message))

        assert sum(run.records for run in frame.runs) == len(frame.sizes)


@given(st.binary(max_size=200))
def test_wild_bytes_are_refused(tail: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        frame = decode_send(encode_header(Kind.SEND, 1) + tail)

        assert len(frame.sizes) == sum(run.records for run in frame.runs)
    with contextlib.suppress(ProtocolError):
        sent = decode_sent(encode_header(Kind.SENT, 1) + tail)

        assert len(tail) == 24 + 24 * len(sent.spans)


@pytest.mark.parametrize(
    ("changes", "field", "limit"),
    [
        ({"records": 0}, "record count", FRAME_RECORDS_MAX),
        ({"records": FRAME_RECORDS_MAX + 1}, "record count", FRAME_RECORDS_MAX),
        ({"runs": 0}, "run count", 1),
        ({"runs": 2}, "run count", 1),
        ({"payload_size": 0}, "payload size", FRAME_SIZE_MAX),
        ({"payload_size": FRAME_SIZE_MAX + 1}, "payload size", FRAME_SIZE_MAX),
    ],
)
def test_a_number_behind_its_limit_is_refused_with_both(
    changes: dict[str, int], field: str, limit: int
) -> None:
    numbers = {"records": 1, "runs": 1, "payload_size": 100} | changes
    message = encode_send(
        1,
        tables=encode_tables(b"\x64\0\0\0", [SendRun(1, 0, b"T")]),
        topics_size=1,
        checksum=0,
        entry_header_size=48,
        store_host_size=8,
        **numbers,
    )

    with pytest.raises(ProtocolError, match=field) as caught:
        decode_send(message)

    assert caught.value.details["value"] == next(iter(changes.values()))
    assert caught.value.details["limit"] == limit


def test_runs_must_count_all_records() -> None:
    tables = encode_tables(array("I", [100] * 3).tobytes(), [SendRun(2, 0, b"T")])
    message = encode_send(
        1, tables=tables, records=3, runs=1, topics_size=1, payload_size=300, checksum=0,
        entry_header_size=48, store_host_size=8,
    )  # fmt: skip

    with pytest.raises(ProtocolError) as caught:
        decode_send(message)

    assert caught.value.details == {"runs": 2, "records": 3}


@given(_I64, _I64, st.integers(0, 255), _SPANS)
def test_a_sent_comes_back(term: int, at: int, ack: int, spans: list[SentSpan]) -> None:
    message = encode_sent(9, term=term, store_timestamp=at, ack=ack, spans=spans)

    sent = decode_sent(message)

    assert sent == (9, term, at, ack, spans, ())


_DUPLICATES = st.lists(
    st.builds(
        Duplicate,
        st.integers(0, 2**32 - 1), st.integers(0, 2**31 - 1), _I64,
        st.binary(min_size=1, max_size=127),
    ),
    max_size=5,
)  # fmt: skip


@given(_SPANS, _DUPLICATES)
def test_duplicates_of_a_sent_come_back(spans: list[SentSpan], duplicates: list[Duplicate]) -> None:
    message = encode_sent(9, term=1, store_timestamp=2, ack=0, spans=spans, duplicates=duplicates)
    plain = encode_sent(9, term=1, store_timestamp=2, ack=0, spans=spans)

    assert list(decode_sent(message).duplicates) == duplicates
    assert decode_sent(message).spans == spans
    # Who does not know of duplicates is told what it always was.
    assert (message == plain) == (not duplicates)
    assert decode_header(plain).version == 1


@given(_SPANS, _DUPLICATES)
def test_a_cut_sent_is_refused(spans: list[SentSpan], duplicates: list[Duplicate]) -> None:
    message = encode_sent(9, term=1, store_timestamp=2, ack=0, spans=spans, duplicates=duplicates)

    for size in range(len(message)):
        with pytest.raises(ProtocolError):
            decode_sent(message[:size])


def test_a_frame_of_another_kind_is_refused_by_name() -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_send(encode_header(Kind.PULL, 1))

    assert caught.value.details == {"kind": "PULL"}
