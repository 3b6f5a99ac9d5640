"""Three real nodes with ports: what consumers find at followers, and after an election."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import ONEWAY, Command
from tests.certificates import make_certificate
from tests.compat.remoting_group import make_remoting_group
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Member
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_requests import TEMPLATES
from tests.process.remoting_steps import (
    GROUP,
    beat,
    beat_when_leading,
    members,
    offset_fields,
    pull,
    send,
)

pytestmark = pytest.mark.slow

MEMBERS = ["10.0.0.1@1", "10.0.0.1@2"]


class Consumer:
    """One of RocketMQ's, connected to all nodes."""

    def __init__(self, client_id: str, ports: dict[str, str]) -> None:
        self.client_id = client_id
        self.at = {name: connected(address) for name, address in ports.items()}

    def beat(self) -> None:
        """Tell all nodes that there are, as clients do."""
        assert {beat(one, self.client_id, TOPIC).code for one in self.at.values()} == {0}

    def lock(self, node: str) -> list[int]:
        """Ask a node for all queues; those it owns then."""
        queues = [{"topic": TOPIC, "brokerName": "oracle", "queueId": one} for one in range(4)]
        body = {"consumerGroup": GROUP, "clientId": self.client_id, "mqSet": queues}
        reply = self.at[node].ask(RequestCode.LOCK_BATCH_MQ, body=json.dumps(body).encode())
        if reply.code != ResponseCode.SUCCESS:
            return []
        return [one["queueId"] for one in json.loads(bytes(reply.body))["lockOKMQSet"]]

    def forget(self, node: str) -> None:
        """That node is gone."""
        self.at.pop(node).close()

    def close(self) -> None:
        """Leave all."""
        for client in self.at.values():
            client.close()


def connected(address: str, tls: ssl.SSLContext | None = None) -> RemotingClient:
    """A connection to a node, as soon as its port is open."""
    made: list[RemotingClient] = []

    def is_open() -> bool:
        try:
            made.append(RemotingClient(address, tls=tls))
        except ConnectionRefusedError:
            return False
        return True

    wait_until(is_open, f"port {address} is open")
    return made[0]


def port_of(member: Member) -> str:
    """Where a member's port is, by its settings."""
    lines = member.node.config.read_text().splitlines()
    (line,) = (one for one in lines if one.startswith("remoting = "))
    return line.partition('"')[2].rstrip('"')


def brokers(client: RemotingClient) -> dict[str, str]:
    """Addresses by broker id, as the route of a topic and the cluster's list have them."""
    route = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
    cluster = client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    if route.code != ResponseCode.SUCCESS:
        return {}
    (one,) = json.loads(bytes(route.body))["brokerDatas"]
    (table,) = json.loads(bytes(cluster.body))["brokerAddrTable"].values()
    assert one["enableActingMaster"] is table["enableActingMaster"] is False
    found: dict[str, str] = one["brokerAddrs"]
    return found if found == table["brokerAddrs"] else {}


def test_a_member_that_is_down_is_in_no_route_until_it_is_back(
    make_node: Callable[[], Node],
) -> None:
    group, _ = make_remoting_group(make_node)
    group.leader()
    ports = {member.name: port_of(member) for member in group.up()}
    at = {name: connected(address) for name, address in ports.items()}

    def shown(*members: Member) -> bool:
        leaders = {member.name for member in group.up() if member.leads}
        wanted = sorted(ports[member.name] for member in members)
        told = [brokers(at[member.name]) for member in group.up()]
        return len(leaders) == 1 and all(
            sorted(one.values()) == wanted and one.get("0") == ports[min(leaders)] for one in told
        )

    wait_until(lambda: shown(*group.members), "routes to have all members")
    follower = group.others(group.leader())[0]
    at.pop(follower.name).close()
    follower.kill()
    wait_until(lambda: shown(*group.others(follower)), "routes without the one that was killed")

    follower.start()
    at[follower.name] = connected(ports[follower.name])
    wait_until(lambda: shown(*group.members), "routes to have all members again")
    for client in at.values():
        client.close()
    assert group.stop() == [0, 0, 0]


