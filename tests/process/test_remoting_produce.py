"""A real node's port for RocketMQ's clients: what becomes of what they send."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.process.conftest import Node, wait_until
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node

from ledgermq.client.queries import Queries
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import HeaderKind

pytestmark = pytest.mark.slow

NOW_MS = 1_700_000_000_123


@pytest.fixture
def served(make_node: Callable[[], Node]) -> Iterator[tuple[Node, str]]:
    node = make_node()
    address = start_remoting_node(node)
    yield node, address
    node.stop()


def fields(
    topic: str, queue_id: int = 0, properties: str = "", **more: object
) -> dict[str, object]:
    return {
        "a": "producers",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": queue_id,
        "f": 0,
        "g": NOW_MS,
        "h": 7,
        "i": properties,
        "j": 0,
        "k": "false",
        **more,
    }


def wait_until_leading(client: RemotingClient) -> None:
    def leads() -> bool:
        reply = client.ask(RequestCode.SEND_MESSAGE_V2, fields("other", 3), b"probe")
        assert reply.code in (0, ResponseCode.SERVICE_NOT_AVAILABLE), reply
        return reply.code == 0

    wait_until(leads, "the node leads its group of one")


@pytest.mark.parametrize("kind", list(HeaderKind))
def test_what_is_told_to_be_stored_is_there(served: tuple[Node, str], kind: HeaderKind) -> None:
    node, address = served
    client = RemotingClient(address, kind=kind)
    wait_until_leading(client)

    properties = "UNIQ_KEY\x01ID7\x02WAIT\x01true\x02TAGS\x01A"
    replies = [
        client.ask(RequestCode.SEND_MESSAGE_V2, fields("orders", 2, properties), b"body %d" % one)
        for one in range(3)
    ]
    made = client.ask(RequestCode.SEND_MESSAGE_V2, fields("brand-new", -1), b"first")
    host = client.address
    client.close()
    with Queries(f"ipc://{node.runtime}") as queries:
        stored = [queries.message_by_id(reply.fields["msgId"]) for reply in (*replies, made)]
        route = queries.read_queues("brand-new")

    assert [reply.code for reply in (*replies, made)] == [0] * 4
    assert [reply.fields["queueOffset"] for reply in replies] == ["0", "1", "2"]
    assert {reply.fields["queueId"] for reply in replies} == {"2"}
    assert {reply.fields["MSG_REGION"] for reply in replies} == {"DefaultRegion"}
    first = stored[0]
    assert [bytes(one.body) for one in stored if one] == [b"body 0", b"body 1", b"body 2", b"first"]
    assert first is not None
    assert first.topic == "orders"
    assert (first.queue_id, first.flag, first.born_timestamp) == (2, 7, NOW_MS)
    assert first.born_host == host
    assert first.properties == {"UNIQ_KEY": "ID7", "TAGS": "A", "CLUSTER": "DefaultCluster"}
    assert route == 4
