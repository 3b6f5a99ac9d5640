"""Clients that are given names: nodes that one name stands for, as its records come and go."""

from __future__ import annotations

import asyncio
import os
import select
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import zmq

from ledgermq.client import Admin, Consumer, Producer, ProducerOptions
from ledgermq.client.aio import AsyncProducer
from ledgermq.client.core.address import parse_addresses
from ledgermq.client.core.link import GRACE_S
from ledgermq.client.core.nodes import broker_link
from ledgermq.hosts.host_name import ANSWER_S, HostName
from ledgermq.model.errors import ConfigError, LedgerError, NoPermissionError, NotLeaderError
from ledgermq.wire.session import FOLLOWER, LEADER, Standing
from tests.process.conftest import wait_until
from tests.process.name_server import NameServer
from tests.process.own_network import in_own_network
from tests.suite.patience import PATIENCE_S
from tests.unit.client.peer import Log, Peer

pytestmark = pytest.mark.slow
PRODUCE, CONSUME = 7_001, 7_002
HOSTS = ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
ADDRESS = f"tcp://nodes.test:{CONSUME}"


class Nodes:
    """Nodes of one group, each at a host of its own, all at the same ports."""

    def __init__(self) -> None:
        self.log = Log()
        self._running: list[Peer] = []

    def start(self, host: str, name: str, *, leader: str = "n0", term: int = 1) -> Peer:
        role = LEADER if name == leader else FOLLOWER
        peer = Peer(
            node=name,
            log=self.log,
            standing=Standing(role, term, leader),
            over_tcp=True,
            host=host,
            ports=(str(PRODUCE), str(CONSUME)),
        )
        self._running.append(peer)
        return peer

    def stop(self, peer: Peer) -> None:
        self._running.remove(peer)
        peer.close()

    def close(self) -> None:
        for peer in list(self._running):
            self.stop(peer)


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    made = Nodes()
    yield made
    made.close()


@pytest.fixture
def names() -> Iterator[NameServer]:
    with NameServer() as server:
        yield server


def send(producer: Producer, body: bytes) -> None:
    producer.send("T", body, queue_id=0).result(PATIENCE_S)


@in_own_network
def test_a_name_stands_for_all_nodes_of_its_records_and_new_ones_are_found(
    nodes: Nodes, names: NameServer
) -> None:
    first, second = nodes.start(HOSTS[0], "n0"), nodes.start(HOSTS[1], "n1")
    names.set("nodes", *HOSTS[:2])
    with Producer(ADDRESS) as producer:
        send(producer, b"a")
        third = nodes.start(HOSTS[2], "n2")
        names.set("nodes", *HOSTS[1:])
        # Nobody else tells of the third one.
        nodes.stop(first)
        second.tell(FOLLOWER, 2, "n2")
        third.tell(LEADER, 2, "n2")
        send(producer, b"b")

    assert third.stored() == [b"a", b"b"]
    assert [len(peer.seen) for peer in (first, second, third)] == [1, 0, 1]


@in_own_network
def test_a_node_that_comes_back_at_another_address_is_waited_for_until_it_listens(
    nodes: Nodes, names: NameServer
) -> None:
    old = nodes.start(HOSTS[0], "n0")
    names.set("nodes", HOSTS[0])
    link = broker_link(zmq.Context.instance(), parse_addresses(ADDRESS), client="test")

    def look() -> None:
        link.receive()
        link.advance(time.monotonic())
        assert link.failure is None

    def finds(host: str) -> bool:
        look()
        return host in str(link.unreachable())

    def stands() -> bool:
        look()
        return link.welcome is not None

    wait_until(stands, "a session")
    nodes.stop(old)
    names.set("nodes", HOSTS[1])
    wait_until(lambda: finds(HOSTS[1]), "the new address")
    until = time.monotonic() + 3 * GRACE_S
    while time.monotonic() < until:
        look()
        select.select(link.descriptors, (), (), 0.01)
    nodes.start(HOSTS[1], "n0", term=2)
    wait_until(stands, "a session with the node that has moved")
    link.close()


