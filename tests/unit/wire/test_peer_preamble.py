"""The preamble of messages between members, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.model.config.settings import AckMode, LogKind
from ledgermq.model.errors import ProtocolError
from ledgermq.model.ids import NodeId
from ledgermq.wire.peer_preamble import (
    REASON_SIZE_MAX,
    SIZE,
    AgreedSettings,
    Preamble,
    decode_addresses,
    decode_preamble,
    decode_refusal,
    encode_preamble,
    encode_refusal,
)

PREAMBLE = Preamble(
    NodeId("n1"),
    NodeId("n22"),
    b"c" * 16,
    b"i" * 16,
    AgreedSettings(LogKind.DLEDGER, AckMode.MAJORITY_MEMORY, 1 << 30, 4_194_304),
    7,
)
BYTES = (
    b"LMQP\x01\x01\x02\x07"
    + b"n1".ljust(16, b"\0")
    + b"n22".ljust(16, b"\0")
    + b"c" * 16
    + b"i" * 16
    + (1 << 30).to_bytes(8, "little")
    + (4_194_304).to_bytes(8, "little")
)


def test_the_layout_is_that_of_the_document() -> None:
    assert encode_preamble(PREAMBLE) == BYTES
    assert decode_preamble(BYTES) == PREAMBLE


@pytest.mark.parametrize("log", LogKind)
@pytest.mark.parametrize("ack", AckMode)
def test_every_kind_of_log_and_acknowledgement_has_a_code(log: LogKind, ack: AckMode) -> None:
    preamble = PREAMBLE._replace(settings=PREAMBLE.settings._replace(log=log, ack=ack))

    assert decode_preamble(encode_preamble(preamble)) == preamble


def test_the_nodes_of_another_version_are_known() -> None:
    future = encode_preamble(PREAMBLE, version=7)[:40] + b"what else there is"

    assert decode_addresses(future) == (7, "n1", "n22")
    with pytest.raises(ProtocolError, match="version=7"):
        decode_preamble(future)


@pytest.mark.parametrize("size", [*range(SIZE), SIZE + 1, 10 * SIZE])
def test_another_size_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError):
        decode_preamble((BYTES * 10)[:size])


@pytest.mark.parametrize("name", [b"", b"\0", b"n1\n", b"n 1", b"\xffn1", b"n1\0n2", b"../n1"])
def test_what_is_no_name_is_refused(name: bytes) -> None:
    with pytest.raises(ProtocolError, match="not the id of a node"):
        decode_addresses(BYTES[:8] + name.ljust(16, b"\0") + BYTES[24:])


@given(st.binary(max_size=2 * SIZE))
def test_any_bytes_are_decoded_or_refused(content: bytes) -> None:
    for part in (content, BYTES[:8] + content, BYTES[: SIZE - len(content) % SIZE] + content):
        try:
            decoded = decode_preamble(part)
        except ProtocolError:
            continue
        # Byte 7 is reserved: it may be anything.
        assert encode_preamble(decoded)[8:] == part[8:]


@given(st.text())
def test_a_reason_arrives_as_far_as_it_can_be_printed(reason: str) -> None:
    text = decode_refusal(encode_refusal(reason))

    assert text.isprintable()
    assert len(text.encode()) <= 3 * REASON_SIZE_MAX
    if reason.isprintable() and len(reason.encode(errors="replace")) <= REASON_SIZE_MAX:
        assert text == reason


@pytest.mark.parametrize("part", [b"", b"LMQR", b"LMQP\1\0\0\0no", b"x" * 100])
def test_what_is_no_refusal_is_told_apart(part: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_refusal(part)
