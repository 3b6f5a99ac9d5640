"""POP by RocketMQ 5's remoting clients: the same list at a node and at RocketMQ 5.5.1.

A raw client asks both of them the same, and Java's push consumer consumes from both; the node is
the name server of both.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ledgermq.client import Admin
from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.command import Command
from tests.compat import rocketmq5
from tests.compat.other_clients import (
    NotToBeHadError,
    java5_pop,
    java5_tools,
    run_client,
)
from tests.process.conftest import Node, wait_until
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node
from tests.process.remoting_pops import (
    Taken,
    ack,
    acks_body,
    change,
    messages_in,
    named,
    pop_fields,
    popped,
    set_mode,
)
from tests.process.remoting_steps import beat_when_leading, offset_fields, send
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

GROUP = "workers"
DRAWN = ("popTime", "reviveQid")
"""Fields that are others each time."""

DIFFERENCES = {
    "text that is none": ("1", "208"),
    "a time that is too short": ("210", "29"),
}
"""What is answered otherwise, and how: a text that is none was never handed out; and no message
comes back sooner than after 100 ms."""


class Side(NamedTuple):
    """One of the two: the address of its port, and a topic that is its own."""

    address: str
    topic: str


@pytest.fixture
def node(make_node: Callable[[], Node]) -> Node:
    return make_node()


@pytest.fixture
def sides(node: Node, tmp_path: Path) -> Iterator[tuple[Side, Side]]:
    """The node, and the broker of RocketMQ that registers with it."""
    try:
        rocketmq5.fetch()
    except NotToBeHadError as error:
        pytest.skip(str(error))
    ours = start_remoting_node(node, remoting={"registrations_from": ["127.0.0.0/8"]})
    settings = {"namesrvAddr": ours, "enablePropertyFilter": "true"}
    with rocketmq5.rocketmq5_serving(tmp_path / "store", tmp_path, **settings) as theirs:
        yield Side(ours, "popped-here"), Side(theirs, "popped-there")


def make_topic(client: RemotingClient, topic: str) -> None:
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2,
        "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    wait_until(lambda: client.ask(Code.UPDATE_AND_CREATE_TOPIC, fields).code == 0, "topic is made")


def shown(reply: Command) -> str:
    """Of a reply what is the same each time; of a refusal its code."""
    if reply.code not in (0, 210):
        return str(reply.code)
    fields = {name: text for name, text in reply.fields.items() if name not in DRAWN}
    missing = [name for name in DRAWN if name not in reply.fields]
    # Queues are taken in any order.
    for name in ("startOffsetInfo", "msgOffsetInfo"):
        if name in fields:
            fields[name] = ";".join(sorted(fields[name].split(";")))
    bodies = sorted(bytes(one.body) for one in messages_in(reply))
    return f"{reply.code} {sorted(fields.items())} without {missing}: {bodies!r}"


def talk(side: Side) -> dict[str, str]:
    """What a broker answers to a list of requests."""
    client, topic = RemotingClient(side.address), side.topic
    found: dict[str, str] = {}

    def note(name: str, reply: Command) -> Command:
        # The name of what was asked about is no difference.
        found[name] = shown(reply)
        return reply

    def ask(**more: object) -> Command:
        now_ms = int(time.time() * 1_000)
        return client.ask(
            Code.POP_MESSAGE, {**pop_fields(topic, GROUP), "bornTime": now_ms, **more}
        )

    def look(code: Code, **more: object) -> Command:
        return client.ask(code, offset_fields(topic, -1, group=GROUP, **more))

    make_topic(client, topic)
    note("empty queues", ask())
    send(client, topic, 0, b"a", b"b", b"c")
    send(client, topic, 1, b"d")
    first = popped(note("two of four", ask(maxMsgNums=2, queueId=0))).taken
    rest = popped(note("the rest", ask())).taken
    note("nothing left", ask())
    note("nothing comes", ask(pollTime=300))
    note("acknowledged", ack(client, first[0], GROUP))
    note("acknowledged twice", ack(client, first[0], GROUP))
    note("offset that is none", client.ask(Code.ACK_MESSAGE, named(first[1], GROUP, offset=99)))
    note("queue that is none", client.ask(Code.ACK_MESSAGE, named(first[1], GROUP, queueId=9)))
    note("topic that is none", client.ask(Code.ACK_MESSAGE, named(first[1], GROUP, topic="no")))
    wrong = named(first[1], GROUP, extraInfo="garbage")
    note("text that is none", client.ask(Code.ACK_MESSAGE, wrong))
    note("another time", change(client, first[1], GROUP, 60_000))
    of_none = named(first[1], GROUP, offset=99, invisibleTime=1)
    note("time of none", client.ask(Code.CHANGE_MESSAGE_INVISIBLETIME, of_none))
    note("many", client.ask(Code.BATCH_ACK_MESSAGE, body=acks_body(rest, GROUP)))
    note("none", client.ask(Code.BATCH_ACK_MESSAGE, body=json.dumps({"acks": []}).encode()))
    note("too many", ask(maxMsgNums=33))
    note("pop of a queue that is none", ask(queueId=9))
    note("pop of a topic that is none", ask(topic="no"))
    note("a time that is too short", ask(invisibleTime=1))
    note("SQL that is none", ask(expType="SQL92", exp="n > > 0"))
    note("nothing to look at", look(Code.PEEK_MESSAGE, maxMsgNums=8))
    note("nobody waits", look(Code.POLLING_INFO))
    note("nothing to tell", look(Code.NOTIFICATION, pollTime=1, bornTime=int(time.time() * 1e3)))
    send(client, topic, 0, b"e")
    note("something to tell", look(Code.NOTIFICATION, pollTime=1, bornTime=1))
    note("something to look at", look(Code.PEEK_MESSAGE, maxMsgNums=8))
    (late,) = popped(note("for a second", ask(invisibleTime=1_000))).taken
    (again,) = popped(ask(pollTime=20_000)).taken
    note("again acknowledged", ack(client, again, GROUP))
    found["again"] = (
        f"{again.body!r} {late.message.reconsume_times} {again.message.reconsume_times}"
    )
    note("mode of no topic", set_mode(client, "no", GROUP, "POP"))
    note("mode of retries", set_mode(client, f"%RETRY%{GROUP}", GROUP, "POP"))
    note("mode", set_mode(client, topic, GROUP, "POP"))
    client.close()
    return found


def test_each_answer_is_that_of_rocketmq_5(sides: tuple[Side, Side]) -> None:
    ours, theirs = (talk(side) for side in sides)
    pairs = {name: (theirs[name], ours[name]) for name in theirs}
    other = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    assert {name: (a.split(" ")[0], b) for name, (a, b) in other.items()} == DIFFERENCES


IN_ORDER_DIFFERENCES = {
    "another time": ("0", "0"),
    "what was acknowledged behind it": ("0", "0"),
}
"""The time of a pop stays at RocketMQ, and how long a message is kept is counted from it; ours are
those of the change, up to the same time. And there what was acknowledged comes again."""


def talk_in_order(side: Side) -> dict[str, str]:
    """What a broker answers to pops in the order of queues (of proxies, for FIFO groups)."""
    client, topic = RemotingClient(side.address), f"{side.topic}-in-order"
    found: dict[str, str] = {}

    def ask(name: str, **more: object) -> list[Taken]:
        now_ms = int(time.time() * 1_000)
        fields = pop_fields(topic, GROUP, bornTime=now_ms, order="true", **more)
        reply = client.ask(Code.POP_MESSAGE, fields)
        found[name] = shown(reply)
        return popped(reply).taken

    def ask_until(name: str, **more: object) -> list[Taken]:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            if taken := ask(name, pollTime=2_000, **more):
                return taken
        raise TimeoutError(name)

    def acknowledge(name: str, taken: Taken) -> None:
        found[name] = shown(ack(client, taken, GROUP))

    make_topic(client, topic)
    ask("empty queues")
    send(client, topic, 0, b"a", b"b", b"c")
    send(client, topic, 1, b"d")
    first, second = ask_until("two of three", maxMsgNums=2, queueId=0)
    ask("queue that is held", queueId=0)
    (other,) = ask_until("of the other queue")
    ask("both are held")
    fields = offset_fields(topic, 0, group=GROUP, order="true", pollTime=1, bornTime=1)
    found["nothing to tell"] = shown(client.ask(Code.NOTIFICATION, fields))
    acknowledge("the second", second)
    ask("held by the first", queueId=0)
    acknowledge("the first", first)
    acknowledge("of the other queue", other)
    (third,) = ask_until("the next", queueId=0)
    send(client, topic, 0, b"e")
    found["another time"] = shown(change(client, third, GROUP, 1_000))
    ask("held until then", queueId=0)
    third, fourth = ask_until("again, and what came since", queueId=0)
    acknowledge("again acknowledged", third)
    acknowledge("acknowledged twice", third)
    acknowledge("the fourth", fourth)
    ask("nothing left")
    send(client, topic, 0, b"f", b"g")
    late, _ = ask_until("for a second", queueId=0, invisibleTime=1_000, maxMsgNums=2)
    (again, rest) = ask_until("both again", queueId=0)
    acknowledge("again", again)
    acknowledge("rest", rest)
    assert late.body == again.body
    send(client, topic, 0, b"h", b"i")
    _, behind = ask_until("two for a second", queueId=0, invisibleTime=1_000, maxMsgNums=2)
    acknowledge("the one behind", behind)
    left = ask_until("what was acknowledged behind it", queueId=0)
    found["bodies"] = str([one.body for one in left])
    client.close()
    return found


def test_pops_in_the_order_of_queues_are_answered_as_by_rocketmq_5(
    sides: tuple[Side, Side],
) -> None:
    ours, theirs = (talk_in_order(side) for side in sides)
    other = {name: (theirs[name], ours[name]) for name in theirs if theirs[name] != ours[name]}

    bodies = other.pop("bodies")
    assert {name: (a[0], b[0]) for name, (a, b) in other.items()} == IN_ORDER_DIFFERENCES, other
    assert bodies == ("[b'h', b'i']", "[b'h']")


def test_the_operators_tool_puts_javas_push_consumer_into_pop(
    node: Node, sides: tuple[Side, Side]
) -> None:
    try:
        tool, program = java5_tools(), java5_pop()
    except NotToBeHadError as error:
        pytest.skip(str(error))
    name_server = sides[0].address
    said: list[list[str]] = []
    for address, topic in sides:
        client = RemotingClient(address)
        make_topic(client, topic)
        made = "\t".join(["updateSubGroup", "-b", address, "-g", GROUP, "-n", name_server])
        mode = "\t".join(
            ["setConsumeMode", "-b", address, "-t", topic, "-g", GROUP, "-m", "POP",
             "-n", name_server]
        )  # fmt: skip
        told = "\n".join(run_client(tool, told=f"{made}\n{mode}\n"))
        assert f"set consume mode to {address} success" in told, told
        for body in (b"one", b"two", b"again"):
            send(client, topic, len(body) % 2, body, properties="TAGS\x01a\x02")
        send(client, topic, 0, b"of another tag", properties="TAGS\x01c\x02")
        client.close()
        route = RemotingClient(name_server)
        wait_until(
            lambda to=route, of=topic: to.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": of}).code == 0,
            "the topic has a route",
            PATIENCE_S,
        )
        route.close()
        lines = run_client(program, name_server, GROUP, topic, "3")
        said.append(sorted(line for line in lines if line.startswith("got ")))

    assert said[0] == ["got again 0 true", "got again 1 true", "got one 0 true", "got two 0 true"]
    assert said[1] == said[0]
    with Admin(node.address) as admin:
        wait_until(lambda: admin.shared_group(GROUP).unsettled == 0, "all is acknowledged")
        assert [one.lag for one in admin.lag(GROUP) if one.topic == sides[0].topic] == [0, 0]


def test_a_running_consumer_goes_over_to_pop_and_back(node: Node, tmp_path: Path) -> None:
    try:
        words, needed = java5_pop()
    except NotToBeHadError as error:
        pytest.skip(str(error))
    address = start_remoting_node(node)
    client, said = RemotingClient(address), tmp_path / "said"
    beat_when_leading(client, "a", "orders")

    def got(body: str) -> str:
        send(client, "orders", 0, body.encode(), properties="TAGS\x01a\x02")
        wait_until(lambda: f"got {body} " in said.read_text(), f"{body} to be consumed")
        (line,) = [one for one in said.read_text().splitlines() if f"got {body} " in one]
        return line

    def is_set(mode: str) -> bool:
        return set_mode(client, "orders", GROUP, mode).code == 0

    def polls() -> int:
        fields = offset_fields("orders", -1, group=GROUP)
        return int(client.ask(Code.POLLING_INFO, fields).fields["pollingNum"])

    with said.open("w") as output:
        program = subprocess.Popen(
            [*words, address, GROUP, "orders", "4"],
            env={**os.environ, **needed},
            stdout=output,
            stderr=output,
        )
    try:
        by_pull = got("one")
        wait_until(lambda: is_set("POP"), "the group takes messages singly")
        wait_until(lambda: polls() > 0, "the consumer waits for messages to take")
        by_pop = got("two")
        # Refused while the message is not settled.
        wait_until(lambda: is_set("PULL"), "the group pulls")
        again, last = got("three"), got("four")
        status = program.wait(PATIENCE_S)
    finally:
        program.kill()
        program.wait()
    client.close()

    assert (by_pull, by_pop) == ("got one 0 false", "got two 0 true")
    assert (again, last) == ("got three 0 false", "got four 0 false")
    assert status == 0


PRIORITIES = {
    "low": "_SYS_MSG_PRIORITY_\x010",
    "high": "_SYS_MSG_PRIORITY_\x019",
    "mid": "_SYS_MSG_PRIORITY_\x011\x02A\x01b",
    "keyed": "_SYS_MSG_PRIORITY_\x012\x02__SHARDINGKEY\x01k",
    "below": "_SYS_MSG_PRIORITY_\x01-1",
    "odd": "_SYS_MSG_PRIORITY_\x01first",
    "high too": "_SYS_MSG_PRIORITY_\x013",
}


def by_priority(side: Side) -> tuple[dict[str, str], list[bytes], dict[bytes, str | None]]:
    """The queue of each message, in which order they are popped singly, and their priorities."""
    client, topic = RemotingClient(side.address), f"{side.topic}-by-priority"
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4,
        "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        "attributes": "+message.type=PRIORITY",
    }  # fmt: skip
    wait_until(lambda: client.ask(Code.UPDATE_AND_CREATE_TOPIC, fields).code == 0, "topic is made")
    queues = {
        name: send(client, topic, 0, name.encode(), properties=properties)[0].fields["queueId"]
        for name, properties in PRIORITIES.items()
    }
    order: list[bytes] = []
    priorities: dict[bytes, str | None] = {}
    while len(order) < len(PRIORITIES):
        now_ms = int(time.time() * 1_000)
        asked = pop_fields(topic, GROUP, maxMsgNums=1, bornTime=now_ms, pollTime=10_000)
        for one in messages_in(client.ask(Code.POP_MESSAGE, asked)):
            order.append(bytes(one.body))
            stored = one.parsed_properties()
            priorities[order[-1]] = stored.get("_SYS_MSG_PRIORITY_")
    client.close()
    return queues, order, priorities


def test_messages_of_the_highest_priority_are_popped_first(sides: tuple[Side, Side]) -> None:
    ours, theirs = map(by_priority, sides)

    assert ours == theirs
    assert ours[1][:3] == [b"high", b"high too", b"mid"]
