"""A real node's port: who is in a group, and who is told when it changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from ledgermq.remoting.codes import RequestCode, ResponseCode
from tests.process.conftest import Node
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node
from tests.process.remoting_steps import GROUP, beat, beat_when_leading, members

pytestmark = pytest.mark.slow


@pytest.fixture
def address(make_node: Callable[[], Node]) -> Iterator[str]:
    node = make_node()
    yield start_remoting_node(node)
    node.stop()


def test_members_come_are_told_of_one_another_and_go(address: str) -> None:
    first, second, third = (RemotingClient(address) for _ in range(3))
    beat_when_leading(first, "10.0.0.1@1", "orders")
    alone = members(first)
    route = first.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": f"%RETRY%{GROUP}"})
    first.came.clear()

    beat(second, "10.0.0.1@2", "orders")
    beat(third, "10.0.0.1@3", "orders")
    told = [first.next_request(), first.next_request()]
    all_three = members(second)
    left = second.ask(
        RequestCode.UNREGISTER_CLIENT, {"clientID": "10.0.0.1@2", "consumerGroup": GROUP}
    )
    first.next_request()
    after_goodbye = members(second)
    third.close()
    first.next_request()
    after_end = members(first)

    assert alone == ["10.0.0.1@1"]
    assert [
        json.loads(bytes(route.body))["queueDatas"][0][f"{side}QueueNums"]
        for side in ("read", "write")
    ] == [1, 1]
    assert [(one.code, one.is_oneway, one.fields) for one in told] == [
        (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, True, {"consumerGroup": GROUP})
    ] * 2
    assert all_three == ["10.0.0.1@1", "10.0.0.1@2", "10.0.0.1@3"]
    assert left.code == ResponseCode.SUCCESS
    assert after_goodbye == ["10.0.0.1@1", "10.0.0.1@3"]
    assert after_end == ["10.0.0.1@1"]
    first.close()
    second.close()


def test_a_heartbeat_that_cannot_be_read_harms_nobody(address: str) -> None:
    client = RemotingClient(address)

    broken = client.ask(RequestCode.HEART_BEAT, body=b"{{")
    nobody = client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "none"})
    client.close()

    assert broken.code == ResponseCode.SYSTEM_ERROR
    assert "JSON" in str(broken.remark)
    assert (nobody.code, nobody.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "no consumer for this group, none",
    )
