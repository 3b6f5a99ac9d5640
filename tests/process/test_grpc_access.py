"""Who may what at the port of gRPC clients, and what they may take."""

from __future__ import annotations

import hashlib
import hmac
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="no grpcio: packaging/bootstrap.sh")

import grpc

from ledgermq.client import Admin, Producer
from ledgermq.client.admin.broker_admins import AccessAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.gateway.rpc.definition import ClientType, RpcCode, make
from ledgermq.model.units import MIB
from tests.certificates import make_certificate
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import free_port
from tests.process.grpc_clients import (
    RawClient,
    TelemetryStream,
    python_client,
    start_grpc_node,
    telemetry,
)
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

TIME = "20261130T072100Z"
RIGHTS = {"topicPerms": ["orders=PUB|SUB"], "groupPerms": ["workers=SUB"]}


def signature(key: str, secret: str) -> tuple[tuple[str, str], ...]:
    signed = hmac.new(secret.encode(), TIME.encode(), hashlib.sha1).hexdigest().upper()
    told = f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={signed}"
    return (("x-mq-date-time", TIME), ("authorization", told))


def test_who_signs_has_the_rights_of_the_user_and_nobody_else_gets_in(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    node = make_node()
    address = start_grpc_node(node, access={"enabled": True})
    with connect_broker(node.address, name="operator", timeout_s=PATIENCE_S) as broker:
        users = AccessAdmin(broker)
        users.set_user("orders", {"secretKey": "FirstSecret42", **RIGHTS}, mode="add")
        nobody = RawClient(address)
        # Without a key some clients sign all the same.
        keyless = RawClient(address, metadata=signature("", ""))
        user = RawClient(address, metadata=signature("orders", "FirstSecret42"))
        forger = RawClient(address, metadata=signature("orders", "another"))
        stranger = RawClient(address, metadata=signature("stranger", "another"))

        outsiders = [one.send("orders") for one in (nobody, keyless, forger, stranger)]
        assert {one.status.code for one in outsiders} == {RpcCode.UNAUTHORIZED}
        assert user.send("orders").status.code == RpcCode.OK
        assert user.send("other").status.code == RpcCode.FORBIDDEN
        route = user.call("QueryRoute", make("QueryRouteRequest", topic={"name": "other"}))
        assert route.status.code == RpcCode.FORBIDDEN
        half = make("EndTransactionRequest", topic={"name": "other"}, transaction_id="x:1")
        half.resolution = 1
        assert user.call("EndTransaction", half).status.code == RpcCode.FORBIDDEN
        with telemetry(address, "c", signature("orders", "FirstSecret42")) as stream:
            told = make("Settings", client_type=ClientType.PUSH_CONSUMER)
            told.subscription.group.name = "strangers"
            assert stream.tell(told).status.code == RpcCode.FORBIDDEN

        words = ("--key", "orders", "--secret", "FirstSecret42")
        with python_client(tmp_path, address, *words) as client:
            client.done("start", topics=["orders"])
            client.done("send", topic="orders", body="signed")
            client.done("half", topic="orders", body="x:commit")
            client.done("end", how="commit")

        users.set_user("orders", {"topicPerms": ["other=PUB"]}, mode="alter")
        assert user.send("orders").status.code == RpcCode.FORBIDDEN
        users.set_user("orders", {"secretKey": "SecondSecret7"}, mode="alter")
        assert user.send("other").status.code == RpcCode.UNAUTHORIZED
        for one in (nobody, keyless, user, forger, stranger):
            one.close()


@pytest.mark.long
def test_who_begins_messages_and_does_not_end_them_harms_himself_alone(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    address = start_grpc_node(node, access={"enabled": True})
    with connect_broker(node.address, name="operator", timeout_s=PATIENCE_S) as broker:
        users = AccessAdmin(broker)
        for name in ("orders", "noise"):
            users.set_user(name, {"secretKey": "FirstSecret42", **RIGHTS}, mode="add")
    noise = RawClient(address, metadata=signature("noise", "FirstSecret42"))
    honest = RawClient(address, metadata=signature("orders", "FirstSecret42"))
    silent = [noise.silent("SendMessage") for _ in range(64)]
    wait_until(lambda: node.status()["counters"]["grpc"]["calls"] >= len(silent), "all have begun")
    sent = honest.send("orders")
    # Half of them have a place, the others wait for one.
    own = noise.send("orders").status.code

    assert sent.status.code == RpcCode.OK
    assert own in (RpcCode.TOO_MANY_REQUESTS, RpcCode.OK)
    assert {next(one).status.code for one in silent} <= {
        RpcCode.REQUEST_TIMEOUT, RpcCode.TOO_MANY_REQUESTS,
    }  # fmt: skip
    assert honest.send("orders").status.code == RpcCode.OK
    honest.close()
    noise.close()


def test_streams_of_one_sender_take_no_more_memory_than_its_other_calls(
    make_node: Callable[[], Node],
) -> None:
    """What a stream of Telemetry says may be as large as any message; all say it at once."""
    node = make_node()
    address = start_grpc_node(node, grpc={"memory_bytes_max": 480 * MIB})
    honest = RawClient(address, name="honest")
    assert honest.send("orders").status.code == RpcCode.OK
    pid = node.pids()["grpc"]
    large = make("Settings", client_type=ClientType.PRODUCER)
    large.publishing.topics.add(name="x" * 4_000_000)
    small = make("Settings", client_type=ClientType.PRODUCER)
    small.publishing.topics.add(name="orders")
    noise = [RawClient(address, name=f"noise{number}") for number in range(160)]
    # Of half of them the first settings are small, and the later ones large.
    told = [TelemetryStream(client) for client in noise[80:]]
    for stream in told:
        assert stream.tell(small).status.code == RpcCode.OK
    fresh = [TelemetryStream(client) for client in noise[:80]]
    for stream in (*told, *fresh):
        stream.say(large)
    refused = [stream.next().status.code for stream in fresh]
    assert set(refused) <= {RpcCode.ILLEGAL_TOPIC, RpcCode.TOO_MANY_REQUESTS}
    wait_until(lambda: honest.send("orders").status.code == RpcCode.OK, "others to go on")
    assert node.pids()["grpc"] == pid
    for client in (*noise, honest):
        client.close()


@pytest.mark.long
def test_one_address_has_its_share_of_connections_and_who_calls_nothing_gives_way(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    address = start_grpc_node(node, limits={"connections_per_address": 4})
    host, _, port = address.rpartition(":")
    honest = RawClient(address)
    assert honest.send("orders").status.code == RpcCode.OK
    others = [socket.create_connection((host, int(port)), PATIENCE_S) for _ in range(4)]
    others[0].settimeout(PATIENCE_S)
    assert others[0].recv(1) == b""
    more = [RawClient(address, name=f"honest{number}") for number in range(3)]
    assert {one.send("orders").status.code for one in (honest, *more)} == {RpcCode.OK}
    # All have called: who comes now is one too many.
    late = socket.create_connection((host, int(port)), PATIENCE_S)
    late.settimeout(PATIENCE_S)

    assert late.recv(1) == b""
    assert {one.send("orders").status.code for one in (honest, *more)} == {RpcCode.OK}
    for one in (*others, late, honest, *more):
        one.close()


@pytest.mark.parametrize("host", ["*", "[::]"])
def test_who_names_no_address_is_told_one_that_can_be_reached(
    host: str, make_node: Callable[[], Node]
) -> None:
    node, port = make_node(), free_port()
    listen = {"grpc": f"{host}:{port}", "trusted_network": True}
    start_client_node(node, listen=listen, grpc={"tls_mode": "permissive"})
    client = RawClient(f"127.0.0.1:{port}")
    route = client.call("QueryRoute", make("QueryRouteRequest", topic={"name": "orders"}))
    told = {
        (address.host, address.port)
        for queue in route.message_queues
        for address in queue.broker.endpoints.addresses
    }
    client.close()

    assert told == {("127.0.0.1", port)}


def test_the_process_is_begun_again_and_clients_go_on(make_node: Callable[[], Node]) -> None:
    node = make_node()
    address = start_grpc_node(node)
    client = RawClient(address)
    assert client.send("orders").status.code == RpcCode.OK
    os.kill(node.pid("grpc"), signal.SIGKILL)

    def goes_on() -> bool:
        try:
            return bool(client.send("orders").status.code == RpcCode.OK)
        except grpc.RpcError:
            return False

    wait_until(goes_on, "the client goes on")
    client.close()


def test_strangers_at_a_port_without_users_have_a_part_of_what_may_be_handed_out(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    address = start_grpc_node(node, limits={"share_unsettled_max": 40})
    client = RawClient(address)
    with Producer(node.address) as producer, Admin(node.address) as admin:
        for number in range(20):
            producer.send("orders", b"%d" % number, queue_id=0).result()
        wait_until(lambda: admin.topic("orders").messages == 20, "all are in their queues")
        told = {
            group: client.receive(
                make(
                    "ReceiveMessageRequest",
                    group={"name": group},
                    message_queue={"topic": {"name": "orders"}},
                    batch_size=7,
                    invisible_duration={"seconds": 60},
                    long_polling_timeout={"nanos": 1},
                )
            )
            for group in ("one", "two", "three")
        }
        taken = [len([a for a in of if a.HasField("message")]) for of in told.values()]
        assert taken == [7, 3, 0]
        refused = told["three"][0].status
        assert "of one user or host" in refused.message, refused
        assert len(admin.receive_shared("operators", "orders", 5)) == 5
    client.close()


def test_an_enforced_port_takes_tls_alone_and_users_have_quotas(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    node = make_node()
    made, key = make_certificate(node.folder)
    address = start_grpc_node(
        node,
        listen={"trusted_network": False},
        access={"enabled": True},
        grpc={
            "tls_mode": "enforcing",
            "tls_certificate_file": str(made),
            "tls_key_file": str(key),
        },
    )
    with connect_broker(node.address, name="operator", timeout_s=PATIENCE_S) as broker:
        users = AccessAdmin(broker)
        users.set_user("orders", {"secretKey": "FirstSecret42", **RIGHTS}, mode="add")
        users.set_quota("user:orders", produce_messages=1)
        credentials = grpc.ssl_channel_credentials(made.read_bytes())
        metadata = signature("orders", "FirstSecret42")
        secure = RawClient(address, credentials=credentials, metadata=metadata)
        plain = RawClient(address, metadata=metadata)

        answers = [secure.send("orders").status.code for _ in range(5)]
        assert answers[0] == RpcCode.OK
        assert RpcCode.TOO_MANY_REQUESTS in answers
        with pytest.raises(grpc.RpcError) as refused:
            plain.send("orders")
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        secure.close()
        plain.close()


@pytest.mark.long
def test_who_takes_messages_and_does_not_read_them_holds_a_bounded_part(
    make_node: Callable[[], Node],
) -> None:
    """Bodies of 4 MB, which are some kilobytes in the log: one call would have them all at once."""
    node = make_node()
    address = start_grpc_node(node, grpc={"memory_bytes_max": 512 * MIB})
    with Producer(f"ipc://{node.runtime}") as producer:
        for sent in [producer.send("orders", b"x" * 4_000_000) for _ in range(80)]:
            sent.result()
    pid = node.pids()["grpc"]

    def asked(group: str, count: int) -> Any:
        return make(
            "ReceiveMessageRequest",
            group={"name": group},
            message_queue={"topic": {"name": "orders"}},
            batch_size=count,
            invisible_duration={"seconds": 600},
            long_polling_timeout={"seconds": 20},
        )

    lazy = RawClient(address, name="lazy", own=True, probes=False)
    begun = [lazy.receiving(asked("lazy", 1)) for _ in range(80)]
    for call in begun:
        assert next(call).status.code in (RpcCode.OK, RpcCode.TOO_MANY_REQUESTS)
    with Admin(f"ipc://{node.runtime}", timeout_s=PATIENCE_S) as admin:
        # What found no room went back at once.
        wait_until(lambda: admin.shared_group("lazy").queues[0].returned > 0, "some to be others'")
    honest = RawClient(address, name="honest", own=True)
    assert honest.send("other").status.code == RpcCode.OK
    for call in begun:
        call.cancel()
    bodies = [len(one.message.body) for one in honest.receive(asked("eager", 80))]
    assert bodies.count(4_000_000) == 80
    assert node.pids()["grpc"] == pid
    for client in (lazy, honest):
        client.close()