@pytest.mark.long(but=1)
@pytest.mark.parametrize("processes", [1, 2])
def test_sends_to_a_node_that_does_not_lead_are_stored_by_the_one_that_does(
    make_node: Callable[[], Node], processes: int
) -> None:
    """As those of RocketMQ's producers, which ask for routes every half minute, behind a change."""
    group, _ = make_remoting_group(make_node, tables={"remoting": {"processes": processes}})
    before = group.leader()
    client = connected(port_of(before))
    single, batch = (
        TEMPLATES[RequestCode.SEND_MESSAGE_V2],
        TEMPLATES[RequestCode.SEND_BATCH_MESSAGE],
    )

    def put(queue_id: int, body: bytes) -> Command:
        fields = {**single.fields, "e": queue_id}
        return client.ask(RequestCode.SEND_MESSAGE_V2, fields, body)

    wait_until(lambda: put(0, b"at the leader").code == 0, "the node to store")
    asked = before.command("raft", "transfer", group.others(before)[0].name)
    leader = group.leader(besides=before)
    wait_until(lambda: put(0, b"through a follower").code == 0, "a send to be handed on")
    replies = send(client, TOPIC, 1, *(b"%d" % number for number in range(30)))
    several = client.ask(RequestCode.SEND_BATCH_MESSAGE, {**batch.fields, "e": 3}, batch.body)
    refused = put(99, b"no queue")
    oneway = {**single.fields, "e": 2}
    client.send(RequestCode.SEND_MESSAGE_V2, oneway, b"oneway", flag=ONEWAY)
    at_leader = connected(port_of(leader))
    wait_until(
        lambda: pull(at_leader, TOPIC, 2, 0, subscription="*").bodies == [b"oneway"],
        "what wants no reply",
    )
    found = pull(at_leader, TOPIC, 1, 0, most=200, subscription="*").bodies
    at_leader.close()
    # Who hands on is one connection to the leader: what it waits for ends with that.
    leader.kill()
    lost = put(0, b"nobody leads")
    group.leader(besides=leader)
    wait_until(lambda: put(0, b"again").code == 0, "a send to be stored")
    client.close()

    assert asked.returncode == 0, asked.stderr
    assert [int(one.fields["queueOffset"]) for one in replies] == list(range(30))
    assert several.code == 0
    assert found == [b"%d" % number for number in range(30)]
    assert (refused.code, "no such queue" in str(refused.remark)) == (1, True)
    assert lost.code in {0, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE}, lost
    assert group.stop() == [0, 0]


@pytest.mark.parametrize("processes", [1, 2])
def test_what_came_over_tls_is_not_handed_on_in_clear(
    make_node: Callable[[], Node], tmp_path: Path, processes: int
) -> None:
    made, key = make_certificate(tmp_path)
    files = {"tls_certificate_file": str(made), "tls_key_file": str(key)}
    group, _ = make_remoting_group(
        make_node, tables={"remoting": {"processes": processes, **files}}
    )
    leader = group.leader()
    tls = ssl.create_default_context(cafile=str(made))
    follower = port_of(group.others(leader)[0])
    clear, sealed = connected(follower), connected(follower, tls)
    single = TEMPLATES[RequestCode.SEND_MESSAGE_V2]

    def put(client: RemotingClient) -> Command:
        return client.ask(RequestCode.SEND_MESSAGE_V2, {**single.fields, "e": 0}, b"text")

    wait_until(lambda: put(clear).code == 0, "a send in clear to be handed on")
    # Of two processes each has to hear who leads.
    refused: Command = wait_until(
        lambda: "does not lead" in str((put_ := put(sealed)).remark) and put_,
        "a send over TLS to be refused for good",
    )
    locked = sealed.ask(RequestCode.UPDATE_CONSUMER_OFFSET, offset_fields(TOPIC, 0, commitOffset=1))
    clear.close()
    sealed.close()

    assert refused.code == locked.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert group.stop() == [0, 0, 0]


