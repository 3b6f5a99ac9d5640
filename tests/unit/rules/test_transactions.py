"""What half messages are, what becomes of them, and which of them a leader knows."""

from __future__ import annotations

import pytest

from ledgermq.formats.records.delayed_message import delivered
from ledgermq.formats.records.message import (
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    Message,
    decode_message,
    encode_message,
)
from ledgermq.formats.records.properties import decode_properties, encode_properties
from ledgermq.model.errors import (
    CorruptLogError,
    MessageIllegalError,
    TransactionEndedError,
)
from ledgermq.model.limits import DELAY_TOPIC
from ledgermq.model.names.transactions import (
    HALF_TOPIC,
    OP_TOPIC,
    UNANSWERED_TOPIC,
    Decision,
)
from ledgermq.rules.messages.half_table import CheckRules, HalfTable, TransactionKey
from ledgermq.rules.messages.transactions import (
    HALF_QUEUE,
    PROPERTIES_MAX,
    RECORDS_OF,
    Half,
    Op,
    Way,
    becomes,
    check_half,
    marks_of,
    read_half,
    read_op,
    way_in,
)

HOST = ("10.0.0.1", 10911)
RULES = CheckRules(timeout_ms=6_000, checks_max=15, age_max_ms=1_000_000)
PROPERTIES = {
    "KEYS": "k",
    "TRAN_MSG": "true",
    "PGROUP": "g",
    "REAL_TOPIC": "orders",
    "REAL_QID": "3",
    "UNIQ_KEY": "U1",
    "TAGS": "A",
}


def half_message(**changes: str) -> Message:
    """A half message as decoded from the log; an empty value leaves a property out."""
    properties = {name: value for name, value in {**PROPERTIES, **changes}.items() if value}
    made = Message(
        topic=HALF_TOPIC,
        queue_id=0,
        body=b"body",
        properties=encode_properties(properties),
        flag=7,
        queue_offset=11,
        physical_offset=4_048,
        born_timestamp=1_000,
        born_host=("10.0.0.2", 5),
        store_timestamp=1_001,
        store_host=HOST,
        reconsume_times=2,
    )
    return decode_message(memoryview(encode_message(made)))


def half(offset: int, transaction: str = "", **fields: int | None) -> Half:
    known = {"born_ms": 0, "stored_ms": 0, "checks": 0, "immunity_ms": None, **fields}
    id_ = transaction or f"t{offset}"
    return Half(offset, 100 * offset, 100, id_, f"U{offset}", "g", "orders", **known)  # type: ignore[arg-type]


def table_of(*halves: Half) -> HalfTable:
    table = HalfTable(next_half=halves[0].offset, next_op=0)
    for one in halves:
        table.take_half(one)
    return table


def key(transaction: str) -> TransactionKey:
    return TransactionKey("g", transaction)


def test_a_committed_message_is_the_half_message_in_its_real_topic() -> None:
    source = half_message()
    real, op = becomes(source, Way.COMMIT, host=HOST, now_ms=9, levels=18)

    assert (real.topic, real.queue_id, real.transaction) == ("orders", 3, TRANSACTION_COMMIT)
    assert real.prepared_transaction_offset == 4_048
    # RocketMQ renders the properties before it clears those of the transaction.
    assert real.properties == source.properties
    assert (bytes(real.body), real.flag, real.reconsume_times) == (b"body", 7, 2)
    assert (real.born_timestamp, real.born_host) == (1_000, ("10.0.0.2", 5))
    assert (op.topic, op.queue_id, op.tags, bytes(op.body)) == (OP_TOPIC, 0, "d", b"11")
    assert (op.born_host, op.sys_flag) == (HOST, 0)


@pytest.mark.parametrize(("level", "queue_id"), [("3", 2), ("18", 17), ("99", 17)])
def test_a_committed_message_with_a_delay_level_waits_where_those_of_its_level_do(
    level: str, queue_id: int
) -> None:
    source = half_message(DELAY=level)
    waiting, op = becomes(source, Way.COMMIT, host=HOST, now_ms=9, levels=18)

    assert (waiting.topic, waiting.queue_id) == (DELAY_TOPIC, queue_id)
    assert (waiting.transaction, waiting.prepared_transaction_offset) == (TRANSACTION_COMMIT, 4_048)
    properties = decode_properties(waiting.properties)
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("orders", "3")
    assert "TRAN_MSG" not in properties
    (record,) = delivered(memoryview(encode_message(waiting)))
    real = decode_message(memoryview(record))
    assert (real.topic, real.queue_id, bytes(real.body)) == ("orders", 3, b"body")
    assert (op.topic, bytes(op.body)) == (OP_TOPIC, b"11")


