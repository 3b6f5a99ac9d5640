"""Queries by id, position, key and time, on stores of the Java broker and on our own."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client import Producer, Queries
from ledgermq.client.aio import AsyncQueries
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.formats.records.message_id import OffsetId, encode_offset_id
from ledgermq.model.errors import ConfigError, ProtocolError, TopicUnknownError
from ledgermq.wire.header import Kind, encode_header
from ledgermq.wire.session import Refusal
from tests.process.broker_node import BrokerNode, NodeMaker, broker_nodes, root_of, units_of
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.node_start import run_command

pytestmark = pytest.mark.slow

INDEX = {"max_hash_slot_num": 500, "max_index_num": 400}
STORE_TIMESTAMP_AT = 56
"""In a record."""


@pytest.fixture
def node(golden_copy: Callable[[str], Path]) -> Iterator[NodeMaker]:
    with broker_nodes(golden_copy) as make:
        yield make


def queries_of(node: BrokerNode) -> Queries:
    return Queries(f"ipc://{node.runtime}")


def place(message: ReceivedMessage | None) -> tuple[str, int, int] | None:
    return message and (message.topic, message.queue_id, message.queue_offset)


@pytest.mark.parametrize("name", ["gd0", "gs1"])
def test_every_message_is_found_by_position_and_by_both_ids(
    node: NodeMaker, golden_json: Any, name: str
) -> None:
    messages = golden_json(name)["messages"]
    with queries_of(node(name, store=INDEX)) as queries:
        for message in messages[::7]:
            expected = (message["topic"], message["queue"], message["queueOffset"])
            position, unique_id = message["physicalOffset"], message["properties"].get("UNIQ_KEY")
            at = queries.message_at(position)

            assert place(at) == expected
            assert at is not None
            assert at.offset_message_id == message["offsetMsgId"]
            assert place(queries.message_by_id(message["offsetMsgId"])) == expected
            if unique_id:
                found = queries.by_key(message["topic"], unique_id).messages
                assert position in [one.physical_offset for one in found]
                newest = queries.message_by_id(unique_id, topic=message["topic"])
                assert newest is not None
                assert newest.unique_id == unique_id

    assert len(messages) > 400


@pytest.mark.parametrize("name", ["gd0", "gs1"])
def test_keys_and_times_find_what_java_found(node: NodeMaker, golden_json: Any, name: str) -> None:
    document = golden_json(name)
    answered = {message["physicalOffset"] for message in document["messages"]}
    with queries_of(node(name, store=INDEX)) as queries:
        for query in document["keyQueries"]:
            found = queries.by_key(query["topic"], query["key"], messages_max=64)
            positions = [message.physical_offset for message in found.messages]
            # What was delivered after the answers is in the store, and not in them.
            known = [position for position in positions if position in answered]

            assert positions == sorted(positions)
            assert known == query["physicalOffsets"], query
            assert not found.has_more
            assert found.index_position >= max(positions)
        held = {
            (queue["topic"], queue["queue"]): end_of(queries, queue["topic"], queue["queue"])
            for queue in document["queues"]
        }
        grown = {
            (queue["topic"], queue["queue"])
            for queue in document["queues"]
            if held[queue["topic"], queue["queue"]] != queue["max"]
        }
        asked = 0
        for query in document["timeQueries"]:
            if (query["topic"], query["queue"]) in grown:
                continue
            asked += 1
            offset = queries.offset_by_time(query["topic"], query["queue"], query["timestamp"])

            assert offset == query["offset"], query

    assert asked > 50
    assert all(held[queue["topic"], queue["queue"]] >= queue["max"] for queue in document["queues"])


def end_of(queries: Queries, topic: str, queue_id: int) -> int:
    """Where the queue ends; 0 when no message has brought it about."""
    try:
        return queries.offsets(topic, queue_id).end
    except TopicUnknownError:
        return 0


def test_the_earliest_times_are_those_of_the_first_messages(
    node: NodeMaker, golden_json: Any
) -> None:
    messages = golden_json("gd0")["messages"]
    first = min(messages, key=lambda one: one["physicalOffset"])
    of_queue = next(
        one for one in messages
        if (one["readTopic"], one["readQueue"], one["queueOffset"]) == ("plain0", 1, 0)
    )  # fmt: skip
    with queries_of(node("gd0")) as queries:
        assert queries.earliest_time() == first["storeTimestamp"]
        assert queries.earliest_time("plain0", 1) == of_queue["storeTimestamp"]
        assert queries.earliest_time("BenchmarkTest", 1_023) is None


def test_no_position_but_that_of_a_message_finds_one(node: NodeMaker) -> None:
    one = node("gd0")
    units = units_of(root_of(one), "plain0")
    position, size = int(units["position"][3]), int(units["size"][3])
    with queries_of(one) as queries:
        found = [at for at in range(position - 48, position + size) if queries.message_at(at)]
        behind = queries.message_at(one.log_end)
        far = queries.message_at(2**62)
        other_host = queries.message_by_id(encode_offset_id(OffsetId(("10.9.9.9", 1), position)))

    assert found == [position]
    assert behind is far is other_host is None


def test_nothing_is_found_beyond_what_is_dispatched(node: NodeMaker, golden_json: Any) -> None:
    one = node("gd0", start=False, store=INDEX)
    units = units_of(root_of(one), "plain1")
    last, hidden = (int(units["position"][number]) for number in (6, 7))
    shown_end = last + int(units["size"][6])
    one.dispatch(shown_end, written=one.log_end)
    one.start()
    by_position = {message["physicalOffset"]: message for message in golden_json("gd0")["messages"]}
    with queries_of(one) as queries:
        visible = queries.message_at(last)
        not_yet = queries.message_at(hidden)
        unique_id = by_position[hidden]["properties"]["UNIQ_KEY"]
        by_id = queries.message_by_id(unique_id, topic="plain1")
        by_place = queries.message_by_id(by_position[hidden]["offsetMsgId"])
        keyed = queries.by_key("plain1", unique_id)
        one.dispatch(one.log_end)
        wait_until(lambda: queries.message_at(hidden), "what is dispatched now")
        later = queries.message_by_id(unique_id, topic="plain1")

    assert place(visible) == ("plain1", 0, 6)
    assert not_yet is by_id is by_place is None
    assert keyed.messages == []
    assert place(later) == ("plain1", 0, 7)


def test_bad_questions_are_refused_with_what_is_wrong(node: NodeMaker) -> None:
    one = node("gd0", store=INDEX)
    with queries_of(one) as queries:
        with pytest.raises(TopicUnknownError, match="nowhere"):
            queries.by_key("nowhere", "k")
        with pytest.raises(ConfigError, match="topic"):
            queries.message_by_id("not hexadecimal")
        with pytest.raises(ConfigError, match="1024"):
            queries.by_key("plain0", "k", messages_max=1_025)
        assert queries.message_by_id("not hexadecimal", topic="plain0") is None
    raw = one.client()
    refusals = []
    for body in (b"{}", b'{"position":-1}', b'{"topic":"plain0","key":"","messages_max":1}'):
        raw.socket.send_multipart([encode_header(Kind.QUERY, 7, version=2), body])
        refusals.append(raw.refusal())

    assert [type(one) for one in refusals] == [Refusal] * 3
    assert {refusal.number for refusal in refusals} == {ProtocolError.number}


def test_a_node_without_an_index_says_so(node: NodeMaker) -> None:
    with (
        queries_of(node("gd0", store={"message_index_enable": False})) as queries,
        pytest.raises(ConfigError, match="message_index_enable"),
    ):
        queries.by_key("plain0", "k")


@pytest.mark.long
@pytest.mark.parametrize("log", ["dledger", "commitlog"])
def test_what_a_producer_was_told_finds_its_message(
    make_node: Callable[[], Node], log: str
) -> None:
    served = make_node()
    start_client_node(served, log=log)
    address = f"ipc://{served.runtime}"
    with Producer(address) as producer:
        sent = [
            producer.send("orders", b"%d" % number, keys=(f"k{number % 3}", "all"), queue_id=1)
            for number in range(60)
        ]
        results = [future.result() for future in sent]
    with Queries(address) as queries:
        wait_until(lambda: len(queries.by_key("orders", "all", messages_max=99).messages) == 60,
                   "all messages in the index")  # fmt: skip
        by_id = [queries.message_by_id(one.unique_id, topic="orders") for one in results]
        by_place = [queries.message_by_id(one.offset_message_id) for one in results]
        keyed = queries.by_key("orders", "k1", messages_max=5)
        begin, end = (one.store_timestamp for one in keyed.messages[:2])
        in_time = queries.by_key("orders", "k1", begin=begin, end=end).messages
    asynchronous = asyncio.run(ask_async(address, results[7].physical_offset))

    bodies = [bytes(one.body) for one in by_id if one is not None]
    assert bodies == [b"%d" % number for number in range(60)]
    assert [place(one) for one in by_place] == [place(one) for one in by_id]
    assert [bytes(one.body) for one in keyed.messages] == [b"46", b"49", b"52", b"55", b"58"]
    assert keyed.has_more
    assert {b"46", b"49"} <= {bytes(one.body) for one in in_time}
    assert all(begin <= one.store_timestamp <= end for one in in_time)
    assert asynchronous == [b"7", 1, (0, 60), True]
    check_commands(served, results[7])


async def ask_async(address: str, position: int) -> list[object]:
    async with AsyncQueries(address) as queries:
        found = await queries.message_at(position)
        keyed = await queries.by_key("orders", "k1", messages_max=1)
        bounds = await queries.offsets("orders", 1)
        earliest = await queries.earliest_time("orders", 1)
        offset = await queries.offset_by_time("orders", 1, earliest or 0)
        by_id = await queries.message_by_id(keyed.messages[0].offset_message_id)
    assert found is not None
    assert by_id is not None
    return [bytes(found.body), len(keyed.messages), tuple(bounds), offset >= 0]


def check_commands(node: Node, sent: Any) -> None:
    """The same by hand."""
    position = str(sent.physical_offset)
    by_position = told(node, "position", position)
    by_id = told(node, "id", sent.unique_id, "--topic", "orders")
    keyed = told(node, "key", "orders", "k1", "--max", "2")
    offsets = told(node, "offset", "orders", "1")
    stored = str(by_id["message"]["storeTimestamp"])
    by_time = told(node, "time", "orders", "1", stored)
    since = told(node, "key", "orders", "k1", "--from", stored, "--to", stored)
    missing = command(node, "position", "1")
    plain = command(node, "position", position)

    assert by_position["message"]["body"] == by_id["message"]["body"] == "7"
    assert [row["body"] for row in keyed["messages"]] == ["55", "58"]
    assert keyed["more"] is True
    assert (offsets["min"], offsets["max"]) == (0, 60)
    assert 0 <= by_time["offset"] < 60
    assert "7" in [row["body"] for row in since["messages"]]
    assert (missing.returncode, missing.stdout) == (1, "")
    assert plain.returncode == 0
    assert plain.stdout.startswith("orders queue 1 offset 7, position ")
    assert plain.stdout.endswith("\n7\n")


def told(node: Node, *words: str) -> Any:
    done = command(node, *words, "--json")
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def command(node: Node, *words: str) -> subprocess.CompletedProcess[str]:
    return run_command("query", *words, "--address", f"ipc://{node.runtime}")


def test_by_times_all_are_found_that_came_after_the_clock_was_put_back(
    make_node: Callable[[], Node],
) -> None:
    """The store is that of a node whose clock was put back: the index, built again, says of each
    message the time of its file's first one.
    """
    node = make_node()
    start_client_node(node, log="commitlog")
    address = f"ipc://{node.runtime}"
    with Producer(address) as producer:
        sent = [producer.send("orders", b"%d" % n, keys=["k"]).result() for n in range(6)]
    assert node.stop() == 0
    path = next((node.root / "commitlog").iterdir())
    content = bytearray(path.read_bytes())
    times = []
    for number, one in enumerate(sent):
        at = one.physical_offset + STORE_TIMESTAMP_AT
        time_ms = int.from_bytes(content[at : at + 8], "big") - (number >= 3) * 3_600_000
        content[at : at + 8] = time_ms.to_bytes(8, "big")
        times.append(time_ms)
    path.write_bytes(content)
    shutil.rmtree(node.root / "index")
    node.serve()
    with Queries(address) as queries:

        def found(begin: int, end: int) -> list[bytes]:
            answer = queries.by_key("orders", "k", begin=begin, end=end)
            return sorted(bytes(one.body) for one in answer.messages)

        wait_until(lambda: len(found(0, times[2])) == 6, "the index")
        late, early = found(times[3], times[5]), found(times[0], times[2])

    assert late == [b"3", b"4", b"5"]
    assert early == [b"0", b"1", b"2"]
