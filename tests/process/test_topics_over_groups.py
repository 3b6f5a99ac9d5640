"""Topics over the groups of a cluster: two groups of one real node each, at each other's names."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.client import Producer
from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.errors import NoPermissionError
from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.codes import ResponseCode
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import free_port
from tests.process.remoting_client import RemotingClient
from tests.process.test_cluster_groups import ClusterNode, Told, as_json
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

NAMES = ("orders-a", "orders-b")


class NamedGroup(ClusterNode):
    """A group of one node; ``names`` is the address of its name service."""

    names = ""


Pair = tuple[NamedGroup, NamedGroup]


@pytest.fixture
def pair(make_node: Callable[[], Node], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Pair:
    """The home of a cluster, and a group that has not joined it yet."""
    servers = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    groups = []
    for name, own, other in zip(NAMES, servers, reversed(servers), strict=True):
        listen = {"name_server": own, "remoting": f"127.0.0.1:{free_port()}"}
        names = {"registrations_from": ["127.0.0.0/8"], "name_servers": [other]}
        groups.append(NamedGroup(make_node(), name, capsys, listen=listen, remoting=names))
        groups[-1].names = own
    home, later = groups
    home.begin(tmp_path / "root.json")
    return home, later


@pytest.fixture
def topic(capsys: pytest.CaptureFixture[str]) -> Callable[..., Told]:
    """``ledgermq topic`` as a shell runs it, but in this process, asked of a group."""

    def run(asked: ClusterNode, *words: str) -> Told:
        capsys.readouterr()
        address = f"ipc://{asked.node.runtime}"
        status = main(["topic", *words, "--address", address, "--timeout", "60"])
        told = capsys.readouterr()
        return status, told.out, told.err

    return run


def route(asked: NamedGroup, topic: str) -> dict[str, tuple[int, int]]:
    """What RocketMQ's clients are told: of each group, how many queues are written, and `perm`."""
    with closing(RemotingClient(asked.names)) as client:
        reply = client.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    if reply.code in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SERVICE_NOT_AVAILABLE):
        return {}
    assert reply.code == ResponseCode.SUCCESS, reply.remark
    queues = json.loads(bytes(reply.body))["queueDatas"]
    return {one["brokerName"]: (one["writeQueueNums"], one["perm"]) for one in queues}


def test_a_topic_is_spread_to_a_group_that_joined_later_and_was_away(
    pair: Pair, topic: Callable[..., Told]
) -> None:
    home, other = pair
    alone = topic(home, "create", "sales", "--queues", "4", "--over", "all")
    wait_until(lambda: route(home, "sales") == {"orders-a": (4, 6)}, "the home to follow its row")
    own = topic(other, "create", "bills", "--queues", "2")
    other.tell("join", "--home", f"ipc://{home.node.runtime}", "--nodes", other.address)
    other.node.end()
    spread = as_json(topic(home, "spread", "sales", "--over", "all", "--json"))
    both = topic(home, "create", "bills", "--queues", "4", "--over", "all")
    other.node.serve()
    everywhere = {"orders-a": (4, 6), "orders-b": (4, 6)}
    for group in pair:
        wait_until(lambda asked=group: route(asked, "sales") == everywhere, "the route of both")

    def refusal() -> str:
        return str(as_json(topic(other, "spread", "bills", "--json"))["refused"])

    wait_until(lambda: "of its own" in refusal(), "the group to leave its own topic alone")
    left_alone = {"orders-a": (4, 6), "orders-b": (2, 6)}
    wait_until(lambda: route(home, "bills") == left_alone, "the route of what each has")
    adopted = topic(home, "create", "bills", "--queues", "4", "--over", "all", "--adopt")
    wait_until(lambda: route(home, "bills") == everywhere, "the group's own to be taken up")

    assert (alone[0], own[0], both[0], adopted[0]) == (0, 0, 0, 0)
    assert [(one["group"], one["queues"]) for one in spread["groups"]] == [
        ("orders-a", 4), ("orders-b", 4),
    ]  # fmt: skip


