"""Stored messages that nobody can make anything of: each service passes them over, and goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgermq.broker.deliveries.delay_service import DelayService
from ledgermq.broker.deliveries.timer_records import parse_timers
from ledgermq.broker.deliveries.timer_service import TimerService
from ledgermq.broker.reading.poison_messages import PoisonMessages
from ledgermq.broker.transactions.transaction_service import HalfReader
from ledgermq.formats.records.delayed_message import delivered
from ledgermq.formats.records.message import Message, decode_message, encode_message
from ledgermq.formats.records.properties import (
    CHECK_IMMUNITY_TIME,
    DELAY,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_ID,
    UNIQ_KEY,
)
from ledgermq.ipc.counters import BrokerCounter
from ledgermq.model.errors import BusyError, DamagedLogError, MessageIllegalError, NotLeaderError
from ledgermq.model.features import LEVEL
from ledgermq.model.limits import DELAY_TOPIC, FORBIDDEN_TOPICS, SYSTEM_TOPIC, TIMER_TOPIC
from ledgermq.process.clock import MACHINE_CLOCK
from ledgermq.rules.messages.transactions import HALF_QUEUE, OP_QUEUE, RECORDS_OF, Way, becomes
from ledgermq.rules.state.state_commands import STATE_QUEUE_ID, STATE_TAG
from ledgermq.rules.tables.moves import Moved
from ledgermq.store.record_parts import RecordParts
from tests.unit.broker.applied import apply_all
from tests.unit.broker.memory_log import MemoryLog
from tests.unit.broker.state_node import StateNode

LEVELS = "1s 5s"

NO_TOPICS = (
    "",
    "a/b",
    "../../etc",
    "..",
    ".",
    "x" * 128,
    "x" * 300,
    "x" * 5_000,
    "nul\0nul",
    "Ünicode",
    "\ufffd",
    "with space",
    "\n",
    *sorted(FORBIDDEN_TOPICS),
)
NUMBERS = ("", "x", "-1", "9" * 9, "9" * 18, "9" * 5_000, "٣", "1e3", " 1", "0x1")


def properties_of(pairs: dict[str, str]) -> bytes:
    """As somebody else may have written them; not through our encoder, which refuses most."""
    return "\x02".join(f"{name}\x01{value}" for name, value in pairs.items()).encode()


def stored(topic: str, properties: bytes, *, queue_id: int = 0, body: bytes = b"m") -> bytes:
    return encode_message(Message(topic=topic, queue_id=queue_id, body=body, properties=properties))


class Node(StateNode):
    """What a leader's broker reads of a log in memory."""

    def __init__(self, directory: Path, log: MemoryLog) -> None:
        super().__init__(directory, log)
        store, clock = self.stand_in, MACHINE_CLOCK
        self.delays = DelayService(store, self.moves, self.state, clock, LEVELS)
        self.timers = TimerService(store, self.moves, self.state, clock)
        self.halves = HalfReader(store, self.tables, self.moves)
        self.lead(1)

    @property
    def poisoned(self) -> int:
        return int(self.counts[BrokerCounter.POISON_MESSAGES])

    def run(self) -> None:
        """Have the writer take whatever comes, until nothing does."""
        idle = 0
        while idle < 5:
            self.now_ms += 1_100
            self.delays.notice_growth(self.now_ms)
            self.timers.notice_growth(self.now_ms)
            apply_all(self.state)
            self.moves.turn(self.now_ms)
            self.delays.turn(self.now_ms)
            self.timers.turn(self.now_ms)
            self.state.turn(self.now_ms)
            idle = 0 if self.log.orders else idle + 1
            while self.log.orders:
                self.log.take()


