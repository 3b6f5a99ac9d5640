"""Messages taken singly from a group of three, and through port processes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledgermq.client import Admin
from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.codes import ResponseCode
from tests.compat.remoting_group import make_remoting_group
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC
from tests.process.port_processes import one_at_each
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node
from tests.process.remoting_pops import (
    Taken,
    ack,
    acks_body,
    assigned,
    change,
    pop,
    pop_fields,
    popped,
    set_mode,
)
from tests.process.remoting_steps import beat, beat_when_leading, offset_fields, send
from tests.process.test_remoting_election import connected, port_of

pytestmark = pytest.mark.slow

GROUP = "workers"
LONG_MS = 30_000
BODIES = [b"%d" % number for number in range(60)]


@pytest.mark.long(but=1)
@pytest.mark.parametrize("processes", [1, 2])
def test_deliveries_outlive_their_leader_and_followers_hand_acknowledgements_on(
    make_node: Callable[[], Node], processes: int
) -> None:
    group, _ = make_remoting_group(make_node, tables={"remoting": {"processes": processes}})
    leader = group.leader()
    at_leader = connected(port_of(leader))
    beat_when_leading(at_leader, "a", TOPIC)
    send(at_leader, TOPIC, 0, *BODIES)
    taken: list[Taken] = []
    # What is acknowledged is dispatched a while later.
    wait_until(
        lambda: taken.extend(pop(at_leader, TOPIC, GROUP).taken) or len(taken) == len(BODIES),
        "all to be taken",
    )
    follower = group.others(leader)[0]
    at_follower = connected(port_of(follower))
    # A follower hands on once it has heard who leads; until then it refuses.
    first = taken[0]
    wait_until(lambda: ack(at_follower, first, GROUP).code == 0, "a follower to hand on")
    by_follower = [ack(at_follower, one, GROUP).code for one in taken[1:5]]
    several = at_follower.ask(Code.BATCH_ACK_MESSAGE, body=acks_body(taken[5:10], GROUP))
    renewed = change(at_follower, taken[10], GROUP, LONG_MS)
    refused = at_follower.ask(Code.POP_MESSAGE, pop_fields(TOPIC, GROUP))
    leader.kill()
    at_leader.close()
    at_follower.close()
    after = connected(port_of(group.leader(besides=leader)))
    wait_until(lambda: ack(after, taken[10], GROUP).code == 0, "an acknowledgement to be taken")
    rest = [ack(after, one, GROUP).code for one in taken[11:]]
    left = pop(after, TOPIC, GROUP)
    with Admin(group.leader(besides=leader).address) as admin:
        unsettled = admin.shared_group(GROUP).unsettled
    after.close()

    assert [one.body for one in taken] == BODIES
    assert by_follower == [0] * 4
    assert (several.code, renewed.code) == (0, 0)
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert set(rest) == {0}
    assert (left.taken, unsettled) == ([], 0)
    assert group.stop() == [0, 0]


def test_port_processes_take_messages_of_one_broker(make_node: Callable[[], Node]) -> None:
    node = make_node()
    address = start_remoting_node(node, remoting={"processes": 3})
    first = RemotingClient(address)
    beat_when_leading(first, "a", "orders", group=GROUP)
    clients = list(one_at_each(node, address).values())
    for number, client in enumerate(clients):
        beat(client, f"c{number}", "orders", group=GROUP)
    mode = set_mode(first, "orders", GROUP, "POP")
    ways = [assigned(client, "orders", GROUP, f"c{at}") for at, client in enumerate(clients)]
    waiting = [
        client.send(Code.POP_MESSAGE, pop_fields("orders", GROUP, maxMsgNums=1, pollTime=LONG_MS))
        for client in clients
    ]
    fields = offset_fields("orders", -1, group=GROUP)

    def polls() -> str:
        return first.ask(Code.POLLING_INFO, fields).fields["pollingNum"]

    wait_until(lambda: polls() == str(len(clients)), "all wait")
    gone = clients.pop()
    waiting.pop()
    gone.close()
    wait_until(lambda: polls() == str(len(clients)), "one waits less")
    send(first, "orders", 0, *(b"%d" % number for number in range(len(clients))))
    found = [popped(client.reply_to(at)) for client, at in zip(clients, waiting, strict=True)]
    codes = [
        ack(client, one, GROUP).code
        for client, reply in zip(reversed(clients), found, strict=True)
        for one in reply.taken
    ]
    for client in (*clients, first):
        client.close()
    with Admin(node.address) as admin:
        unsettled = admin.shared_group(GROUP).unsettled

    assert mode.code == 0
    assert ways == [[("POP", -1)]] * 3
    assert sorted(body for reply in found for body in reply.bodies) == [b"0", b"1"]
    assert codes == [0, 0]
    assert unsettled == 0
    assert node.stop() == 0


def test_a_group_that_is_new_at_the_end_has_what_comes_later_in_each_queue(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    # Nothing counts as in memory: RocketMQ would read a young queue from its first message.
    address = start_remoting_node(node, reads={"access_message_in_memory_max_ratio": 0})
    client = RemotingClient(address)
    beat_when_leading(client, "a", "orders")
    send(client, "orders", 0, b"before")
    send(client, "orders", 1, b"before")
    nothing = pop(client, "orders", GROUP, initMode=1)
    send(client, "orders", 0, b"after 0")
    send(client, "orders", 1, b"after 1")
    later = pop(client, "orders", GROUP, initMode=1)
    first = pop(client, "orders", f"{GROUP}-first", initMode=0)
    client.close()

    assert nothing.taken == []
    assert sorted(later.bodies) == [b"after 0", b"after 1"]
    assert sorted(first.bodies) == [b"after 0", b"after 1", b"before", b"before"]
    assert node.stop() == 0
