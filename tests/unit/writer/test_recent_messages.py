"""What a writer finds again of the messages that its log holds already."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.formats.records.message import (
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
    Message,
    store_fields_at,
)
from ledgermq.model.ids import Position
from ledgermq.store.files.file_names import file_name
from ledgermq.store.log.entry_files import EntryFiles
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory
from ledgermq.writer.duplicates import recent_messages
from ledgermq.writer.duplicates.recent_messages import (
    SORTED_PARTS_MAX,
    MessageKey,
    RecentMessages,
    StoredMessage,
)
from tests.conftest import Golden

BODY_CRC_AT = 8


class Log:
    """The log of a store that the Java broker wrote, its messages, and tables over it."""

    def __init__(self, golden: Golden) -> None:
        directory = open_directory(golden("gd0"))
        assert directory.dledger is not None and directory.log_file_size is not None
        self.folder = directory.dledger / "data"
        self.file_size = directory.log_file_size
        self.reader = LogReader(directory)
        self.end = self.reader.end
        self.messages = [record.message for record in self.reader.iterate()]

    def frames(self, size: int) -> Iterator[tuple[int, memoryview]]:
        """Whole entries, some ``size`` bytes at a time and all of one file: where they end."""
        starts = [message.physical_offset - HEADER_SIZE for message in self.messages]
        ends = [message.physical_offset + message.size for message in self.messages]
        first = 0
        for row, end in enumerate(ends):
            is_last = row + 1 == len(ends) or starts[row + 1] != end
            if end - starts[first] < size and not is_last:
                continue
            file = starts[first] - starts[first] % self.file_size
            content = (self.folder / file_name(file)).read_bytes()
            yield end, memoryview(content)[starts[first] - file : end - file]
            first = row + 1

    def table(self, begin: int = 0, end: int = 0) -> RecentMessages:
        """Of the messages from ``begin`` to ``end``, which are taken when they are looked for."""
        return RecentMessages(
            self.folder,
            file_size=self.file_size,
            header_size=HEADER_SIZE,
            first=begin,
            window=2**40,
            end=Position(end),
            entry_before=self.entry_before,
        )

    def entry_before(self, position: int) -> int:
        files = EntryFiles(
            self.folder,
            self.folder.parent / "index",
            file_size=self.file_size,
            index_file_size=next((self.folder.parent / "index").iterdir()).stat().st_size,
        )
        try:
            last = Position(self.messages[-1].physical_offset - HEADER_SIZE)
            return files.entry_before(position, files.index_at(last))
        finally:
            files.forget()

    def record(self, message: Message) -> bytes:
        """The bytes of a message as the log has them."""
        start = message.physical_offset - message.physical_offset % self.file_size
        with (self.folder / file_name(start)).open("rb") as file:
            file.seek(message.physical_offset - start)
            return file.read(message.size)


@pytest.fixture
def log(golden: Golden) -> Log:
    return Log(golden)


def key_of(message: Message) -> MessageKey:
    return MessageKey(message.topic, message.unique_id)


def place_of(message: Message) -> StoredMessage:
    return StoredMessage(
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.physical_offset,
        message.store_timestamp,
    )


def test_the_last_message_of_every_key_is_found(log: Log) -> None:
    table = log.table()
    table.extend(log.end)
    expected = {key_of(one): place_of(one) for one in log.messages if one.unique_id}
    found = dict(zip(expected, table.find(list(expected)), strict=True))

    assert len(expected) > 100
    assert found == expected


def test_nothing_is_found_that_no_message_has(log: Log) -> None:
    table = log.table()
    table.extend(log.end)
    named = next(one for one in log.messages if one.unique_id)
    elsewhere = MessageKey("another", named.unique_id)

    assert table.find(
        [elsewhere, MessageKey(named.topic, ""), MessageKey(named.topic, "0" * 32)]
    ) == [
        None,
        None,
        None,
    ]


def test_messages_before_the_beginning_are_not_looked_at(log: Log) -> None:
    named = [one for one in log.messages if one.unique_id]
    first, last = named[0], named[-1]
    table = log.table(begin=log.end - 1, end=log.end)

    assert first.physical_offset < log.file_size < log.end
    assert table.find([key_of(first), key_of(last)]) == [None, place_of(last)]


def test_what_is_further_back_is_taken_when_it_is_asked_for(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_messages, "STEP_SIZE", 10_000)
    named = {key_of(one): one for one in log.messages if one.unique_id}
    table = log.table(end=log.end)
    found = [table.find([key]) for key in reversed(named)]
    whole = log.table(end=log.end)

    assert found == [[place_of(one)] for one in reversed(named.values())]
    assert whole.find([MessageKey("orders", "0" * 32)]) == [None]
    assert whole.find(list(named)) == [place_of(one) for one in named.values()]


def test_the_entry_before_a_position_is_the_one_that_has_it(log: Log) -> None:
    starts = [one.physical_offset - HEADER_SIZE for one in log.messages]
    some = list(pairwise(starts))[::7]

    assert len(some) > 10
    for start, following in some:
        assert [log.entry_before(at) for at in (start, start + 1, following - 1, following)] == [
            start,
            start,
            start,
            following,
        ]


def test_a_table_grows_with_the_log(log: Log) -> None:
    table = log.table()
    named = [one for one in log.messages if one.unique_id]
    steps = named[:: len(named) // (2 * SORTED_PARTS_MAX)]
    found = []
    for message in steps:
        before = table.find([key_of(message)])
        table.extend(Position(message.physical_offset + message.size))
        found.append((before, table.find([key_of(message)])))

    assert len(steps) > SORTED_PARTS_MAX
    assert found == [([None], [place_of(message)]) for message in steps]


def as_sent(record: bytes) -> bytearray:
    """A record of the log as its client sent it: what only the leader knows is zero."""
    sent = bytearray(record)
    time, behind_host = store_fields_at(memoryview(sent))
    sent[QUEUE_OFFSET_AT:SYS_FLAG_AT] = bytes(SYS_FLAG_AT - QUEUE_OFFSET_AT)
    sent[time:behind_host] = bytes(behind_host - time)
    return sent


def neighbours(log: Log) -> list[Message]:
    """The longest row of messages of one queue that stand one behind the other in one file."""
    rows: list[list[Message]] = [[]]
    for one in log.messages:
        last = rows[-1][-1] if rows[-1] else None
        is_next = last is not None and (
            (one.topic, one.queue_id, one.queue_offset, one.physical_offset)
            == (
                last.topic,
                last.queue_id,
                last.queue_offset + 1,
                last.physical_offset + last.size + HEADER_SIZE,
            )
        )
        if is_next and one.unique_id:
            rows[-1].append(one)
        else:
            rows.append([one] if one.unique_id else [])
    return max(rows, key=len)


def test_messages_that_were_stored_together_are_found_by_the_first(log: Log) -> None:
    row = neighbours(log)
    sent = [as_sent(log.record(one)) for one in row]
    changed = [bytearray(one) for one in sent]
    changed[2][-1] ^= 1
    elsewhere = [bytearray(one) for one in sent]
    elsewhere[2][QUEUE_ID_AT + 3] ^= 1
    table = log.table()
    table.extend(log.end)
    first = place_of(row[0])

    assert len(row) > 3
    for messages, expected in ((sent, len(row) - 1), (changed, 1), (elsewhere, 1), (sent[:1], 0)):
        assert (
            table.count_behind(first, row[0].size, [memoryview(one) for one in messages[1:]])
            == expected
        )


def test_what_stands_behind_a_message_of_the_log_is_not_what_comes_next_in_a_queue(
    log: Log,
) -> None:
    row = neighbours(log)
    sent = [memoryview(as_sent(log.record(one))) for one in row]
    table = log.table()
    table.extend(log.end)
    first = place_of(row[0])
    later = first._replace(queue_offset=first.queue_offset + 1)

    assert table.count_behind(later, row[0].size, sent[1:]) == 0


def test_a_follower_has_taken_what_it_was_given_when_it_is_asked(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_messages, "FOLLOW_SIZE", 8_192)
    table = log.table(end=0)
    for message in log.messages:
        table.follow(Position(message.physical_offset - HEADER_SIZE))
    table.extend(log.end)

    def not_again(*_: object) -> int:
        raise AssertionError("the log is searched again")

    monkeypatch.setattr(table, "_take_older", not_again)
    named = list({key_of(one): one for one in log.messages if one.unique_id}.values())

    assert len(named) > 100
    assert table.find([key_of(message) for message in named]) == [
        place_of(message) for message in named
    ]


def test_a_follower_takes_what_it_has_in_hand_without_reading_it_again(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_messages, "FOLLOW_SIZE", 8_192)
    table = log.table(end=0)
    scan, scanned = table._scan, []

    def noted(begin: int, end: int, *, is_fresh: bool) -> object:
        scanned.append(begin)
        return scan(begin, end, is_fresh=is_fresh)

    monkeypatch.setattr(table, "_scan", noted)
    frames = list(log.frames(10_000))
    for end, entries in frames:
        table.follow(Position(end), entries)
    table.extend(log.end)
    named = list({key_of(one): one for one in log.messages if one.unique_id}.values())

    # Only where a file has ended with a blank: what comes behind it does not follow the table.
    assert len(frames) > 10
    assert len(scanned) <= len(list(log.folder.iterdir()))
    assert table.find([key_of(message) for message in named]) == [
        place_of(message) for message in named
    ]


def test_what_lies_before_the_window_is_dropped_and_not_found(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_messages, "FOLLOW_SIZE", 8_192)
    window = 65_536
    table = RecentMessages(
        log.folder,
        file_size=log.file_size,
        header_size=HEADER_SIZE,
        first=0,
        window=window,
        end=Position(0),
        entry_before=log.entry_before,
    )
    for message in log.messages:
        table.follow(Position(message.physical_offset - HEADER_SIZE))
    table.extend(log.end)
    named = list({key_of(one): one for one in log.messages if one.unique_id}.values())
    found = table.find([key_of(message) for message in named])

    recent = [row for row, one in enumerate(named) if one.physical_offset >= log.end - window]
    assert 0 < len(recent) < len(named)
    assert [found[row] for row in recent] == [place_of(named[row]) for row in recent]
    assert found[0] is None


def test_only_the_very_same_message_is_an_earlier_attempt(log: Log) -> None:
    table = log.table()
    table.extend(log.end)
    message = next(one for one in log.messages if one.unique_id and one.body)
    sent = bytearray(log.record(message))
    other = bytearray(sent)
    other[BODY_CRC_AT] ^= 1
    key = key_of(message)

    assert table.find([key, key], [memoryview(sent), memoryview(other)]) == [
        place_of(message),
        None,
    ]
