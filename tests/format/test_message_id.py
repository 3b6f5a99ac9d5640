from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.records.message_id import (
    OffsetId,
    UniqueIdMaker,
    decode_offset_id,
    encode_offset_id,
)
from ledgermq.model.errors import MessageIllegalError, ProtocolError

MONTH_MS = round(datetime(2024, 2, 1).timestamp() * 1_000)
NEXT_MONTH_MS = round(datetime(2024, 3, 1).timestamp() * 1_000)
PID = f"{os.getpid() & 0xFFFF:04X}"


class Clock:
    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


class Salts:
    def __init__(self) -> None:
        self.drawn = 0

    def __call__(self) -> int:
        self.drawn += 1
        return self.drawn


def test_the_vector_of_the_real_broker_is_written_and_read() -> None:
    offset_id = OffsetId(("127.0.0.1", 30911), 48)

    assert encode_offset_id(offset_id) == "7F000001000078BF0000000000000030"
    assert decode_offset_id("7F000001000078BF0000000000000030") == offset_id


@given(
    st.sampled_from(["127.0.0.1", "255.255.255.255", "fd00::1", "::"]),
    st.integers(0, 65_535),
    st.integers(0, 2**63 - 1),
)
def test_every_offset_id_is_read_as_it_was_written(address: str, port: int, offset: int) -> None:
    offset_id = OffsetId((address, port), offset)
    text = encode_offset_id(offset_id)

    assert len(text) == (56 if ":" in address else 32)
    assert decode_offset_id(text) == offset_id
    assert decode_offset_id(text.lower()) == offset_id


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7F",
        "7F000001000078BF000000000000003",
        "7F000001000078BF000000000000003G",
        "7F000001000178BF0000000000000030",
        "7F000001000078BFFFFFFFFFFFFFFFFF",
        "7F 00 00 01 00 00 78 BF 0000000000000030",
        "7F000001000078BF00000000000000300000",
        "７F000001000078BF0000000000000030",
    ],
)
def test_what_is_no_offset_id_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        decode_offset_id(text)


@given(st.text(max_size=60) | st.text("0123456789ABCDEF", min_size=32, max_size=32))
def test_any_text_is_an_offset_id_or_refused(text: str) -> None:
    try:
        offset_id = decode_offset_id(text)
    except ProtocolError:
        return

    assert encode_offset_id(offset_id) == text.upper()


@pytest.mark.parametrize("name", ["gd0", "g6"])
def test_ids_are_those_of_the_real_broker(golden_json: Any, name: str) -> None:
    messages = golden_json(name)["messages"]

    assert messages
    for message in messages:
        offset_id = decode_offset_id(message["offsetMsgId"])
        address, port = offset_id.store_host
        assert offset_id.physical_offset == message["physicalOffset"]
        assert message["storeHost"].endswith(f":{port}")
        assert encode_offset_id(offset_id) == message["offsetMsgId"]
        assert (":" in address) == (name == "g6")


def test_a_unique_id_has_the_fields_of_rocketmq() -> None:
    ids = UniqueIdMaker("10.0.0.1", now_ms=Clock(MONTH_MS + 0x1234), salt=lambda: 0xABCD)

    assert ids.next() == f"0A000001{PID}0000ABCD000012340000"
    assert ids.next() == f"0A000001{PID}0000ABCD000012340001"


def test_a_client_with_an_ipv6_address_has_longer_ids() -> None:
    ids = UniqueIdMaker("fd00::1", now_ms=Clock(MONTH_MS), salt=lambda: 1)

    assert ids.next() == f"FD000000000000000000000000000001{PID}00000001000000000000"


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(MessageIllegalError):
        UniqueIdMaker("localhost")


def test_a_millisecond_with_no_number_left_borrows_from_the_next() -> None:
    clock = Clock(MONTH_MS)
    ids = UniqueIdMaker("10.0.0.1", now_ms=clock)
    made = ids.next_many(70_000)
    clock.now_ms += 1
    made += ids.next_many(70_000)

    assert len(set(made)) == 140_000
    assert made == sorted(made)


def test_a_clock_that_is_set_back_repeats_no_id() -> None:
    clock = Clock(MONTH_MS + 10_000)
    ids = UniqueIdMaker("10.0.0.1", now_ms=clock)
    made = ids.next_many(3)
    clock.now_ms -= 5_000
    made += ids.next_many(3)
    clock.now_ms -= 40 * 86_400_000
    made += ids.next_many(3)

    assert len(set(made)) == 9
    assert made == sorted(made)


def test_a_new_month_begins_at_zero_with_a_new_salt() -> None:
    clock = Clock(NEXT_MONTH_MS - 1)
    ids = UniqueIdMaker("10.0.0.1", now_ms=clock, salt=Salts())
    last = ids.next()
    clock.now_ms += 1
    first = ids.next()

    month = NEXT_MONTH_MS - MONTH_MS
    assert last == f"0A000001{PID}00000001{month - 1:08X}0000"
    assert first == f"0A000001{PID}00000002000000000000"


def test_numbers_borrowed_from_a_new_month_have_its_salt() -> None:
    ids = UniqueIdMaker("10.0.0.1", now_ms=Clock(NEXT_MONTH_MS - 1), salt=Salts())
    made = ids.next_many(65_536)
    borrowed = ids.next()

    assert made[-1] == f"0A000001{PID}00000001{NEXT_MONTH_MS - MONTH_MS - 1:08X}FFFF"
    assert borrowed == f"0A000001{PID}00000002000000000000"


def test_threads_share_no_id() -> None:
    ids = UniqueIdMaker("10.0.0.1", now_ms=Clock(MONTH_MS))
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda _: ids.next_many(50), range(200)))

    assert len({one for many in made for one in many}) == 10_000


def test_a_forked_child_shares_no_id_with_its_parent() -> None:
    ids = UniqueIdMaker("10.0.0.1", now_ms=Clock(MONTH_MS))
    ids.next()
    source, target = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(target, ids.next().encode())
        finally:
            os._exit(0)
    os.close(target)
    with os.fdopen(source) as pipe:
        made = pipe.read()
    os.waitpid(child, 0)

    assert len(made) == 32
    assert made[:20] != ids.next()[:20]
