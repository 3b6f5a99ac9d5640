"""The broker process on the stores of real Java brokers, with raw clients on real sockets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ledgermq.formats.java_hash import java_hash
from ledgermq.ipc.counters import BrokerCounter
from ledgermq.model.config.settings import (
    LimitsSection,
)
from ledgermq.wire.header import Kind, decode_header, encode_header
from ledgermq.wire.pull_frame import PullStatus
from ledgermq.wire.session import Refusal, encode_hello
from tests.process.broker_node import (
    NodeMaker,
    broker_nodes,
    pull_all,
    root_of,
    told,
    units_of,
)


@pytest.fixture
def node(golden_copy: Callable[[str], Path]) -> Iterator[NodeMaker]:
    with broker_nodes(golden_copy) as make:
        yield make


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gd0", "gs1"])
@pytest.mark.parametrize("messages", [1, 32, 5_000])
def test_every_message_is_given_as_java_gave_it(
    node: NodeMaker, golden_json: Any, name: str, messages: int
) -> None:
    client = node(name).client()
    document = golden_json(name)
    wanted: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for message in document["messages"]:
        wanted.setdefault((message["readTopic"], message["readQueue"]), []).append(message)

    for (topic, queue_id), expected in wanted.items():
        found = {
            message["physicalOffset"]: message
            for message in map(told, pull_all(client, topic, queue_id, messages=messages))
        }
        for message in expected:
            mine = found[message["physicalOffset"]]
            theirs = {key: message[key] for key in mine.keys() - {"UNIQ_KEY", "bodyMd5"}}
            assert {key: mine[key] for key in theirs} == theirs
            assert mine["UNIQ_KEY"] == message["properties"].get("UNIQ_KEY")
    assert sum(map(len, wanted.values())) == len(document["messages"]) > 400


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gd0", "gs1"])
def test_bounds_and_times_lead_where_java_says(
    node: NodeMaker, golden_json: Any, name: str
) -> None:
    client = node(name).client()
    document = golden_json(name)

    for queue in document["queues"]:
        bounds = client.call("queue", topic=queue["topic"], queue=queue["queue"])
        assert bounds["min"] == queue["min"]
        assert bounds["max"] >= queue["max"]
    assert len(document["queues"]) > 30


@pytest.mark.slow
def test_offsets_by_time_are_javas(node: NodeMaker, golden_json: Any) -> None:
    client = node("gd0").client()
    queries = golden_json("gd0")["timeQueries"]

    answers = [
        client.call(
            "offset_by_time", topic=one["topic"], queue=one["queue"], timestamp=one["timestamp"]
        )
        for one in queries
    ]

    different = [
        (one, answer["offset"])
        for one, answer in zip(queries, answers, strict=True)
        if answer["offset"] != one["offset"]
    ]
    # A message that was delivered after the questions may be nearer than the one Java found.
    assert all(found > one["offset"] for one, found in different)
    assert len(different) < len(queries) // 10


@pytest.mark.slow
def test_tags_are_filtered_by_their_hashes(node: NodeMaker, golden_json: Any) -> None:
    client = node("gd0").client()
    messages = [one for one in golden_json("gd0")["messages"] if one["readTopic"] == "plain0"]
    wanted = [one["physicalOffset"] for one in messages if one["properties"].get("TAGS") == "TagA"]

    hashes = [java_hash("TagA"), java_hash("NoSuchTag")]
    records = [
        record
        for queue_id in range(4)
        for record in pull_all(client, "plain0", queue_id, messages=3, tag_hashes=hashes)
    ]

    assert sorted(told(record)["physicalOffset"] for record in records) == sorted(wanted)
    assert 0 < len(wanted) < len(messages)


@pytest.mark.slow
def test_tags_that_nobody_has_are_looked_for_once(node: NodeMaker) -> None:
    one = node("gd0")
    client = one.client()
    end = len(units_of(root_of(one), "plain0"))

    answer = client.pull("plain0", 0, 0, tag_hashes=[java_hash("NoSuchTag")])
    client.send_pull("plain0", 0, 0, tag_hashes=[java_hash("NoSuchTag")], hold_ms=60)
    held = client.pulled()

    assert (answer.status, answer.pulled.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, end)
    assert (held.status, held.pulled.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, end)
    assert one.count(BrokerCounter.WAKES) == 1


@pytest.mark.slow
def test_wishes_and_statuses_are_kept(node: NodeMaker) -> None:
    one = node("gd0")
    client = one.client()
    sizes = units_of(root_of(one), "plain0")["size"].tolist()
    end = len(sizes)

    first = client.pull("plain0", 0, 0, size=0)
    fitting = client.pull("plain0", 0, 0, size=sum(sizes[:3]))
    at_end = client.pull("plain0", 0, end)
    behind = client.pull("plain0", 0, end + 1)
    empty = client.pull("BenchmarkTest", 1_023, 0)

    assert [len(record) for record in first.records] == sizes[:1]
    assert [len(record) for record in fitting.records] == sizes[:3]
    assert (fitting.pulled.next_offset, fitting.pulled.begin, fitting.pulled.end) == (3, 0, end)
    assert (at_end.status, at_end.pulled.next_offset) == (PullStatus.OFFSET_OVERFLOW_ONE, end)
    assert (behind.status, behind.pulled.next_offset) == (PullStatus.OFFSET_OVERFLOW_BADLY, end)
    assert (empty.status, empty.pulled.end) == (PullStatus.NO_MESSAGE_IN_QUEUE, 0)


@pytest.mark.slow
def test_nothing_is_shown_beyond_what_is_dispatched(node: NodeMaker) -> None:
    one = node("gd0", start=False)
    units = units_of(root_of(one), "plain1")
    shown = 7
    position = int(units["position"][shown - 1]) + int(units["size"][shown - 1])
    one.dispatch(position, written=one.log_end)
    one.start()
    client = one.client()

    records = pull_all(client, "plain1", 0, messages=4)
    ahead = client.pull("plain1", 0, len(units))

    assert len(records) == shown
    assert max(told(record)["physicalOffset"] for record in records) < position
    # What the queue may still reach is waited for, and not corrected to an earlier offset.
    assert (ahead.status, ahead.pulled.next_offset) == (PullStatus.OFFSET_OVERFLOW_ONE, len(units))


@pytest.mark.slow
def test_a_held_pull_is_answered_by_the_bell_with_what_came(node: NodeMaker) -> None:
    one = node("gd0", start=False)
    units = units_of(root_of(one), "plain1")
    one.dispatch(int(units["position"][5]), written=one.log_end)
    one.start()
    client, other = one.client(), one.client()
    client.send_pull("plain1", 0, 5, hold_ms=60_000)
    other.send_pull("plain1", 0, len(units), hold_ms=60_000)
    one.wait(lambda: one.count(BrokerCounter.HELD) == 2)
    one.dispatch(int(units["position"][7]), written=one.log_end)
    answer = client.pulled()

    assert answer.status is PullStatus.FOUND
    assert [told(record)["queueOffset"] for record in answer.records] == [5, 6]
    # It was not the end of the hold: the other one's is the same.
    assert not other.socket.poll(0)
    one.wait(lambda: one.count(BrokerCounter.HELD) == 1)


@pytest.mark.slow
def test_a_hold_for_a_tag_goes_on_until_the_tag_comes(node: NodeMaker) -> None:
    one = node("gd0", start=False)
    units = units_of(root_of(one), "plain0")
    last = len(units) - 1
    path = root_of(one) / "consumequeue" / "plain0" / "0" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(20 * last + 12)
        file.write((777).to_bytes(8, "big"))
    one.dispatch(int(units["position"][5]), written=one.log_end)
    one.start()
    client = one.client()
    client.send_pull("plain0", 0, 5, hold_ms=60_000, tag_hashes=[777])
    one.wait(lambda: one.count(BrokerCounter.HELD) == 1)
    one.dispatch(int(units["position"][last]), written=one.log_end)
    unmatched = client.socket.poll(300)
    one.dispatch(one.log_end)
    answer = client.pulled()

    assert unmatched == 0
    assert [told(record)["queueOffset"] for record in answer.records] == [last]
    assert answer.pulled.next_offset == last + 1


@pytest.mark.slow
def test_a_hold_ends_in_time(node: NodeMaker) -> None:
    one = node("gd0")
    client = one.client()
    end = len(units_of(root_of(one), "plain0"))
    begin = time.monotonic()
    answer = client.pull("plain0", 0, end, hold_ms=120)
    took_s = time.monotonic() - begin

    assert (answer.status, answer.pulled.next_offset) == (PullStatus.OFFSET_OVERFLOW_ONE, end)
    # Its time counts from the beginning of the turn that took it, which may have been busy.
    assert took_s > 0.01
    one.wait(lambda: one.count(BrokerCounter.HELD) == 0)


@pytest.mark.slow
def test_one_hold_more_than_the_limit_ends_the_oldest_of_who_has_most(node: NodeMaker) -> None:
    one = node("gd0", limits=LimitsSection(held_pulls_max=2))
    greedy, other = one.client(), one.client()
    end = len(units_of(root_of(one), "plain0"))
    numbers = [greedy.send_pull("plain0", 0, end, hold_ms=60_000) for _ in range(2)]
    one.wait(lambda: one.count(BrokerCounter.HELD) == 2)
    other.send_pull("plain0", 0, end, hold_ms=60_000)
    ended = decode_header(greedy.receive()[0])

    assert (ended.kind, ended.request_id) == (Kind.PULLED, numbers[0])
    assert one.count(BrokerCounter.HOLDS_DISPLACED) == 1
    one.wait(lambda: one.count(BrokerCounter.HELD) == 2)


@pytest.mark.slow
def test_a_client_that_says_goodbye_leaves_no_holds(node: NodeMaker) -> None:
    one = node("gd0")
    client = one.client()
    client.send_pull("BenchmarkTest", 0, 0, hold_ms=60_000)
    client.send_pull("BenchmarkTest", 1, 0, hold_ms=60_000)
    one.wait(lambda: one.count(BrokerCounter.HELD) == 2)
    client.socket.send(encode_header(Kind.GOODBYE, 1))
    one.wait(lambda: one.count(BrokerCounter.HELD) == 0)
    client.send_pull("plain0")
    refusal = client.refusal()

    assert (refusal.status, refusal.number, refusal.retriable) == ("SESSION_UNKNOWN", 42, True)
    assert one.count(BrokerCounter.SESSIONS) == 0


@pytest.mark.slow
def test_a_node_that_starts_refuses_to_guess_where_queues_end(node: NodeMaker) -> None:
    one = node("gd0", dispatched=0)
    client = one.client()
    client.send_pull("plain0", 0, 3)
    refusal = client.refusal()
    one.dispatch(one.log_end)
    one.wait(lambda: not isinstance(client.call("queue", topic="plain0", queue=0), Refusal))
    answer = client.pull("plain0", 0, 3, messages=1)

    assert (refusal.status, refusal.retriable) == ("SERVICE_NOT_AVAILABLE", True)
    assert answer.status is PullStatus.FOUND


@pytest.mark.slow
def test_a_log_that_was_cut_shows_its_new_end(node: NodeMaker) -> None:
    one = node("gd0")
    client = one.client()
    units = units_of(root_of(one), "plain0")
    before = client.call("queue", topic="plain0", queue=0)
    one.dispatch(int(units["position"][10]), generation=1)
    one.wait(lambda: client.call("queue", topic="plain0", queue=0) != before)
    after = client.call("queue", topic="plain0", queue=0)

    assert before == {"min": 0, "max": len(units)}
    assert after == {"min": 0, "max": 10}


@pytest.mark.slow
def test_a_message_that_is_not_what_its_queue_says_is_never_given(node: NodeMaker) -> None:
    one = node("gs1", start=False)
    units = units_of(root_of(one), "plain0")
    damaged = int(units["position"][4])
    files = sorted((root_of(one) / "commitlog").iterdir())
    path = max(path for path in files if int(path.name) <= damaged)
    with path.open("r+b") as file:
        file.seek(damaged - int(path.name) + 4)
        file.write(b"\x00")
    one.start()
    client = one.client()
    before = client.pull("plain0", 0, 0)
    client.send_pull("plain0", 0, 4)
    refusal = client.refusal()
    after = client.pull("plain0", 0, 5)

    assert [told(record)["queueOffset"] for record in before.records] == [0, 1, 2, 3]
    assert before.pulled.next_offset == 4
    assert (refusal.number, refusal.status, refusal.retriable) == (45, "LOG_DAMAGED", True)
    assert path.name in refusal.reason
    assert "magic" in refusal.reason
    assert after.status is PullStatus.FOUND


BAD_FRAMES: list[list[bytes]] = [
    [b""],
    [b"LM"],
    [b"GET / HTTP/1.1\r\n\r\n"],
    [encode_header(Kind.PULL, 9)],
    [encode_header(Kind.PULL, 9) + bytes(28)],
    [encode_header(Kind.PULL, 9) + bytes(28), b"more"],
    [encode_header(Kind.CALL, 9)],
    [encode_header(Kind.CALL, 9), b"[1]"],
    [encode_header(Kind.CALL, 9), b"{"],
    [encode_header(Kind.CALL, 9), b'{"verb":"format"}'],
    [encode_header(Kind.CALL, 9), b'{"verb":"queue","topic":3}'],
    [encode_header(Kind.CALL, 9), b'{"verb":"queue","topic":"plain0","queue":-1}'],
    [encode_header(Kind.CALL, 9), b'{"verb":"group_commit","group":"g","topic":"plain0"}'],
    [encode_header(Kind.SEND, 9), b"x"],
    [encode_header(Kind.WELCOME, 9), b"{}"],
    [encode_header(Kind.HELLO, 9), b"{}"],
    [encode_header(Kind.HELLO, 9)],
    [*encode_hello(9, client="x", library="y"), b"", b"", b"", b""],
]


@pytest.mark.slow
def test_bad_frames_are_refused_and_harm_nobody(node: NodeMaker) -> None:
    one = node("gd0")
    bad, good = one.client(), one.client()
    good.send_pull("BenchmarkTest", 0, 0, hold_ms=60_000)
    reasons = []
    for parts in BAD_FRAMES:
        bad.socket.send_multipart(parts)
        reasons.append(bad.refusal())
    answer = bad.pull("plain0", 0, 0, messages=1)

    assert {refusal.status for refusal in reasons} == {"PROTOCOL_ERROR"}
    assert all(refusal.reason and not refusal.retriable for refusal in reasons)
    assert answer.status is PullStatus.FOUND
    assert good.pull("plain0", 0, 0, messages=1).status is PullStatus.FOUND
    assert one.count(BrokerCounter.REFUSED) == len(BAD_FRAMES)
    one.wait(lambda: one.count(BrokerCounter.HELD) == 1)


@pytest.mark.slow
def test_a_slow_client_is_refused_more_and_holds_nobody_up(node: NodeMaker) -> None:
    one = node("gd0", limits=LimitsSection(client_window_bytes=4 * 1024 * 1024))
    slow, quick = one.client(queued_max=1), one.client()
    for _ in range(2_000):
        slow.send_pull("plain0", 0, 0, messages=5_000, size=4 << 20)
    one.wait(
        lambda: one.count(BrokerCounter.REFUSED) > 0 or one.count(BrokerCounter.UNANSWERABLE) > 0
    )
    # Who waited for the slow one would wait for ever: it does not read.
    answer = quick.pull("plain0", 0, 0, messages=1)
    assert one.child is not None
    memory = psutil.Process(one.child.pid).memory_info()

    assert answer.status is PullStatus.FOUND
    assert memory.rss - memory.shared < 150 * 1024 * 1024