@in_own_network
def test_a_node_whose_address_changes_is_found_again_and_gets_what_it_has_not_answered(
    nodes: Nodes, names: NameServer
) -> None:
    old = nodes.start(HOSTS[0], "n0")
    names.set("nodes", HOSTS[0])
    with Producer(ADDRESS, options=ProducerOptions(timeout_s=PATIENCE_S)) as producer:
        send(producer, b"a")
        old.silent = True
        unanswered = producer.send("T", b"b", queue_id=0)
        wait_until(lambda: len(old.seen) == 2, "the second message")
        nodes.stop(old)
        new = nodes.start(HOSTS[1], "n0")
        names.set("nodes", HOSTS[1])
        unanswered.result(PATIENCE_S)
        with Consumer(ADDRESS, topic="T", queues=[0]) as consumer:
            read = [message.body for message in islice(consumer, 2)]

    assert read == [b"a", b"b"]
    assert [seen.is_retry for seen in new.seen] == [True]


@in_own_network
def test_what_works_does_not_end_because_a_resolver_leaves_its_address_out(
    nodes: Nodes, names: NameServer
) -> None:
    leader, other = nodes.start(HOSTS[0], "n0"), nodes.start(HOSTS[1], "n1")
    names.set("nodes", *HOSTS[:2])
    with Producer(f"{ADDRESS}?resolve_s=1") as producer:
        send(producer, b"a")
        connections = len({seen.connection for seen in leader.seen})
        names.set("nodes", HOSTS[1])
        asked = len(names.asked)

        def is_asked_twice() -> bool:
            send(producer, b"b")
            return len(names.asked) >= asked + 4

        wait_until(is_asked_twice, "two questions after a second each")
        names.set("nodes")
        asked = len(names.asked)
        wait_until(is_asked_twice, "two questions for what is not there any more")

    assert connections == len({seen.connection for seen in leader.seen}) == 1
    assert other.seen == []


@in_own_network
def test_a_new_record_is_found_though_nothing_fails(nodes: Nodes, names: NameServer) -> None:
    nodes.start(HOSTS[0], "n0")
    other = nodes.start(HOSTS[1], "n1")
    names.set("nodes", HOSTS[0])
    with Producer(f"{ADDRESS}?resolve_s=1") as producer:
        send(producer, b"a")
        names.set("nodes", *HOSTS[:2])

        def is_greeted() -> bool:
            send(producer, b"b")
            return other.hellos > 0

        wait_until(is_greeted, "a connection to the new node")


@in_own_network
def test_a_name_that_nobody_knows_is_named_by_the_error_and_is_asked_for_again(
    nodes: Nodes, names: NameServer
) -> None:
    nodes.start(HOSTS[0], "n0")
    refused = r"not resolved.*nodes\.test"
    with Producer(ADDRESS) as producer:
        with pytest.raises(ConfigError, match=refused):
            send(producer, b"a")
        with Admin(ADDRESS) as admin, pytest.raises(ConfigError, match=refused):
            admin.topics()
        asyncio.run(_refused_in_a_loop(refused))
        names.set("nodes", HOSTS[0])

        def is_sent() -> bool:
            try:
                send(producer, b"b")
            except ConfigError:
                return False
            return True

        wait_until(is_sent, "the same producer to find it")

    assert nodes.log.bodies() == [b"b"]


async def _refused_in_a_loop(refused: str) -> None:
    with pytest.raises(ConfigError, match=refused):
        async with AsyncProducer(ADDRESS) as producer:
            await producer.send("T", b"a")


@in_own_network
def test_what_nobody_knows_is_noted_only_where_others_work(
    nodes: Nodes, names: NameServer, caplog: pytest.LogCaptureFixture
) -> None:
    nodes.start(HOSTS[0], "n0")
    names.set("nodes", HOSTS[0])
    with Producer(f"tcp://gone.test:{CONSUME},{ADDRESS}") as producer:

        def is_noted() -> bool:
            send(producer, b"a")
            return "name=gone.test" in caplog.text

        wait_until(is_noted, "a line")
        for _ in range(3):
            send(producer, b"a")

    # For its broker and its writer.
    assert caplog.text.count("name=gone.test") <= 2


@in_own_network
def test_a_resolver_that_hangs_stops_nothing_that_is_connected(
    nodes: Nodes, names: NameServer
) -> None:
    leader = nodes.start(HOSTS[0], "n0")
    names.set("nodes", HOSTS[0])
    with Producer(f"{ADDRESS},tcp://hangs.test:{CONSUME}?resolve_s=1") as producer:
        names.is_silent = False
        send(producer, b"a")
        names.is_silent = True
        wait_until(lambda: _asking_threads() == 1, "a question that hangs")
        began = time.monotonic()
        for _ in range(100):
            send(producer, b"b")
        took_s = time.monotonic() - began
        still = _asking_threads()
        asyncio.run(_sends_in_a_loop())

    assert len(leader.seen) >= 101
    # The server's patience is 30 s: nothing of that was waited for.
    assert (still, took_s < ANSWER_S) == (1, True)


