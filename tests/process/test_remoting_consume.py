"""A real node's port: pulls, holds, filters and offsets, as RocketMQ's consumers see them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import ONEWAY, HeaderKind
from tests.process.conftest import nodes_made, wait_until
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node
from tests.process.remoting_steps import (
    GROUP,
    beat_when_leading,
    heartbeat_body,
    offset_fields,
    pull,
    pull_fields,
    pulled,
    send,
)

pytestmark = pytest.mark.slow

LONG_MS = 30_000


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with nodes_made() as make:
        node = make()
        yield start_remoting_node(node)
        node.stop()


@pytest.fixture
def client(address: str) -> Iterator[RemotingClient]:
    client = RemotingClient(address)
    beat_when_leading(client, "10.0.0.1@1", "orders", "other")
    yield client
    client.close()


def committed(client: RemotingClient, topic: str, queue_id: int, **more: object) -> int | None:
    reply = client.ask(
        RequestCode.QUERY_CONSUMER_OFFSET,
        offset_fields(topic, queue_id, **more),  # type: ignore[arg-type]
    )
    if reply.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    assert reply.code == ResponseCode.SUCCESS, reply
    return int(reply.fields["offset"])


def test_messages_come_back_to_back_and_offsets_out_of_range_are_corrected(
    client: RemotingClient,
) -> None:
    empty = pull(client, "orders", 0, 0)
    behind_empty = pull(client, "orders", 0, 1_000_000)
    send(client, "orders", 0, *(b"body %d" % number for number in range(40)))

    first = pull(client, "orders", 0, 0)
    rest = pull(client, "orders", 0, first.next_offset, most=100)
    at_end = pull(client, "orders", 0, 40)
    behind = pull(client, "orders", 0, 1_000_000)

    assert (empty.code, empty.remark, empty.next_offset) == (
        ResponseCode.PULL_NOT_FOUND,
        "NO_MESSAGE_IN_QUEUE",
        0,
    )
    assert (behind_empty.code, behind_empty.next_offset) == (ResponseCode.PULL_OFFSET_MOVED, 0)
    assert (first.code, first.remark, first.next_offset) == (0, "FOUND", 32)
    assert first.bodies + rest.bodies == [b"body %d" % number for number in range(40)]
    assert [one.queue_offset for one in first.messages] == list(range(32))
    assert (rest.next_offset, rest.min_offset, rest.max_offset) == (40, 0, 40)
    assert (at_end.code, at_end.next_offset) == (ResponseCode.PULL_NOT_FOUND, 40)
    assert (behind.code, behind.remark, behind.next_offset) == (
        ResponseCode.PULL_OFFSET_MOVED,
        "OFFSET_OVERFLOW_BADLY",
        40,
    )


@pytest.mark.parametrize("kind", list(HeaderKind))
def test_a_pull_that_may_wait_is_answered_when_a_message_comes_or_its_time_ends(
    address: str, client: RemotingClient, kind: HeaderKind
) -> None:
    waiting = RemotingClient(address, kind=kind)
    begin = pull(client, "orders", 1, 0).max_offset
    held = waiting.send(
        RequestCode.LITE_PULL_MESSAGE,
        pull_fields("orders", 1, begin, suspend_ms=LONG_MS, subscription="*"),
    )
    short = waiting.send(
        RequestCode.PULL_MESSAGE,
        pull_fields("orders", 2, 0, suspend_ms=100, subscription="*"),
    )
    ended = waiting.reply_to(short)
    gone = RemotingClient(address)
    gone.send(
        RequestCode.PULL_MESSAGE,
        pull_fields("orders", 1, begin, suspend_ms=LONG_MS, subscription="*"),
    )
    gone.close()
    send(client, "orders", 1, b"late")

    answer = waiting.reply_to(held)
    waiting.close()

    assert answer.kind is kind
    assert pulled(answer).bodies == [b"late"]
    assert pulled(answer).next_offset == begin + 1
    assert (ended.code, pulled(ended).next_offset) == (ResponseCode.PULL_NOT_FOUND, 0)


def test_only_messages_with_the_tags_of_the_heartbeat_or_of_the_request_are_given(
    address: str, client: RemotingClient
) -> None:
    reader = RemotingClient(address)
    body = heartbeat_body("10.0.0.1@9", "other", group="readers", expression="A || B", version=7)
    wait_until(lambda: reader.ask(RequestCode.HEART_BEAT, body=body).code == 0, "it is known")
    for tag in ("A", "C", "B", "C"):
        send(
            client, "other", 0, tag.encode(), properties=f"TAGS\x01{tag}\x02price\x01{ord(tag)}\x02"
        )

    by_heartbeat = pull(reader, "other", 0, 0, group="readers", version=7)
    moved_on = pull(reader, "other", 0, 3, group="readers", version=7, suspend_ms=50)
    by_request = pull(reader, "other", 0, 0, group="readers", subscription="C")
    by_sql = pull(reader, "other", 0, 0, group="readers", subscription="price > 66", kind="SQL92")
    outdated, unknown, strange, no_sql = (
        reader.ask(RequestCode.PULL_MESSAGE, fields)
        for fields in (
            pull_fields("other", 0, 0, group="readers", version=8),
            pull_fields("orders", 0, 0, group="readers"),
            pull_fields("other", 0, 0, group="nobody", subscription="||"),
            pull_fields("other", 0, 0, group="readers", subscription="price >", kind="SQL92"),
        )
    )
    reader.close()

    assert (by_heartbeat.bodies, by_heartbeat.next_offset) == ([b"A", b"B"], 4)
    assert (moved_on.code, moved_on.next_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 4)
    assert by_request.bodies == [b"C", b"C"]
    assert by_sql.bodies == [b"C", b"C"]
    assert [one.code for one in (outdated, unknown, strange, no_sql)] == [
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
    ]


def test_what_may_not_be_pulled_is_refused_with_the_code_that_says_why(
    client: RemotingClient,
) -> None:
    no_topic, no_queue, no_field = (
        client.ask(RequestCode.PULL_MESSAGE, fields)
        for fields in (
            pull_fields("nothing", 0, 0, subscription="*"),
            pull_fields("orders", 4, 0, subscription="*"),
            {"consumerGroup": GROUP},
        )
    )

    assert no_topic.code == ResponseCode.TOPIC_NOT_EXIST
    assert (no_queue.code, no_field.code) == (ResponseCode.SYSTEM_ERROR,) * 2
    assert "queues=4" in str(no_queue.remark)


def test_offsets_are_stored_by_commits_and_by_pulls_and_may_go_back(
    client: RemotingClient,
) -> None:
    send(client, "orders", 3, *(b"%d" % number for number in range(10)))
    fields = offset_fields("orders", 3, group="committers")
    young = committed(client, "orders", 3, group="committers")

    stored = client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**fields, "commitOffset": 7})
    negative = client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**fields, "commitOffset": -1})
    behind = client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**fields, "commitOffset": 1_000_000})
    after_commit = committed(client, "orders", 3, group="committers")
    client.send(RequestCode.UPDATE_CONSUMER_OFFSET, {**fields, "commitOffset": 3}, flag=ONEWAY)
    after_oneway = committed(client, "orders", 3, group="committers")
    pull(client, "orders", 3, 5, group="committers", subscription="*", commit=5)
    after_pull = committed(client, "orders", 3, group="committers")

    assert (stored.code, negative.code) == (0, 0)
    assert behind.code == ResponseCode.MESSAGE_ILLEGAL
    assert (young, after_commit, after_oneway, after_pull) == (0, 7, 3, 5)


def test_what_a_queue_holds_is_told_and_an_unknown_one_is_empty(client: RemotingClient) -> None:
    send(client, "other", 1, b"one", b"two")
    (message,) = pull(client, "other", 1, 1, subscription="*").messages

    def told(code: int, topic: str, **more: object) -> dict[str, str]:
        reply = client.ask(code, {"topic": topic, "queueId": 1, **more})
        assert reply.code == ResponseCode.SUCCESS, reply
        return dict(reply.fields)

    questions: tuple[tuple[int, dict[str, object]], ...] = (
        (RequestCode.GET_MAX_OFFSET, {}),
        (RequestCode.GET_MIN_OFFSET, {}),
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": message.store_timestamp + LONG_MS}),
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": 0}),
    )
    of_other = [int(told(code, "other", **more)["offset"]) for code, more in questions]
    of_nothing = [int(told(code, "nothing", **more)["offset"]) for code, more in questions]
    earliest = int(told(RequestCode.GET_EARLIEST_MSG_STORETIME, "other")["timestamp"])
    never = told(RequestCode.GET_EARLIEST_MSG_STORETIME, "nothing")["timestamp"]

    assert of_other == [2, 0, 1, 0]
    assert of_nothing == [0, 0, 0, 0]
    assert 0 < earliest <= message.store_timestamp
    assert never == "-1"


def test_clients_of_rocketmq_5_are_told_the_side_of_a_time_that_they_ask_for(
    client: RemotingClient,
) -> None:
    send(client, "other", 2, b"one", b"two", b"three")
    messages = pull(client, "other", 2, 0, subscription="*").messages
    first_ms, last_ms = messages[0].store_timestamp, messages[-1].store_timestamp

    def told(timestamp_ms: int, **more: object) -> int:
        fields = {"topic": "other", "queueId": 2, "timestamp": timestamp_ms, **more}
        return int(client.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields).fields["offset"])

    def sides(timestamp_ms: int) -> tuple[int, int]:
        lower, upper = ({"boundaryType": side} for side in ("LOWER", "UPPER"))
        return told(timestamp_ms, **lower), told(timestamp_ms, **upper)

    assert told(last_ms + LONG_MS) == 2
    assert sides(last_ms + LONG_MS) == (3, 2)
    assert sides(last_ms)[1] == 2
    assert sides(first_ms)[0] == 0
    assert sides(first_ms - 1) == (0, 0)
    assert sides(2**63 - 1) == (3, 2)
    assert told(last_ms + LONG_MS, boundaryType="neither") == 3


def test_a_pull_right_behind_a_heartbeat_is_answered_by_what_that_says(
    address: str, client: RemotingClient
) -> None:
    beat_when_leading(client, "10.0.0.1@1", "other", group="hasty")
    gone = {"clientID": "10.0.0.1@1", "consumerGroup": "hasty"}
    assert client.ask(RequestCode.UNREGISTER_CLIENT, gone).code == ResponseCode.SUCCESS
    send(client, "other", 3, b"for whoever asks")
    fields = pull_fields("other", 3, 0, group="hasty")

    for number in range(20):
        hasty = RemotingClient(address)
        body = heartbeat_body(f"10.0.0.2@{number}", "other", group="hasty")
        # Nobody else has told what the group subscribes to, and nothing is waited for between.
        hasty.send(RequestCode.HEART_BEAT, body=body)
        first = hasty.send(RequestCode.PULL_MESSAGE, fields)
        hasty.send(RequestCode.GET_MAX_OFFSET, offset_fields("other", 3))
        hasty.send(RequestCode.HEART_BEAT, body=body)
        second = hasty.send(RequestCode.PULL_MESSAGE, fields)
        replies = [hasty.reply_to(first), hasty.reply_to(second)]
        hasty.close()
        assert [pulled(reply).bodies for reply in replies] == [[b"for whoever asks"]] * 2
