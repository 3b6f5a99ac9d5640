"""Users at the port of a real node: RocketMQ's signatures, with TLS and in clear."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable

import pytest

from ledgermq.client.admin.broker_admins import AccessAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.codes import ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.rules.access.sealed_secret import key_id
from ledgermq.sessions.keys.user_secrets import make_user_key, read_user_keys
from tests.certificates import make_certificate
from tests.process.conftest import Node, wait_until
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node
from tests.process.remoting_pops import ack, acks_body, change, pop, pop_fields, set_mode
from tests.process.remoting_steps import send
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

ORDERS, BOSS = ("orders", "12345678"), ("boss", "87654321")


def test_users_sign_and_do_what_they_have_the_right_to(make_node: Callable[[], Node]) -> None:
    node = make_node()
    made, key = make_certificate(node.folder)
    address = start_remoting_node(
        node,
        access={"enabled": True},
        remoting={"tls_certificate_file": str(made), "tls_key_file": str(key)},
    )
    with connect_broker(f"ipc://{node.runtime}", name="operator", timeout_s=PATIENCE_S) as broker:
        admin = AccessAdmin(broker)
        rights = {"topicPerms": ["orders=PUB|SUB"], "groupPerms": ["g=SUB"]}
        admin.set_user(ORDERS[0], {"secretKey": ORDERS[1], **rights}, mode="add")
        admin.set_user(BOSS[0], {"secretKey": BOSS[1], "admin": True}, mode="add")
    tls = ssl.create_default_context(cafile=str(made))
    nobody = RemotingClient(address)
    orders = RemotingClient(address, signs=ORDERS, tls=tls)
    boss = RemotingClient(address, signs=BOSS)
    forger = RemotingClient(address, signs=(BOSS[0], "00000000"))

    def beat(group: str) -> bytes:
        wanted = [{"groupName": group, "subscriptionDataSet": [{"topic": "orders"}]}]
        return json.dumps({"clientID": "c", "consumerDataSet": wanted}).encode()

    route = nobody.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
    # RocketMQ's name servers check nothing: its clients learn from the broker what is wrong.
    forged_route = forger.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
    refused = [
        nobody.ask(Code.GET_TOPIC_STATS_INFO, {"topic": "orders"}),
        forger.ask(Code.GET_BROKER_CONFIG),
        orders.ask(Code.GET_TOPIC_STATS_INFO, {"topic": "other"}),
        orders.ask(Code.HEART_BEAT, body=beat("h")),
        orders.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": "orders"}),
        nobody.ask(Code.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"}),
    ]
    let = [
        orders.ask(Code.GET_TOPIC_STATS_INFO, {"topic": "orders"}),
        orders.ask(Code.HEART_BEAT, body=beat("g")),
        boss.ask(Code.GET_BROKER_CONFIG),
        boss.ask(Code.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"}),
    ]

    user = {"accessKey": "added", "secretKey": "abcdefgh", "topicPerms": "other=PUB,orders=SUB"}
    trusted = {**user, "admin": "true", "whiteRemoteAddress": "10.9.8.7"}
    added = boss.ask(Code.UPDATE_AND_CREATE_ACL_CONFIG, trusted)
    before = json.loads(bytes(boss.ask(Code.GET_BROKER_CLUSTER_ACL_CONFIG).body))
    less = {"accessKey": "added", "secretKey": "abcdefgh", "whiteRemoteAddress": ""}
    altered = boss.ask(Code.UPDATE_AND_CREATE_ACL_CONFIG, less)
    listed = json.loads(bytes(boss.ask(Code.GET_BROKER_CLUSTER_ACL_CONFIG).body))
    short = boss.ask(Code.UPDATE_AND_CREATE_ACL_CONFIG, {**user, "secretKey": "short"})
    removed = [boss.ask(Code.DELETE_ACL_CONFIG, {"accessKey": "added"}).code for _ in range(2)]
    version = boss.ask(Code.GET_BROKER_CLUSTER_ACL_INFO)
    white = boss.ask(Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {"globalWhiteAddrs": "*"})

    denied = node.status()["counters"]["broker"]["denied"]

    older, rows = (
        {row["accessKey"]: row for row in told["plainAccessConfigs"]} for told in (before, listed)
    )
    assert denied == len(refused)
    assert (added.code, altered.code, short.code) == (0, 0, 209)
    assert (removed, white.code) == ([0, 0], 211)
    assert (older["added"]["admin"], older["added"]["whiteRemoteAddress"]) == (True, "10.9.8.7")
    assert (rows["added"]["admin"], rows["added"]["whiteRemoteAddress"]) == (False, "")
    assert rows["added"]["topicPerms"] == ["orders=SUB", "other=PUB"]
    assert not any("secretKey" in row for row in rows.values())
    assert version.fields["brokerName"] == "broker-a"
    assert (route.code, forged_route.code) == (0, 0)
    assert [reply.code for reply in refused] == [ResponseCode.NO_PERMISSION] * len(refused)
    assert "signature of the request is wrong" in str(refused[1].remark)
    assert [reply.code for reply in let] == [0] * len(let), [reply.remark for reply in let]

    with connect_broker(f"ipc://{node.runtime}", name="operator", timeout_s=PATIENCE_S) as broker:
        AccessAdmin(broker).remove_user(ORDERS[0])
    assert orders.ask(Code.GET_TOPIC_STATS_INFO, {"topic": "orders"}).code == 16
    for client in (nobody, orders, boss, forger):
        client.close()
    wait_until(lambda: node.logged("admin act"), "the line about what the admin did")
    assert node.stop() == 0


def test_giving_back_by_position_reads_nobody_elses_messages(make_node: Callable[[], Node]) -> None:
    """Positions can be counted up: whoever has a group must not get the whole log through it."""
    node = make_node()
    address = start_remoting_node(node, access={"enabled": True})
    with connect_broker(f"ipc://{node.runtime}", name="operator", timeout_s=PATIENCE_S) as broker:
        admin = AccessAdmin(broker)
        rights = {"topicPerms": ["own=PUB|SUB"], "groupPerms": ["ga=SUB"]}
        admin.set_user("alice", {"secretKey": "alice-secret", **rights}, mode="add")
        admin.set_user(BOSS[0], {"secretKey": BOSS[1], "admin": True}, mode="add")
    alice = RemotingClient(address, signs=("alice", "alice-secret"))
    boss = RemotingClient(address, signs=BOSS)
    mine = _position(send(alice, "own", 0, b"mine")[0])
    others = _position(send(boss, "classified", 0, b"what alice must not see")[0])
    # Users and their secrets are commands in the log, behind everything that was stored before.
    with connect_broker(f"ipc://{node.runtime}", name="operator", timeout_s=PATIENCE_S) as broker:
        AccessAdmin(broker).set_user("carol", {"secretKey": "TopSecretKey42"}, mode="add")
    asked = {
        position: alice.send(
            Code.CONSUMER_SEND_MSG_BACK,
            {"offset": position, "group": "ga", "delayLevel": 1, "maxReconsumeTimes": 16},
        )
        for position in range(mine, others + 2_000)
    }
    replies = {position: alice.reply_to(opaque) for position, opaque in asked.items()}
    given_back = [position for position, reply in replies.items() if reply.code == 0]
    refused = [at for at, reply in replies.items() if reply.code == ResponseCode.NO_PERMISSION]
    alice.close()
    boss.close()

    assert given_back == [mine]
    assert others in refused
    assert len(refused) > 1
    assert node.stop() == 0


def test_a_users_secret_lies_nowhere_in_the_store_and_its_key_changes_while_it_signs(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    address = start_remoting_node(node, access={"enabled": True})
    keys = node.root / "ledgermq" / "keys" / "users.key"
    rights = {"topicPerms": ["orders=PUB|SUB"]}
    with connect_broker(f"ipc://{node.runtime}", name="operator", timeout_s=PATIENCE_S) as broker:
        admin = AccessAdmin(broker)
        admin.set_user("orders", {"secretKey": "FirstSecret42", **rights}, mode="add")
        client = RemotingClient(address, signs=("orders", "FirstSecret42"))
        before = send(client, "orders", 0, b"signed")
        make_user_key(keys)
        # Whatever is changed of a user, its secret is sealed with the new key.
        admin.set_user("orders", {"topicPerms": ["orders=PUB|SUB", "other=PUB"]}, mode="alter")
        newest = key_id(read_user_keys(keys)[0])
        wait_until(
            lambda: newest in (node.root / "ledgermq/access.json").read_text(), "it is sealed"
        )
        after = send(client, "orders", 0, b"signed with the same secret")
        admin.set_user("orders", {"secretKey": "SecondSecret7"}, mode="alter")
    old = client.ask(Code.GET_TOPIC_STATS_INFO, {"topic": "orders"})
    client.close()
    renewed = RemotingClient(address, signs=("orders", "SecondSecret7"))
    let = send(renewed, "orders", 0, b"signed with another one")
    renewed.close()
    status = node.stop()
    found = [
        path
        for path in node.root.rglob("*")
        if path.is_file()
        for secret in (b"FirstSecret42", b"SecondSecret7")
        if secret in path.read_bytes()
    ]

    assert [reply.code for reply in (*before, *after, *let)] == [0, 0, 0]
    assert old.code == ResponseCode.NO_PERMISSION
    assert found == []
    assert b"FirstSecret42" not in node.log.read_bytes()
    assert status == 0


def _position(sent: Command) -> int:
    assert sent.code == 0, sent.remark
    return int(sent.fields["msgId"][16:], 16)


def test_a_popped_message_is_acknowledged_by_nobody_without_the_right_to_its_group(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    address = start_remoting_node(node, access={"enabled": True}, listen={"trusted_network": True})
    with connect_broker(f"ipc://{node.runtime}", name="operator", timeout_s=PATIENCE_S) as broker:
        admin = AccessAdmin(broker)
        for name, group in (("owner", "g"), ("thief", "h")):
            rights = {"topicPerms": ["orders=PUB|SUB"], "groupPerms": [f"{group}=SUB"]}
            admin.set_user(name, {"secretKey": "12345678", **rights}, mode="add")
    owner = RemotingClient(address, signs=("owner", "12345678"))
    thief = RemotingClient(address, signs=("thief", "12345678"))
    send(owner, "orders", 0, b"a", b"b")
    stolen = thief.ask(Code.POP_MESSAGE, pop_fields("orders", "g"))
    taken = pop(owner, "orders", "g").taken
    refused = [
        ack(thief, taken[0], "g"),
        change(thief, taken[0], "g", 0),
        thief.ask(Code.BATCH_ACK_MESSAGE, body=acks_body(taken, "g")),
        set_mode(owner, "orders", "g", "POP"),
    ]
    as_own = ack(thief, taken[0], "h")
    done = owner.ask(Code.BATCH_ACK_MESSAGE, body=acks_body(taken, "g"))
    owner.close()
    thief.close()

    assert {one.code for one in (stolen, *refused)} == {ResponseCode.NO_PERMISSION}
    assert as_own.code == ResponseCode.NO_MESSAGE
    assert [one.body for one in taken] == [b"a", b"b"]
    assert done.code == ResponseCode.SUCCESS
    assert node.stop() == 0
