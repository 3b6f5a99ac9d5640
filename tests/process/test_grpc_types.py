"""Types that RocketMQ 5 gave to topics: what gRPC clients may send there once a node has them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("grpc", reason="no grpcio: packaging/bootstrap.sh")

from ledgermq.gateway.rpc.definition import MessageType, RpcCode, make
from tests.conftest import Golden
from tests.process.conftest import Node
from tests.process.group_nodes import free_port
from tests.process.grpc_clients import RawClient
from tests.process.test_rocketmq_5_store import STORE

pytestmark = pytest.mark.slow

TAKEN = {
    "typed-normal": {MessageType.NORMAL},
    "typed-fifo": {MessageType.FIFO},
    "typed-delay": {MessageType.DELAY},
    "typed-tx": {MessageType.TRANSACTION},
    "plain0": set(MessageType) - {0, MessageType.PRIORITY, MessageType.LITE},
}
SENT: dict[MessageType, dict[str, Any]] = {
    MessageType.NORMAL: {},
    MessageType.FIFO: {"message_group": "g"},
    MessageType.DELAY: {"delivery_timestamp": {"seconds": int(time.time()) + 3_600}},
    MessageType.TRANSACTION: {},
}


def test_a_topic_with_a_type_takes_messages_of_it_alone_and_says_so(
    make_node: Callable[[], Node], golden: Golden
) -> None:
    node, address = make_node(), f"127.0.0.1:{free_port()}"
    shutil.copytree(golden("p551"), node.root)
    node.configure(store=STORE, listen={"grpc": address})
    node.serve()
    raw = RawClient(address)
    routes = {
        topic: raw.call("QueryRoute", make("QueryRouteRequest", topic={"name": topic}))
        for topic in TAKEN
    }
    sent = {
        (topic, kind): raw.send(topic, message_type=kind, **more).status.code
        for topic in TAKEN
        for kind, more in SENT.items()
    }
    raw.close()

    assert node.stop() == 0
    for topic, route in routes.items():
        accepted = [set(queue.accept_message_types) for queue in route.message_queues]
        assert accepted and all(one == TAKEN[topic] for one in accepted), topic
    assert sent == {
        (topic, kind): RpcCode.OK
        if kind in TAKEN[topic]
        else RpcCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        for topic in TAKEN
        for kind in SENT
    }