@pytest.mark.parametrize("level", ["0", "", "x"])
def test_a_committed_message_without_a_level_is_there_at_once(level: str) -> None:
    made, _ = becomes(half_message(DELAY=level), Way.COMMIT, host=HOST, now_ms=9, levels=18)

    assert (made.topic, made.queue_id) == ("orders", 3)


@pytest.mark.parametrize("way", Way)
def test_each_way_makes_as_many_messages_as_it_says_and_they_can_be_stored(way: Way) -> None:
    made = becomes(half_message(), way, host=HOST, now_ms=9, levels=18)

    assert len(made) == RECORDS_OF[way]
    assert [decode_message(memoryview(encode_message(one))).topic for one in made] == [
        one.topic for one in made
    ]


def test_an_op_message_tells_which_transaction_ended_how() -> None:
    (op,) = becomes(half_message(), Way.ROLLBACK, host=HOST, now_ms=9, levels=18)
    by_rocketmq = Message(topic=OP_TOPIC, queue_id=0, body=b"17", properties=b"TAGS\x01d")
    by_rocketmq_5 = Message(topic=OP_TOPIC, queue_id=0, body=b"1,4,0,x,6,", properties=b"TAGS\x01d")
    strange = Message(topic=OP_TOPIC, queue_id=0, body=b"1x7", properties=b"TAGS\x01d")

    assert read_op(op) == Op((11,), "U1", Decision.ROLLBACK)
    assert read_op(by_rocketmq) == Op((17,), "", None)
    assert read_op(by_rocketmq_5) == Op((1, 4, 0, 6), "", None)
    assert read_op(strange) == Op((), "", None)


def test_a_question_is_counted_and_an_unanswered_message_is_kept_as_it_is() -> None:
    (again,) = becomes(half_message(), Way.AGAIN, host=HOST, now_ms=9, levels=18)
    (later,) = becomes(
        half_message(TRANSACTION_CHECK_TIMES="4"), Way.AGAIN, host=HOST, now_ms=9, levels=18
    )
    (aside,) = becomes(half_message(), Way.DISCARD, host=HOST, now_ms=9, levels=18)

    assert (again.topic, again.parsed_properties()["TRANSACTION_CHECK_TIMES"]) == (HALF_TOPIC, "1")
    assert later.parsed_properties()["TRANSACTION_CHECK_TIMES"] == "5"
    assert (aside.topic, aside.queue_id) == (UNANSWERED_TOPIC, 0)
    assert aside.parsed_properties() == PROPERTIES


def test_properties_without_room_for_the_count_stay_as_they_are() -> None:
    full = half_message(filler="x" * (32_767 - len(half_message().properties) - 8))
    (again,) = becomes(full, Way.AGAIN, host=HOST, now_ms=9, levels=18)

    assert len(full.properties) > PROPERTIES_MAX
    assert again.properties == full.properties
    with pytest.raises(MessageIllegalError, match="too large"):
        check_half(full)


def test_a_half_message_says_what_the_leader_has_to_know() -> None:
    known = read_half(half_message(CHECK_IMMUNITY_TIME_IN_SECONDS="9", __transactionId__="T"))
    by_rocketmq = read_half(half_message(CHECK_IMMUNITY_TIME_IN_SECONDS="-1"))

    assert (known.offset, known.position, known.transaction) == (11, 4_048, "T")
    assert (known.group, known.topic, known.checks, known.immunity_ms) == ("g", "orders", 0, 9_000)
    assert (by_rocketmq.transaction, by_rocketmq.immunity_ms) == ("U1", None)


@pytest.mark.parametrize(
    "changes",
    [
        {"TRAN_MSG": "yes"},
        {"PGROUP": ""},
        {"UNIQ_KEY": ""},
        {"REAL_TOPIC": ""},
        {"REAL_QID": ""},
        {"REAL_QID": "-1"},
        {"REAL_QID": "65536"},
        {"REAL_QID": "1e3"},
        {"PGROUP": "g" * 256},
        {"__transactionId__": "t" * 256},
        {"TRANSACTION_CHECK_TIMES": "1"},
        {"DELAY": "1"},
    ],
)
def test_what_no_half_message_is_like_is_refused(changes: dict[str, str]) -> None:
    assert check_half(half_message()) == ("orders", 3)
    with pytest.raises(MessageIllegalError, match="not a half message"):
        check_half(half_message(**changes))


