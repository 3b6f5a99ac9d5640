"""JSON bodies of sessions, and errors that travel as refusals and come out as the same class."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.model.errors import (
    BusyError,
    LedgerError,
    MessageIllegalError,
    OutcomeUnknownError,
    ProtocolError,
    StaleGenerationError,
    StorageError,
    TimedOutError,
)
from ledgermq.wire.header import VERSION, Kind, decode_header
from ledgermq.wire.session import (
    BODY_SIZE_MAX,
    Refusal,
    Welcome,
    decode_body,
    decode_call,
    decode_hello,
    decode_refused,
    decode_welcome,
    encode_call,
    encode_hello,
    encode_refused,
    encode_result,
    encode_welcome,
    hello_instance,
    hello_version,
)
from ledgermq.wire.statuses import STATUSES, status_of

_WELCOME = Welcome(
    cluster="DefaultCluster",
    broker="broker-a",
    node="n0",
    generation=7,
    role="leader",
    ack="majority-fsync",
    entry_header_size=48,
    store_host_size=8,
    body_size_max=4_194_304,
    frame_size_max=8_388_608,
    frame_records_max=65_536,
    window_bytes=67_108_864,
)


def test_a_hello_names_the_client() -> None:
    header, body = encode_hello(3, client="orders", library="ledgermq")

    name = decode_hello(body)

    assert (decode_header(header).kind, name) == (Kind.HELLO, "orders")


@pytest.mark.parametrize(
    "fields",
    [{"client": "x"}, {"client": 1, "version": 1}, {"client": "x" * 256, "version": 1},
     {"version": 1}, {"client": "x", "version": 0}, {"client": "x", "version": VERSION + 1},
     {"client": "x", "version": "1"}],
)  # fmt: skip
def test_a_hello_without_name_or_of_another_version_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        decode_hello(json.dumps(fields).encode())


@pytest.mark.parametrize(
    ("fields", "version"),
    [
        ({"version": 1}, 1),
        ({"version": 1, "version_max": 1}, 1),
        ({"version": 1, "version_max": 2}, 2),
        ({"version": 2}, 2),
        ({"version": 1, "version_max": 99}, VERSION),
    ],
)
def test_a_session_has_the_highest_version_that_both_sides_speak(
    fields: dict[str, object], version: int
) -> None:
    body = json.dumps({"client": "x", **fields}).encode()

    assert (decode_hello(body), hello_version(body)) == ("x", version)


@pytest.mark.parametrize("highest", [0, "2", None])
def test_a_hello_whose_versions_are_no_range_is_refused(highest: object) -> None:
    with pytest.raises(ProtocolError, match="range"):
        hello_version(json.dumps({"client": "x", "version": 1, "version_max": highest}).encode())


@pytest.mark.parametrize("produce", ["", "ipc:///run/ledgermq/produce"])
def test_a_welcome_comes_back(produce: str) -> None:
    welcome = Welcome(**{**_fields(_WELCOME), "produce": produce})  # type: ignore[arg-type]

    header, body = encode_welcome(3, welcome)

    assert decode_header(header).request_id == 3
    assert decode_welcome(body) == welcome


@pytest.mark.parametrize("name", list(Welcome.__dataclass_fields__))
def test_a_welcome_with_a_wrong_field_is_refused_by_name(name: str) -> None:
    fields = _fields(_WELCOME) | {name: True}

    with pytest.raises(ProtocolError) as caught:
        decode_welcome(json.dumps(fields).encode())

    assert caught.value.details["field"] == name


@pytest.mark.parametrize("kind", list(STATUSES))
def test_an_error_comes_back_as_its_own_class(kind: type[LedgerError]) -> None:
    header, body = encode_refused(9, kind("it is so", value=1, limit=2), record=4)

    refusal = decode_refused(body)
    error = refusal.to_error()

    assert decode_header(header).kind is Kind.REFUSED
    assert type(error) is kind
    assert (refusal.code, refusal.status) == (STATUSES[kind].code, STATUSES[kind].name)
    assert "value=1" in str(error) and "limit=2" in str(error)
    assert error.details["record"] == 4
    assert refusal.retriable == kind.retriable


@pytest.mark.parametrize(
    ("error", "stored"),
    [
        (OutcomeUnknownError("x"), "unknown"),
        (TimedOutError("x"), "unknown"),
        (BusyError("x"), "no"),
        (MessageIllegalError("x"), "no"),
    ],
)
def test_only_an_unknown_outcome_says_that_something_may_be_stored(
    error: LedgerError, stored: str
) -> None:
    _, body = encode_refused(1, error)

    assert decode_refused(body).stored == stored


def test_our_own_status_names_can_be_given() -> None:
    _, body = encode_refused(1, BusyError("window"), status="WINDOW_FULL")

    assert decode_refused(body).status == "WINDOW_FULL"


def test_an_error_without_a_status_has_that_of_its_nearest_class() -> None:
    class SpecialError(StorageError):
        """Known to one process only."""

    assert status_of(SpecialError("x")) == STATUSES[StorageError]


def test_an_unknown_number_is_a_ledger_error() -> None:
    refusal = Refusal(
        status="NEW", number=999, code=1, reason="r", record=None, stored="no", retriable=False
    )

    assert type(refusal.to_error()) is LedgerError


def test_session_unknown_is_the_number_that_the_protocol_names() -> None:
    _, body = encode_refused(1, StaleGenerationError("no session"))

    refusal = decode_refused(body)

    assert (refusal.status, refusal.number, refusal.retriable) == ("SESSION_UNKNOWN", 42, True)


def test_a_call_comes_back_even_with_a_name_that_utf8_cannot_hold() -> None:
    _, body = encode_call(2, "route", topic="a\ud800é", create=True)

    assert decode_call(body) == ("route", {"topic": "a\ud800é", "create": True})


def test_a_result_comes_back() -> None:
    header, body = encode_result(2, {"min": 1, "max": 2})

    assert decode_header(header).kind is Kind.RESULT
    assert decode_body(body) == {"min": 1, "max": 2}


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"1", b"{", b"\xff", b"[" * 100_000, b'{"verb": 1}', b"{}"]
)
def test_a_body_that_is_no_call_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_call(body)


def test_a_body_behind_the_limit_is_refused_with_both() -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_body(b" " * (BODY_SIZE_MAX + 1))

    assert caught.value.details == {"size": BODY_SIZE_MAX + 1, "limit": BODY_SIZE_MAX}


@given(st.binary(max_size=100) | st.dictionaries(
    st.sampled_from(["status", "number", "code", "reason", "stored", "record", "client"]),
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
).map(lambda fields: json.dumps(fields).encode()))  # fmt: skip
def test_wild_bodies_are_read_or_refused(body: bytes) -> None:
    for decode in (decode_hello, decode_welcome, decode_refused, decode_call):
        with contextlib.suppress(ProtocolError):
            decoded: object = decode(body)

            assert decoded is not None


def _fields(welcome: Welcome) -> dict[str, object]:
    return {name: getattr(welcome, name) for name in Welcome.__dataclass_fields__}


def test_a_hello_may_name_its_instance() -> None:
    _, body = encode_hello(1, client="orders", library="x", instance="a1")
    _, plain = encode_hello(1, client="orders", library="x")

    assert (hello_instance(body), hello_instance(plain)) == ("a1", "")


def test_a_long_instance_is_refused_with_the_limit() -> None:
    _, body = encode_hello(1, client="orders", library="x", instance="a" * 65)

    with pytest.raises(ProtocolError) as caught:
        hello_instance(body)

    assert caught.value.details["limit"] == 64
