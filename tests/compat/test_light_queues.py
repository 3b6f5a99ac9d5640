"""Light queues with names that no topic can have, of brokers that are killed: there and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.client import Producer
from ledgermq.remoting.codes import RequestCode, ResponseCode
from tests.compat.java_broker import JavaBroker
from tests.compat.other_clients import NotToBeHadError
from tests.compat.rocketmq5 import fetch
from tests.process.conftest import Node, wait_until
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_steps import send
from tests.process.test_delivery import received
from tests.process.test_rocketmq_5_store import STORE
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

LIGHT = ("%LMQ%home%$room.1", "%LMQ%a b", "%LMQ%one")
MESSAGES = 5
LMQ = {"enableLmq": "true", "enableMultiDispatch": "true"}


def ends(client: RemotingClient) -> dict[str, int]:
    """Where the light queues end, as their broker says."""
    found = {}
    for name in LIGHT:
        reply = client.ask(RequestCode.GET_MAX_OFFSET, {"topic": name, "queueId": 0})
        assert reply.code == ResponseCode.SUCCESS, reply
        found[name] = int(reply.fields["offset"])
    return found


def put(client: RemotingClient, begin: int) -> None:
    """Store messages that stand in the light queues, too."""
    properties = f"INNER_MULTI_DISPATCH\x01{','.join(LIGHT)}\x02"
    bodies = [b"%d" % (begin + number) for number in range(MESSAGES)]
    send(client, "orders", 0, *bodies, properties=properties)
    wait_until(lambda: set(ends(client).values()) == {begin + MESSAGES}, "light queues", PATIENCE_S)


@pytest.mark.parametrize("product", [4, 5])
def test_light_queues_of_any_name_stay_and_go_on_at_rocketmq(
    make_node: Callable[[], Node], tmp_path: Path, product: int
) -> None:
    try:
        fetch()
    except NotToBeHadError as error:
        pytest.skip(str(error))
    node = make_node()
    java = JavaBroker(product, tmp_path, **LMQ)
    java.start("ASYNC_MASTER")
    client = RemotingClient(java.address)
    put(client, 0)
    client.close()
    java.kill()
    java.store.rename(node.root)
    node.configure(store=STORE)
    node.serve()
    found = [bytes(one.body) for one in received(node.address, "orders", MESSAGES)]
    with Producer(node.address) as producer:
        producer.send("orders", b"ours", queue_id=0).result(PATIENCE_S)

    assert node.stop() == 0
    assert found == [b"%d" % number for number in range(MESSAGES)]
    node.root.rename(java.store)
    java.start("ASYNC_MASTER")
    client = RemotingClient(java.address)
    before = ends(client)
    if product == 5:
        # RocketMQ 4 numbers them from 0 again after each start, and does not put those.
        put(client, MESSAGES)
    else:
        send(client, "orders", 0, *[b"later"] * MESSAGES)
    client.close()
    java.kill()
    java.store.rename(node.root)
    node.serve()
    again = [bytes(one.body) for one in received(node.address, "orders", 2 * MESSAGES + 1)]

    assert node.stop() == 0
    assert before == dict.fromkeys(LIGHT, MESSAGES)
    assert len(again) == 2 * MESSAGES + 1