def test_marks_tell_the_way_of_each_offset_of_a_group() -> None:
    group = [(3, Way.COMMIT), (4, Way.COMMIT), (9, Way.COMMIT), (5, Way.ROLLBACK), (6, Way.AGAIN)]
    marks = marks_of(group)

    assert marks == {"commit@3": 2, "commit@9": 1, "rollback@5": 1, "again@6": 1}
    assert [(offset, way_in(marks, offset)) for offset, _ in group] == group
    for wrong in (2, 7, 10):
        with pytest.raises(CorruptLogError):
            way_in(marks, wrong)
    with pytest.raises(CorruptLogError):
        way_in({"commit@x": 3, "strange@0": 9, "": 1}, 1)


def test_all_messages_of_a_transaction_end_together_and_once() -> None:
    table = table_of(half(0, "t"), half(1, "u"), half(2, "t"))
    planned = table.plan_end(key("t"), Decision.COMMIT, messages=2)
    assert planned is not None
    before = [one.offset for one in planned]
    for place, offset in enumerate(before):
        table.take_op(place, Op((offset,), "t", Decision.COMMIT))

    assert before == [0, 2]
    assert table.plan_end(key("t"), Decision.COMMIT, messages=2) == ()
    with pytest.raises(TransactionEndedError, match="the other way"):
        table.plan_end(key("t"), Decision.ROLLBACK, messages=2)
    assert [one.offset for one in table] == [1]
    assert (table.floor, table.op_floor(table.floor)) == (1, 1)


def test_an_end_waits_for_the_messages_that_are_not_read_yet() -> None:
    table = table_of(half(0, "t"))

    assert table.plan_end(key("t"), Decision.COMMIT, messages=2) is None
    assert table.plan_end(key("unknown"), Decision.COMMIT, messages=1) is None
    assert table.plan_end(TransactionKey("h", "t"), Decision.COMMIT, messages=1) is None
    # Nobody counts what is thrown away.
    assert table.plan_end(key("t"), Decision.ROLLBACK, messages=0) == [half(0, "t")]
    table.take_half(half(1, "t"))
    assert table.plan_end(key("t"), Decision.COMMIT, messages=2) == [half(0, "t"), half(1, "t")]
    with pytest.raises(MessageIllegalError, match="messages than it is to have"):
        table.plan_end(key("t"), Decision.COMMIT, messages=1)


def test_how_rocketmq_ended_a_transaction_is_not_known() -> None:
    table = table_of(half(0, "t"))
    table.take_op(0, Op((0,), "", None))

    with pytest.raises(TransactionEndedError, match="does not tell how"):
        table.plan_end(key("t"), Decision.COMMIT, messages=1)
    assert len(table) == 0


def test_rocketmq_5_tells_of_many_half_messages_in_one_op_message() -> None:
    table = table_of(*(half(offset, f"t{offset}") for offset in range(6)))
    table.take_op(0, Op((4, 1, 0), "", None))
    table.take_op(1, Op((5, 9), "", None))

    assert [one.offset for one in table] == [2, 3]
    with pytest.raises(TransactionEndedError, match="does not tell how"):
        table.plan_end(key("t1"), Decision.COMMIT, messages=1)
    # What tells of the last that was decided is needed until that one is passed.
    assert (table.op_floor(2), table.op_floor(5), table.op_floor(6)) == (0, 1, 1)


def test_a_message_that_comes_after_its_transactions_end_is_a_stray() -> None:
    table = table_of(half(0, "t"), half(1, "t"))
    table.take_op(0, Op((0,), "t", Decision.COMMIT))
    found = table.strays()
    table.take_half(half(2, "t"))

    assert found == [half(1, "t")]
    assert table.strays() == [half(1, "t"), half(2, "t")]
    table.forget([1, 2])
    assert table.strays() == []
    # It is not committed a second time.
    assert table.plan_end(key("t"), Decision.COMMIT, messages=1) == ()


