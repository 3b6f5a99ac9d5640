"""What has brought a broker process down once, or would: it is answered, and nobody notices."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from ledgermq.model.message_filter import TAGS_MAX
from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.codes import ResponseCode
from ledgermq.remoting.command import Command, HeaderKind, encode_command
from tests.process.fuzzed_port import FuzzedPort, fuzzed_port
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_steps import beat, beat_when_leading, heartbeat_body, pull_fields

pytestmark = pytest.mark.slow

GROUP = "attacked"
HALF = "\ud800"
STATUS = {"topic": "orders", "group": GROUP}
RUNNING = {"consumerGroup": GROUP, "clientId": "evil"}


@pytest.fixture(scope="module")
def port() -> Iterator[FuzzedPort]:
    with fuzzed_port() as made:
        beat_when_leading(made.client, "steady", "orders")
        yield made


@pytest.fixture
def client(port: FuzzedPort) -> Iterator[RemotingClient]:
    made = RemotingClient(port.address)
    yield made
    made.close()
    port.check()


@pytest.mark.parametrize("name", [f"t{HALF}", "nul\0", "/proc", "../..", "x" * 300])
def test_names_that_no_folder_has_are_topics_that_are_not_there(
    client: RemotingClient, name: str
) -> None:
    deleted = client.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": name})
    cloned = client.ask(Code.CLONE_GROUP_OFFSET, {"srcGroup": "a", "destGroup": "b", "topic": name})

    assert all(reply.code and reply.remark for reply in (deleted, cloned)), (deleted, cloned)


@pytest.mark.parametrize("codes", [[2**70], [2**31], list(range(TAGS_MAX + 1))])
def test_hashes_that_are_none_or_too_many_are_refused(
    client: RemotingClient, codes: list[int]
) -> None:
    body = json.loads(heartbeat_body("evil", "orders", group=GROUP))
    body["consumerDataSet"][0]["subscriptionDataSet"][0]["codeSet"] = codes
    heard = client.ask(Code.HEART_BEAT, body=json.dumps(body).encode())
    pulled = client.ask(Code.PULL_MESSAGE, pull_fields("orders", 0, 0, group=GROUP))

    assert heard.code or pulled.code == ResponseCode.FILTER_DATA_NOT_EXIST
    assert str(heard.remark or pulled.remark)


@pytest.mark.parametrize("expression", ["NOT " * 2_000 + "a", "a BETWEEN 1 AND " * 450 + "2"])
def test_an_expression_that_is_too_deep_is_refused(client: RemotingClient, expression: str) -> None:
    data = {"topic": "orders", "subString": expression, "expressionType": "SQL92"}
    body = json.dumps({"clientId": "c", "group": GROUP, "subscriptionData": data}).encode()
    reply = client.ask(Code.CHECK_CLIENT_CONFIG, body=body)

    assert reply.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def relayed(port: FuzzedPort, client: RemotingClient, code: int, answer: Command) -> Command:
    """What a tool is told that asks for a consumer, when that one answers so."""
    tool = RemotingClient(port.address, kind=HeaderKind.BINARY)
    assert beat(client, "evil", "orders", group=GROUP).code == 0
    number = tool.send(code, {**STATUS, **RUNNING})
    asked = client.next_request()
    while asked.is_oneway:
        asked = client.next_request()
    answer.opaque = asked.opaque
    answer.flag = 1
    client._socket.sendall(b"".join(map(bytes, encode_command(answer))))
    reply = tool.reply_to(number)
    tool.close()
    return reply


@pytest.mark.parametrize(
    "body",
    [
        b"garbage",
        b'{"messageQueueTable":{"x":1}}',
        b'{"messageQueueTable":{"[]":1}}',
        b'{"messageQueueTable":{"{}":1}}',
        b'{"messageQueueTable":{{"brokerName":"b","topic":"t","queueId":"x"}:1}}',
        b'{"messageQueueTable":{{"brokerName":"b","topic":"t","queueId":1e400}:1}}',
        b'{"messageQueueTable":{{"brokerName":"b","topic":"t","queueId":1}:[]}}',
    ],
)
def test_a_consumer_that_tells_nonsense_is_told_of(
    port: FuzzedPort, client: RemotingClient, body: bytes
) -> None:
    code = Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    reply = relayed(port, client, code, Command(0, body=body))

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "evil has not told where it is" in str(reply.remark)


@pytest.mark.parametrize(
    "answer", [Command(70_000, remark="r"), Command(0, fields={"n" * 40_000: "v"})]
)
def test_an_answer_that_cannot_be_handed_on_is_told_of(
    port: FuzzedPort, client: RemotingClient, answer: Command
) -> None:
    reply = relayed(port, client, Code.GET_CONSUMER_RUNNING_INFO, answer)

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "binary header" in str(reply.remark)


EXPENSIVE = {
    # Each is parsed anew, some 30 ms long.
    "expressions": lambda number: (
        Code.CHECK_CLIENT_CONFIG,
        {},
        json.dumps(
            {
                "subscriptionData": {
                    "expressionType": "SQL92",
                    "subString": " OR ".join(f"a{number}_{one} = {one}" for one in range(400)),
                }
            }
        ).encode(),
    ),
    # No JSON: read character by character.
    "loose bodies": lambda number: (
        Code.HEART_BEAT,
        {},
        b'{"clientID":"%d",' % number + b"1:1," * 40_000 + b"2:2}",
    ),
    "many groups": lambda number: (
        Code.HEART_BEAT,
        {},
        json.dumps(
            {
                "clientID": f"c{number}",
                "producerDataSet": [{"groupName": f"g{number}_{one}"} for one in range(1_000)],
            }
        ).encode(),
    ),
}

ROUNDS = {"expressions": 8, "loose bodies": 4, "many groups": 4}
"""By each of eight clients: some six seconds of work where an answer takes a second's fraction."""


@pytest.mark.long(but=1)
@pytest.mark.parametrize("kind", EXPENSIVE)
def test_a_flood_of_expensive_requests_leaves_turns_to_others(
    port: FuzzedPort, client: RemotingClient, kind: str
) -> None:
    """Five seconds of work at once have a process killed as hung (``supervision``)."""
    flooding = [RemotingClient(port.address) for _ in range(8)]
    asked = [
        (one, one.send(*EXPENSIVE[kind](number * 8 + row)))
        for number in range(ROUNDS[kind])
        for row, one in enumerate(flooding)
    ]
    served = client.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
    replies = [one.reply_to(opaque) for one, opaque in asked]
    for one in flooding:
        one.close()
    behind = client.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})

    assert (served.code, behind.code) == (0, 0)
    assert len(replies) == 8 * ROUNDS[kind]
