"""A real node's port: locks, retries, look-ups, and groups that our own clients know, too."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from ledgermq.client.admin.admin import Admin
from ledgermq.client.blocking.group_consumer import GroupConsumer
from ledgermq.formats.records.message_id import decode_offset_id
from ledgermq.model.errors import GroupActiveError, NoPermissionError
from ledgermq.remoting.codes import RequestCode, ResponseCode
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node
from tests.process.remoting_steps import (
    NOW_MS,
    beat,
    beat_when_leading,
    members,
    pull,
    send,
)
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Node, str]]:
    with nodes_made() as make:
        node = make()
        yield node, start_remoting_node(node)
        node.stop()


@pytest.fixture
def client(served: tuple[Node, str]) -> Iterator[RemotingClient]:
    client = RemotingClient(served[1])
    beat_when_leading(client, "10.0.0.1@1", "orders", "other")
    yield client
    client.close()


def locked(client: RemotingClient, client_id: str, *queues: int, unlock: bool = False) -> list[int]:
    """Ask for locks, or give them back; the queues that the client owns then."""
    wanted = [{"topic": "orders", "brokerName": "broker-a", "queueId": one} for one in queues]
    body = {"consumerGroup": "ordered", "clientId": client_id, "mqSet": wanted}
    code = RequestCode.UNLOCK_BATCH_MQ if unlock else RequestCode.LOCK_BATCH_MQ
    reply = client.ask(code, body=json.dumps(body).encode())
    assert reply.code == ResponseCode.SUCCESS, reply
    if unlock:
        return []
    owned = json.loads(bytes(reply.body))["lockOKMQSet"]
    assert all((one["topic"], one["brokerName"]) == ("orders", "broker-a") for one in owned)
    return [one["queueId"] for one in owned]


def test_a_queue_has_one_owner_until_it_gives_it_back(client: RemotingClient) -> None:
    first = locked(client, "a", 0, 1)
    second = locked(client, "b", 1, 2)
    again = locked(client, "a", 0, 1)
    locked(client, "b", 0, 1, unlock=True)
    still = locked(client, "b", 0, 1)
    locked(client, "a", 1, unlock=True)
    freed = locked(client, "b", 0, 1, 2)

    assert (first, second, again, still, freed) == ([0, 1], [2], [0, 1], [], [1, 2])


def test_a_message_that_is_given_back_comes_again_and_is_dead_after_its_last_time(
    client: RemotingClient,
) -> None:
    group = {"group": "returning"}
    beat_when_leading(client, "10.0.0.1@1", "orders", "%RETRY%returning", **group)
    (sent,) = send(client, "orders", 0, b"fails", properties="TAGS\x01A\x02")
    position = decode_offset_id(sent.fields["msgId"]).physical_offset

    back = client.ask(
        RequestCode.CONSUMER_SEND_MSG_BACK, {**group, "offset": position, "delayLevel": 1}
    )
    again = pull(client, "%RETRY%returning", 0, 0, suspend_ms=30_000, **group)
    (message,) = again.messages
    dead = client.ask(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        {
            **group,
            "offset": message.physical_offset,
            "delayLevel": 0,
            "maxReconsumeTimes": 1,
        },
    )
    buried = pull(client, "%DLQ%returning", 0, 0, suspend_ms=30_000, subscription="*", **group)
    nothing = client.ask(
        RequestCode.CONSUMER_SEND_MSG_BACK, {**group, "offset": position + 1, "delayLevel": 1}
    )

    assert (back.code, dead.code) == (0, 0)
    properties = message.parsed_properties()
    assert (message.reconsume_times, bytes(message.body)) == (1, b"fails")
    assert (properties["RETRY_TOPIC"], properties["TAGS"]) == ("orders", "A")
    assert properties["ORIGIN_MESSAGE_ID"] == sent.fields["msgId"]
    assert buried.bodies == [b"fails"]
    assert nothing.code != ResponseCode.SUCCESS


def test_messages_are_found_by_key_by_unique_id_and_by_where_they_are(
    client: RemotingClient,
) -> None:
    properties = "KEYS\x01red blue\x02UNIQ_KEY\x01UNIQUE1\x02"
    sent = send(client, "other", 2, b"one", b"two", properties=properties)
    position = decode_offset_id(sent[1].fields["msgId"]).physical_offset
    times = {"topic": "other", "beginTimestamp": 0, "endTimestamp": NOW_MS * 2}

    def bodies(**fields: object) -> list[bytes]:
        reply = client.ask(RequestCode.QUERY_MESSAGE, {**times, **fields})
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            assert reply.fields == {
                "indexLastUpdatePhyoffset": "0",
                "indexLastUpdateTimestamp": "0",
            }
            return []
        assert int(reply.fields["indexLastUpdatePhyoffset"]) >= position
        data = bytes(reply.body)
        return [body for body in (b"one", b"two") if body in data]

    wait_until(lambda: len(bodies(key="red", maxNum=32)) == 2, "the index has them")
    by_id = bodies(key="UNIQUE1", maxNum=1, _UNIQUE_KEY_QUERY="true")
    newest = bodies(key="blue", maxNum=1)
    none = bodies(key="green", maxNum=32)
    of_nothing = bodies(key="red", maxNum=32, topic="nothing")
    viewed = client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": position})
    beside = client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": position + 1})

    assert (by_id, newest) == ([b"one", b"two"], [b"two"])
    assert (none, of_nothing) == ([], [])
    assert viewed.code == 0
    assert b"two" in bytes(viewed.body)
    assert beside.code == ResponseCode.SYSTEM_ERROR


def test_a_filter_is_checked_before_a_consumer_begins(client: RemotingClient) -> None:
    def code(expression: str, kind: str) -> int:
        wanted = {"topic": "orders", "subString": expression, "expressionType": kind}
        body = {"clientId": "a", "group": "g", "subscriptionData": wanted}
        return client.ask(RequestCode.CHECK_CLIENT_CONFIG, body=json.dumps(body).encode()).code

    assert code("A || B", "TAG") == ResponseCode.SUCCESS
    assert code("price > 5", "SQL92") == ResponseCode.SUCCESS
    assert code("price >", "SQL92") == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert code("x", "STRANGE") == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def has_queues(consumer: GroupConsumer) -> bool:
    """Whether a consumer of ours is a member, and shares queues."""
    consumer.poll(0.1)
    return bool(consumer.assignment)


def test_a_group_is_consumed_by_one_kind_of_clients_and_tools_see_both(
    served: tuple[Node, str], client: RemotingClient
) -> None:
    node, address = served
    other = RemotingClient(address)
    beat_when_leading(other, "10.0.0.1@7", "orders", group="mixed")
    own_address = f"ipc://{node.runtime}"
    with Admin(own_address) as admin:
        shown = admin.members("mixed")
        with pytest.raises(GroupActiveError, match=r"rocketmq/10\.0\.0\.1@7"):
            admin.reset_offsets("mixed", "orders", "first")
    with (
        GroupConsumer(own_address, group="mixed") as intruder,
        pytest.raises(GroupActiveError, match="RocketMQ's clients"),
    ):
        intruder.subscribe("orders")
        intruder.poll(PATIENCE_S)
    other.close()
    # Who comes before that is refused, and that is its end: it would have to be begun anew.
    with Admin(own_address) as admin:
        wait_until(
            lambda: not admin.members("mixed").members, "RocketMQ's member is known to have gone"
        )

    with GroupConsumer(own_address, group="mixed") as own:
        own.subscribe("orders")
        wait_until(lambda: has_queues(own), "our own member has its queues")
        refused = beat(client, "10.0.0.1@8", "orders", group="mixed")
        alone = members(client, "mixed")
    wait_until(
        lambda: beat(client, "10.0.0.1@8", "orders", group="mixed").code == 0,
        "our own member has left",
    )

    assert [one.client for one in shown.members] == ["rocketmq/10.0.0.1@7"]
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "own clients consume" in str(refused.remark)
    assert alone == []
    assert members(client, "mixed") == ["10.0.0.1@8"]


def test_two_clients_of_one_id_are_told_of_and_one_that_connects_anew_is_not(
    served: tuple[Node, str], client: RemotingClient
) -> None:
    node, address = served

    def told(group: str) -> tuple[str, ...]:
        with Admin(f"ipc://{node.runtime}") as admin:
            return admin.group(group).warnings

    beat_when_leading(client, "10.0.0.9@1", "orders", group="twins")
    other = RemotingClient(address)
    beat(other, "10.0.0.9@1", "orders", group="twins")
    beat(other, "10.0.0.9@1", "orders", group="twins")
    anew = told("twins")
    beat(client, "10.0.0.9@1", "orders", group="twins")
    both = told("twins")
    wait_until(lambda: node.logged("two consumers have the client id 10.0.0.9@1"), "the line")
    other.close()
    wait_until(lambda: not told("twins"), "one of them alone", PATIENCE_S)

    assert anew == ()
    assert len(both) == 1
    assert "two consumers have the client id 10.0.0.9@1" in both[0]
    assert both[0].count("127.0.0.1:") == 2


def test_two_members_of_one_name_are_told_of(served: tuple[Node, str]) -> None:
    node, _ = served
    address = f"ipc://{node.runtime}"
    with (
        GroupConsumer(address, group="namesakes", name="same") as first,
        GroupConsumer(address, group="namesakes", name="same") as second,
    ):
        first.subscribe("orders")
        second.subscribe("orders")
        first.poll(0.1)
        with Admin(address) as admin:
            wait_until(lambda: admin.group("namesakes").members, "the first", PATIENCE_S)

        def is_refused() -> bool:
            second.poll(0.1)
            try:
                first.poll(0.1)
            except NoPermissionError:
                return True
            return False

        wait_until(is_refused, "the first one to be refused", PATIENCE_S)
    wait_until(
        lambda: node.logged("two consumers of a group have one client id: group=namesakes"),
        "the line",
    )
