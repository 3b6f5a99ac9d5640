"""A sealed piece gives back the log's very bytes, and what is not what was sealed is found."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgermq.model.errors import ConfigError, CorruptLogError, LedgerError, MessageUnknownError
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.pipeline.columns.message_schema import COLUMNS
from ledgermq.pipeline.columns.record_columns import RecordBlock, RecordColumns
from ledgermq.pipeline.pieces import piece_footer
from ledgermq.pipeline.pieces.log_columns import LOG_BYTES, PIECE_SCHEMA
from ledgermq.pipeline.pieces.piece_file import PieceFile
from ledgermq.pipeline.pieces.piece_footer import TRAILER_SIZE
from ledgermq.pipeline.pieces.piece_seal import SealedPiece, seal_stretch
from tests.unit.pipeline.made_logs import TOPICS, WRITTEN, MadeLog, Memory, Written, made_log

GROUP_BYTES = 700
"""Some rows a group, so that a piece of a few messages has several."""


def sealed(log: MadeLog, *, group_bytes: int = GROUP_BYTES) -> SealedPiece:
    return seal_stretch(
        memoryview(log.content),
        0,
        len(log.content),
        header_size=log.header_size,
        base=log.base,
        group_bytes=group_bytes,
    )


def bytes_of(log: MadeLog, *, group_bytes: int = GROUP_BYTES) -> bytes:
    return b"".join(sealed(log, group_bytes=group_bytes).parts)


def piece_of(log: MadeLog, *, group_bytes: int = GROUP_BYTES) -> PieceFile:
    return PieceFile(Memory(bytes_of(log, group_bytes=group_bytes)))


def some_log(count: int = 12) -> MadeLog:
    """A log of three topics, with keys, of which some are in more than one message."""
    return made_log(
        [
            Written(
                TOPICS[number % 3],
                number % 2,
                b'{"number": %d}' % number,
                f"UNIQ_KEY\x01id-{number}\x02KEYS\x01even-{number // 2} k".encode(),
                later_ms=100,
            )
            for number in range(count)
        ],
        base=900,
        blank=bytes(30),
    )


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    written=st.lists(WRITTEN, max_size=14),
    entries=st.booleans(),
    base=st.sampled_from((0, 1 << 40)),
    blank=st.none() | st.binary(max_size=50),
    group_bytes=st.sampled_from((1, GROUP_BYTES, 1 << 20)),
)
def test_a_piece_has_the_very_bytes_of_the_log(
    *, written: list[Written], entries: bool, base: int, blank: bytes | None, group_bytes: int
) -> None:
    if not written and blank is None:
        blank = b""
    # Of an entry's blank all is zeros but for its mark: who scans looks at that.
    log = made_log(
        written,
        entries=entries,
        base=base,
        blank=blank if blank is None or not entries else bytes(len(blank)),
    )
    piece = piece_of(log, group_bytes=group_bytes)

    assert bytes(piece.log()) == log.content
    assert piece.verify() == len(written)
    assert (piece.footer.start, piece.footer.end) == (base, base + len(log.content))


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(written=st.lists(WRITTEN, min_size=1, max_size=14), entries=st.booleans())
def test_each_message_is_found_by_its_queue_its_time_and_its_keys(
    *, written: list[Written], entries: bool
) -> None:
    log = made_log(written, entries=entries)
    piece = piece_of(log)
    for queue in {(one.topic, one.queue_id) for one in log.messages}:
        messages = log.of_queue(*queue)
        for first in range(len(messages)):
            found = [one.header + one.record for one in piece.queue(*queue, first)]
            assert found == [log.record(one) for one in messages[first:]]
        for message in messages:
            since = piece.first_since(*queue, message.store_timestamp)
            later = [one for one in messages if one.store_timestamp >= message.store_timestamp]
            assert since == later[0].queue_offset
        assert piece.first_since(*queue, 1 << 50) is None
        assert list(piece.queue(*queue, len(messages))) == []
    for topic in {one.topic for one in written}:
        keys = {key for one in written if one.topic == topic for key in one.found_by()}
        for key in keys:
            expected = {
                message.physical_offset
                for message, one in zip(log.messages, written, strict=True)
                if one.topic == topic and key in one.found_by()
            }
            assert {one.position for one in piece.with_key(topic, key)} == expected
        assert list(piece.with_key(topic, "no such key")) == []


def test_readers_of_parquet_see_the_columns_of_the_source(tmp_path: Path) -> None:
    log = some_log()
    (tmp_path / "piece.parquet").write_bytes(bytes_of(log))
    table = pq.read_table(tmp_path / "piece.parquet")
    starts = np.array([one.physical_offset - log.base for one in log.messages], np.int64)
    sizes = np.array([one.size for one in log.messages], np.int64)
    block = RecordBlock(memoryview(log.content), log.base, starts, sizes, log.header_size)
    expected = pa.Table.from_batches([RecordColumns(block, inflate=False).batch(COLUMNS)])

    assert table.schema.names == PIECE_SCHEMA.names
    assert table.sort_by("physicalOffset").select(COLUMNS).to_pylist() == expected.to_pylist()
    # Nothing of these has its bytes twice.
    assert table.column(LOG_BYTES).null_count == len(log.messages)


def test_rows_of_a_topic_stand_together_and_a_large_one_begins_its_own_group() -> None:
    log = made_log([Written(TOPICS[n % 2], n % 3, bytes(200)) for n in range(40)])
    piece = piece_of(log, group_bytes=2_000)
    numbers = range(len(piece.footer.groups))
    topics = [set(piece.group(number).column("topic").to_pylist()) for number in numbers]

    assert all(len(one) == 1 for one in topics)
    positions = [row["physicalOffset"] for n in numbers for row in piece.group(n).to_pylist()]
    assert sorted(positions) == [one.physical_offset for one in log.messages]


def test_a_message_of_a_queue_takes_two_reads_and_the_footers_one() -> None:
    content = Memory(bytes_of(some_log(200)))
    piece = PieceFile(content)
    assert content.reads == 1
    assert next(piece.queue(TOPICS[1], 1, 20)).record
    assert content.reads == 2
    again = Memory(content.content)
    PieceFile(again, tail=piece.tail)
    assert again.reads == 1
    # Who knows nothing, and is told too little, reads once more, or twice.
    for tail in (8, 60, piece.tail - 1):
        assert PieceFile(Memory(content.content), tail=tail).footer == piece.footer


def test_snapshots_of_the_tables_are_named_by_where_they_begin() -> None:
    def part(label: str, tag: str = "state-snapshot") -> Written:
        properties = f"TAGS\x01{tag}\x02PART\x01{label}".encode()
        return Written(SYSTEM_TOPIC, 1, b"{}", properties)

    log = made_log(
        [part("", "state"), part("1/2"), Written("orders", 0, b"between"), part("2/2"), part("1/1")]
    )
    assert piece_of(log).footer.snapshots == (1, 3)


def test_of_an_offset_that_comes_twice_the_last_one_counts() -> None:
    first = made_log([Written("orders", 0, b"first life %d" % n) for n in range(5)], entries=False)
    second = made_log(
        [Written("orders", 0, b"second life %d" % n) for n in range(3)],
        entries=False,
        base=len(first.content),
    )
    both = first._replace(content=first.content + second.content)
    piece = piece_of(both)

    assert bytes(piece.log()) == both.content
    assert [one.record for one in piece.queue("orders", 0, 1)] == [
        second.record(one) for one in second.messages[1:]
    ]
    assert [one.record for one in piece.queue("orders", 0, 4)] == [first.record(first.messages[4])]


def test_a_message_that_is_missing_between_others_is_no_end() -> None:
    log = made_log([Written("orders", 0, b"%d" % number) for number in range(4)], entries=False)
    cut = log.messages[1].physical_offset, log.messages[2].physical_offset
    later = log._replace(content=log.content[cut[1] :], base=cut[1])
    piece = piece_of(later)
    with pytest.raises(MessageUnknownError) as raised:
        list(piece.queue("orders", 0, 1))
    assert raised.value.details["next"] == 2
    assert list(piece.queue("orders", 0, 9)) == list(piece.queue("stock", 0, 0)) == []


# What is not what was sealed.


def places_in(piece: PieceFile, size: int) -> Iterator[tuple[range, set[str]]]:
    """Stretches of the file, and which parts a flipped byte in them may be told of."""
    footer, end = piece.footer, piece.end
    yield range(4), {"begin"}
    for number, group in enumerate(footer.groups):
        yield range(group.at, group.at + group.size), {f"group {number}"}
    yield range(footer.rest.at, footer.rest.end), {"rest"}
    yield range(footer.filters.at, footer.filters.end), {"filters"}
    yield range(end.footer.at, end.footer.end), {"footer"}
    yield range(end.footer.end, end.table.at), {"trailer"}
    # The last bytes lead to the trailer: with another size there is none where it should be.
    yield range(end.table.at, size - 8), {"table"}
    yield range(size - 8, size), {"end", "trailer"}


def found_in(content: bytes) -> object:
    with pytest.raises(CorruptLogError) as raised:
        PieceFile(Memory(content)).verify()
    assert raised.value.details["file"] == "piece"
    return raised.value.details["part"]


def check_flips(*, every: bool) -> None:
    content = bytes_of(some_log(6))
    piece = PieceFile(Memory(content))
    assert piece.verify() == 6
    seen = 0
    chance = random.Random(7)
    for stretch, parts in places_in(piece, len(content)):
        seen += len(stretch)
        few = {stretch[0], stretch[-1], *chance.sample(stretch, min(20, len(stretch)))}
        for at in stretch if every else few:
            changed = bytearray(content)
            changed[at] ^= 1 << at % 8
            assert found_in(bytes(changed)) in parts, at
    # No byte of the file is in no part.
    assert seen == len(content)


@pytest.mark.slow
def test_a_flipped_byte_in_each_part_is_found_and_named() -> None:
    check_flips(every=False)


@pytest.mark.slow
@pytest.mark.long
def test_each_flipped_byte_is_found_and_named() -> None:
    check_flips(every=True)


def test_a_file_that_is_cut_off_anywhere_is_none() -> None:
    content = bytes_of(some_log(4))
    for size in (*range(0, len(content), 97), len(content) - 1):
        with pytest.raises(CorruptLogError):
            PieceFile(Memory(content[:size])).verify()
    whole = Memory(content)
    whole.content = content[: piece_footer.TRAILER_SIZE]
    with pytest.raises(CorruptLogError):
        PieceFile(whole)


def forged(content: bytes, change: object) -> bytes:
    """The piece with another footer, all of whose sums are right; ``change`` makes it."""
    piece = PieceFile(Memory(content))
    end = piece.end
    document = json.loads(zlib.decompress(content[end.footer.at : end.footer.end]))
    change(document)  # type: ignore[operator]
    plain = json.dumps(document).encode()
    packed, table = zlib.compress(plain), content[end.table.at :]
    head = piece_footer._TRAILER
    fields = (1, 0, 0, len(packed), len(plain), zlib.crc32(packed), len(table), zlib.crc32(table))
    trailer = head.pack(*fields, 0, bytes(4), b"LMQSEAL1")
    trailer = head.pack(*fields, piece_footer._trailer_sum(trailer), bytes(4), b"LMQSEAL1")
    assert len(trailer) == TRAILER_SIZE
    return content[: end.footer.at] + packed + trailer + table


def numbers_in(value: object, path: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from numbers_in(item, (*path, key))
    else:
        yield path


@pytest.mark.slow
def test_no_number_of_a_footer_is_believed() -> None:
    content = bytes_of(some_log(5))
    document = json.loads(
        zlib.decompress(content[(end := PieceFile(Memory(content)).end).footer.at : end.footer.end])
    )
    for path in numbers_in(document):
        for value in (-1, 0, 1, 1 << 40, (1 << 63) - 1, 1 << 80, "1", None, 0.5, []):

            def change(
                found: object, path: tuple[object, ...] = path, value: object = value
            ) -> None:
                for key in path[:-1]:
                    found = found[key]  # type: ignore[index]
                found[path[-1]] = value  # type: ignore[index]

            try:
                PieceFile(Memory(forged(content, change))).verify()
            except CorruptLogError:
                continue
            # ``follows`` is said by nothing else, nor are times of runs that no one has.
            expected = json.loads(json.dumps(document))
            change(expected)
            assert expected == document or path[0] == "follows", path


@pytest.mark.slow
def test_a_footer_that_inflates_without_an_end_takes_no_memory() -> None:
    content = bytes_of(some_log(3))
    end = PieceFile(Memory(content)).end
    bomb = zlib.compress(bytes(50 << 20))
    table = content[end.table.at :]
    fields = (1, 0, 0, len(bomb), 900, zlib.crc32(bomb), len(table), zlib.crc32(table))
    trailer = piece_footer._TRAILER.pack(*fields, 0, bytes(4), b"LMQSEAL1")
    own = piece_footer._trailer_sum(trailer)
    trailer = piece_footer._TRAILER.pack(*fields, own, bytes(4), b"LMQSEAL1")
    assert found_in(content[: end.footer.at] + bomb + trailer + table) == "footer"


def test_a_later_version_is_not_read() -> None:
    content = bytes_of(some_log(3))
    end = PieceFile(Memory(content)).end
    table = content[end.table.at :]
    fields = (5, 0, 0, end.footer.size, end.plain_size, end.footer.crc, len(table))
    trailer = piece_footer._TRAILER.pack(*fields, zlib.crc32(table), 0, bytes(4), b"LMQSEAL1")
    own = piece_footer._trailer_sum(trailer)
    trailer = piece_footer._TRAILER.pack(*fields, zlib.crc32(table), own, bytes(4), b"LMQSEAL1")
    with pytest.raises(ConfigError, match="later version"):
        PieceFile(Memory(content[: end.footer.end] + trailer + table))


@settings(max_examples=50, deadline=None)
@given(content=st.binary(max_size=200))
def test_what_is_no_piece_is_told(content: bytes) -> None:
    with pytest.raises(LedgerError):
        PieceFile(Memory(content + b"\x00\x00\x00\x00PAR1"))


def test_a_log_that_is_damaged_is_not_sealed() -> None:
    log = some_log(5)
    at = log.messages[2].physical_offset - log.base + 20
    changed = log.content[:at] + b"\xff" + log.content[at + 1 :]
    with pytest.raises(CorruptLogError):
        sealed(log._replace(content=changed))
