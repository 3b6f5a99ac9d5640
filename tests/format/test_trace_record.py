"""Trace records as RocketMQ's Java client encodes them (4.9.4, ``TraceDataEncoder``)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.records.trace_record import (
    RECORD_SIZE_MAX,
    ProcessedCode,
    TracedDelivery,
    TracedEnd,
    TracedKind,
    TracedProcessing,
    TracedSend,
    TraceRecord,
    traces_naming,
)
from ledgermq.model.errors import ProtocolError
from tests.plain_codecs import decode_traces

OFFSET_ID = "7F00000100002A9F000000000000D2F0"
TIME = 1_700_000_000_123

SEND = TracedSend(
    TIME, "group-1", "orders", "A1", "red", "k1 k2", "10.0.0.1:10911", 5, 17, TracedKind.DELAYED,
    OFFSET_ID, is_success=True,
)  # fmt: skip
DELIVERY = TracedDelivery(TIME, "group-1", "REQ1", "A1", 2, "k1 k2")
PROCESSING = TracedProcessing(
    "REQ1", "A1", 17, is_success=True, keys="k1 k2", code=3, time=TIME, group="group-1"
)
END = TracedEnd(
    TIME, "group-1", "orders", "A1", "red", "k1 k2", "10.0.0.1:10911", TracedKind.DELAYED, "T1",
    "COMMIT_MESSAGE", is_from_check=False,
)  # fmt: skip

JAVA: list[tuple[str, list[TraceRecord]]] = [
    (
        "50756201313730303030303030303132330144656661756c74526567696f6e0167726f75702d31016f72646572"
        "73014131017265640"
        "16b31206b320131302e302e302e313a3130393131013501313701330137463030303030313030303032413946303"
        "030303030303030303030443246300174727565"
        "02",
        [SEND],
    ),
    (
        "5375624265666f726501313730303030303030303132330144656661756c74526567696f6e0167726f75702d310"
        "1524551310141310132016b31206b3202"
        "5375624265666f726501313730303030303030303132330144656661756c74526567696f6e0167726f75702d310"
        "1524551310142320132016b31206b3202",
        [DELIVERY, DELIVERY._replace(id="B2")],
    ),
    (
        "537562416674657201524551310141310131370174727565016b31206b320133013137303030303030303031323"
        "30167726f75702d3102"
        "537562416674657201524551310142320131370174727565016b31206b320133013137303030303030303031323"
        "30167726f75702d3102",
        [PROCESSING, PROCESSING._replace(id="B2")],
    ),
    (
        "456e645472616e73616374696f6e01313730303030303030303132330144656661756c74526567696f6e0167726"
        "f75702d31016f726465727301413101726564016b31206b320131302e302e302e313a3130393131013301543101"
        "434f4d4d49545f4d4553534147450166616c736502",
        [END],
    ),
]
"""What the Java client made of these values."""


@pytest.mark.parametrize(("encoded", "records"), JAVA)
def test_the_bytes_are_those_of_the_java_client(encoded: str, records: list[TraceRecord]) -> None:
    data = bytes.fromhex(encoded)

    assert "".join(record.encode() for record in records).encode() == data
    assert decode_traces(data) == records


def test_what_a_message_has_not_is_null_as_in_java_and_comes_back_as_nothing() -> None:
    bare = [
        SEND._replace(tags="", keys="", offset_id="", is_success=False),
        DELIVERY._replace(keys=""),
        PROCESSING._replace(keys="", code=ProcessedCode.SUCCESS),
        END._replace(tags="", keys=""),
    ]
    text = "".join(record.encode() for record in bare)

    assert text.count("\x01null") == 7
    assert decode_traces(text.encode()) == bare


def test_records_of_old_clients_are_read() -> None:
    send = "\x01".join(
        ["Pub", "5", "r", "g", "t", "A1", "null", "null", "h", "1", "2", "0", "true"]
    )
    processed = "\x01".join(["SubAfter", "REQ1", "A1", "3", "false", "k"])
    first, second = decode_traces(f"{send}\x02{processed}\x02".encode())

    assert isinstance(first, TracedSend) and (first.offset_id, first.is_success) == ("", True)
    assert isinstance(second, TracedProcessing)
    assert (second.is_success, second.time, second.group) == (False, 0, "")


def test_a_separator_in_a_name_makes_no_other_record() -> None:
    record = DELIVERY._replace(group="a\x01b\x02Pub\x01c")
    (decoded,) = decode_traces(record.encode().encode())

    assert decoded == DELIVERY._replace(group="a b Pub c")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Pub\x01",
        "Pub\x01-1\x01r\x01g\x01t\x01A1\x01x\x01x\x01h\x011\x012\x010\x01id\x01true",
        "Pub\x01" + "9" * 30 + "\x01r\x01g\x01t\x01A1\x01x\x01x\x01h\x011\x012\x010\x01id\x01true",
        "Pub\x015\x01r\x01g\x01t\x01A1\x01x\x01x\x01h\x011\x012\x019\x01id\x01true",
        "SubBefore\x01now\x01r\x01g\x01q\x01A1\x010\x01k",
        "Recall\x015",
    ],
)
def test_what_is_no_record_is_left_out_and_the_next_one_is_read(text: str) -> None:
    assert decode_traces(f"{text}\x02{DELIVERY.encode()}".encode()) == [DELIVERY]


def test_records_that_name_a_message_are_found_among_others() -> None:
    others = [record._replace(id="B2") for record in (SEND, DELIVERY, PROCESSING, END)]
    records = [SEND, *others, DELIVERY, others[0]._replace(keys=SEND.id), PROCESSING, END, *others]
    data = "".join(record.encode() for record in records).encode()

    assert list(traces_naming(data, SEND.id)) == [one for one in records if SEND.id in one.encode()]
    assert list(traces_naming(data + b"Pub\x01" + SEND.id.encode(), "none")) == []
    # What is cut ends with its last whole record.
    assert list(traces_naming(data[: len(SEND.encode()) + 9], SEND.id)) == [SEND]


def test_a_record_longer_than_any_is_left_out_and_the_next_one_is_read() -> None:
    long = DELIVERY._replace(keys="k" * RECORD_SIZE_MAX)
    data = (long.encode() + DELIVERY.encode()).encode()

    assert list(traces_naming(data, DELIVERY.id)) == [DELIVERY]


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        decode_traces(b"Pub\x01\xff\x02")
    with pytest.raises(ProtocolError, match="UTF-8"):
        list(traces_naming(b"Pub\x01\xff\x02", "Pub"))


@given(st.text(st.sampled_from("PubSAfterEndTrc0123\x01\x02ä")))
def test_any_text_is_read(text: str) -> None:
    for record in decode_traces(text.encode()):
        assert decode_traces(record.encode().encode()) == [record]
