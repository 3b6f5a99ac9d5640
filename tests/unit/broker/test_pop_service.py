"""What POP has in flight comes again, once: over a log in memory, cut anywhere."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from ledgermq.broker.state.state_log import PROPOSAL_MS
from ledgermq.formats.pop_marks import Checkpoint, PopMarks, retried_topic
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.formats.records.properties import encode_properties
from ledgermq.formats.timer_wheel import WHEEL_QUEUE
from tests.unit.broker.memory_log import MemoryLog, proposal_of
from tests.unit.broker.test_timer_service import BEGIN_MS
from tests.unit.broker.test_wheel_service import SOON, Node, java

REVIVE = "rmq_sys_REVIVE_LOG_c"
POP_MS = SOON - 30_000
RETRY = "%RETRY%g"
POP_RETRY = "%RETRY%g_work"


def mark(log: MemoryLog, *, wheel_due_ms: int | None = None, **fields: object) -> None:
    """A mark of POP in its own topic, or on its way there."""
    whole = {"t": "work", "c": "g", "q": 0, "so": 0, "pt": POP_MS, "bn": "b", **fields}
    properties = {"TAGS": "ck" if "n" in fields else "ack", "REAL_TOPIC": REVIVE, "REAL_QID": "0"}
    if wheel_due_ms is not None:
        properties["TIMER_OUT_MS"] = str(wheel_due_ms)
    message = Message(
        topic=REVIVE if wheel_due_ms is None else WHEEL_QUEUE.topic,
        queue_id=0,
        body=json.dumps(whole).encode(),
        properties=encode_properties(properties),
    )
    log.put(encode_message(message))


@pytest.fixture
def log(tmp_path: Path) -> MemoryLog:
    """Six messages of ``work``, and marks of them as RocketMQ has left them."""
    java(tmp_path, before=BEGIN_MS, enqueued=9)
    config = tmp_path / "config"
    topics = {name: {"topicName": name, "perm": 6} for name in ("work", POP_RETRY, REVIVE)}
    offsets = {f"{REVIVE}@CID_RMQ_SYS_REVIVE_GROUP": {"0": 0}, f"{POP_RETRY}@g": {"0": 1}}
    group = {"groupName": "g", "consumeEnable": True}
    for file, key, table in (
        ("topics.json", "topicConfigTable", topics),
        ("subscriptionGroup.json", "subscriptionGroupTable", {"g": group}),
        ("consumerOffset.json", "offsetTable", offsets),
    ):
        (config / file).write_text(json.dumps({key: table, "ledgermqApplied": 0}))
    made = MemoryLog()
    for number in range(6):
        made.put(encode_message(Message(topic="work", queue_id=0, body=b"m%d" % number)))
    for number in range(3):
        made.put(encode_message(Message(topic=POP_RETRY, queue_id=0, body=b"r%d" % number)))
    # Done with; the wheel's checkpoint does not know yet that it was delivered.
    mark(made, n=1, d=[], bm=0, it=30_000, pt=1)
    mark(made, n=1, d=[], bm=0, it=30_000, pt=1, wheel_due_ms=SOON)
    # Three, of which the second one was acknowledged, and two of which the first one has its bit.
    mark(made, n=3, d=[], bm=0, it=30_000)
    mark(made, ao=1)
    mark(made, n=2, d=[0, 2], bm=1, it=30_000, so=3)
    # On its way there: one, and an acknowledgement of the other one of those two, in a list.
    mark(made, n=1, d=[], bm=0, it=30_000, so=4, wheel_due_ms=SOON)
    mark(made, aol=[5], so=3, wheel_due_ms=SOON)
    # Of no group here, and nothing that can be read.
    mark(made, n=1, d=[], bm=0, it=30_000, c="gone")
    made.put(encode_message(Message(topic=REVIVE, queue_id=0, body=b"no mark")))
    return made


def retries(log: MemoryLog) -> Counter[str]:
    return Counter(bytes(one.body).decode() for one in log.messages(RETRY))


def test_what_was_not_acknowledged_comes_when_others_would_have_got_it(
    tmp_path: Path, log: MemoryLog
) -> None:
    node = Node(tmp_path, log, 1)
    node.run()
    at_once = retries(log)
    node.run(SOON)
    tables = node.tables.offsets

    assert at_once == Counter(["r1", "r2"])
    assert retries(log) - at_once == Counter(["m0", "m2", "m4"])
    assert {one.parsed_properties()["RETRY_TOPIC"] for one in log.messages(RETRY)} == {"work"}
    assert Counter(one.reconsume_times for one in log.messages(RETRY)) == {1: 3, 0: 2}
    assert tables.offset("CID_RMQ_SYS_REVIVE_GROUP", REVIVE, 0) == 5
    assert tables.offset("g", POP_RETRY, 0) == 3
    assert node.tables.topics.get(RETRY) is not None
    assert Node(tmp_path, log, 2).run(SOON) == []
    assert sum(retries(log).values()) == 5


@pytest.mark.parametrize("proposal", range(5))
@pytest.mark.parametrize("cut", range(4))
def test_a_crash_at_any_record_brings_nothing_twice_and_loses_nothing(
    tmp_path: Path, log: MemoryLog, proposal: int, cut: int
) -> None:
    dead = Node(tmp_path, log, 1)
    for number in range(proposal + 1):
        for _ in range(20):
            if not log.orders:
                dead.turn()
        assert log.orders
        if number < proposal:
            log.take()
    log.take(min(cut, len(proposal_of(log.orders[0]).records)))
    log.orders.clear()
    heir = Node(tmp_path, log, 2)
    heir.now_ms = dead.now_ms + PROPOSAL_MS
    heir.run()
    heir.run(SOON)

    assert retries(log) == Counter(["r1", "r2", "m0", "m2", "m4"])


def test_what_is_left_behind_stays_where_it_is(tmp_path: Path, log: MemoryLog) -> None:
    node = Node(tmp_path, log, 1, "pop")
    node.run(SOON)

    assert retries(log) == Counter()
    assert node.tables.offsets.offset("g", POP_RETRY, 0) == 1


@pytest.mark.parametrize(
    ("topic", "group", "first"),
    [
        ("%RETRY%g_work", "g", "work"),
        ("%RETRY%g+work", "g", "work"),
        ("%RETRY%g", "g", None),
        ("%RETRY%g_", "g", None),
        ("%RETRY%gg_work", "g", None),
        ("work", "g", None),
    ],
)
def test_a_retry_topic_of_pop_is_known_by_its_group(
    topic: str, group: str, first: str | None
) -> None:
    assert retried_topic(topic, group) == first


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'{"t":1,"c":"g","n":1}', b'{"t":"t","n":1}', b"\xff", b'{"t":"t","c":2}'],
)
def test_a_body_that_is_no_mark_says_nothing(body: bytes) -> None:
    assert PopMarks().take(body) is None


def test_numbers_of_a_mark_are_bounded() -> None:
    many = {"t": "t", "c": "g", "q": -1, "so": 1 << 62, "pt": "x", "n": 10**9, "d": [], "bm": []}
    found = PopMarks().take(json.dumps(many).encode())

    assert found == Checkpoint("t", "g", 0, 0, 0, tuple(range(127)), 0)


def test_the_bit_of_the_32nd_message_makes_the_number_negative_and_counts() -> None:
    body = {"t": "t", "c": "g", "n": 32, "d": [], "bm": -(1 << 31), "it": 7, "pt": 3}
    found = PopMarks().take(json.dumps(body).encode())

    assert found is not None
    assert (found.offsets, found.revive_ms) == (tuple(range(31)), 10)