def test_queues_of_a_topic_over_groups_change_at_the_home_until_it_is_released(
    pair: Pair, topic: Callable[..., Told]
) -> None:
    home, other = pair
    other.tell("join", "--home", f"ipc://{home.node.runtime}", "--nodes", other.address)
    words = ("--queues", "2", "--over", "all", "--fails-over", "on")
    made = as_json(topic(home, "create", "sales", *words, "--json"))
    wait_until(lambda: len(route(other, "sales")) == 2, "the topic to be in both groups")
    ordered = topic(home, "spread", "sales", "--order", "on")
    wait_until(lambda: as_json(topic(other, "show", "sales", "--json"))["order"], "its order")
    with Producer(f"ipc://{other.node.runtime}", one_group=True) as producer:
        producer.send("sales", b"kept").result()

    altered = topic(other, "alter", "sales", "--queues", "8")
    deleted = topic(other, "delete", "sales", "--yes")
    not_home = topic(other, "create", "more", "--over", "all")
    assert topic(home, "spread", "sales", "--over", "orders-b", "--queues", "6")[0] == 0
    grown = {"orders-a": (2, 6), "orders-b": (6, 6)}
    wait_until(lambda: route(home, "sales") == grown, "the one group to have more queues")
    released = topic(home, "release", "sales")
    again = topic(home, "release", "sales")
    wait_until(
        lambda: topic(other, "alter", "sales", "--queues", "8")[0] == 0, "the topic to be its own"
    )
    shown = json.loads(topic(other, "show", "sales", "--json")[1])

    assert (made["fails_over"], made["order"]) == (True, False)
    assert ordered[0] == 0 and "order is promised: nothing fails over" in ordered[1]
    assert altered[0] == deleted[0] == 1
    assert "topic is the cluster's" in altered[2] and "topic is the cluster's" in deleted[2]
    assert "rows of a cluster change in its home" in not_home[2]
    assert (released[0], again[0]) == (0, 1)
    assert "over no groups" in again[2]
    assert sum(one["end"] for one in shown["queues"]) == 1


def test_a_group_is_drained_once_its_messages_are_consumed_and_then_it_leaves(
    pair: Pair, topic: Callable[..., Told]
) -> None:
    home, other = pair
    other.tell("join", "--home", f"ipc://{home.node.runtime}", "--nodes", other.address)
    assert topic(home, "create", "sales", "--queues", "2", "--over", "all")[0] == 0
    wait_until(lambda: len(route(other, "sales")) == 2, "the topic to be in both groups")
    address = f"ipc://{other.node.runtime}"
    words = ("drain", "orders-b", "--home", f"ipc://{home.node.runtime}", "--yes")
    with (
        Producer(address, one_group=True) as producer,
        connect_broker(address, name="test", timeout_s=PATIENCE_S) as broker,
    ):
        producer.send("sales", b"kept").result()
        broker.group_commit("readers", "sales", {0: 0, 1: 0})
        held_up = other.run(*words, "--wait", "0")
        wait_until(lambda: route(home, "sales")["orders-b"] == (2, 4), "the share to be closed")
        with pytest.raises(NoPermissionError):
            producer.send("sales", b"late").result()
        opened = other.run(*words, "--undo")
        wait_until(lambda: route(home, "sales")["orders-b"] == (2, 6), "the share to be open")

        def is_taken() -> bool:
            # Rows come from the home to the others' writers.
            with suppress(NoPermissionError):
                producer.send("sales", b"kept, too").result()
                return True
            return False

        wait_until(is_taken, "the other group's writer to know it")
        waits = other.run(*words, "--wait", "0")
        ends = {number: broker.queue("sales", number).end for number in range(2)}
        broker.group_commit("readers", "sales", ends)
        drained = other.run(*words)
    # As whoever has lost the answer asks; of a group that the home still has it would not be true.
    again, as_json = other.run(*words), other.run(*words, "--json")
    no_share = other.run(*words, "--undo")
    home.tell("invite", "orders-b", "--nodes", other.address)
    still_listed = other.run(*words)
    left = other.run("leave", "--home", f"ipc://{home.node.runtime}", "--yes")
    wrong = home.run("drain", "orders-b", *words[2:])
    itself = home.run("drain", "orders-a", *words[2:])

    assert held_up[0] == waits[0] == 1
    assert "not drained yet" in held_up[2] and "2 messages for readers" in waits[2]
    assert opened[0] == 0, opened
    assert drained[:2] == (0, "orders-b is drained, and belongs to no cluster any more\n"), drained
    assert again == (0, "orders-b belongs to no cluster: nothing is left to do\n", "")
    assert json.loads(as_json[1]) == {"drained": "orders-b", "before": True}
    assert no_share[0] == still_listed[0] == 1
    assert "no share to open" in no_share[2] and "the home has it in its list" in still_listed[2]
    assert left == (0, "orders-b belongs to no cluster any more\n", "")
    assert sum(ends.values()) == 2
    assert [one["group"] for one in home.tell("list")["groups"]] == ["orders-a"]
    assert other.tell("status") == {"cluster": None}
    assert wrong[0] == itself[0] == 1
    assert "ask the group that is to be drained" in wrong[2]
    assert "the home itself is not drained" in itself[2]