def test_a_message_that_stands_in_the_queue_twice_counts_once() -> None:
    older, newer = half(0, "t"), half(2, "t")._replace(unique_id="U0")
    table = table_of(older, half(1, "t"), newer)
    (dropped,) = becomes(half_message(), Way.DROP, host=HOST, now_ms=9, levels=18)
    found = table.strays()
    table.take_op(0, Op((0,), "t", None, is_end=False))

    assert found == [older]
    assert read_op(dropped) == Op((11,), "U1", None, is_end=False)
    assert table.plan_end(key("t"), Decision.COMMIT, messages=2) == [half(1, "t"), newer]
    assert table.strays() == []


def test_the_floor_is_the_first_that_waits() -> None:
    table = table_of(half(5), half(6), half(7))
    table.take_op(0, Op((6,), "t6", Decision.COMMIT))

    assert (table.floor, table.floor_without({5}), table.floor_without({5, 7})) == (5, 7, 8)
    assert (table.op_floor(5), table.op_floor(7)) == (0, 1)
    table.skip_halves(7)
    assert [one.offset for one in table] == [7]


def test_a_round_asks_for_the_old_leaves_the_young_and_puts_the_unanswered_aside() -> None:
    now_ms = 20_000
    table = table_of(
        half(0, born_ms=1_000, stored_ms=1_000),
        half(1, born_ms=1_000, stored_ms=1_000, checks=15),
        half(2, born_ms=1_000, stored_ms=1_000, immunity_ms=60_000),
        half(3, born_ms=1_000, stored_ms=1_000, immunity_ms=0, checks=14),
        half(4, born_ms=15_000, stored_ms=15_000),
        half(5, born_ms=1_000, stored_ms=15_000),
    )
    found = table.plan_round(now_ms, RULES, below=6, limit=100)
    part = table.plan_round(now_ms, RULES, below=6, limit=2)

    assert [one.offset for one in found.again] == [0, 2, 3]
    assert [one.offset for one in found.asked] == [0, 3]
    assert [one.offset for one in found.discarded] == [1]
    assert (found.floor, found.is_last) == (4, True)
    assert ([one.offset for one in part.again], part.floor, part.is_last) == ([0], 2, False)


def test_what_was_stored_since_the_round_began_waits_for_the_next() -> None:
    table = table_of(half(0, stored_ms=500), half(1, stored_ms=500))
    found = table.plan_round(900_000, RULES, below=0, limit=100)

    assert found == ((), (), (), 0, True)


def test_a_producer_whose_clock_is_ahead_waits_like_others_and_holds_up_none() -> None:
    year_ms = 365 * 86_400_000
    table = table_of(
        half(0, born_ms=year_ms, stored_ms=1_000),
        half(1, born_ms=1_000, stored_ms=1_000),
        half(2, born_ms=year_ms, stored_ms=19_000),
        half(3, born_ms=1_000, stored_ms=1_000),
    )
    found = table.plan_round(20_000, RULES, below=4, limit=100)

    assert [one.offset for one in found.asked] == [0, 1]
    # That one was stored a second ago.
    assert (found.floor, found.is_last) == (2, True)


def test_a_leaders_clock_that_was_put_back_keeps_no_question_back() -> None:
    table = table_of(
        half(0, born_ms=900_000, stored_ms=900_000), half(1, born_ms=1_000, stored_ms=900_000)
    )
    found = table.plan_round(20_000, RULES, below=2, limit=100)

    assert [one.offset for one in found.asked] == [0, 1]


def test_one_that_is_too_old_is_put_aside_however_rarely_it_was_asked_for() -> None:
    table = table_of(half(0), half(1, born_ms=900_000, stored_ms=900_000))
    found = table.plan_round(1_000_001, RULES, below=2, limit=100)

    assert [one.offset for one in found.discarded] == [0]
    assert [one.offset for one in found.again] == [1]


def test_queue_and_flags_of_a_half_message_are_those_of_rocketmq() -> None:
    (again,) = becomes(half_message(), Way.AGAIN, host=HOST, now_ms=9, levels=18)

    assert (again.topic, again.queue_id) == HALF_QUEUE
    # Bits of a transaction on a half message would keep it out of the queues of RocketMQ.
    assert again.sys_flag & (TRANSACTION_PREPARED | TRANSACTION_COMMIT) == 0
