"""A real node's port for RocketMQ's clients: what becomes of what they send."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.reading.queries import Queries
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import ONEWAY, Command, HeaderKind
from tests.plain_codecs import BatchItem, encode_batch
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node

pytestmark = pytest.mark.slow

NOW_MS = 1_700_000_000_123
V2 = RequestCode.SEND_MESSAGE_V2


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Node, str]]:
    """A node that leads its group of one, and its port."""
    with nodes_made() as make:
        node = make()
        address = start_remoting_node(node, limits={"client_window_bytes": 8 * 1024 * 1024})
        client = RemotingClient(address)

        def leads() -> bool:
            reply = client.ask(V2, fields("other", 3), b"probe")
            assert reply.code in (0, ResponseCode.SERVICE_NOT_AVAILABLE), reply
            return reply.code == 0

        wait_until(leads, "the node leads its group of one")
        client.close()
        yield node, address
        node.stop()


@pytest.fixture
def client(served: tuple[Node, str]) -> Iterator[RemotingClient]:
    client = RemotingClient(served[1])
    yield client
    client.close()


def fields(
    topic: str, queue_id: int = 0, properties: str = "", **more: object
) -> dict[str, object]:
    return {
        "a": "producers",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": queue_id,
        "f": 0,
        "g": NOW_MS,
        "h": 7,
        "i": properties,
        "j": 0,
        "k": "false",
        **more,
    }


def stored(node: Node, *replies: Command) -> list[ReceivedMessage]:
    """The messages that the replies name, as soon as they can be read."""
    found: dict[str, ReceivedMessage] = {}
    with Queries(f"ipc://{node.runtime}") as queries:
        for reply in replies:
            assert reply.code == 0, reply
            for id_ in reply.fields["msgId"].split(","):

                def is_read(id_: str = id_) -> bool:
                    message = queries.message_by_id(id_)
                    if message is not None:
                        found[id_] = message
                    return message is not None

                wait_until(is_read, f"{id_} is dispatched")
    return list(found.values())


@pytest.mark.parametrize("kind", list(HeaderKind))
def test_what_is_told_to_be_stored_is_there(served: tuple[Node, str], kind: HeaderKind) -> None:
    node, address = served
    client = RemotingClient(address, kind=kind)
    queue = int(kind)
    properties = "UNIQ_KEY\x01ID7\x02WAIT\x01true\x02TAGS\x01A"
    replies = [
        client.ask(V2, fields("orders", queue, properties), b"body %d" % one) for one in range(3)
    ]
    long_names = {
        "producerGroup": "producers",
        "topic": f"brand-new-{queue}",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 3,
        "queueId": -1,
        "sysFlag": 0,
        "bornTimestamp": NOW_MS,
        "flag": 0,
        "properties": "TAGS\x01A\x02",
    }
    made = client.ask(RequestCode.SEND_MESSAGE, long_names, b"first")
    host = client.address
    client.close()
    messages = stored(node, *replies, made)
    with Queries(f"ipc://{node.runtime}") as queries:
        queues = queries.read_queues(f"brand-new-{queue}")

    assert [reply.kind for reply in replies] == [kind] * 3
    assert [reply.fields["queueOffset"] for reply in replies] == ["0", "1", "2"]
    assert {reply.fields["queueId"] for reply in replies} == {str(queue)}
    assert {reply.fields["MSG_REGION"] for reply in replies} == {"DefaultRegion"}
    assert [bytes(one.body) for one in messages] == [b"body 0", b"body 1", b"body 2", b"first"]
    first = messages[0]
    assert (first.topic, first.queue_id, first.flag) == ("orders", queue, 7)
    assert (first.born_timestamp, first.born_host) == (NOW_MS, host)
    assert first.properties == {"UNIQ_KEY": "ID7", "TAGS": "A", "CLUSTER": "DefaultCluster"}
    assert (messages[3].properties["TAGS"], queues) == ("A", 3)


def test_messages_of_a_connection_keep_their_order_with_batches_and_oneways_among_them(
    served: tuple[Node, str], client: RemotingClient
) -> None:
    node, _ = served
    units = encode_batch([BatchItem(one, b"unit %d" % one, b"A\x01b\x02") for one in range(200)])
    batch = fields("orders", 3, "WAIT\x01true")
    numbers = [
        client.send(V2, fields("orders", 3), b"single"),
        client.send(RequestCode.SEND_BATCH_MESSAGE, batch, units),
        client.send(V2, fields("orders", 3), b"oneway", flag=ONEWAY),
        client.send(V2, {**batch, "m": "true"}, units),
        client.send(V2, fields("new-by-many", 0), b"one"),
        client.send(V2, fields("new-by-many", 0), b"two"),
    ]
    replies = {number: client.reply_to(number) for number in numbers if number != numbers[2]}
    first, second = replies[numbers[1]], replies[numbers[3]]
    messages = stored(node, first)

    assert [reply.code for reply in replies.values()] == [0] * 5
    base = int(replies[numbers[0]].fields["queueOffset"])
    assert [int(one.fields["queueOffset"]) - base for one in (first, second)] == [1, 202]
    assert len(second.fields["msgId"].split(",")) == 200
    assert [(one.flag, bytes(one.body)) for one in messages] == [
        (number, b"unit %d" % number) for number in range(200)
    ]
    assert messages[0].properties == {"A": "b", "CLUSTER": "DefaultCluster"}
    assert [replies[one].fields["queueOffset"] for one in numbers[4:]] == ["0", "1"]
    assert numbers[2] not in client.replies


def test_a_message_that_has_to_wait_is_delivered_where_it_belongs(
    served: tuple[Node, str], client: RemotingClient
) -> None:
    node, _ = served
    level = client.ask(V2, fields("delayed", 1, "DELAY\x011\x02TAGS\x01a"), b"level")
    timer = client.ask(V2, fields("delayed", 2, "TIMER_DELAY_MS\x01400"), b"timer")
    waiting = stored(node, level, timer)

    def delivered() -> list[tuple[int, bytes]]:
        with Queries(f"ipc://{node.runtime}") as queries:
            return [
                (queue, bytes(message.body))
                for queue in (1, 2)
                for message in queries.browse("delayed", queue, 0)
            ]

    wait_until(lambda: len(delivered()) == 2, "both have come")

    assert delivered() == [(1, b"level"), (2, b"timer")]
    assert [one.stored_topic for one in waiting] == ["SCHEDULE_TOPIC_XXXX", "LEDGERMQ_TIMER"]
    assert [reply.fields["queueId"] for reply in (level, timer)] == ["1", "2"]


def test_a_retry_beyond_its_limit_is_a_dead_letter(
    served: tuple[Node, str], client: RemotingClient
) -> None:
    node, _ = served
    properties = "RETRY_TOPIC\x01orders\x02DELAY\x013"
    again = client.ask(V2, fields("%RETRY%readers", 0, properties, j=2, l=3), b"again")
    dead = client.ask(V2, fields("%RETRY%readers", 0, properties, j=3, l=3), b"dead")
    messages = stored(node, again, dead)

    assert [one.stored_topic for one in messages] == ["SCHEDULE_TOPIC_XXXX", "%DLQ%readers"]
    assert messages[0].properties["REAL_TOPIC"] == "%RETRY%readers"
    assert [one.reconsume_times for one in messages] == [2, 3]


def test_what_cannot_be_stored_is_refused_and_harms_nothing_beside_it(
    served: tuple[Node, str], client: RemotingClient
) -> None:
    half = "TRAN_MSG\x01true\x02UNIQ_KEY\x01u1"
    units = encode_batch([BatchItem(0, b"1", b""), BatchItem(0, b"2", b"DELAY\x013")])
    asked = [
        (V2, fields("orders"), b"good"),
        (V2, fields("bad name"), b""),
        (V2, fields("x" * 128), b""),
        (V2, fields("SCHEDULE_TOPIC_XXXX"), b""),
        (V2, fields("orders", 4), b""),
        (V2, fields("unknown", c="orders"), b""),
        (V2, fields("orders", 0, "A\x01" + "b" * 33_000), b""),
        (V2, fields("orders"), bytes(4 * 1024 * 1024 + 1)),
        (V2, fields("orders", 0, half), b"no group"),
        (RequestCode.SEND_BATCH_MESSAGE, fields("orders"), units),
        (RequestCode.SEND_BATCH_MESSAGE, fields("orders"), b"no units"),
        (V2, {"b": "orders"}, b""),
        (V2, fields("orders"), b"good"),
    ]
    numbers = [client.send(*one) for one in asked]
    replies = [client.reply_to(number) for number in numbers]

    assert [reply.code for reply in replies] == [0, 1, 13, 16, 1, 17, 13, 13, 13, 13, 13, 1, 0]
    assert {reply.fields["TRACE_ON"] for reply in replies} == {"true"}
    offsets = [int(replies[one].fields["queueOffset"]) for one in (0, -1)]
    assert offsets[1] - offsets[0] == 1
