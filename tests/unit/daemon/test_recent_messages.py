"""What a writer finds again of the messages that its log holds already."""

from __future__ import annotations

import pytest
from tests.conftest import Golden

from ledgermq.daemon.recent_messages import PARTS_MAX, MessageKey, RecentMessages, StoredMessage
from ledgermq.model.ids import Position
from ledgermq.store.dledger_entry import HEADER_SIZE
from ledgermq.store.log_reader import LogReader
from ledgermq.store.message import Message
from ledgermq.store.store_directory import open_directory


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

    def table(self, begin: int = 0) -> RecentMessages:
        return RecentMessages(
            self.folder,
            file_size=self.file_size,
            header_size=HEADER_SIZE,
            first=self.reader.first,
            begin=begin,
        )


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
    table = log.table(begin=log.end - 1)
    table.extend(log.end)

    assert first.physical_offset < log.file_size < log.end
    assert table.find([key_of(first), key_of(last)]) == [None, place_of(last)]


def test_a_table_grows_with_the_log(log: Log) -> None:
    table = log.table()
    named = [one for one in log.messages if one.unique_id]
    steps = named[:: len(named) // (2 * PARTS_MAX)]
    found = []
    for message in steps:
        before = table.find([key_of(message)])
        table.extend(Position(message.physical_offset + message.size))
        found.append((before, table.find([key_of(message)])))

    assert len(steps) > PARTS_MAX
    assert found == [([None], [place_of(message)]) for message in steps]
