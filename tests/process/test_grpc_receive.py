"""gRPC consumers of RocketMQ 5 at a real node: messages taken singly, and what becomes of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="no grpcio: packaging/bootstrap.sh")

from ledgermq.client import Admin, Producer
from ledgermq.client.sending.outgoing import OutgoingMessage
from ledgermq.gateway.rpc.definition import FilterType, MessageType, RpcCode, make
from tests.process import grpc_clients
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.grpc_clients import (
    RawClient,
    StepClient,
    python_client,
    start_grpc_node,
    telemetry,
)
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

LONG_S = 600
POLL_S = 30


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Node, str]]:
    """A node, and the address of its port."""
    with nodes_made() as make_node:
        made = make_node()
        yield made, start_grpc_node(made)


node, address, topic = grpc_clients.node, grpc_clients.address, grpc_clients.topic
raw, client = grpc_clients.raw, grpc_clients.client


def test_pythons_simple_consumer_takes_acknowledges_and_gives_back(
    node: Node, topic: str, client: StepClient
) -> None:
    client.done("start", topics=[topic])
    client.done("consume", group="workers", topic=topic)
    client.done("send", topic=topic, body="a", tag="t", properties={"colour": "red"})
    client.done("send", topic=topic, body="b", group="g")
    first = {one["body"]: one for one in client.receive(2)}
    client.done("ack", id=first["a"]["id"])
    client.done("invisible", id=first["b"]["id"], seconds=1)
    (again,) = client.receive(1)
    client.done("ack", id=again["id"])

    assert (first["a"]["tag"], first["a"]["attempt"]) == ("t", 1)
    assert first["a"]["properties"]["colour"] == "red"
    assert (again["body"], again["attempt"], again["group"]) == ("b", 2, "g")
    with Admin(node.address) as admin:
        (lag,) = [one for one in admin.lag("workers") if one.lag] or [None]
        assert lag is None
        assert admin.shared_group("workers").unsettled == 0


def test_pythons_push_consumer_gets_again_what_it_failed_with(
    node: Node, topic: str, client: StepClient
) -> None:
    client.done("start", topics=[topic])
    client.done("send", topic=topic, body="pushed")
    client.done("push", group="pushed", topic=topic, fails=1)
    got = client.done("pushed", wait_s=PATIENCE_S)

    assert got == {"body": "pushed", "attempt": 2}
    with Admin(node.address) as admin:
        wait_until(lambda: admin.shared_group("pushed").unsettled == 0, "it is acknowledged")


@pytest.mark.long
def test_messages_of_a_push_consumer_stay_with_it_while_it_is_heard(
    node: Node, topic: str, raw: RawClient
) -> None:
    fill(node, topic, b"a")
    raw.receive(ask(topic, group="kept", auto_renew=True))
    beat = make("HeartbeatRequest", client_type=2, group={"name": "kept"})

    with Admin(node.address) as admin:
        (first,) = (one for one in admin.shared_group("kept").queues if one.in_flight)

        def is_extended() -> bool:
            raw.call("Heartbeat", beat)
            (now,) = (one for one in admin.shared_group("kept").queues if one.in_flight)
            return (now.next_due or 0) > (first.next_due or 0)

        wait_until(is_extended, "its time to be extended")


def test_a_filter_leaves_out_what_other_consumers_are_for(topic: str, client: StepClient) -> None:
    client.done("start", topics=[topic])
    for tag in ("a", "b", "c"):
        client.done("send", topic=topic, body=tag, tag=tag)
    client.done("consume", group="filtered", topic=topic, expression="a || c")

    assert {one["body"] for one in client.receive(2)} == {"a", "c"}


def ask(topic: str, group: str = "g", **fields: Any) -> Any:
    """A request for messages."""
    given = {
        "invisible_duration": {"seconds": 60}, "long_polling_timeout": {"nanos": 1},
        "batch_size": 16, **fields,
    }  # fmt: skip
    return make(
        "ReceiveMessageRequest",
        group={"name": group},
        message_queue={"topic": {"name": topic}},
        **given,
    )


def fill(node: Node, topic: str, *bodies: bytes) -> None:
    with Producer(node.address) as producer, Admin(node.address) as admin:
        for body in bodies:
            producer.send(topic, body, queue_id=0).result()
        wait_until(lambda: admin.topic(topic).messages == len(bodies), "all are in their queues")


def test_answers_come_in_the_order_that_clients_expect(
    node: Node, topic: str, raw: RawClient
) -> None:
    nothing = raw.receive(ask(topic))
    fill(node, topic, b"a", b"b")
    both = raw.receive(ask(topic))

    assert [one.WhichOneof("content") for one in nothing] == ["status", "delivery_timestamp"]
    assert nothing[0].status.code == RpcCode.MESSAGE_NOT_FOUND
    assert [one.WhichOneof("content") for one in both] == [
        *("status", "message", "message", "delivery_timestamp"),
    ]
    assert both[0].status.code == RpcCode.OK
    system = both[1].message.system_properties
    assert system.receipt_handle and system.delivery_attempt == 1 and system.body_digest.checksum
    assert [one.message.body for one in both[1:3]] == [b"a", b"b"]


def test_a_poll_ends_before_its_client_gives_up(topic: str, raw: RawClient) -> None:
    # Rust's client waits for the answer as long as it polls.
    answers = raw.receive(ask(topic, long_polling_timeout={"seconds": 6}), timeout_s=6)

    assert answers[0].status.code == RpcCode.MESSAGE_NOT_FOUND


def test_a_request_that_cannot_be_met_is_refused_with_its_code(
    node: Node, topic: str, raw: RawClient
) -> None:
    def code(request: Any) -> int:
        (answer,) = raw.receive(request)
        return int(answer.status.code)

    assert code(ask(topic, invisible_duration={"seconds": 5})) == RpcCode.ILLEGAL_INVISIBLE_TIME
    assert (
        code(ask(topic, invisible_duration={"seconds": 47_000})) == RpcCode.ILLEGAL_INVISIBLE_TIME
    )
    (late,) = raw.receive(ask(topic, long_polling_timeout={"seconds": 20}), timeout_s=3)
    assert late.status.code == RpcCode.ILLEGAL_POLLING_TIME
    assert code(ask("nothing")) == RpcCode.TOPIC_NOT_FOUND
    assert code(ask(topic, group="a b")) == RpcCode.ILLEGAL_CONSUMER_GROUP
    broken = {"type": FilterType.SQL, "expression": "a ="}
    assert code(ask(topic, filter_expression=broken)) == RpcCode.ILLEGAL_FILTER_EXPRESSION


def ack(topic: str, *handles: str, group: str = "g") -> Any:
    entries = [{"message_id": "m", "receipt_handle": one} for one in handles]
    return make("AckMessageRequest", group={"name": group}, topic={"name": topic}, entries=entries)


def test_handles_tell_what_becomes_of_a_message_and_forged_ones_nothing(
    node: Node, topic: str, raw: RawClient
) -> None:
    fill(node, topic, b"a", b"b", b"c")
    _, a, b, c, _ = raw.receive(ask(topic, auto_renew=True))
    handles = [one.message.system_properties.receipt_handle for one in (a, b, c)]
    named = {"group": {"name": "g"}, "topic": {"name": topic}}

    done = raw.call("AckMessage", ack(topic, handles[0], "forged"))
    assert done.status.code == RpcCode.MULTIPLE_RESULTS
    assert [one.status.code for one in done.entries] == [RpcCode.OK, RpcCode.INVALID_RECEIPT_HANDLE]
    assert raw.call("AckMessage", ack(topic, handles[0])).status.code == RpcCode.OK
    others = raw.call("AckMessage", ack(topic, handles[1], group="others"))
    assert others.status.code == RpcCode.INVALID_RECEIPT_HANDLE

    changed = raw.call(
        "ChangeInvisibleDuration",
        make(
            "ChangeInvisibleDurationRequest", **named,
            receipt_handle=handles[1], invisible_duration={"seconds": 0},
        ),
    )  # fmt: skip
    assert (changed.status.code, changed.receipt_handle) == (RpcCode.OK, handles[1])
    too_long = make(
        "ChangeInvisibleDurationRequest", **named,
        receipt_handle=handles[1], invisible_duration={"seconds": 47_000},
    )  # fmt: skip
    assert (
        raw.call("ChangeInvisibleDuration", too_long).status.code == RpcCode.ILLEGAL_INVISIBLE_TIME
    )
    _, again, _ = raw.receive(ask(topic, long_polling_timeout={"seconds": 10}))
    assert (again.message.body, again.message.system_properties.delivery_attempt) == (b"b", 2)
    # Of before: the message is another delivery's by now.
    late = raw.call("AckMessage", ack(topic, handles[1]))
    assert late.status.code == RpcCode.INVALID_RECEIPT_HANDLE

    rejected = raw.call(
        "ForwardMessageToDeadLetterQueue",
        make("ForwardMessageToDeadLetterQueueRequest", **named, receipt_handle=handles[2]),
    )
    assert rejected.status.code == RpcCode.OK
    with Admin(node.address) as admin:
        wait_until(lambda: admin.topic("%DLQ%g").messages == 1, "the dead letter")


@pytest.mark.parametrize("is_ordered", [True, False])
def test_a_receive_once_more_by_its_attempt_has_the_same_messages(
    node: Node, topic: str, address: str, raw: RawClient, *, is_ordered: bool
) -> None:
    group = f"again-{is_ordered}"
    with Admin(node.address) as admin:
        admin.create_group(group, consumeMessageOrderly=is_ordered)
    fill(node, topic, b"a", b"b")
    other = RawClient(address, name="other")

    def take(attempt: str, client: RawClient = raw) -> list[tuple[bytes, str, int]]:
        return [
            (one.message.body, system.receipt_handle, system.delivery_attempt)
            for one in client.receive(ask(topic, group, attempt_id=attempt))[1:-1]
            for system in (one.message.system_properties,)
        ]

    first = take("first")
    assert [body for body, *_ in first] == [b"a", b"b"]
    assert take("second", other) == []
    assert take("first") == first
    assert raw.call("AckMessage", ack(topic, first[0][1], group=group)).status.code == RpcCode.OK
    assert take("first") == first[1:]
    assert raw.call("AckMessage", ack(topic, first[1][1], group=group)).status.code == RpcCode.OK
    assert take("first") == []
    with Admin(node.address) as admin:
        shared = admin.shared_group(group)
        (row,) = (one for one in admin.groups() if one.group == group)
    # They came by one connection of the process; two clients they are all the same.
    assert (shared.unsettled, shared.members, row.members) == (0, 2, 2)
    other.close()


def test_messages_for_a_client_that_has_gone_are_anothers_at_once(
    node: Node, topic: str, address: str, raw: RawClient
) -> None:
    gone = RawClient(address, name="gone")
    waiting = gone.receiving(ask(topic, long_polling_timeout={"seconds": 20}))
    with Admin(node.address, timeout_s=PATIENCE_S) as admin:
        wait_until(lambda: _waits(admin), "the receive to wait")
    waiting.cancel()
    gone.close()
    fill(node, topic, b"a")
    answers = raw.receive(ask(topic, long_polling_timeout={"seconds": 20}))

    assert answers[1].message.body == b"a"


def _waits(admin: Admin) -> bool:
    return admin.shared_group("g").waiting > 0


def test_a_poll_whose_client_has_gone_holds_no_place_in_the_broker(
    node: Node, topic: str, raw: RawClient
) -> None:
    request = make(
        "ReceiveMessageRequest",
        group={"name": "leavers"},
        message_queue={"topic": {"name": topic}},
        batch_size=1,
        invisible_duration={"seconds": LONG_S},
        long_polling_timeout={"seconds": POLL_S},
    )
    with Producer(node.address) as producer, Admin(node.address) as admin:

        def waiting() -> int:
            return admin.shared_group("leavers").waiting

        producer.send(topic, b"makes the group").result()
        assert len(raw.receive(request)) == 3
        polls = [raw.receiving(request) for _ in range(3)]
        wait_until(lambda: waiting() == 3, "the polls to wait")
        begun = time.monotonic()
        for poll in polls[1:]:
            poll.cancel()
        wait_until(lambda: waiting() == 1, "the place of those that have gone")
        # The others' is there yet.
        assert time.monotonic() - begun < POLL_S
        producer.send(topic, b"for who has stayed").result()
        assert [one.message.body for one in polls[0] if one.HasField("message")] == [
            b"for who has stayed"
        ]


def test_message_groups_come_in_order_to_any_number_of_consumers(
    node: Node, topic: str, address: str, raw: RawClient
) -> None:
    with Admin(node.address) as admin:
        admin.create_group("fifo", consumeMessageOrderly=True, retryMaxTimes=3)
    for number, group in enumerate("aab"):
        sent = raw.send(
            topic, b"%d" % number, message_id=f"01{number:032}",
            message_type=MessageType.FIFO, message_group=group,
        )  # fmt: skip
        assert sent.status.code == RpcCode.OK
    other = RawClient(address, name="other")
    polling = {"long_polling_timeout": {"seconds": 10}}

    def take(client: RawClient, count: int, **fields: Any) -> dict[bytes, str]:
        found: dict[bytes, str] = {}
        while len(found) < count:
            for one in client.receive(ask(topic, "fifo", **fields))[1:-1]:
                system = one.message.system_properties
                assert system.message_type == MessageType.FIFO and system.message_group in "ab"
                found[one.message.body] = system.receipt_handle
        return found

    first = take(raw, 2, **polling)
    assert sorted(first) == [b"0", b"2"]
    nothing = other.receive(ask(topic, "fifo"))
    assert nothing[0].status.code == RpcCode.MESSAGE_NOT_FOUND
    handed = raw.call("AckMessage", ack(topic, first[b"0"], group="fifo"))
    assert handed.status.code == RpcCode.OK
    second = take(other, 1, **polling)
    assert list(second) == [b"1"]
    named = {"group": {"name": "fifo"}, "topic": {"name": topic}}
    rejected = other.call(
        "ForwardMessageToDeadLetterQueue",
        make("ForwardMessageToDeadLetterQueueRequest", **named, receipt_handle=second[b"1"]),
    )
    assert rejected.status.code == RpcCode.OK
    other.close()

    subscription = {"group": {"name": "fifo"}}
    with telemetry(address, "fifo-1") as stream:
        told = stream.tell(make("Settings", client_type=2, subscription=subscription))
    with telemetry(address, "fifo-2") as stream:
        unknown = make("Settings", client_type=2, subscription={"group": {"name": "nobody"}})
        plain = stream.tell(unknown)
    assert told.settings.subscription.fifo
    assert told.settings.backoff_policy.max_attempts == 4
    assert not plain.settings.subscription.fifo
    assert plain.settings.backoff_policy.max_attempts == 17


def test_pythons_consumers_get_a_message_group_in_its_order(
    node: Node, topic: str, tmp_path: Path, address: str, client: StepClient
) -> None:
    with Admin(node.address) as admin:
        admin.create_group("in-order", consumeMessageOrderly=True)
    client.done("start", topics=[topic])
    for number in range(3):
        for group in "ab":
            client.done("send", topic=topic, body=f"{group}{number}", group=group)
    client.done("consume", group="in-order", topic=topic)
    first = {one["body"]: one["id"] for one in client.receive(2)}
    assert sorted(first) == ["a0", "b0"]
    client.done("ack", id=first["a0"])
    client.done("invisible", id=first["b0"], seconds=1)
    second = {one["body"]: one["id"] for one in client.receive(2)}
    assert sorted(second) == ["a1", "b0"]
    with python_client(tmp_path, address) as other:
        other.done("push", group="in-order", topic=topic, fails=1)
        for id_ in second.values():
            client.done("ack", id=id_)
        # Its listener fails with each once, which the client tries again itself.
        got = [other.done("pushed", wait_s=PATIENCE_S)["body"] for _ in range(3)]
    assert [body for body in got if body[0] == "b"] == ["b1", "b2"]
    assert [body for body in got if body[0] == "a"] == ["a2"]


def test_a_push_consumer_is_told_to_receive_from_all_queues(topic: str, raw: RawClient) -> None:
    asked = make("QueryAssignmentRequest", topic={"name": topic}, group={"name": "g"})
    (one,) = raw.call("QueryAssignment", asked).assignments

    assert (one.message_queue.id, one.message_queue.topic.name) == (-1, topic)


def test_a_body_that_cannot_be_made_plain_is_given_as_it_is_stored(
    node: Node, topic: str, raw: RawClient
) -> None:
    """Else it would come again and again, and with it those that are taken beside it."""
    broken = OutgoingMessage(b"no stream of zlib", sys_flag=1)
    with Producer(node.address) as producer:
        batch = [broken, OutgoingMessage(b"behind it")]
        producer.send_batch(topic, batch, queue_id=0).result(PATIENCE_S)
    with Admin(node.address) as admin:
        wait_until(lambda: admin.topic(topic).messages == 2, "both in their queue")
    answers = raw.receive(ask(topic, "broken"))
    found = [one.message.body for one in answers if one.HasField("message")]

    assert found == [b"no stream of zlib", b"behind it"]


def test_the_highest_priority_is_given_first(node: Node, topic: str, raw: RawClient) -> None:
    def sent(priority: int | None, kind: MessageType = MessageType.PRIORITY) -> int:
        said = {} if priority is None else {"priority": priority}
        answer = raw.send(topic, f"{priority}".encode(), message_type=kind, **said)
        return int(answer.status.code)

    def accepted() -> list[list[int]]:
        asked = make("QueryRouteRequest", topic={"name": topic})
        return [
            list(queue.accept_message_types)
            for queue in raw.call("QueryRoute", asked).message_queues
        ]

    before, untyped = accepted(), sent(1)
    with Admin(node.address) as admin:
        admin.alter_topic(topic, message_type="PRIORITY")
        after = wait_until(lambda: accepted() if accepted() != before else None, "it has a type")
        codes = [sent(priority) for priority in (0, 2, 9, 1)]
        wrong = [sent(None), sent(1, MessageType.NORMAL), sent(-1)]
        wait_until(lambda: admin.topic(topic).messages == 4, "all are in their queues")
    answers = raw.receive(ask(topic))
    messages = [one.message for one in answers if one.WhichOneof("content") == "message"]

    assert untyped == RpcCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert codes == [RpcCode.OK] * 4
    assert wrong == [
        RpcCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        RpcCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        RpcCode.BAD_REQUEST,
    ]
    assert [bytes(one.body) for one in messages] == [b"9", b"2", b"1", b"0"]
    system = messages[0].system_properties
    assert (system.message_type, system.priority) == (MessageType.PRIORITY, 9)
    assert not messages[0].user_properties
    assert all(MessageType.PRIORITY in kinds for kinds in after)
    assert not any(MessageType.PRIORITY in kinds for kinds in before)
