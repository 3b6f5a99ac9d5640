"""``ledgermq message``: shows, finds, browses and tracks the messages of a real node."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ledgermq.cli.main import main
from ledgermq.client import (
    Consumer,
    OutgoingMessage,
    Producer,
    Queries,
    ReceivedMessage,
    SendResult,
    TraceTopic,
    Tracing,
)
from ledgermq.client.aio import AsyncQueries
from ledgermq.client.blocking.group_consumer import GroupConsumer
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.reading.message_track import Track, TrackState
from ledgermq.formats.records.trace_record import TracedKind, TracedSend
from ledgermq.model.message_filter import MessageFilter
from ledgermq.model.names.system_topics import TRACE_TOPIC
from tests.process.conftest import Node, wait_until
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

Show = Callable[..., tuple[int, str, str]]

NODE = {}
"""One node for all tests, with the settings of the kit."""


@pytest.fixture
def show(node: Node, capsys: pytest.CaptureFixture[str]) -> Show:
    """Runs a verb; exit status, output and complaints."""

    def run(*words: str) -> tuple[int, str, str]:
        status = main(["message", *words, "--address", f"ipc://{node.runtime}"])
        told = capsys.readouterr()
        return status, told.out, told.err

    return run


def send(node: Node, topic: str, bodies: Sequence[bytes], queue_id: int) -> list[SendResult]:
    """Stored, and found in queue and index."""
    batch = [OutgoingMessage(body, tag="t", keys=["k" + body.decode()]) for body in bodies]
    address = f"ipc://{node.runtime}"
    with Producer(address) as producer, Queries(address) as queries:
        sent = list(producer.send_batch(topic, batch, queue_id=queue_id).result())
        last = sent[-1]
        wait_until(
            lambda: (
                queries.message_at(last.physical_offset)
                and queries.message_by_id(last.unique_id, topic=topic)
            ),
            "dispatch",
        )
    return sent


def members_of(address: str, group: str) -> object:
    with connect_broker(address, name="test", timeout_s=PATIENCE_S) as broker:
        return broker.call("group_members", group=group)["members"]


def document(told: tuple[int, str, str]) -> Any:
    assert told[0] == 0, told
    return json.loads(told[1])


def test_messages_are_shown_found_and_browsed(node: Node, topic: str, show: Show) -> None:
    sent = send(node, topic, [b"%d" % number for number in range(6)], 1)
    middle = sent[3]
    by_offset_id = show("show", middle.offset_message_id)
    by_unique_id = document(show("show", middle.unique_id, "--topic", topic, "--json"))
    by_key = document(show("find", topic, "--key", "k3", "--json"))["messages"]
    browsed = document(show("browse", topic, "--queue", "1", "--count", "4", "--json"))
    last = document(show("browse", topic, "--queue", "1", "--last", "--count", "2", "--json"))
    behind = show("browse", topic, "--queue", "1", "--from", "6")
    table = show("browse", topic, "--queue", "1", "--from", "5")[1].splitlines()

    assert by_offset_id[0] == 0
    assert middle.unique_id in by_offset_id[1] and by_offset_id[1].endswith("\n3\n")
    assert by_unique_id["message"]["queueOffset"] == 3
    assert [row["body"] for row in by_key] == ["3"]
    assert [row["queueOffset"] for row in browsed["messages"]] == [0, 1, 2, 3]
    assert [row["queueOffset"] for row in last["messages"]] == [4, 5]
    assert behind == (1, "", "ledgermq: no such message\n")
    assert table[0].split() == ["queue", "offset", "stored", "tag", "id", "body"]
    assert table[1].split()[:2] == ["1", "5"] and table[1].endswith(" 5")


def test_messages_of_a_time_are_found_in_all_queues_in_the_order_of_the_log(
    node: Node, topic: str, show: Show
) -> None:
    stored = [
        send(node, topic, [b"%d" % (2 * queue), b"%d" % (2 * queue + 1)], queue) for queue in (2, 0)
    ]
    first, second = stored[0][0].store_timestamp, stored[1][0].store_timestamp
    rest = [b"late"] * 3
    send(node, topic, rest, 3)
    found = document(show("find", topic, "--from", f"{first}", "--to", f"{second}", "--json"))
    early = [row for row in found["messages"] if row["body"] != "late"]
    none = show("find", topic, "--from", "1", "--to", "2")
    neither = show("find", topic)

    assert [row["body"] for row in early] == ["4", "5", "0", "1"]
    assert none[0] == 1
    assert neither[0] == 1 and "--key" in neither[2]


@pytest.mark.parametrize("wanted", ["finish", MessageFilter.by_sql("n > 5")], ids=["tag", "sql"])
def test_a_track_tells_what_a_groups_filter_left_out(
    node: Node, topic: str, show: Show, wanted: str | MessageFilter
) -> None:
    address = f"ipc://{node.runtime}"
    with Producer(address) as producer:
        other = producer.send(topic, b"o", tag="cancel", queue_id=0, properties={"n": "1"}).result()
        mine = producer.send(topic, b"m", tag="finish", queue_id=0, properties={"n": "9"}).result()
    with GroupConsumer(address, group="choosy") as member:
        member.subscribe(topic, wanted)
        wait_until(lambda: list(member.poll(1.0)), "its message")
        member.commit()
        states = [
            document(show("track", one.unique_id, "--topic", topic, "--json"))["groups"]
            for one in (other, mine)
        ]

    assert [[row["state"] for row in rows] for rows in states] == [
        ["CONSUMED_BUT_FILTERED"],
        ["CONSUMED"],
    ]


def test_a_track_says_who_has_consumed_a_message(node: Node, topic: str, show: Show) -> None:
    sent = send(node, topic, [b"0", b"1", b"2"], 1)
    address = f"ipc://{node.runtime}"
    for group, offset in (("all", 3), ("some", 1)):
        with Consumer(address, topic=topic, group=group) as consumer:
            consumer.commit({1: offset})
    with GroupConsumer(address, group="some", name="member") as member:
        member.subscribe("other")
        member.poll(0)
        wait_until(lambda: members_of(address, "some"), "the member")
        told = document(show("track", sent[1].offset_message_id, "--json"))
    table = show("track", sent[1].unique_id, "--topic", topic)[1].splitlines()
    with Queries(address) as queries:
        message = queries.message_at(sent[0].physical_offset)
        assert message is not None
        tracks = queries.track(message)

    async def steps() -> tuple[list[Track], int, int]:
        async with AsyncQueries(address) as queries:
            assert message is not None
            batch = await queries.browse(topic, 1, 1)
            return await queries.track(message), len(batch), await queries.read_queues(topic)

    assert [(row["group"], row["state"]) for row in told["groups"]] == [
        ("all", "CONSUMED"),
        ("some", "NOT_CONSUME_YET"),
    ]
    assert [line.split()[:2] for line in table[1:3]] == [
        ["all", "CONSUMED"],
        ["some", "NOT_ONLINE"],
    ]
    assert [event["what"] for event in told["life"]] == ["born", "stored"]
    assert tracks == [
        Track("all", TrackState.CONSUMED, 3),
        Track("some", TrackState.CONSUMED, 1),
    ]
    assert asyncio.run(steps()) == (tracks, 2, 4)


def first(consumer: Consumer) -> ReceivedMessage:
    batch = wait_until(lambda: consumer.poll(1.0), "a message")
    return batch[0]


def test_the_life_of_a_message_is_told_from_the_send_to_the_dead_letter(
    node: Node, topic: str, show: Show
) -> None:
    address = f"ipc://{node.runtime}"
    with TraceTopic(address) as traces:
        tracing = Tracing(spans=False, topic=traces)
        with Producer(address, name="shop", tracing=tracing) as producer:
            sent = producer.send(topic, b"x").result()
        with Consumer(address, topic=topic, group="life", tracing=tracing) as consumer:
            for _ in range(2):
                message = first(consumer)
                with consumer.processing(message):
                    consumer.retry_later(message, delay_level=1, times_max=1)
                consumer.commit(message)
    words = ("track", sent.unique_id, "--topic", topic)

    def stages(*more: str) -> list[str]:
        return [event["what"] for event in document(show(*words, *more, "--json"))["life"]]

    wait_until(lambda: len(stages()) == 9, "all of it")
    life = document(show(*words, "--json"))["life"]
    table = [line.split() for line in show(*words)[1].splitlines()]

    assert stages()[:2] in (["born", "sent"], ["sent", "born"])
    assert stages()[2:] == [
        "stored", "delivered", "failed", "given back", "delivered", "failed", "dead"
    ] or stages()[2:] == [
        "stored", "delivered", "failed", "given back", "delivered", "dead", "failed"
    ]  # fmt: skip
    assert [event["time"] for event in life] == sorted(event["time"] for event in life)
    assert {event["by"] for event in life} == {topic, "shop", "life", "%RETRY%life", "%DLQ%life"}
    assert ["dead", "%DLQ%life"] in [line[1:3] for line in table]
    assert stages("--trace-topic", "nowhere") == ["born", "stored", "given back", "dead"]


def test_traces_that_are_none_or_too_many_are_left_out_and_said_to_be(
    node: Node, topic: str, show: Show
) -> None:
    (sent,) = send(node, topic, [b"x"], 0)
    record = TracedSend(
        1, "any\x1b[2J", topic, sent.unique_id, "", "", "", 1, 2, TracedKind.NORMAL, "", True
    )
    many = (record.encode() * 1_100).encode()
    address = f"ipc://{node.runtime}"
    with Producer(address) as producer, Queries(address) as queries:
        for body in (b"\xff", many):
            place = producer.send(TRACE_TOPIC, body, keys=[sent.unique_id]).result()
        wait_until(
            lambda: queries.message_by_id(place.unique_id, topic=TRACE_TOPIC), "the last trace"
        )
    words = ("track", sent.unique_id, "--topic", topic)
    told, text = document(show(*words, "--json")), show(*words)[1]

    assert len(told["life"]) == 1_002
    assert "more than 1000" in told["tracesFault"] and "more than 1000" in text
    assert "\x1b" not in text
