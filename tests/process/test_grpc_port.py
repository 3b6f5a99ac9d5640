"""gRPC clients of RocketMQ 5 at a real node: what they send, and what they are told."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from ledgermq.client.aio.producer import AsyncProducer
from ledgermq.client.sending.outgoing import OutgoingMessage
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.client.sending.transaction_parts import HALF
from ledgermq.client.sending.transaction_requests import half_message

pytest.importorskip("grpc", reason="no grpcio: packaging/bootstrap.sh")

import grpc

from ledgermq.client import Consumer, Producer, StrangerError
from ledgermq.client.broker_connection import connect_broker
from ledgermq.gateway.rpc.definition import ClientType, MessageType, RpcCode, make, message_class
from tests.process import grpc_clients
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.grpc_clients import (
    RawClient,
    StepClient,
    start_grpc_node,
    telemetry,
)
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Node, str]]:
    """A node, and the address of its port."""
    often = {"transaction_timeout_ms": 500, "transaction_check_interval_ms": 300}
    with nodes_made() as make_node:
        made = make_node()
        yield made, start_grpc_node(made, transactions=often)


node, address, topic = grpc_clients.node, grpc_clients.address, grpc_clients.topic
raw, client = grpc_clients.raw, grpc_clients.client


def read(node: Node, topic: str, count: int) -> list[Any]:
    """The first messages of a topic, once there are so many."""
    with Consumer(node.address, topic=topic, start="first") as consumer:
        found: list[Any] = []
        wait_until(lambda: found.extend(consumer.poll(0.2)) or len(found) >= count, "messages")
        return found


def test_pythons_client_sends_messages_of_each_kind(
    node: Node, topic: str, client: StepClient
) -> None:
    client.done("start", topics=[topic])
    sent = client.done(
        "send", topic=topic, body="normal", tag="a", keys="k1", properties={"colour": "red"}
    )
    ordered = [client.done("send", topic=topic, body=f"f{n}", group="g") for n in range(3)]
    client.done("send", topic=topic, body="late", delay_s=1)
    client.done("stop")
    found = {one.body.decode(): one for one in read(node, topic, 5)}

    normal = found["normal"]
    assert (normal.unique_id, normal.tag, normal.keys) == (sent["id"], "a", ("k1",))
    assert normal.properties["colour"] == "red"
    assert len({found[f"f{n}"].queue_id for n in range(3)}) == 1
    assert [one["offset"] for one in ordered] == [found[f"f{n}"].queue_offset for n in range(3)]
    assert found["f0"].properties["__SHARDINGKEY"] == "g"
    assert "late" in found


def test_a_message_that_waits_is_taken_back(node: Node, topic: str, client: StepClient) -> None:
    client.done("start", topics=[topic])
    sent = client.done("send", topic=topic, body="never", delay_s=3_600)
    taken = client.done("recall", topic=topic, handle=sent["handle"])
    again = client.do("recall", topic=topic, handle=sent["handle"])

    assert taken["id"] == sent["id"]
    assert again["error"] == "NotFoundException"
    with connect_broker(node.address, name="operator", timeout_s=PATIENCE_S) as broker:
        assert sent["id"] not in {one.unique_id for one in broker.timers().timers}


def test_a_transaction_ends_as_its_producer_says(
    node: Node, topic: str, client: StepClient
) -> None:
    client.done("start", topics=[topic])
    client.done("half", topic=topic, body="kept:commit")
    client.done("half", topic=topic, body="dropped:rollback")
    client.done("end", how="commit")
    client.done("end", how="rollback")
    client.done("send", topic=topic, body="behind")

    assert {one.body for one in read(node, topic, 2)} == {b"kept:commit", b"behind"}


def test_who_declares_a_topic_is_asked_about_its_open_transactions(
    node: Node, topic: str, client: StepClient
) -> None:
    client.done("start", topics=[topic])
    half = client.done("half", topic=topic, body="asked:commit")
    asked = client.done("checked", wait_s=PATIENCE_S)

    assert asked["body"] == "asked:commit"
    assert "__transactionId__" in asked["properties"]
    (message,) = read(node, topic, 1)
    assert (message.body, message.unique_id) == (b"asked:commit", half["id"])


def test_a_question_about_a_transaction_has_what_clients_read_a_message_by(
    address: str, topic: str, raw: RawClient
) -> None:
    with telemetry(address, "asked") as stream:
        told = make("Settings", client_type=ClientType.PRODUCER)
        told.publishing.topics.add(name=topic)
        stream.tell(told)
        sent = raw.send(topic, b"half", message_type=MessageType.TRANSACTION)
        command = stream.next().recover_orphaned_transaction_command
        end = make("EndTransactionRequest", topic={"name": topic}, message_id="01", resolution=2)
        end.transaction_id = command.transaction_id
        raw.call("EndTransaction", end)

    assert sent.status.code == RpcCode.OK
    assert command.message.body == b"half"
    # Node's client reads it without a look whether it is there.
    digest = command.message.system_properties.body_digest
    assert digest.checksum == hashlib.md5(b"half").hexdigest().upper()


def test_a_half_message_that_nobody_can_read_keeps_no_question_about_others_back(
    node: Node, address: str, topic: str, raw: RawClient
) -> None:
    async def leave_unreadable() -> None:
        options = ProducerOptions(compress_above=None)
        async with AsyncProducer(node.address, options=options, one_group=True) as producer:
            broken = OutgoingMessage(b"no stream of zlib", sys_flag=1)
            half = half_message(broken, group=topic, transaction="broken", topic=topic, queue_id=0)
            await (await producer.submit_to(HALF, half))

    asyncio.run(leave_unreadable())
    with telemetry(address, "asked") as stream:
        told = make("Settings", client_type=ClientType.PRODUCER)
        told.publishing.topics.add(name=topic)
        stream.tell(told)
        # No transaction of the tests before is ended so.
        own = {"message_id": "0100000000000000000000000000000002"}
        raw.send(topic, b"half", message_type=MessageType.TRANSACTION, **own)
        command = stream.next().recover_orphaned_transaction_command

    assert command.message.body == b"half"
    assert node.logged("nobody is asked about a transaction: id=broken")


def codes(answer: Any) -> tuple[int, list[int]]:
    return answer.status.code, [entry.status.code for entry in answer.entries]


def now_s(ahead: int = 0) -> dict[str, int]:
    return {"seconds": int(time.time()) + ahead}


def test_a_message_that_breaks_a_rule_is_refused_with_the_code_that_clients_know(
    topic: str, raw: RawClient
) -> None:
    refused = {
        "no id": raw.send(topic, message_id=""),
        "no body": raw.send(topic, b""),
        "too large": raw.send(topic, bytes(4 * 1024 * 1024 + 1)),
        "no such topic": raw.send("nothing"),
        "a time, and no delay": raw.send(topic, delivery_timestamp=now_s(60)),
        "a delay, and no time": raw.send(topic, message_type=MessageType.DELAY),
        "too far ahead": raw.send(
            topic, message_type=MessageType.DELAY, delivery_timestamp=now_s(500 * 86_400)
        ),
        "a topic with a space": raw.send("a b"),
        "a tag with a bar": raw.send(topic, tag="a|b"),
        "a blank key": raw.send(topic, keys=["  "]),
        "a long group": raw.send(topic, message_type=MessageType.FIFO, message_group="g" * 65),
        "a reserved property": raw.send(topic, properties={"TAGS": "a"}),
        "many properties": raw.send(topic, properties={f"p{n}": "v" for n in range(129)}),
        "large properties": raw.send(topic, properties={"p": "v" * 17 * 1024}),
        "priority": raw.send(topic, message_type=MessageType.PRIORITY, priority=1),
        "the broker's own topic": raw.send("SCHEDULE_TOPIC_XXXX"),
    }

    assert {name: one.status.code for name, one in refused.items()} == {
        "no id": RpcCode.ILLEGAL_MESSAGE_ID,
        "no body": RpcCode.MESSAGE_BODY_EMPTY,
        "too large": RpcCode.MESSAGE_BODY_TOO_LARGE,
        "no such topic": RpcCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        "a time, and no delay": RpcCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        "a delay, and no time": RpcCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        "too far ahead": RpcCode.ILLEGAL_DELIVERY_TIME,
        "a topic with a space": RpcCode.ILLEGAL_TOPIC,
        "a tag with a bar": RpcCode.ILLEGAL_MESSAGE_TAG,
        "a blank key": RpcCode.ILLEGAL_MESSAGE_KEY,
        "a long group": RpcCode.ILLEGAL_MESSAGE_GROUP,
        "a reserved property": RpcCode.ILLEGAL_MESSAGE_PROPERTY_KEY,
        "many properties": RpcCode.MESSAGE_PROPERTIES_TOO_LARGE,
        "large properties": RpcCode.MESSAGE_PROPERTIES_TOO_LARGE,
        "priority": RpcCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        "the broker's own topic": RpcCode.ILLEGAL_TOPIC,
    }
    assert codes(raw.send(topic)) == (RpcCode.OK, [RpcCode.OK])


def test_a_call_without_a_client_id_is_refused(node: Node, address: str, topic: str) -> None:
    nameless = RawClient(address, name="")

    assert nameless.send(topic).status.code == RpcCode.CLIENT_ID_REQUIRED
    nameless.close()


def test_a_route_names_the_addresses_that_the_client_was_given(topic: str, raw: RawClient) -> None:
    given = {"scheme": 1, "addresses": [{"host": "10.0.0.9", "port": 8081}]}
    asked = make("QueryRouteRequest", topic={"name": topic}, endpoints=given)
    route = raw.call("QueryRoute", asked)
    unknown = raw.call("QueryRoute", make("QueryRouteRequest", topic={"name": "nothing"}))

    assert [queue.id for queue in route.message_queues] == [0, 1, 2, 3]
    for queue in route.message_queues:
        (at,) = queue.broker.endpoints.addresses
        assert (at.host, at.port) == ("10.0.0.9", 8081)
    assert unknown.status.code == RpcCode.TOPIC_NOT_FOUND


def test_addresses_that_are_told_back_are_bounded(topic: str, raw: RawClient) -> None:
    """A route has them once for each queue."""
    for host, count, code in (
        ("h" * 255, 64, RpcCode.OK),
        ("h" * 256, 1, RpcCode.ILLEGAL_ACCESS_POINT),
        ("h", 65, RpcCode.ILLEGAL_ACCESS_POINT),
    ):
        told = make("Endpoints", scheme=3)
        for _ in range(count):
            told.addresses.add(host=host, port=8081)
        asked = make("QueryRouteRequest", topic={"name": topic}, endpoints=told)
        assert raw.call("QueryRoute", asked).status.code == code, (len(host), count)


def test_settings_are_told_back_with_what_clients_insist_on(
    node: Node, address: str, topic: str
) -> None:
    with telemetry(address, "p1") as stream:
        told = make("Settings", client_type=ClientType.PRODUCER, request_timeout={"seconds": 3})
        told.publishing.topics.add(name=topic)
        producer = stream.tell(told)
    with telemetry(address, "c1") as stream:
        told = make("Settings", client_type=ClientType.PUSH_CONSUMER)
        told.subscription.group.name = "workers"
        told.subscription.subscriptions.add(topic={"name": topic})
        consumer = stream.tell(told)

    assert producer.status.code == consumer.status.code == RpcCode.OK
    assert producer.settings.publishing.max_body_size == 4 * 1024 * 1024
    assert producer.settings.publishing.validate_message_type
    assert [one.name for one in producer.settings.publishing.topics] == [topic]
    assert producer.settings.backoff_policy.max_attempts == 3
    assert producer.settings.HasField("metric")
    assert consumer.settings.backoff_policy.max_attempts == 17
    assert len(consumer.settings.backoff_policy.customized_backoff.next) == 18
    assert consumer.settings.subscription.receive_batch_size == 32


def test_what_can_be_no_topic_is_not_declared(address: str, topic: str) -> None:
    for names, code in (
        ([topic, "x" * 128], RpcCode.ILLEGAL_TOPIC),
        (["a b"], RpcCode.ILLEGAL_TOPIC),
        ([f"t{number}" for number in range(1_025)], RpcCode.BAD_REQUEST),
        ([topic], RpcCode.OK),
    ):
        with telemetry(address, "p") as stream:
            told = make("Settings", client_type=ClientType.PRODUCER)
            told.publishing.topics.extend(make("Resource", name=name) for name in names)
            answer = stream.tell(told)
        assert answer.status.code == code, names[-1]
        assert answer.HasField("settings") == (code is RpcCode.OK)


def test_heartbeats_and_farewells_are_answered_also_before_any_settings(raw: RawClient) -> None:
    beat = make("HeartbeatRequest", client_type=ClientType.PRODUCER)

    assert raw.call("Heartbeat", beat).status.code == RpcCode.OK
    strange = raw.call("Heartbeat", make("HeartbeatRequest"))
    assert strange.status.code == RpcCode.UNRECOGNIZED_CLIENT_TYPE
    left = raw.call("NotifyClientTermination", make("NotifyClientTerminationRequest"))
    assert left.status.code == RpcCode.OK


def test_plain_and_tls_come_to_one_port(node: Node, address: str, topic: str) -> None:
    host, _, port = address.rpartition(":")
    certificate = _certificate_of(host, int(port))
    credentials = grpc.ssl_channel_credentials(certificate.encode())
    # As Java's and Go's clients do: no name is looked at.
    secure = RawClient(address, credentials=credentials, server_name="ledgermq")
    plain = RawClient(address)

    assert secure.send(topic).status.code == plain.send(topic).status.code == RpcCode.OK
    secure.close()
    plain.close()


def _certificate_of(host: str, port: int) -> str:
    return ssl.get_server_certificate((host, port))


def test_a_client_of_the_library_is_told_whose_port_it_is(address: str) -> None:
    # It asks for the writer's address when it is made.
    with pytest.raises(StrangerError, match=r"gRPC clients of RocketMQ 5 do; .* listen\.grpc"):
        Producer(f"tcp://{address}")


def test_who_speaks_no_grpc_is_let_go_and_others_go_on(
    node: Node, address: str, topic: str, raw: RawClient
) -> None:
    host, _, port = address.rpartition(":")
    for greeting in (b"\0\0\0\x20", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nnonsense"):
        with socket.create_connection((host, int(port)), PATIENCE_S) as stranger:
            stranger.settimeout(PATIENCE_S)
            stranger.sendall(greeting)
            with suppress(ConnectionResetError):
                while stranger.recv(4_096):
                    pass
    method = raw.channel.unary_unary("/apache.rocketmq.v2.MessagingService/SendMessage")
    answer = method(b"\xff\xff", metadata=raw.metadata, timeout=PATIENCE_S)

    assert (
        message_class("SendMessageResponse").FromString(answer).status.code == RpcCode.BAD_REQUEST
    )
    assert raw.send(topic).status.code == RpcCode.OK


def test_what_no_client_of_rocketmq_calls_is_not_implemented(raw: RawClient) -> None:
    method = raw.channel.unary_unary("/apache.rocketmq.v2.MessagingService/QueryOffset")
    with pytest.raises(grpc.RpcError) as refused:
        method(b"", metadata=raw.metadata, timeout=PATIENCE_S)

    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
