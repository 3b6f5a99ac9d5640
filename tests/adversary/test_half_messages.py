"""Questions about transactions have the message in them: naming a group is not enough for that."""

from __future__ import annotations

import json

import pytest

from ledgermq.client.admin.broker_admins import AccessAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.formats.records.message import decode_message
from ledgermq.remoting.codes import RequestCode as Code
from tests.process.conftest import Node, nodes_made
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node
from tests.process.remoting_requests import TEMPLATES
from tests.process.remoting_steps import beat_when_leading
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

SECRET = "12345678"
GROUP = "producers"
HALF = f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02UNIQ_KEY\x01"


def test_half_messages_are_told_to_those_alone_who_may_send_to_their_topic() -> None:
    with nodes_made() as make:
        told = told_of(make())

    assert told == {"mine": {b"secret"}, "curious": {b"known"}}


def told_of(node: Node) -> dict[str, set[bytes]]:
    """What two producers of one group are asked about, who may send to one topic each."""
    rules = {
        "transaction_check_interval_ms": 300,
        "transaction_timeout_ms": 1_000,
        "transaction_check_max": 1_000,
    }
    address = start_remoting_node(node, access={"enabled": True}, transactions=rules)
    rights = {"mine": "orders=PUB", "curious": "other=PUB", "boss": ""}
    with connect_broker(f"ipc://{node.runtime}", name="operator", timeout_s=PATIENCE_S) as broker:
        for name, right in rights.items():
            fields = {"topicPerms": [right]} if right else {"admin": True}
            AccessAdmin(broker).set_user(name, {"secretKey": SECRET, **fields}, mode="add")
    boss = RemotingClient(address, signs=("boss", SECRET))
    beat_when_leading(boss, "boss", "orders")
    beat = {"consumerDataSet": [], "producerDataSet": [{"groupName": GROUP}]}

    def joined(name: str) -> RemotingClient:
        client = RemotingClient(address, signs=(name, SECRET))
        body = json.dumps({"clientID": name, **beat}).encode()
        assert client.ask(Code.HEART_BEAT, body=body).code == 0
        return client

    curious = joined("curious")
    template = TEMPLATES[Code.SEND_MESSAGE_V2].fields
    for topic, name in (("orders", "secret"), ("other", "known")):
        fields = {**template, "b": topic, "e": 0, "f": 4, "i": f"{HALF}{name}"}
        assert boss.ask(Code.SEND_MESSAGE_V2, fields, name.encode()).code == 0
    mine = joined("mine")
    # Each is asked again and again: several rounds have gone by when both have heard twice.
    told = {
        who: {bytes(decode_message(client.next_request().body).body) for _ in range(2)}
        for who, client in (("mine", mine), ("curious", curious))
    }
    for client in (mine, curious, boss):
        client.close()

    assert node.stop() == 0
    return told
