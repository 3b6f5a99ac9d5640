"""Many gRPC clients at members that follow: none waits for another one's call to end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("grpc", reason="no grpcio: packaging/bootstrap.sh")

from ledgermq.client import Admin
from ledgermq.gateway.rpc.definition import ClientType, MessageType, RpcCode, make
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC
from tests.process.grpc_clients import RawClient, telemetry
from tests.process.test_grpc_group import answered, make_grpc_group
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

POLLS = 300
"""More than a member takes of one connection."""


def test_polls_and_streams_of_many_at_a_follower_keep_no_call_waiting(
    make_node: Callable[[], Node],
) -> None:
    group, ports = make_grpc_group(make_node)
    leader = group.leader()
    follower, _ = group.others(leader)
    address = ports[follower.name]
    with Admin(group.addresses, timeout_s=PATIENCE_S) as admin:
        admin.create_topic("late", queues=1)
        admin.create_topic("silent", queues=1)
    sender = RawClient(address, name="sender")
    answered(sender, lambda: sender.send(TOPIC, b"first"))

    settings = make("Settings", client_type=ClientType.PRODUCER)
    settings.publishing.topics.add(name=TOPIC)
    more = make("Settings", client_type=ClientType.PRODUCER)
    more.publishing.topics.extend(make("Resource", name=one) for one in (TOPIC, "late"))
    with telemetry(address, "producer") as stream:
        assert stream.tell(settings).status.code == RpcCode.OK
        # Declared later: whoever leads is told of it, too.
        assert stream.tell(more).status.code == RpcCode.OK
        sent = sender.send("late", b"open", message_type=MessageType.TRANSACTION)
        assert sent.status.code == RpcCode.OK
        asked = stream.next().recover_orphaned_transaction_command
        assert asked.message.body == b"open"
        ended = make(
            "EndTransactionRequest",
            topic={"name": "late"},
            transaction_id=asked.transaction_id,
            resolution=1,
        )
        answered(sender, lambda: sender.call("EndTransaction", ended))

    pollers = [RawClient(address, name=f"poller{number}", own=True) for number in range(4)]
    request = make(
        "ReceiveMessageRequest",
        group={"name": "pollers"},
        message_queue={"topic": {"name": "silent"}},
        batch_size=1,
        invisible_duration={"seconds": 60},
        long_polling_timeout={"seconds": 25},
    )
    # By its first message the group is one of which it is told how many wait.
    answered(sender, lambda: sender.send("silent", b"first"))
    assert len(sender.receive(request)) == 3
    polls = [pollers[number % 4].receiving(request) for number in range(POLLS)]
    with Admin(group.addresses, timeout_s=PATIENCE_S) as admin:
        wait_until(
            lambda: admin.shared_group("pollers").waiting == POLLS, "all polls at the leader"
        )
    assert sender.send(TOPIC, b"beside them").status.code == RpcCode.OK
    for poll in polls:
        poll.cancel()
    for client in (*pollers, sender):
        client.close()
