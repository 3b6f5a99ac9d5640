"""A real group's ports: who sends something is never told that it is stored where nobody leads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import Command
from tests.compat.remoting_group import make_remoting_group
from tests.process.conftest import Node, wait_until
from tests.process.remoting_client import RemotingClient
from tests.process.test_remoting_produce import V2, fields

pytestmark = pytest.mark.slow


def connect(address: str) -> RemotingClient:
    """A client of a node whose broker process may still be on its way."""

    def connected() -> RemotingClient | None:
        try:
            return RemotingClient(address)
        except ConnectionRefusedError:
            return None

    client: RemotingClient = wait_until(connected, f"{address} is open")
    return client


def test_a_leader_without_its_group_refuses_sends_and_a_follower_hands_them_on(
    make_node: Callable[[], Node],
) -> None:
    group, name_servers = make_remoting_group(make_node)
    leader = group.leader()
    ports = dict(zip([one.name for one in group.members], name_servers.split(";"), strict=True))
    follower, other = group.others(leader)
    client = connect(ports[leader.name])
    wait_until(
        lambda: client.ask(V2, fields("step-down", 0), b"first").code == 0, "the leader serves"
    )
    elsewhere = connect(ports[follower.name])
    wait_until(
        lambda: elsewhere.ask(V2, fields("step-down", 0), b"to a follower").code == 0,
        "the follower to hand it on",
    )
    end = {
        "producerGroup": "g",
        "tranStateTableOffset": 0,
        "commitLogOffset": 0,
        "commitOrRollback": 8,
    }

    def answer_to_the_end() -> Command | None:
        reply = elsewhere.ask(RequestCode.END_TRANSACTION, end)
        # A member that has just begun says only that, until it knows what is committed.
        return None if "node is starting" in str(reply.remark) else reply

    not_ended: Command = wait_until(answer_to_the_end, "the follower knows what is committed")
    elsewhere.close()
    follower.kill()
    other.kill()
    # Nobody can agree to these: they wait until the leader knows that it is none any more.
    numbers = [client.send(V2, fields("step-down", queue), b"lost") for queue in range(4)]
    lost = [client.reply_to(number) for number in numbers]
    follower.start()
    client.close()

    def is_served() -> bool:
        again = connect(ports[group.leader().name])
        reply = again.ask(V2, fields("step-down", 0), b"last")
        again.close()
        return reply.code == 0

    wait_until(is_served, "the group stores again")

    assert not_ended.code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert {reply.code for reply in lost} == {ResponseCode.SERVICE_NOT_AVAILABLE}, lost
    assert {reply.fields["TRACE_ON"] for reply in lost} == {"true"}