@pytest.mark.parametrize("processes", [1, 2])
def test_what_came_over_tls_is_handed_on_over_tls_where_members_know_one_another(
    make_node: Callable[[], Node], tmp_path: Path, processes: int
) -> None:
    made, key = make_certificate(tmp_path)
    authorities = tmp_path / "members.pem"
    files = {"tls_certificate_file": str(made), "tls_key_file": str(key)}
    enforcing = {**files, "tls_mode": "enforcing", "members_ca_file": str(authorities)}
    group, _ = make_remoting_group(
        make_node, tables={"remoting": {"processes": processes, **enforcing}}
    )
    leader = group.leader()
    tls = ssl.create_default_context(cafile=str(made))
    sealed = connected(port_of(group.others(leader)[0]), tls)
    at_leader = connected(port_of(leader), tls)
    single = TEMPLATES[RequestCode.SEND_MESSAGE_V2]

    def put() -> Command:
        return sealed.ask(RequestCode.SEND_MESSAGE_V2, {**single.fields, "e": 0}, b"text")

    # Whoever has lost the file is no worse off than who never had one.
    refused = put()
    authorities.write_text(made.read_text())
    stored: Command = wait_until(lambda: (put_ := put()).code == 0 and put_, "a send to go on")
    committed = sealed.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET, offset_fields(TOPIC, 0, commitOffset=1)
    )
    changed = sealed.ask(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        {"topic": "new", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1,
         "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"},
    )  # fmt: skip
    seen = at_leader.ask(RequestCode.QUERY_CONSUMER_OFFSET, offset_fields(TOPIC, 0))
    sealed.close()
    at_leader.close()

    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert stored.fields["queueId"] == "0"
    assert (committed.code, seen.fields["offset"]) == (0, "1")
    # Handed on, and refused there: changes over the port are off unless they are allowed.
    assert changed.code == ResponseCode.NO_PERMISSION
    assert group.stop() == [0, 0, 0]


def test_a_new_leader_knows_members_offsets_and_locks(make_node: Callable[[], Node]) -> None:
    group, _ = make_remoting_group(make_node)
    leader = group.leader()
    ports = {member.name: port_of(member) for member in group.up()}
    first, second = (Consumer(client_id, ports) for client_id in MEMBERS)
    at_leader = first.at[leader.name]
    beat_when_leading(at_leader, MEMBERS[0], TOPIC)
    follower = next(name for name in ports if name != leader.name)

    first.beat()
    second.beat()
    send(at_leader, TOPIC, 0, b"one", b"two")
    at_follower = first.at[follower]
    wait_until(
        lambda: pull(at_follower, TOPIC, 0, 0).bodies == [b"one", b"two"], "a follower reads"
    )
    commit = offset_fields(TOPIC, 0, commitOffset=1)
    # It reads before it has heard who leads.
    handed_on: Command = wait_until(
        lambda: (
            (told := at_follower.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code == 0 and told
        ),
        "a follower to hand on",
    )
    seen = at_leader.ask(RequestCode.QUERY_CONSUMER_OFFSET, offset_fields(TOPIC, 0))

    def is_told() -> bool:
        """As consumers tell offsets: again and again, and nobody waits."""
        there, told = offset_fields(TOPIC, 1), offset_fields(TOPIC, 1, commitOffset=7)
        at_follower.send(RequestCode.UPDATE_CONSUMER_OFFSET, told, flag=ONEWAY)
        found = at_leader.ask(RequestCode.QUERY_CONSUMER_OFFSET, there)
        return found.fields.get("offset") == "7"

    wait_until(is_told, "an offset that nobody waits for to be handed on")
    stored = at_leader.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
    through, others = first.lock(follower), second.lock(leader.name)
    locked = first.lock(leader.name)
    first.at[leader.name].came.clear()

    leader.kill()
    successor = group.leader(besides=leader)
    for consumer in (first, second):
        consumer.forget(leader.name)
    at_successor = first.at[successor.name]
    wait_until(lambda: first.lock(successor.name) == [0, 1, 2, 3], "the new leader serves")
    taken = second.lock(successor.name)
    known = members(at_successor)
    offset = at_successor.ask(RequestCode.QUERY_CONSUMER_OFFSET, offset_fields(TOPIC, 0))
    told = [one.code for one in at_successor.came]
    goes_on = pull(at_successor, TOPIC, 0, 1, suspend_ms=30_000)
    first.close()
    second.close()

    assert (handed_on.code, seen.fields["offset"]) == (ResponseCode.SUCCESS, "1")
    assert (through, others) == ([0, 1, 2, 3], [])
    assert (stored.code, locked) == (ResponseCode.SUCCESS, [0, 1, 2, 3])
    assert taken == []
    assert known == MEMBERS
    assert (offset.code, offset.fields["offset"]) == (ResponseCode.SUCCESS, "1")
    assert set(told) <= {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED}
    assert goes_on.bodies == [b"two"]
    assert group.stop() == [0, 0]
