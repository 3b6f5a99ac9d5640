"""Queries by key, id and position find what pieces alone have, and say so while they cannot."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from ledgermq.client.reading.queries import Queries
from ledgermq.formats.records.message import decode_message
from ledgermq.model.errors import TimedOutError
from ledgermq.remoting.codes import RequestCode, ResponseCode
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.group_nodes import TOPIC
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_pops import messages_in
from tests.process.test_cold_reads import EACH, QUEUES, Cold

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cold() -> Iterator[Cold]:
    with nodes_made(Node) as make:
        yield Cold(make())


@pytest.fixture
def queries(cold: Cold) -> Iterator[Queries]:
    with Queries(cold.node.address) as made:
        yield made


@pytest.fixture
def client(cold: Cold) -> Iterator[RemotingClient]:
    made = RemotingClient(cold.port)
    yield made
    made.close()


def query_fields(key: str, **more: object) -> dict[str, object]:
    return {
        "topic": TOPIC,
        "key": key,
        "maxNum": 64,
        "beginTimestamp": 0,
        "endTimestamp": 2**62,
        **more,
    }


def test_a_key_is_found_wherever_its_messages_are(cold: Cold, queries: Queries) -> None:
    for number in (0, 7, EACH - 1):
        found = queries.by_key(TOPIC, f"key-{number}")
        assert sorted(one.queue_id for one in found.messages) == list(range(QUEUES))
        assert {one.queue_offset for one in found.messages} == {number}
        assert not found.has_more
    assert queries.by_key(TOPIC, "nobody-has-it").messages == []


def test_the_newest_of_many_are_given_out_of_both(cold: Cold, queries: Queries) -> None:
    positions = sorted(
        decode_message(memoryview(record)).physical_offset
        for records in cold.records
        for record in records
    )
    # Of each piece and the log some.
    found = queries.by_key(TOPIC, "all-of-them", messages_max=1_000)
    assert found.has_more
    told = [one.physical_offset for one in found.messages]
    assert told == positions[-len(told) :]
    assert told[0] < cold.log_begin() < told[-1]


def test_times_leave_out_what_is_of_others(cold: Cold, queries: Queries) -> None:
    message = decode_message(memoryview(cold.records[2][3]))
    at_ms = message.store_timestamp
    (found,) = [
        one
        for one in queries.by_key(TOPIC, "key-3", begin=at_ms, end=at_ms).messages
        if one.queue_id == 2
    ]
    assert found.queue_offset == 3
    assert queries.by_key(TOPIC, "key-3", begin=1, end=2).messages == []


def test_a_message_is_found_by_its_ids(cold: Cold, queries: Queries) -> None:
    message = decode_message(memoryview(cold.records[1][5]))
    (first,) = [one for one in queries.by_key(TOPIC, "key-5").messages if one.queue_id == 1]
    assert first.unique_id
    for found in (
        queries.message_by_id(first.offset_message_id),
        queries.message_by_id(first.unique_id, topic=TOPIC),
    ):
        assert found is not None
        assert (found.physical_offset, found.queue_offset) == (message.physical_offset, 5)
    # A byte behind it begins none.
    assert queries.message_at(message.physical_offset + 1) is None


def test_rocketmqs_tools_find_them_when_they_are_run_again(
    cold: Cold, client: RemotingClient
) -> None:
    record = cold.records[3][9]
    message = decode_message(memoryview(record))
    for code, fields in (
        (RequestCode.QUERY_MESSAGE, query_fields("key-9")),
        (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": message.physical_offset}),
    ):
        reply = client.ask(code, fields)
        while reply.code == ResponseCode.SYSTEM_ERROR:
            assert "it has not told yet what it has found in pieces" in str(reply.remark)
            time.sleep(0.05)
            reply = client.ask(code, fields)
        assert reply.code == ResponseCode.SUCCESS
        offsets = {one.physical_offset for one in messages_in(reply)}
        assert message.physical_offset in offsets


@pytest.mark.long
def test_while_the_place_is_away_nothing_is_said_not_to_be_there(cold: Cold) -> None:
    cold.forget_cache()
    away = cold.place.with_name("unmounted")
    cold.place.rename(away)
    try:
        wait_until(lambda: cold.counters()["away_since"], "it to be noticed")
        with Queries(cold.node.address, timeout_s=3) as queries:
            for ask in (
                lambda: queries.by_key(TOPIC, "key-1"),
                lambda: queries.message_at(
                    decode_message(memoryview(cold.records[0][1])).physical_offset
                ),
            ):
                with pytest.raises(TimedOutError, match="cold storage away"):
                    ask()
            # What the log has alone is told all the same.
            assert queries.by_key(TOPIC, f"key-{EACH - 1}", messages_max=QUEUES).messages
        away.rename(cold.place)
        with Queries(cold.node.address) as queries:
            assert len(queries.by_key(TOPIC, "key-1").messages) == QUEUES
    finally:
        if away.exists():
            away.rename(cold.place)