@pytest.mark.parametrize("topic", [DELAY_TOPIC, TIMER_TOPIC])
def test_delayed_messages_that_belong_nowhere_are_passed_over_and_named(
    tmp_path: Path, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = MemoryLog()
    due = {"DELIVER_AT": "0" * 13} if topic == TIMER_TOPIC else {DELAY: "1"}
    bad = [
        *({REAL_TOPIC: name, REAL_QUEUE_ID: "0"} for name in NO_TOPICS),
        *({REAL_TOPIC: "orders", REAL_QUEUE_ID: number} for number in NUMBERS if number != "9" * 9),
        {},
        {REAL_QUEUE_ID: "0"},
    ]
    for one in bad:
        log.put(stored(topic, properties_of({**due, **one})))
    log.put(stored(topic, properties_of({**due, REAL_TOPIC: "orders", REAL_QUEUE_ID: "0"})))
    node = Node(tmp_path, log)

    node.run()

    assert [bytes(one.body) for one in log.messages("orders")] == [b"m"]
    assert {queue.topic for queue in log.queues} == {topic, SYSTEM_TOPIC, "orders"}
    assert node.poisoned >= len(bad)
    assert f"at={topic}/0/0: " in caplog.text


def test_timers_without_a_time_are_passed_over(tmp_path: Path) -> None:
    log = MemoryLog()
    real = {REAL_TOPIC: "orders", REAL_QUEUE_ID: "0"}
    for number in ("x" * 13, "-" + "9" * 12, "9" * 400, "1"):
        log.put(stored(TIMER_TOPIC, properties_of({"DELIVER_AT": number, **real})))
        log.put(stored(TIMER_TOPIC, properties_of({"CANCELS_AT": number})))
    log.put(stored(TIMER_TOPIC, b""))
    log.put(stored(TIMER_TOPIC, properties_of({"CANCELS_AT": "9" * 13})))
    log.put(stored(TIMER_TOPIC, properties_of({"DELIVER_AT": "9" * 13, **real})))
    log.put(stored(TIMER_TOPIC, properties_of({"DELIVER_AT": "0" * 13, **real})))
    node = Node(tmp_path, log)

    node.run()

    # Nine digits more than thirteen begin like thirteen: a time far from now, which waits.
    assert [one.queue_id for one in log.messages("orders")] == [0]
    assert node.timers.index.count == 2


@pytest.mark.slow
@given(st.binary(min_size=91, max_size=220), st.integers(0, 0x3F))
@settings(max_examples=200, deadline=None)
def test_no_bytes_of_a_record_end_the_reading_of_timers(data: bytes, flags: int) -> None:
    record = bytearray(data)
    record[39] = flags
    good = stored(TIMER_TOPIC, properties_of({"DELIVER_AT": "0" * 13}))
    payload = bytes(record) + good
    starts = np.array([0, len(record)], np.uint32)
    sizes = np.array([len(record), len(good)], np.uint32)

    found = parse_timers(RecordParts(payload, starts, sizes, len(payload)))

    assert bool(found.is_whole[1]) and bool(found.is_timer[1])


TEXTS = st.one_of(st.sampled_from([*NO_TOPICS, *NUMBERS]), st.text(max_size=40))
HALF_NAMES = (
    REAL_TOPIC,
    REAL_QUEUE_ID,
    DELAY,
    UNIQ_KEY,
    TRANSACTION_ID,
    PRODUCER_GROUP,
    TRANSACTION_CHECK_TIMES,
    CHECK_IMMUNITY_TIME,
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(HALF_NAMES), TEXTS), st.sampled_from(Way))
@settings(max_examples=200, deadline=None)
def test_any_half_message_becomes_what_a_log_may_have(pairs: dict[str, str], way: Way) -> None:
    data = "\x02".join(f"{name}\x01{value}" for name, value in pairs.items())
    half = decode_message(
        memoryview(stored(HALF_QUEUE.topic, data.encode("utf-8", "surrogatepass")))
    )

    made = becomes(half, way, host=("127.0.0.1", 1), now_ms=1, levels=18)

    assert len(made) == RECORDS_OF[way]
    for one in made:
        again = decode_message(memoryview(encode_message(one)))
        is_own = again.topic in {HALF_QUEUE.topic, OP_QUEUE.topic, DELAY_TOPIC}
        is_own = is_own or again.topic == "TRANS_CHECK_MAX_TIME_TOPIC"

        assert is_own or again.topic not in FORBIDDEN_TOPICS
        assert "/" not in again.topic


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from([REAL_TOPIC, REAL_QUEUE_ID, DELAY]), TEXTS))
@settings(max_examples=200, deadline=None)
def test_nothing_is_delivered_into_a_topic_of_the_brokers_own(pairs: dict[str, str]) -> None:
    data = "\x02".join(f"{name}\x01{value}" for name, value in pairs.items())
    record = stored(DELAY_TOPIC, data.encode("utf-8", "surrogatepass"))

    for one in delivered(memoryview(record)):
        assert decode_message(memoryview(one)).topic not in FORBIDDEN_TOPICS


def test_half_messages_that_say_nothing_hold_up_no_other_ones(tmp_path: Path) -> None:
    log = MemoryLog()
    for number in NUMBERS:
        pairs = dict.fromkeys(HALF_NAMES, number[:3000])
        log.put(stored(HALF_QUEUE.topic, properties_of(pairs)))
        log.put(stored(OP_QUEUE.topic, properties_of({"TAGS": "d"}), body=number.encode()))
    log.put(stored(OP_QUEUE.topic, properties_of({"TAGS": "d"}), body=b"\xff" * 40))
    node = Node(tmp_path, log)
    node.run()

    table = node.halves.read()

    assert table is not None
    assert (table.next_half, table.next_op) == (len(NUMBERS), len(NUMBERS) + 1)


