"""The table of moves, its commands, and what is left of a group that was cut."""

from __future__ import annotations

import pytest

from ledgermq.formats.records.message import Message, encode_message
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.names.queue_name import QueueName
from ledgermq.rules.state.state_commands import StateCommand, decode_command, encode_command
from ledgermq.rules.tables import delays, moves
from ledgermq.rules.tables.delays import DelayTable
from ledgermq.rules.tables.moves import (
    Moved,
    MoveEnded,
    MoveTable,
    Source,
    count_present,
    record_sum,
    rest_of,
)

QUEUE = QueueName("t", 3)
LEVEL = QueueName(delays.TOPIC, 1)


def record(**fields: object) -> memoryview:
    whole: dict[str, object] = {"topic": "t", "queue_id": 1, "body": b"b", "properties": b"a\x01b"}
    return memoryview(encode_message(Message(**(whole | fields))))  # type: ignore[arg-type]


def test_commands_of_moves_are_read_as_they_were_written() -> None:
    moved = Moved(QUEUE, (4, 5, 6, 9, 2), 7, 12, {"due": 5}, done=2, before=3)
    command = StateCommand("id", 1, (moved, MoveEnded(QUEUE)), (1, 2**32 - 1))

    assert decode_command(encode_command(command)) == command


@pytest.mark.parametrize(
    "change",
    [
        b'{"moved":"t"}',
        b'{"moved":"t/x","offsets":[]}',
        b'{"moved":"t/1"}',
        b'{"moved":"t/1","offsets":[[1]]}',
        b'{"moved":"t/1","offsets":[[1,1000000000]]}',
        b'{"moved":"t/1","offsets":[[-1,1]]}',
        b'{"moved":"t/1","offsets":[],"next":-1}',
        b'{"moved":"t/1","offsets":[],"next":"1"}',
        b'{"moved":"t/1","offsets":[],"marks":{"a":"b"}}',
        b'{"ended":"t"}',
    ],
)
def test_a_command_that_is_no_move_is_refused(change: bytes) -> None:
    with pytest.raises(CorruptLogError):
        decode_command(b'{"id":"i","at":1,"changes":[' + change + b"]}")


def test_a_move_is_open_until_its_end_is_in_the_log() -> None:
    table = MoveTable()
    table.apply(Moved(QUEUE, (4, 5), 2, 6, {"a": 1}), 7, 0)
    begun = table[QUEUE]
    again = MoveTable.read(table.to_document())
    table.apply(MoveEnded(QUEUE), 8, 0)
    table.apply(Moved(QUEUE, (), 0, 8, {}), 9, 0)

    assert begun == again[QUEUE] == Source(6, {"a": 1}, 7, 4)
    assert begun.safe_offset == 4
    assert table[QUEUE] == Source(8)
    assert table[QueueName("unknown", 0)] == Source(0)


@pytest.mark.parametrize(
    "table", [{"t": {}}, {"t/1": 5}, {"t/1": {"next": "5"}}, {"t/1": {"open": None, "from": "a"}}]
)
def test_a_table_that_is_none_is_refused_with_its_file(table: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=moves.FILE):
        MoveTable.read({"moves": table})


def test_levels_are_read_from_what_rocketmq_wrote_and_written_for_it() -> None:
    table = DelayTable.read({"offsetTable": {"2": 17, "18": 3, "x": 4}})
    table.apply(Moved(LEVEL, (17, 18), 2, 19, {}), 5, 0)
    document = table.to_document()

    assert table[QueueName(delays.TOPIC, 17)].next_offset == 3
    # A RocketMQ that goes on in the midst of a move repeats it, and misses nothing.
    assert document["offsetTable"] == {2: 17, 18: 3}
    assert DelayTable.read(document)[LEVEL] == Source(19, {}, 5, 17)


def test_a_record_is_known_by_what_no_writer_stamps() -> None:
    plain = record_sum(record())

    assert record_sum(record(queue_offset=5, physical_offset=7, store_timestamp=9)) == plain
    assert record_sum(record(store_host=("::1", 1), born_host=("::1", 2))) == plain
    others = [
        record(topic="u"),
        record(queue_id=2),
        record(body=b"c"),
        record(properties=b"a\x01c"),
        record(topic="ta", properties=b"\x01b"),
    ]
    assert plain not in map(record_sum, others)


@pytest.mark.parametrize("present", range(6))
def test_what_is_missing_of_a_move_is_known_from_what_is_there(present: int) -> None:
    group = [record(queue_id=queue) for queue in range(5)]
    sums = [record_sum(one) for one in group]
    behind = [*group[:present], record(topic="other")]
    first, second = Moved(QUEUE, (1,), 2, 2, {}), Moved(LEVEL, (1,), 3, 2, {}, done=1, before=2)
    found = count_present(sums, behind)
    rests = [rest_of(first, found), rest_of(second, found)]

    assert found == min(present, 5)
    assert [rest.records for rest in rests] == [max(0, 2 - found), 3 - max(0, found - 2)]
    assert [rest.done for rest in rests] == [min(found, 2), 1 + max(0, found - 2)]
