from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.model.errors import MessageIllegalError, ProtocolError
from tests.plain_codecs import BatchItem, decode_batch, encode_batch

ITEMS = [BatchItem(7, b"hello", b"TAGS\x01TagA"), BatchItem(-1, b"", b"")]
PAYLOAD = bytes.fromhex(
    """
    00000024 00000000 00000000 00000007 00000005 68656c6c6f 0009 5441475301 54616741
    00000016 00000000 00000000 ffffffff 00000000 0000
    """
)
_ITEMS = st.lists(
    st.builds(
        BatchItem, st.integers(-(2**31), 2**31 - 1), st.binary(max_size=60), st.binary(max_size=60)
    ),
    max_size=5,
)


def test_a_batch_is_written_as_a_client_of_rocketmq_writes_it() -> None:
    assert encode_batch(ITEMS) == PAYLOAD
    assert decode_batch(memoryview(PAYLOAD)) == ITEMS


@given(_ITEMS)
def test_every_batch_is_read_as_it_was_written(items: list[BatchItem]) -> None:
    assert decode_batch(memoryview(encode_batch(items))) == items


def test_magic_and_crc_of_an_item_are_not_looked_at() -> None:
    payload = bytearray(PAYLOAD)
    payload[4:12] = b"\xff" * 8

    assert decode_batch(memoryview(payload)) == ITEMS


def test_every_truncation_is_refused() -> None:
    for size in range(1, len(PAYLOAD)):
        if size != 36:  # a whole item
            with pytest.raises(ProtocolError):
                decode_batch(memoryview(PAYLOAD)[:size])


@given(st.binary(max_size=80), st.integers(0, len(PAYLOAD)))
def test_any_bytes_are_a_batch_or_refused(data: bytes, kept: int) -> None:
    payload = PAYLOAD[:kept] + data
    try:
        items = decode_batch(memoryview(payload))
    except ProtocolError:
        return

    assert len(encode_batch(items)) == len(payload)


@pytest.mark.parametrize(
    ("at", "data", "field"),
    [
        (0, b"\x7f\xff\xff\xff", "item_size"),
        (0, b"\x00\x00\x00\x15", "item_size"),
        (0, b"\xff\xff\xff\xff", "item_size"),
        (16, b"\x7f\xff\xff\xff", "body_size"),
        (16, b"\xff\xff\xff\xff", "body_size"),
        (25, b"\xff\xff", "properties_size"),
        (25, b"\x00\x08", "properties_size"),
    ],
)
def test_an_error_names_item_and_field(at: int, data: bytes, field: str) -> None:
    payload = bytearray(PAYLOAD)
    payload[at : at + len(data)] = data
    with pytest.raises(ProtocolError) as caught:
        decode_batch(memoryview(payload))

    assert (caught.value.details["item_at"], caught.value.details["field"]) == (0, field)


@pytest.mark.parametrize(
    "item", [BatchItem(0, bytes(4 * 1024 * 1024 + 1), b""), BatchItem(0, b"", bytes(32_768))]
)
def test_what_does_not_fit_is_refused(item: BatchItem) -> None:
    with pytest.raises(MessageIllegalError):
        encode_batch([item])
