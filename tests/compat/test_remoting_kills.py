"""Java's producers and consumers go on while leaders of our group die, and lose nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.remoting.codes import RequestCode
from tests.compat.remoting_group import java_program, make_remoting_group
from tests.compat.rocketmq import oracle_program
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Group, Member
from tests.process.remoting_client import RemotingClient
from tests.process.test_remoting_election import port_of

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

THROUGH = Path(__file__).with_name("Through.java")
KILLS = int(os.environ.get("LEDGERMQ_JAVA_KILLS", "2"))
START_S = 120.0
THROUGH_S = 150.0


def test_producers_and_consumers_of_java_live_through_the_deaths_of_leaders(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    oracle_program()
    group, name_servers = make_remoting_group(make_node, ack="majority-fsync")
    group.leader()
    with java_program(name_servers, THROUGH, TOPIC, "through", folder=tmp_path) as java:
        wait_until(lambda: java.has_said("runs"), "producers and consumers", START_S)
        for number in range(KILLS):
            leader = group.leader()
            leader.kill()
            group.leader(besides=leader)
            java.tell(str(number))
            wait_until(
                lambda number=number: java.has_said(f"through {number} "), "the rest", THROUGH_S
            )
            leader.start()
            wait_caught_up(group, leader)
        java.tell("stop")
        lines = java.wait()
    print(*java.said("through "), *java.said("acked "), *java.said("again "), sep="\n")

    assert "ordered missing 0 turned 0" in lines, lines[-50:]
    assert "concurrent missing 0" in lines, lines[-50:]
    group.wait_equal()
    assert group.stop() == [0, 0, 0]
    assert group.has_one_log()


def test_a_single_producer_of_java_goes_on_with_the_next_leader(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    oracle_program()
    group, name_servers = make_remoting_group(make_node)
    leader = group.leader()
    with java_program(name_servers, "Fail", TOPIC, "20", folder=tmp_path) as java:
        wait_until(lambda: stored(leader) > 100, "messages", START_S)
        leader.kill()
        successor = group.leader(besides=leader)
        before = stored(successor)
        wait_until(lambda: stored(successor) > before + 100, "messages for the next", START_S)
        (line,) = (one for one in java.wait() if one.startswith("ok="))
    print(line)

    assert int(line.partition("=")[2].split()[0]) > 200
    assert group.stop() == [0, 0]


def stored(member: Member) -> int:
    """Messages of the topic, as a member's queues have them."""
    client = RemotingClient(port_of(member))
    fields = ({"topic": TOPIC, "queueId": queue_id} for queue_id in range(4))
    replies = [client.ask(RequestCode.GET_MAX_OFFSET, one) for one in fields]
    client.close()
    return sum(int(one.fields["offset"]) for one in replies)


def wait_caught_up(group: Group, member: Member) -> None:
    """So that the next one dies among three that run and have the same."""
    end = group.leader().cursors()["committed"]["index"]

    def has_all() -> bool:
        status = member.status()
        return status is not None and status["cursors"]["committed"]["index"] >= end

    wait_until(has_all, "the member to catch up", START_S)