BROKEN = (
    b"",
    b"null",
    b"[" * 100_000,
    b'{"id":' + b"9" * 5_000 + b"}",
    b'{"id":"x","at":1e999,"changes":[{"topic":"t","fields":{"perm":' + b"9" * 400 + b"}}]}",
    b'{"id":"x","at":"y","changes":{}}',
    b'{"id":"x","at":1,"changes":[null,1,"x",[],{}]}',
    b'{"id":"x","at":1,"changes":[{"topic":"../..","fields":{"readQueueNums":-1}}]}',
    b'{"id":"x","at":1,"changes":[{"moved":"q","queue":"x","offsets":"y"}]}',
    b"\xff\xfe\x00",
)


@pytest.mark.parametrize("body", BROKEN, ids=lambda body: body[:12].decode("latin-1"))
@pytest.mark.parametrize("tag", [STATE_TAG, "snapshot"])
def test_a_command_that_is_none_is_passed_over_and_those_behind_it_are_applied(
    tmp_path: Path, body: bytes, tag: str
) -> None:
    log = MemoryLog()
    pairs = {"TAGS": tag, "PART": "1/1"}
    log.put(stored(SYSTEM_TOPIC, properties_of(pairs), queue_id=STATE_QUEUE_ID, body=body))
    node = Node(tmp_path, log)

    node.run()

    assert node.state.is_settled
    assert node.state.next_offset >= 2


NEWER = (
    b'{"id":"x","at":1,"changes":[{"thing":"t"}]}',
    b'{"id":"x","at":1,"needs":99,"changes":[{"level":99}]}',
    b'{"id":"x","at":1,"needs":99,"changes":[]}',
    b'{"id":"x","at":1,"changes":[{"level":99}]}',
)


@pytest.mark.parametrize("body", NEWER)
def test_a_command_of_a_newer_version_is_never_passed_over(tmp_path: Path, body: bytes) -> None:
    """What is behind it stays unapplied, is not lost, and nothing is proposed meanwhile."""
    log = MemoryLog()
    for one in (body, b'{"id":"y","at":1,"changes":[{"level":1}]}'):
        properties = properties_of({"TAGS": STATE_TAG})
        log.put(stored(SYSTEM_TOPIC, properties, queue_id=STATE_QUEUE_ID, body=one))
    node = Node(tmp_path, log)

    node.run()

    assert node.state.next_offset == 0
    assert node.state.level_needed == (99 if b"99" in body else LEVEL + 1)
    assert node.tables.features.level == 0
    assert not node.state.is_settled
    assert node.poisoned == 0
    assert not log.orders
    with pytest.raises((BusyError, NotLeaderError)):
        node.state.check()


def test_what_tells_of_the_node_is_raised_and_names_no_message(tmp_path: Path) -> None:
    node = Node(tmp_path, MemoryLog())
    poison = PoisonMessages(node.counts)

    def raising(error: Exception) -> Callable[[], None]:
        def use() -> None:
            raise error

        return use

    for error in (BusyError("b"), DamagedLogError("d"), OSError(5, "x"), MemoryError()):
        with pytest.raises(type(error)):
            poison.guarded("t/0/0", raising(error), None)
    before = node.poisoned
    poison.guarded("t/0/0", raising(ZeroDivisionError()), None)
    poison.guarded("t/0/0", raising(MessageIllegalError("m")), None)

    assert (before, node.poisoned) == (0, 2)


def test_a_plan_that_meets_a_bug_is_refused_alone(tmp_path: Path) -> None:
    log = MemoryLog()
    node = Node(tmp_path, log)
    met: list[Exception] = []
    told: list[Exception] = []

    def contain(error: Exception) -> MessageIllegalError:
        met.append(error)
        return MessageIllegalError("bug")

    node.state._contain = contain
    node.moves.register("source", lambda _queue, _offset, _record: ())

    def plan() -> tuple[Moved, list[bytes]] | None:
        raise KeyError("bug")

    node.run()
    queue = HALF_QUEUE._replace(topic="source")
    node.moves.request(queue, plan, done=lambda: None, refused=told.append, now_ms=node.now_ms)
    node.run()

    assert [type(one) for one in met] == [KeyError]
    assert [type(one) for one in told] == [MessageIllegalError]
    assert node.state.is_settled
