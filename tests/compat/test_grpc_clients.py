"""RocketMQ's gRPC clients in five languages at a port of ours, each by the same list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="no grpcio: packaging/bootstrap.sh")

from ledgermq.client import Admin
from ledgermq.client.admin.broker_admins import AccessAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.errors import TopicUnknownError
from tests.certificates import make_certificate
from tests.compat.other_clients import (
    go_grpc_client,
    java_grpc_client,
    node_grpc_client,
    python_grpc_client,
    rust_grpc_client,
)
from tests.process import grpc_clients
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.group_nodes import TOPIC
from tests.process.grpc_clients import StepClient, start_grpc_node, step_client
from tests.process.test_grpc_group import make_grpc_group
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.oracle, pytest.mark.slow, pytest.mark.long]

CLIENTS = {
    "java": java_grpc_client,
    "python": python_grpc_client,
    "node": node_grpc_client,
    "go": go_grpc_client,
    "rust": rust_grpc_client,
}

LACKS = {
    "node": {"endpoints", "orderly retries"},
    "go": {"recall", "priority"},
    "rust": {"endpoints", "recall", "priority", "invisible", "push", "tls"},
}
"""What a client has no call for, or does not do: take several addresses (Node's hands them to its
library as one name), try again in order (Node's knows no waits but doubled ones), speak TLS."""

TRUSTED = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
"""By this variable Python's and Node's clients are told whose certificates to take; Java's and Go's
take any."""

USER = ("--key", "worker", "--secret", "FirstSecret42")
RIGHTS = {"topicPerms": ["orders=PUB|SUB"], "groupPerms": ["workers=SUB"]}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One for the node's address, and its key."""
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def served(certificate: tuple[Path, Path]) -> Iterator[tuple[Node, str]]:
    """A node, and the address of its port."""
    made, key = certificate
    with nodes_made() as make_node:
        node = make_node()
        often = {"transaction_timeout_ms": 2_000, "transaction_check_interval_ms": 1_000}
        sealed = {"tls_certificate_file": str(made), "tls_key_file": str(key)}
        yield node, start_grpc_node(node, transactions=often, grpc=sealed)


node, address, topic = grpc_clients.node, grpc_clients.address, grpc_clients.topic


@pytest.fixture(scope="module", params=CLIENTS)
def language(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def client(
    language: str, served: tuple[Node, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StepClient]:
    """One of each language for all tests that need no other."""
    folder = tmp_path_factory.mktemp(language)
    with step_client(CLIENTS[language], folder, served[1]) as made:
        yield made


def has(language: str, *calls: str) -> None:
    """Leave the test out where the client has no such call."""
    lacking = LACKS.get(language, set()) & set(calls)
    if lacking:
        pytest.skip(f"{language}'s client has no {', '.join(sorted(lacking))}")


def consumed(client: StepClient, topic: str, count: int, **which: str) -> list[Any]:
    """So many messages that a simple consumer takes and acknowledges, of a group of its own."""
    client.done("consume", **{"group": topic, "topic": topic, **which})
    found = client.receive(count)
    for one in found:
        client.done("ack", id=one["id"])
    return found


def bodies(found: list[Any]) -> list[str]:
    return sorted(one["body"] for one in found)


def test_messages_come_as_they_were_sent_and_are_acknowledged(
    node: Node, topic: str, client: StepClient
) -> None:
    client.done("start", topics=[topic])
    client.done("send", topic=topic, body="a", tag="t", keys="k", properties={"colour": "red"})
    (one,) = consumed(client, topic, 1)

    assert (one["body"], one["tag"], one["keys"], one["attempt"]) == ("a", "t", ["k"], 1)
    assert one["properties"]["colour"] == "red"
    with Admin(node.address) as admin:
        assert admin.shared_group(topic).unsettled == 0


def test_what_is_given_back_comes_again(topic: str, client: StepClient, language: str) -> None:
    has(language, "invisible")
    client.done("start", topics=[topic])
    client.done("send", topic=topic, body="a")
    client.done("consume", group=topic, topic=topic)
    (first,) = client.receive(1)
    client.done("invisible", id=first["id"], seconds=10)
    (again,) = client.receive(1)
    client.done("ack", id=again["id"])

    assert (again["body"], again["attempt"]) == ("a", 2)


def test_message_groups_come_in_their_order_and_wait_for_none_but_their_own(
    node: Node, topic: str, client: StepClient
) -> None:
    with Admin(node.address) as admin:
        admin.create_group(topic, consumeMessageOrderly=True)
    client.done("start", topics=[topic])
    for number in range(2):
        for group in "ab":
            client.done("send", topic=topic, body=f"{group}{number}", group=group)
    client.done("consume", group=topic, topic=topic)
    first = {one["body"]: one for one in client.receive(2)}
    client.done("ack", id=first["a0"]["id"])
    (second,) = client.receive(1)

    assert sorted(first) == ["a0", "b0"]
    assert (second["body"], second["group"]) == ("a1", "a")


def test_push_consumers_keep_the_order_of_message_groups_when_they_fail(
    node: Node, topic: str, client: StepClient, language: str
) -> None:
    has(language, "push")
    with Admin(node.address) as admin:
        admin.create_group(topic, consumeMessageOrderly=True)
    client.done("start", topics=[topic])
    for number in range(3):
        for group in "ab":
            client.done("send", topic=topic, body=f"{group}{number}", group=group)
    fails = 0 if "orderly retries" in LACKS.get(language, ()) else 1
    client.done("push", group=topic, topic=topic, fails=fails)
    got = [client.done("pushed", wait_s=PATIENCE_S)["body"] for _ in range(6)]

    for group in "ab":
        assert [body for body in got if body[0] == group] == [f"{group}{n}" for n in range(3)]


def test_delayed_messages_come_when_they_are_due_and_not_when_they_were_taken_back(
    topic: str, client: StepClient, language: str
) -> None:
    client.done("start", topics=[topic])
    client.done("send", topic=topic, body="due", delay_s=2)
    if "recall" not in LACKS.get(language, ()):
        sent = client.done("send", topic=topic, body="never", delay_s=5)
        assert client.done("recall", topic=topic, handle=sent["handle"])["id"] == sent["id"]
        client.done("send", topic=topic, body="later", delay_s=6)
        assert bodies(consumed(client, topic, 2)) == ["due", "later"]
    else:
        assert bodies(consumed(client, topic, 1)) == ["due"]


def test_transactions_end_as_their_producer_says_or_answers(topic: str, client: StepClient) -> None:
    client.done("start", topics=[topic])
    client.done("half", topic=topic, body="committed")
    client.done("end", how="commit")
    client.done("half", topic=topic, body="dropped")
    client.done("end", how="rollback")
    for how in ("commit", "rollback"):
        client.done("half", topic=topic, body=f"asked:{how}")
    asked: set[str] = set()

    def both_asked() -> bool:
        # One may be asked for again, before its end is known.
        asked.add(client.done("checked", wait_s=PATIENCE_S)["body"])
        return len(asked) == 2

    wait_until(both_asked, "questions about both")
    client.done("send", topic=topic, body="plain")
    found = bodies(consumed(client, topic, 3))

    assert asked == {"asked:commit", "asked:rollback"}
    assert found == ["asked:commit", "committed", "plain"]


@pytest.mark.parametrize(
    "which", [{"expression": "a || c"}, {"sql": "colour = 'red' AND size > 1"}], ids=["tags", "sql"]
)
def test_filters_leave_out_what_is_for_others(
    topic: str, client: StepClient, which: dict[str, str]
) -> None:
    client.done("start", topics=[topic])
    for number, (tag, colour) in enumerate([("a", "blue"), ("b", "red"), ("c", "red")]):
        properties = {"colour": colour, "size": str(number)}
        client.done("send", topic=topic, body=tag, tag=tag, properties=properties)
    wanted = ["a", "c"] if "expression" in which else ["c"]

    assert bodies(consumed(client, topic, len(wanted), **which)) == wanted


def letters(admin: Admin, group: str) -> int:
    """How many dead letters a group has."""
    try:
        return admin.topic(f"%DLQ%{group}").messages
    except TopicUnknownError:
        return 0


def test_what_a_push_consumer_fails_with_comes_again(
    node: Node, topic: str, client: StepClient, language: str
) -> None:
    has(language, "push")
    client.done("start", topics=[topic])
    client.done("send", topic=topic, body="a")
    client.done("push", group=topic, topic=topic, fails=1)

    assert client.done("pushed", wait_s=PATIENCE_S)["body"] == "a"
    with Admin(node.address) as admin:
        wait_until(lambda: admin.shared_group(topic).unsettled == 0, "it is acknowledged")


@pytest.mark.parametrize("is_orderly", [False, True], ids=["any", "orderly"])
def test_what_a_push_consumer_always_fails_with_is_a_dead_letter(
    node: Node, topic: str, client: StepClient, language: str, is_orderly: bool
) -> None:
    has(language, "push")
    with Admin(node.address) as admin:
        admin.create_group(topic, consumeMessageOrderly=is_orderly, retryMaxTimes=1)
        client.done("start", topics=[topic])
        client.done("send", topic=topic, body="a", group="g")
        client.done("push", group=topic, topic=topic, fails=99)

        wait_until(lambda: letters(admin, topic) == 1, "a dead letter")
        wait_until(lambda: admin.shared_group(topic).unsettled == 0, "nothing is left")


def test_a_priority_is_refused(topic: str, client: StepClient, language: str) -> None:
    has(language, "priority")
    client.done("start", topics=[topic])

    assert "error" in client.do("send", topic=topic, body="x", priority=1)


def test_what_cannot_be_sent_is_an_error_of_the_client(topic: str, client: StepClient) -> None:
    client.done("start", topics=[topic])

    assert "error" in client.do("send", topic="nothing", body="x")
    assert "error" in client.do("send", topic=topic, body="x" * (4 * 1024 * 1024 + 1))
    client.done("send", topic=topic, body="still")
    assert bodies(consumed(client, topic, 1)) == ["still"]


def test_tls_takes_the_same_way(
    topic: str, language: str, address: str, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    has(language, "tls")
    trusted = {TRUSTED: str(certificate[0])}
    with step_client(CLIENTS[language], tmp_path, address, "--tls", environment=trusted) as client:
        client.done("start", topics=[topic])
        client.done("send", topic=topic, body="sealed")
        assert bodies(consumed(client, topic, 1)) == ["sealed"]
        client.done("stop")


def test_who_signs_may_what_the_user_may(
    language: str, make_node: Callable[[], Node], tmp_path: Path
) -> None:
    node = make_node()
    address = start_grpc_node(node, access={"enabled": True})
    with connect_broker(node.address, name="operator", timeout_s=PATIENCE_S) as broker:
        AccessAdmin(broker).set_user("worker", {"secretKey": USER[3], **RIGHTS}, mode="add")
    with step_client(CLIENTS[language], tmp_path, address, *USER) as client:
        client.done("start", topics=["orders"])
        client.done("send", topic="orders", body="signed")
        assert bodies(consumed(client, "orders", 1, group="workers")) == ["signed"]
        assert "error" in client.do("send", topic="other", body="x")
    forged = (*USER[:3], "another")
    for words in (forged, ()):
        with step_client(CLIENTS[language], tmp_path, address, *words) as client:
            outcome = client.do("start", topics=["orders"])
            if "error" not in outcome:
                outcome = client.do("send", topic="orders", body="x")
            assert "error" in outcome


def test_clients_go_on_when_the_leader_dies(
    language: str, make_node: Callable[[], Node], tmp_path: Path
) -> None:
    group, ports = make_grpc_group(make_node)
    leader = group.leader()
    is_one = "endpoints" in LACKS.get(language, ())
    known = ports[group.others(leader)[0].name] if is_one else ";".join(ports.values())
    with step_client(CLIENTS[language], tmp_path, known) as client:

        def can_send(body: str) -> bool:
            return "error" not in client.do("send", topic=TOPIC, body=body)

        client.done("start", topics=[TOPIC])
        wait_until(lambda: can_send("before"), "a first message")
        client.done("consume", group="workers", topic=TOPIC)
        held = client.receive(1)
        leader.kill()
        wait_until(lambda: can_send("after"), "the client goes on")

        # What was taken before is acknowledged by the next leader.
        for one in held:
            wait_until(
                lambda one=one: "error" not in client.do("ack", id=one["id"]), "acknowledged"
            )
        found: list[str] = []

        def has_come() -> bool:
            outcome = client.do("receive", count=16, invisible_s=grpc_clients.LONG_S)
            found.extend(one["body"] for one in outcome.get("messages", ()))
            return "after" in found

        wait_until(has_come, "what was sent after")
    assert "before" not in found
    group.leader(besides=leader)
