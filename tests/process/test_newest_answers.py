"""What a node tells that may not be the one that leads: refused, handed on, or as what it is."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.errors import LedgerError
from ledgermq.remoting.codes import RequestCode as Code
from tests.compat.remoting_group import make_remoting_group
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, make_group, producer
from tests.process.node_start import run_command
from tests.process.remoting_client import RemotingClient
from tests.process.test_remoting_election import connected, port_of
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow


def test_a_leader_whose_raft_hangs_tells_no_offset_that_is_over(
    make_node: Callable[[], Node],
) -> None:
    # While its writer runs by itself a leader needs no raft process, and stays the leader.
    group = make_group(make_node, ack="majority-memory", raft={"direct_writers": False})
    old = group.leader()
    rest = [member.address for member in group.others(old)]
    with (
        connect_broker(old.address, name="old", timeout_s=0.5) as asked,
        connect_broker(rest, name="new", timeout_s=PATIENCE_S) as newer,
    ):
        with producer(*group.members) as sending:
            sending.send_batch(TOPIC, [b"x"] * 50, queue_id=0).result()
        with connect_broker(group.addresses, name="first", timeout_s=PATIENCE_S) as first:
            wait_until(lambda: first.group_commit("g", TOPIC, {0: 1}) is None, "a commit")
        wait_until(lambda: _offset(asked) == 1, "the leader to tell it")
        raft = old.node.pid("raft")
        os.kill(raft, signal.SIGSTOP)
        try:
            group.leader(besides=old)
            stale = []
            for offset in range(2, 8):
                newer.group_commit("g", TOPIC, {0: offset})
                told = _offset(asked)
                stale += [(told, offset)] if told is not None and told < offset else []
        finally:
            os.kill(raft, signal.SIGCONT)
        wait_until(lambda: _offset(asked) == 7, "the old leader to follow")
        assert _offset(asked) == 7 and asked.as_of is not None
        as_of = asked.as_of
        at_follower = run_command("offset", "show", "g", TOPIC, "--address", old.address)
        at_all = run_command("offset", "show", "g", TOPIC, "--address", ",".join(group.addresses))

    assert stale == []
    assert as_of["role"] == "follower" and as_of["term"] > 0 and as_of["position"] > 0
    assert as_of["leader"] in {member.name for member in group.others(old)}
    assert f"told by a follower in term {as_of['term']}, as of position" in at_follower.stderr
    assert at_follower.stdout == at_all.stdout and at_all.stderr == ""
    assert not any(group.stop())


def _offset(broker: object) -> int | None:
    try:
        return broker.group_offset("g", TOPIC).get(0)  # type: ignore[attr-defined]
    except LedgerError:
        return None


def test_a_follower_has_the_leader_tell_where_a_group_of_rocketmq_goes_on(
    make_node: Callable[[], Node],
) -> None:
    group, _ = make_remoting_group(make_node)
    leader = group.leader()
    follower = group.others(leader)[0]
    with producer(*group.members) as sending:
        sending.send_batch(TOPIC, [b"x"] * 50, queue_id=0).result()
    fields = {"consumerGroup": "g", "topic": TOPIC, "queueId": "0"}
    with connect_broker(group.addresses, name="commits", timeout_s=PATIENCE_S) as commits:
        commits.group_commit("g", TOPIC, {0: 1})
        client = connected(port_of(follower))
        wait_until(lambda: _told(client, fields) == 1, "the follower to know the leader")
        told = []
        for offset in range(2, 20):
            commits.group_commit("g", TOPIC, {0: offset})
            told.append((_told(client, fields), offset))
        client.close()

    assert [pair for pair in told if pair[0] != pair[1]] == []
    assert not any(group.stop())


def _told(client: RemotingClient, fields: dict[str, str]) -> int | None:
    reply = client.ask(Code.QUERY_CONSUMER_OFFSET, fields)
    return int(reply.fields["offset"]) if reply.code == 0 else None
