"""gRPC clients of a real group: whichever member they are at, and when the leader dies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="no grpcio: packaging/bootstrap.sh")

import grpc

from ledgermq.gateway.rpc.definition import RpcCode, make
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Group, Member, add_settings, free_port, make_group
from tests.process.grpc_clients import RawClient, python_client
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow


def make_grpc_group(make_node: Callable[[], Node]) -> tuple[Group, dict[str, str]]:
    """A group that was started, each member with a port; their addresses."""
    ports = {f"n{number}": f"127.0.0.1:{free_port()}" for number in range(3)}
    often = {"transaction_timeout_ms": 500, "transaction_check_interval_ms": 300}

    def open_port(member: Member) -> None:
        members = [f"{name}={address}" for name, address in ports.items()]
        tables: dict[str, dict[str, object]] = {
            "listen": {"grpc": ports[member.name]},
            "grpc": {"members": members},
            "transactions": dict(often),
        }
        add_settings(member, tables)

    group = make_group(make_node, ack="majority-memory", prepare=open_port)
    return group, ports


def answered(client: RawClient, ask: Callable[[], Any]) -> Any:
    """The answer of a member that may be on its way, or may not know the leader yet."""

    def fine() -> Any:
        try:
            answer = ask()
        except grpc.RpcError:
            return None
        return answer if answer.status.code == RpcCode.OK else None

    return wait_until(fine, "the group answers")


def endpoints(ports: dict[str, str]) -> Any:
    """What a client was given that knows all members."""
    told = make("Endpoints", scheme=1)
    for address in ports.values():
        host, _, port = address.rpartition(":")
        told.addresses.add(host=host, port=int(port))
    return told


def test_every_member_answers_and_clients_go_on_when_the_leader_dies(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    group, ports = make_grpc_group(make_node)
    leader = group.leader()
    follower, other = group.others(leader)
    at_follower = RawClient(ports[follower.name])
    sent = answered(at_follower, lambda: at_follower.send(TOPIC, b"handed on"))
    asked_of = make("QueryRouteRequest", topic={"name": TOPIC}, endpoints=endpoints(ports))

    def leader_is_first() -> bool:
        # On a busy machine it may be another one by now.
        route = answered(at_follower, lambda: at_follower.call("QueryRoute", asked_of))
        first = route.message_queues[0].broker.endpoints.addresses[0]
        return f"{first.host}:{first.port}" == ports[group.leader().name]

    assert sent.entries[0].status.code == RpcCode.OK
    wait_until(leader_is_first, "routes name the leader first")

    leader = group.leader()
    follower, other = group.others(leader)
    # A client that knows followers alone is asked about its transactions by the leader.
    known = f"{ports[follower.name]};{ports[other.name]}"
    with python_client(tmp_path, known) as client:
        client.done("start", topics=[TOPIC])
        client.done("half", topic=TOPIC, body="asked:commit")
        asked = client.done("checked", wait_s=PATIENCE_S)
        leader.kill()
        client_sent = wait_until(
            lambda: (
                outcome
                if "error" not in (outcome := client.do("send", topic=TOPIC, body="after"))
                else None
            ),
            "the client goes on",
        )
        client.done("half", topic=TOPIC, body="asked again:commit")
        # The first one may be asked for once more, before its end is known.
        while (again := client.done("checked", wait_s=PATIENCE_S))["body"] == "asked:commit":
            pass
    group.leader(besides=leader)
    at_follower.close()

    assert asked["body"] == "asked:commit"
    assert client_sent["offset"] >= 0
    assert again["body"] == "asked again:commit"