async def _sends_in_a_loop() -> None:
    """A loop whose names hang goes round all the same, and says why nothing is sent."""
    producer = AsyncProducer(ADDRESS, options=ProducerOptions(timeout_s=1))
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    turning = asyncio.create_task(turn())
    with pytest.raises(NotLeaderError, match=r"nodes\.test.*looked up"):
        async with producer:
            await producer.send("T", b"c")
    turning.cancel()
    assert turns > 20


def _asking_threads() -> int:
    return sum(thread.name == "ledgermq-names" for thread in threading.enumerate())


@in_own_network
def test_who_asks_for_a_name_at_the_same_time_shares_one_question(names: NameServer) -> None:
    names.set("nodes", *HOSTS, "::1")
    names.is_silent = True
    asking = [HostName("nodes.test") for _ in range(20)]
    now = time.monotonic()
    for one in asking:
        one.ask(now)
    threads = _asking_threads()
    early = [one.take(now) for one in asking]
    late = [one.take(now + ANSWER_S) for one in asking]
    # The resolver asks again when the server has not answered for 30 s: that is not waited for.
    names.is_silent = False
    fresh = HostName("other.test")
    fresh.ask(now)
    fresh.wait(PATIENCE_S)

    assert (threads, any(early), all(late)) == (1, False, True)
    assert asking[0].failure == "the resolver has not answered for 5 s"
    assert fresh.take(now) and fresh.is_unknown and fresh.addresses == ()


@in_own_network
def test_addresses_of_both_kinds_are_tried(nodes: Nodes, names: NameServer) -> None:
    names.set("four", "::1", HOSTS[0])
    names.set("six", "::1", HOSTS[1])
    nodes.start(HOSTS[0], "n0")
    for name in ("four", "six"):
        with Producer(f"tcp://{name}.test:{CONSUME}") as producer:
            send(producer, name.encode())
        nodes.close()
        nodes.start("[::1]", "n0")

    assert nodes.log.bodies() == [b"four", b"six"]


@in_own_network
def test_one_node_by_name_is_asked_whatever_it_is(nodes: Nodes, names: NameServer) -> None:
    nodes.start(HOSTS[1], "n1", leader="n0")
    names.set("nodes", HOSTS[1])
    with Admin(ADDRESS) as admin:
        assert [topic.topic for topic in admin.topics()] == ["T"]


@pytest.mark.long
@in_own_network
def test_a_node_with_another_key_is_none_wherever_its_name_leads(
    names: NameServer, tmp_path: Path
) -> None:
    """The key is checked, as the client's file has it; who answers for the name does not count."""
    names.set("nodes", HOSTS[0])
    server, impostor, own = zmq.curve_keypair(), zmq.curve_keypair(), zmq.curve_keypair()
    keys = tmp_path / "keys"
    keys.write_text(
        f'server = "{server[0].decode()}"\npublic = "{own[0].decode()}"\n'
        f'secret = "{own[1].decode()}"\n'
    )
    keys.chmod(0o600)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_SECRETKEY, impostor[1])
    socket.bind(f"tcp://{HOSTS[0]}:{CONSUME}")
    for address, error, timeout_s in (
        (f"{ADDRESS}?keys={keys}", (NotLeaderError, NoPermissionError), 1),
        (ADDRESS, (NoPermissionError,), 10),
    ):
        with (
            Producer(address, options=ProducerOptions(timeout_s=timeout_s)) as producer,
            pytest.raises(error, match=HOSTS[0]),
        ):
            send(producer, b"a")
    told = socket.poll(0)
    context.destroy(linger=0)

    assert not told


@in_own_network
def test_a_forked_process_sends_nothing_of_its_parents(nodes: Nodes, names: NameServer) -> None:
    """Also where the name is known there first: its links would not be the parent's."""
    names.is_silent = True
    with Producer(ADDRESS) as producer:
        nodes.start(HOSTS[0], "n0")
        child = os.fork()
        if not child:
            code = 3
            try:
                code = _is_refused_here(producer)
            finally:
                # Nothing of the test goes on here.
                os._exit(code)
        _, status = os.waitpid(child, 0)

    assert (os.waitstatus_to_exitcode(status), nodes.log.bodies()) == (0, [])


def _is_refused_here(producer: Producer) -> int:
    try:
        send(producer, b"a")
    except LedgerError as error:
        return int("forked" not in str(error))
    return 2
