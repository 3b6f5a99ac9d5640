"""A real node's port: messages taken singly by RocketMQ 5's remoting clients (POP)."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator

import pytest

from ledgermq.client import Admin
from ledgermq.client.core.questions import asking
from ledgermq.formats.records.message import decode_message
from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.codes import ResponseCode
from ledgermq.verbs.shares import ReceiveShared, SettleShared
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node
from tests.process.remoting_pops import (
    Taken,
    ack,
    acks_body,
    assigned,
    change,
    named,
    pop,
    pop_fields,
    popped,
    set_mode,
)
from tests.process.remoting_steps import (
    beat,
    beat_when_leading,
    heartbeat_body,
    members,
    offset_fields,
    pull_fields,
    send,
)

pytestmark = pytest.mark.slow

LONG_MS = 30_000
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Node, str]]:
    with nodes_made() as make:
        node = make()
        address = start_remoting_node(node, limits={"held_pulls_per_client": 3})
        client = RemotingClient(address)
        beat_when_leading(client, "10.0.0.1@1", "other")
        client.close()
        yield node, address
        node.stop()


@pytest.fixture
def node(served: tuple[Node, str]) -> Node:
    return served[0]


@pytest.fixture
def address(served: tuple[Node, str]) -> str:
    return served[1]


@pytest.fixture
def client(address: str) -> Iterator[RemotingClient]:
    client = RemotingClient(address)
    yield client
    client.close()


@pytest.fixture
def topic(client: RemotingClient) -> str:
    """A topic of two queues that nobody has used."""
    name = f"popped-{next(_NUMBERS)}"
    fields = {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2,
        "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    assert client.ask(Code.UPDATE_AND_CREATE_TOPIC, fields).code == ResponseCode.SUCCESS
    return name


@pytest.fixture
def group() -> str:
    return f"workers-{next(_NUMBERS)}"


def unsettled(node: Node, group: str) -> int:
    with Admin(node.address) as admin:
        return admin.shared_group(group).unsettled


def lag(node: Node, group: str, topic: str) -> int:
    with Admin(node.address) as admin:
        return sum(one.lag for one in admin.lag(group) if one.topic == topic)


def test_messages_are_taken_by_one_at_a_time_and_acknowledged_singly(
    node: Node, client: RemotingClient, topic: str, group: str
) -> None:
    nothing = pop(client, topic, group)
    send(client, topic, 0, b"a", b"b", b"c")
    send(client, topic, 1, b"d")
    first = pop(client, topic, group, maxMsgNums=2)
    rest = pop(client, topic, group)
    again = pop(client, topic, group)
    done = [ack(client, one, group).code for one in (*first.taken, *rest.taken)]
    twice = ack(client, first.taken[0], group)

    assert (nothing.code, nothing.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
    assert (first.code, first.remark, len(first.taken)) == (0, "FOUND", 2)
    assert first.fields["invisibleTime"] == "600000"
    assert (first.fields["restNum"], rest.fields["restNum"]) == ("2", "0")
    assert sorted(first.bodies + rest.bodies) == [b"a", b"b", b"c", b"d"]
    assert again.taken == []
    assert set(done) == {ResponseCode.SUCCESS}
    assert twice.code == ResponseCode.SUCCESS
    assert (unsettled(node, group), lag(node, group, topic)) == (0, 0)


def test_tools_see_what_a_group_without_retries_has_taken_and_are_told_where_to_look(
    client: RemotingClient, topic: str, group: str
) -> None:
    send(client, topic, 0, b"a", b"b", b"c")
    first = pop(client, topic, group, maxMsgNums=2, attemptId="once")
    again = pop(client, topic, group, maxMsgNums=2, attemptId="once")
    # By this route tools find who knows of the group.
    route = client.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": f"%RETRY%{group}"})
    unknown = client.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%nobody"})
    stats = client.ask(Code.GET_CONSUME_STATS, {"consumerGroup": group, "topic": topic})
    online = client.ask(Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})
    others = [client.ask(code) for code in (907, 3005)]

    assert (first.bodies, again.bodies) == ([b"a", b"b"], [b"a", b"b"])
    assert again.fields["reviveQid"] == first.fields["reviveQid"]
    told = json.loads(bytes(route.body))
    assert (len(told["brokerDatas"]), told["queueDatas"]) == (1, [])
    assert unknown.code == ResponseCode.TOPIC_NOT_EXIST
    assert "there is no such consumer group" in (unknown.remark or "")
    assert b'"consumerOffset":0,"lastTimestamp":0,"pullOffset":2' in bytes(stats.body)
    assert f"see ledgermq share show {group}" in (online.remark or "")
    assert [one.code for one in others] == 2 * [ResponseCode.REQUEST_CODE_NOT_SUPPORTED]
    assert "ledgermq status" in (others[0].remark or "")
    assert "ledgermq acl" in (others[1].remark or "")


def test_a_message_that_nobody_acknowledges_comes_again_and_says_how_often(
    client: RemotingClient, topic: str, group: str
) -> None:
    send(client, topic, 0, b"a")
    (first,) = pop(client, topic, group, invisibleTime=100).taken
    (second,) = pop(client, topic, group, pollTime=LONG_MS).taken
    late = ack(client, first, group)

    assert [one.message.reconsume_times for one in (first, second)] == [0, 1]
    assert (second.body, second.message.body_crc) == (b"a", first.message.body_crc)
    assert late.code == ResponseCode.NO_MESSAGE
    assert ack(client, second, group).code == ResponseCode.SUCCESS


def test_what_nobody_manages_becomes_a_dead_letter(
    node: Node, client: RemotingClient, topic: str, group: str
) -> None:
    wanted = {"groupName": group, "retryMaxTimes": 1, "retryQueueNums": 1, "consumeEnable": True}
    made = client.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=json.dumps(wanted).encode())
    send(client, topic, 0, b"hopeless")
    tries = [
        one.message.reconsume_times
        for _ in range(2)
        for one in pop(client, topic, group, invisibleTime=100, pollTime=LONG_MS).taken
    ]
    after = pop(client, topic, group, pollTime=1_000)
    dead = {"topic": f"%DLQ%{group}", "queueId": 0}

    assert made.code == 0
    assert tries == [0, 1]
    assert after.taken == []
    wait_until(lambda: client.ask(Code.GET_MAX_OFFSET, dead).fields["offset"] == "1", "it is dead")
    assert unsettled(node, group) == 0


def test_a_change_of_its_time_keeps_a_message_or_gives_it_back(
    client: RemotingClient, topic: str, group: str
) -> None:
    send(client, topic, 0, b"a", b"b")
    kept, given = pop(client, topic, group, invisibleTime=2_000).taken
    longer, at_once = change(client, kept, group, 600_000), change(client, given, group, 0)
    (again,) = pop(client, topic, group, pollTime=LONG_MS).taken
    # As Java's client makes the new text: with the new time, from the same message.
    parts = kept.extra_info.split(" ")
    parts[1:4] = [longer.fields[name] for name in ("popTime", "invisibleTime", "reviveQid")]
    renewed = kept._replace(extra_info=" ".join(parts))

    assert (longer.code, at_once.code) == (0, 0)
    assert longer.fields["invisibleTime"] == "600000"
    assert (again.body, again.message.reconsume_times) == (b"b", 1)
    assert ack(client, renewed, group).code == ResponseCode.SUCCESS
    assert change(client, given, group, 1_000).code == ResponseCode.NO_MESSAGE


def test_many_are_acknowledged_at_once(
    node: Node, client: RemotingClient, topic: str, group: str
) -> None:
    send(client, topic, 0, *(b"%d" % number for number in range(20)))
    send(client, topic, 1, b"x", b"y")
    taken = pop(client, topic, group, maxMsgNums=8).taken + pop(client, topic, group).taken
    left = taken.pop(3)
    done = client.ask(Code.BATCH_ACK_MESSAGE, body=acks_body(taken, group))
    forged = [one._replace(extra_info=_marked(one.extra_info, 7)) for one in [left]]
    none = client.ask(Code.BATCH_ACK_MESSAGE, body=acks_body(forged, group))
    empty = client.ask(Code.BATCH_ACK_MESSAGE, body=json.dumps({"acks": []}).encode())

    assert len(taken) == 21
    assert (done.code, none.code, empty.code) == (0, ResponseCode.NO_MESSAGE, 208)
    assert unsettled(node, group) == 1


def _marked(extra_info: str, mark: int) -> str:
    parts = extra_info.split(" ")
    return " ".join((*parts[:3], str(mark), *parts[4:]))


def test_a_text_that_was_not_given_acknowledges_nothing(
    node: Node, client: RemotingClient, topic: str, group: str
) -> None:
    send(client, topic, 0, b"a", b"b")
    first, second = pop(client, topic, group).taken
    start, popped_ms, kept_ms, mark, _, broker, queue, offset = first.extra_info.split(" ")
    told = [
        _marked(first.extra_info, int(mark) ^ 1),
        _marked(first.extra_info, 0),
        f"{start} {popped_ms} {kept_ms} {mark} 1 {broker} {queue} {offset}",
        second.extra_info,
        f"{start} {popped_ms} {kept_ms} {mark} 0 {broker} 1 {offset}",
        f"{start} {popped_ms} {kept_ms} {mark}_0 0 {broker} {queue} {offset}",
        "",
        "a b c d e f g h",
        "1 " * 300,
    ]
    asked = named(first, group)
    codes = {client.ask(Code.ACK_MESSAGE, {**asked, "extraInfo": one}).code for one in told}
    elsewhere = ack(client, first, f"{group}-other")
    fields = named(first, group, topic="nothing")

    assert codes == {ResponseCode.NO_MESSAGE}
    assert elsewhere.code == ResponseCode.NO_MESSAGE
    assert client.ask(Code.ACK_MESSAGE, fields).code == ResponseCode.TOPIC_NOT_EXIST
    assert unsettled(node, group) == 2


def test_a_pop_waits_until_there_is_a_message_that_its_filter_wants(
    address: str, client: RemotingClient, topic: str, group: str
) -> None:
    waiting = [
        client.send(Code.POP_MESSAGE, pop_fields(topic, group, pollTime=LONG_MS, **more))
        for more in ({"exp": "b || c"}, {"exp": "b||c", "queueId": 1})
    ]
    other = RemotingClient(address)

    def polls(queue_id: int) -> int:
        fields = offset_fields(topic, queue_id, group=group)
        return int(other.ask(Code.POLLING_INFO, fields).fields["pollingNum"])

    wait_until(lambda: polls(-1) == 1 and polls(1) == 1, "both wait")
    none_of_0 = polls(0)
    send(other, topic, 0, b"a", properties="TAGS\x01a\x02")
    send(other, topic, 0, b"b", properties="TAGS\x01b\x02")
    first = popped(client.reply_to(waiting[0]))
    send(other, topic, 1, b"c", properties="TAGS\x01c\x02")
    second = popped(client.reply_to(waiting[1]))
    soon = pop(client, topic, group, pollTime=300)
    other.close()

    assert none_of_0 == 0
    assert (first.bodies, second.bodies) == ([b"b"], [b"c"])
    assert soon.code == ResponseCode.POLLING_TIMEOUT


def test_sql_chooses_messages_too(client: RemotingClient, topic: str, group: str) -> None:
    for number in range(3):
        send(client, topic, 0, b"%d" % number, properties=f"n\x01{number}\x02")
    found = pop(client, topic, group, expType="SQL92", exp="n > 0")
    broken = client.ask(Code.POP_MESSAGE, pop_fields(topic, group, expType="SQL92", exp="n > > 0"))

    assert found.bodies == [b"1", b"2"]
    assert broken.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_waiting_pops_are_bounded_by_connection_and_end_with_it(
    address: str, client: RemotingClient, topic: str, group: str
) -> None:
    gone = RemotingClient(address)
    for _ in range(3):
        gone.send(Code.POP_MESSAGE, pop_fields(topic, group, pollTime=LONG_MS))
    full = popped(gone.ask(Code.POP_MESSAGE, pop_fields(topic, group, pollTime=LONG_MS)))
    told = gone.ask(
        Code.NOTIFICATION, offset_fields(topic, -1, group=group, pollTime=LONG_MS, bornTime=1)
    )
    gone.close()
    fields = offset_fields(topic, -1, group=group)
    wait_until(
        lambda: client.ask(Code.POLLING_INFO, fields).fields["pollingNum"] == "0", "none waits"
    )
    send(client, topic, 0, b"a")
    here = pop(client, topic, group)

    assert (full.code, full.taken) == (ResponseCode.POLLING_FULL, [])
    assert told.fields == {"hasMsg": "false", "pollingFull": "true"}
    # Nothing was taken for who has gone: it is the first delivery.
    assert [(one.body, one.message.reconsume_times) for one in here.taken] == [(b"a", 0)]


def test_one_may_look_and_be_told_without_taking(
    address: str, client: RemotingClient, topic: str, group: str
) -> None:
    fields = offset_fields(topic, -1, group=group, maxMsgNums=32)
    empty = client.ask(Code.PEEK_MESSAGE, fields)
    poll = offset_fields(topic, -1, group=group, pollTime=LONG_MS, bornTime=1)
    waiting = client.send(Code.NOTIFICATION, poll)
    other = RemotingClient(address)
    nothing = other.ask(Code.NOTIFICATION, {**poll, "pollTime": 1})
    send(other, topic, 1, b"a")
    told = client.reply_to(waiting)
    at_once = client.ask(Code.NOTIFICATION, poll)
    looked = [client.ask(Code.PEEK_MESSAGE, fields) for _ in range(2)]
    taken = pop(client, topic, group)
    after = client.ask(Code.PEEK_MESSAGE, fields)
    other.close()

    assert (empty.code, empty.fields["restNum"]) == (ResponseCode.PULL_NOT_FOUND, "0")
    assert nothing.fields == {"hasMsg": "false", "pollingFull": "false"}
    assert told.fields["hasMsg"] == at_once.fields["hasMsg"] == "true"
    bodies = [bytes(decode_message(memoryview(bytes(one.body))).body) for one in looked]
    assert bodies == [b"a", b"a"]
    assert looked[0].fields["restNum"] == "1"
    assert [(one.body, one.message.reconsume_times) for one in taken.taken] == [(b"a", 0)]
    assert after.code == ResponseCode.PULL_NOT_FOUND


def test_messages_of_a_queue_come_in_their_order_where_that_is_asked_for(
    client: RemotingClient, topic: str, group: str
) -> None:
    send(client, topic, 0, b"a", b"b", b"c")
    send(client, topic, 1, b"d")

    def ask(**more: object) -> tuple[list[bytes], str]:
        told = pop(client, topic, group, order="true", **more)
        taken.extend(told.taken)
        return told.bodies, told.fields["orderCountInfo"]

    taken: list[Taken] = []
    assert ask(maxMsgNums=2, queueId=0) == ([b"a", b"b"], "0 0 0")
    first, second = taken
    assert ask(queueId=0) == ([], "")
    assert ask() == ([b"d"], "0 1 0")
    told = client.ask(
        Code.NOTIFICATION, offset_fields(topic, 0, group=group, order="true", pollTime=1)
    )
    assert told.fields["hasMsg"] == "false"
    # Who waits is given the next one when the last of those before it is settled.
    waits = client.send(
        Code.POP_MESSAGE,
        pop_fields(topic, group, order="true", queueId=0, maxMsgNums=1, pollTime=LONG_MS),
    )
    assert ack(client, second, group).code == ack(client, first, group).code == 0
    third = popped(client.reply_to(waits))
    assert third.bodies == [b"c"]
    send(client, topic, 0, b"e")
    assert change(client, third.taken[0], group, 300).code == 0
    assert ask(queueId=0) == ([], "")
    assert ask(queueId=0, pollTime=LONG_MS) == ([b"c", b"e"], "0 qo0%2 1;0 0 0")
    assert {ack(client, one, group).code for one in taken[2:]} == {0}
    # A queue is free when the last of its messages is late, whenever the others were.
    send(client, topic, 0, b"f", b"g")
    assert ask(queueId=0, invisibleTime=1_500)[0] == [b"f", b"g"]
    assert change(client, taken[-2], group, 100).code == 0
    began = time.monotonic()
    assert ask(queueId=0, pollTime=LONG_MS)[0] == [b"f", b"g"]
    assert time.monotonic() - began < LONG_MS / 2_000


def test_the_order_of_a_queue_holds_beside_that_of_keys(
    node: Node, client: RemotingClient, topic: str, group: str
) -> None:
    with Admin(node.address) as admin:
        admin.create_group(group, consumeMessageOrderly=True)
    key, other = "__SHARDINGKEY\x01k", "__SHARDINGKEY\x01j"

    def put(*bodies: bytes, properties: str = key) -> None:
        send(client, topic, 0, *bodies, properties=properties)

    def ask(**more: object) -> list[Taken]:
        return pop(client, topic, group, queueId=0, **more).taken

    put(b"a", b"b")
    put(b"c", properties=other)
    first, third = ask()
    assert (first.body, third.body) == (b"a", b"c")
    assert ask(order="true") == []
    assert ack(client, first, group).code == 0
    assert ask(order="true") == []
    assert ack(client, third, group).code == 0
    (second,) = ask(order="true")
    assert (second.body, ack(client, second, group).code) == (b"b", 0)
    put(b"d", b"e")
    put(b"f", properties=other)
    three = ask(order="true")
    assert [one.body for one in three] == [b"d", b"e", b"f"]
    assert [ack(client, one, group).code for one in three] == [0, 0, 0]
    put(b"g", b"h")
    (only,) = ask()
    assert (only.body, change(client, only, group, 100).code) == (b"g", 0)
    both = ask(order="true", pollTime=LONG_MS)
    assert [one.body for one in both] == [b"g", b"h"]
    assert [ack(client, one, group).code for one in both] == [0, 0]


def test_what_cannot_be_answered_is_refused_as_rocketmq_does(
    client: RemotingClient, topic: str, group: str
) -> None:
    refused: dict[ResponseCode, list[dict[str, object]]] = {
        ResponseCode.INVALID_PARAMETER: [
            {"maxMsgNums": 33},
            {"queueId": 2},
            {"invisibleTime": 99},
            {"invisibleTime": 12 * 3_600_000 + 1},
        ],
        ResponseCode.TOPIC_NOT_EXIST: [{"topic": "nothing"}],
        ResponseCode.SUBSCRIPTION_PARSE_FAILED: [{"expType": "CLASS", "exp": "x"}],
    }
    codes = {
        code: [client.ask(Code.POP_MESSAGE, {**pop_fields(topic, group), **one}) for one in wrong]
        for code, wrong in refused.items()
    }

    for code, replies in codes.items():
        assert {one.code for one in replies} == {code}, replies
        assert all(one.remark for one in replies)


def test_a_queue_that_has_all_that_it_ever_had_is_read_from_its_first_message(
    client: RemotingClient, topic: str, group: str
) -> None:
    send(client, topic, 0, b"before")
    young = pop(client, topic, group, initMode=1)

    assert young.bodies == [b"before"]


def test_a_group_is_put_into_pop_and_back_by_the_operators_tool(
    node: Node, client: RemotingClient, topic: str, group: str
) -> None:
    beat(client, "a", topic, f"%RETRY%{group}", group=group)
    send(client, topic, 0, b"a")
    by_pull = assigned(client, topic, group, "a")
    refused = client.ask(Code.POP_MESSAGE, pop_fields(topic, group))
    to_pop = set_mode(client, topic, group, "POP")
    by_pop = assigned(client, topic, group, "a")
    retries = assigned(client, f"%RETRY%{group}", group, "a")
    (taken,) = pop(client, topic, group).taken
    pulls = client.ask(Code.PULL_MESSAGE, pull_fields(topic, 0, 0, group=group))
    of_retries = client.ask(Code.PULL_MESSAGE, pull_fields(f"%RETRY%{group}", 0, 0, group=group))
    too_early = set_mode(client, topic, group, "PULL")
    then = assigned(client, topic, group, "a")
    acked = ack(client, taken, group)
    to_pull = set_mode(client, topic, group, "PULL")
    pulled = client.ask(Code.PULL_MESSAGE, pull_fields(topic, 0, 0, group=group))
    offset = client.ask(Code.QUERY_CONSUMER_OFFSET, offset_fields(topic, 0, group=group))

    assert by_pull == [("PULL", 0), ("PULL", 1)]
    assert (refused.code, "queue by queue" in (refused.remark or "")) == (1, True)
    assert to_pop.code == ResponseCode.SUCCESS, to_pop
    assert by_pop == [("POP", -1)]
    assert retries == [("PULL", 0)]
    assert members(client, group) == ["a"]
    assert (pulls.code, "share group" in (pulls.remark or "")) == (1, True)
    assert of_retries.code == ResponseCode.PULL_NOT_FOUND
    assert (too_early.code, "not settled" in (too_early.remark or "")) == (1, True)
    assert then == by_pull
    assert (acked.code, to_pull.code, pulled.code) == (0, 0, 0), to_pull
    assert offset.fields["offset"] == "1"


def test_a_client_that_says_it_pops_is_none_that_consumes_queue_by_queue(
    client: RemotingClient, topic: str, group: str
) -> None:
    send(client, topic, 0, b"a", b"b")
    body = heartbeat_body("a", topic, group=group)
    client.ask(Code.HEART_BEAT, body=body.replace(b"CONSUME_PASSIVELY", b"CONSUME_POP"))
    taken = pop(client, topic, group, maxMsgNums=1).taken
    client.ask(Code.HEART_BEAT, body=body)
    refused = client.ask(Code.POP_MESSAGE, pop_fields(topic, group))

    assert [one.body for one in taken] == [b"a"]
    assert (refused.code, "queue by queue" in (refused.remark or "")) == (1, True)


def test_all_kinds_of_consumers_take_messages_of_one_group(
    node: Node, client: RemotingClient, topic: str, group: str
) -> None:
    beat(client, "a", topic, group=group)
    set_mode(client, topic, group, "POP")
    send(client, topic, 0, b"a", b"b")
    (first,) = pop(client, topic, group, maxMsgNums=1).taken
    with Admin(node.address) as admin:
        (second,) = admin.run(asking(ReceiveShared(group, topic)))
        (given,) = admin.run(asking(SettleShared(group, "release", [second.handle])))
    (again,) = pop(client, topic, group).taken

    assert bytes(decode_message(second.record).body) == b"b"
    assert given.outcome == "done"
    assert (again.body, again.message.reconsume_times) == (b"b", 1)
    assert [ack(client, one, group).code for one in (first, again)] == [0, 0]
    assert unsettled(node, group) == 0


def test_members_share_queues_by_the_strategy_that_they_name(
    address: str, client: RemotingClient, group: str
) -> None:
    others = [RemotingClient(address) for _ in range(2)]
    for name, one in zip("bc", others, strict=True):
        beat(one, name, "other", group=group)
    beat(client, "a", "other", group=group)

    def shares(**more: object) -> list[list[int]]:
        return [[at for _, at in assigned(client, "other", group, one, **more)] for one in "abc"]

    averagely, by_turns = shares(), shares(strategyName="AVG_BY_CIRCLE")
    everything = shares(messageModel="BROADCASTING")
    unknown = assigned(client, "other", group, "a", strategyName="CONFIG")
    stranger = assigned(client, "other", group, "x")
    set_mode(client, "other", group, "POP", 1)
    behind = shares()
    set_mode(client, "other", group, "POP", 2)
    all_of_them = shares()
    set_mode(client, "other", group, "PULL")
    for one in others:
        one.close()

    assert averagely == [[0, 1], [2], [3]]
    assert by_turns == [[0, 3], [1], [2]]
    assert everything == [[0, 1, 2, 3]] * 3
    assert (unknown, stranger) == ([], [])
    assert behind == [[0, 1, 2], [2, 3], [3, 0, 1]]
    assert all_of_them == [[-1]] * 3


def test_a_mode_is_refused_where_it_can_be_none(client: RemotingClient, group: str) -> None:
    beat(client, "a", "other", group=group)
    codes = [
        set_mode(client, *wrong).code
        for wrong in (
            ("nothing", group, "POP"),
            (f"%RETRY%{group}", group, "POP"),
            ("other", "no name", "POP"),
            ("other", group, "PUSH"),
        )
    ]

    assert codes == [
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_PERMISSION,
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.SYSTEM_ERROR,
    ]


def test_handles_of_pops_outlive_the_node(
    served: tuple[Node, str], client: RemotingClient, topic: str, group: str
) -> None:
    node, address = served
    send(client, topic, 0, b"a", b"b")
    taken: list[Taken] = pop(client, topic, group).taken
    client.close()
    node.stop()
    node.serve()
    again = RemotingClient(address)
    wait_until(lambda: pop(again, topic, group).code == ResponseCode.POLLING_TIMEOUT, "it leads")

    assert [ack(again, one, group).code for one in taken] == [0, 0]
    assert unsettled(node, group) == 0
    again.close()
