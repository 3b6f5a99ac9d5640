"""A message whose body looks like messages of the log is one, however it is named (L7)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledgermq.client import Queries
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.formats.records.message_id import decode_offset_id
from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.codes import ResponseCode
from ledgermq.remoting.command import Command
from tests.process.conftest import Node, nodes_made
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node
from tests.process.remoting_steps import beat_when_leading, send
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

TOPIC, GROUP, SECRET = "orders", "g", b"what was never sent"
BODY_AT = 88
"""Of a record with IPv4 hosts."""

OFFSETS = (-(2**63), -1, 0, 1, 2, 2**31, 2**62, 2**63 - 1)
"""Queue offsets that a forger may choose: of none, of others, of those that are no more."""


TRIES = 20


def position_of(reply: Command) -> int:
    return decode_offset_id(reply.fields["msgId"]).physical_offset


def forged(position: int, queue_offset: int) -> bytes:
    """A whole record, as it would have to stand at ``position``."""
    message = Message(
        topic=TOPIC,
        queue_id=0,
        body=SECRET,
        properties=b"KEYS\x01forged\x02",
        queue_offset=queue_offset,
        physical_offset=position,
        born_timestamp=1,
        store_timestamp=1,
    )
    return encode_message(message)


@pytest.fixture
def node() -> Iterator[Node]:
    with nodes_made() as make:
        yield make()


@pytest.mark.parametrize("log", ["commitlog", "dledger"])
def test_what_a_body_makes_look_like_a_record_is_found_by_nobody(node: Node, log: str) -> None:
    address = start_remoting_node(node, log=log)
    client = RemotingClient(address)
    beat_when_leading(client, "c", TOPIC, group=GROUP)
    size = len(forged(0, 0))
    first = position_of(send(client, TOPIC, 0, bytes(len(OFFSETS) * size))[0])
    second = position_of(send(client, TOPIC, 0, bytes(len(OFFSETS) * size))[0])
    for _ in range(TRIES):
        # Each stands as far behind the one before, if the broker has stored nothing in between.
        begin = 2 * second - first + BODY_AT
        positions = [begin + number * size for number in range(len(OFFSETS))]
        body = b"".join(map(forged, positions, OFFSETS))
        first, second = second, position_of(send(client, TOPIC, 0, body)[0])
        if second + BODY_AT == begin:
            break
    views = [client.ask(Code.VIEW_MESSAGE_BY_ID, {"offset": one}) for one in positions]
    back = {"group": GROUP, "delayLevel": 1, "maxReconsumeTimes": 16}
    returned = [
        client.ask(Code.CONSUMER_SEND_MSG_BACK, {**back, "offset": one}) for one in positions
    ]
    with Queries(f"ipc://{node.runtime}", timeout_s=PATIENCE_S) as queries:
        found = [queries.message_at(one) for one in positions]
        itself = queries.message_at(second)
    real = client.ask(Code.VIEW_MESSAGE_BY_ID, {"offset": second})
    client.close()

    assert second + BODY_AT == begin
    assert body in bytes(real.body)
    assert itself is not None and bytes(itself.body) == body
    assert all(reply.code != ResponseCode.SUCCESS for reply in views + returned), (views, returned)
    assert found == [None] * len(OFFSETS)
    assert node.stop() == 0
