"""Entries become records: headers go, positions change, all else stays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.conversion import log_conversion
from ledgermq.conversion.log_conversion import LogConversion, PositionTable
from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.formats.dledger_index import DLedgerIndexItem, encode_index_item
from ledgermq.formats.records.message import Message, decode_message, encode_message
from ledgermq.formats.records.properties import encode_properties
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Index, Position, Term
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.store.files.append_files import AppendFiles
from ledgermq.store.files.mapped_files import MappedFiles
from tests.plain_codecs import encode_entry

FILE_SIZE = 4_096
START = Position(2 * FILE_SIZE)
V4, V6 = ("10.0.0.1", 1_234), ("2001:db8::1", 1_234)


def message(number: int, *, topic: str = "orders", size: int = 100, **fields: object) -> Message:
    made = Message(
        topic=topic,
        queue_id=number % 3,
        queue_offset=number,
        body=bytes([number % 256]) * size,
        properties=encode_properties({"UNIQ_KEY": f"{number:032X}"}),
        born_timestamp=1_600_000_000_000,
        store_timestamp=1_600_000_000_001 + number,
        born_host=V4,
        store_host=V4,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def log_of(messages: list[Message]) -> tuple[memoryview, bytes, list[int]]:
    """One file of a DLedger log that begins at ``START``, its index items, and positions."""
    content, items, positions = bytearray(), b"", []
    for number, one in enumerate(messages):
        position = Position(START + len(content))
        body = encode_message(replace(one, physical_offset=position + HEADER_SIZE))
        entry = encode_entry(
            body, index=Index(number), term=Term(1), position=position, previous_chain_crc=0
        )
        items += encode_index_item(DLedgerIndexItem(position, len(entry), Index(number), Term(1)))
        positions.append(position + HEADER_SIZE)
        content += entry
    return memoryview(bytes(content)), items, positions


def converted(folder: Path, messages: list[Message]) -> tuple[list[Message], LogConversion]:
    """What a plain log holds that was made of ``messages``; and where it ends."""
    view, items, _ = log_of(messages)
    target = AppendFiles(folder / "commitlog", file_size=FILE_SIZE, position=START)
    conversion = LogConversion(target, PositionTable(folder))
    conversion.convert(view, START, items)
    end = target.position
    target.close()
    files = MappedFiles(folder / "commitlog")
    found: list[Message] = []
    position = START
    while position < end:
        whole = files.view(files.start_of(position), FILE_SIZE)
        at = position - files.start_of(position)
        if whole[at + 4 : at + 8] == b"\xcb\xd4\x31\x94":
            assert int.from_bytes(whole[at : at + 4], "big") == FILE_SIZE - at
            position = Position(position - at + FILE_SIZE)
            continue
        one = decode_message(whole, at)
        assert one.physical_offset == position
        found.append(replace(one, body=bytes(one.body)))
        position = Position(position + one.size)
    return found, conversion


def without_place(one: Message) -> Message:
    return replace(one, physical_offset=0, prepared_transaction_offset=0)


@pytest.mark.parametrize("chunk", [1, 500, 1 << 20])
def test_messages_stay_but_for_their_places(
    chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_conversion, "CHUNK_SIZE", chunk)
    messages = [message(number, size=17 * number % 900) for number in range(60)]
    found, conversion = converted(tmp_path, messages)
    sent = [without_place(decode_message(encode_message(one))) for one in messages]

    assert [without_place(one) for one in found] == [
        replace(one, body=bytes(one.body)) for one in sent
    ]
    assert conversion.done.records == 60
    assert conversion.done.left_out == 0
    assert conversion.done.bytes == sum(one.size for one in found)


@pytest.mark.parametrize(("born", "stored"), [(V6, V4), (V4, V6), (V6, V6)])
def test_hosts_with_long_addresses_are_no_matter(
    born: tuple[str, int], stored: tuple[str, int], tmp_path: Path
) -> None:
    messages = [message(number, born_host=born, store_host=stored) for number in range(5)]
    messages.insert(3, message(9, topic=SYSTEM_TOPIC, born_host=born, store_host=stored))
    found, conversion = converted(tmp_path, messages)

    assert [(one.born_host, one.store_host) for one in found] == [(born, stored)] * 5
    assert conversion.done.left_out == 1


@pytest.mark.parametrize("own", [{0}, {5}, {2, 3, 4}, {0, 5}, set(range(6))])
def test_entries_of_our_own_are_left_out(own: set[int], tmp_path: Path) -> None:
    messages = [
        message(number, topic=SYSTEM_TOPIC if number in own else "orders") for number in range(6)
    ]
    found, conversion = converted(tmp_path, messages)

    assert [one.queue_offset for one in found] == sorted(set(range(6)) - own)
    assert conversion.done.left_out == len(own)


def test_a_topic_of_the_same_length_stays(tmp_path: Path) -> None:
    found, _ = converted(tmp_path, [message(0, topic="X" * len(SYSTEM_TOPIC))])

    assert [one.topic for one in found] == ["X" * len(SYSTEM_TOPIC)]


def test_the_half_message_that_a_transaction_names_is_named_at_its_new_place(
    tmp_path: Path,
) -> None:
    halves = [message(number) for number in range(10)]
    _, _, positions = log_of(halves)
    ends = [
        message(10 + number, prepared_transaction_offset=position)
        for number, position in enumerate(positions)
    ]
    before = message(30, prepared_transaction_offset=700)
    found, _ = converted(tmp_path, [*halves, *ends, before])
    places = {one.physical_offset: one.queue_offset for one in found}

    assert [places[one.prepared_transaction_offset] for one in found[10:20]] == list(range(10))
    # In the old part of an upgraded log nothing moves.
    assert found[20].prepared_transaction_offset == 700


def test_a_record_that_fits_into_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptLogError, match="does not fit"):
        converted(tmp_path, [message(0, size=FILE_SIZE - 100)])


def test_a_body_size_that_lies_is_refused(tmp_path: Path) -> None:
    view, items, _ = log_of([message(0)])
    content = bytearray(view)
    content[HEADER_SIZE + 84 : HEADER_SIZE + 88] = (1 << 20).to_bytes(4, "big")
    target = AppendFiles(tmp_path / "commitlog", file_size=FILE_SIZE, position=START)

    with pytest.raises(CorruptLogError, match="beyond its record"):
        LogConversion(target, PositionTable(tmp_path)).convert(memoryview(content), START, items)
    target.close()
