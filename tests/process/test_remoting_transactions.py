"""A real node's port for RocketMQ's clients: transactions, and answers to messages."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from ledgermq.client.reading.queries import Queries
from ledgermq.formats.records.message import decode_message
from ledgermq.formats.records.message_id import decode_offset_id
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import ONEWAY, Command
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node
from tests.process.test_remoting_produce import fields, stored

pytestmark = pytest.mark.slow

V2 = RequestCode.SEND_MESSAGE_V2
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Node, str]]:
    """A node that asks for transactions soon, and its port."""
    with nodes_made() as make:
        node = make()
        rules = {"transaction_check_interval_ms": 300, "transaction_timeout_ms": 1_000}
        rules["transaction_check_max"] = 1_000
        address = start_remoting_node(node, transactions=rules)
        client = RemotingClient(address)
        wait_until(lambda: client.ask(V2, fields("other", 3), b"probe").code == 0, "the node leads")
        client.close()
        yield node, address
        node.stop()


def connect(address: str, name: str, group: str) -> RemotingClient:
    """A client that produces for ``group``."""
    client = RemotingClient(address)
    beat = {"clientID": name, "consumerDataSet": [], "producerDataSet": [{"groupName": group}]}
    assert client.ask(RequestCode.HEART_BEAT, body=json.dumps(beat).encode()).code == 0
    return client


def send_half(client: RemotingClient, group: str, unique_id: str, queue_id: int) -> Command:
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01{group}\x02UNIQ_KEY\x01{unique_id}"
    reply = client.ask(V2, fields("orders", queue_id, properties, f=4), unique_id.encode())
    assert (reply.code, reply.fields["queueId"]) == (0, str(queue_id)), reply
    return reply


def end_fields(group: str, half: Command, end: int, unique_id: str = "") -> dict[str, object]:
    return {
        "producerGroup": group,
        "tranStateTableOffset": half.fields["queueOffset"],
        "commitLogOffset": decode_offset_id(half.fields["msgId"]).physical_offset,
        "commitOrRollback": end,
        "fromTransactionCheck": "false",
        "msgId": unique_id,
    }


def bodies(node: Node, queue_id: int) -> list[bytes]:
    with Queries(f"ipc://{node.runtime}") as queries:
        return [bytes(one.body) for one in queries.browse("orders", queue_id, 0)]


def test_a_transaction_is_seen_when_it_is_committed_and_never_when_it_is_rolled_back(
    served: tuple[Node, str],
) -> None:
    node, address = served
    client = RemotingClient(address)
    committed = send_half(client, "ends", "committed", 0)
    rolled_back = send_half(client, "ends", "rolled-back", 0)
    code = RequestCode.END_TRANSACTION
    client.send(code, end_fields("ends", rolled_back, ROLLBACK, "rolled-back"), flag=ONEWAY)
    foreign = client.ask(code, end_fields("others", committed, COMMIT, "unknown"))
    right = client.ask(code, end_fields("ends", committed, COMMIT, "committed"))
    again = client.ask(code, end_fields("ends", committed, COMMIT, "committed"))
    client.close()
    wait_until(lambda: bodies(node, 0) == [b"committed"], "the committed one is seen")
    with Queries(f"ipc://{node.runtime}") as queries:
        (message,) = queries.browse("orders", 0, 0)

    assert foreign.code == ResponseCode.SYSTEM_ERROR
    assert (right.code, again.code) == (0, 0)
    assert message.properties["TRAN_MSG"] == "true"
    assert message.properties["UNIQ_KEY"] == "committed"


def test_a_producer_of_the_group_is_asked_how_a_transaction_ended(
    served: tuple[Node, str],
) -> None:
    node, address = served
    sender = connect(address, "sender", "asked")
    half = send_half(sender, "asked", "open", 1)
    sender.send(RequestCode.END_TRANSACTION, end_fields("asked", half, UNKNOWN), flag=ONEWAY)
    sender.close()
    other = connect(address, "other", "asked")
    question = other.next_request()
    message = decode_message(question.body)
    answer = {
        "producerGroup": "asked",
        "tranStateTableOffset": question.fields["tranStateTableOffset"],
        "commitLogOffset": question.fields["commitLogOffset"],
        "commitOrRollback": COMMIT,
        "fromTransactionCheck": "true",
        "msgId": question.fields["msgId"],
        "transactionId": question.fields["transactionId"],
    }
    other.send(RequestCode.END_TRANSACTION, answer, flag=ONEWAY)
    wait_until(lambda: bodies(node, 1) == [b"open"], "it is committed")
    other.close()

    assert (question.code, question.is_oneway) == (RequestCode.CHECK_TRANSACTION_STATE, True)
    assert question.fields["msgId"] == "open"
    assert (message.topic, message.queue_id, bytes(message.body)) == ("orders", 1, b"open")
    assert int(question.fields["commitLogOffset"]) == message.physical_offset


@pytest.mark.parametrize(
    "code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2]
)
def test_an_answer_comes_to_the_client_that_asked_and_is_stored(
    served: tuple[Node, str], code: int
) -> None:
    node, address = served
    asking = connect(address, "asking@1", "askers")
    answering = connect(address, "answering@1", "answerers")
    properties = "CORRELATION_ID\x01c1\x02REPLY_TO_CLIENT\x01asking@1\x02MSG_TYPE\x01reply"
    wanted = fields("DefaultCluster_REPLY_TOPIC", 0, properties)
    names = [
        "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
        "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode",
    ]  # fmt: skip
    if code == RequestCode.SEND_REPLY_MESSAGE:
        wanted = dict(zip(names, wanted.values(), strict=True))
    number = answering.send(code, wanted, b"the answer")
    pushed = asking.next_request()
    asking.answer(pushed)
    reply = answering.reply_to(number)
    (message,) = stored(node, reply)
    nobody = answering.ask(
        code, {**wanted, "i": "", "properties": "REPLY_TO_CLIENT\x01gone"}, b"the answer"
    )
    asking.close()
    answering.close()

    assert pushed.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    assert bytes(pushed.body) == b"the answer"
    assert pushed.fields["properties"].startswith(properties + "\x02PUSH_REPLY_TIME\x01")
    assert set(names) <= set(pushed.fields)
    assert pushed.fields["storeHost"] == address
    assert (reply.code, message.topic) == (0, "DefaultCluster_REPLY_TOPIC")
    assert message.properties["CORRELATION_ID"] == "c1"
    assert (nobody.code, "gone" in str(nobody.remark)) == (
        ResponseCode.SYSTEM_ERROR,
        code == RequestCode.SEND_REPLY_MESSAGE,
    )
