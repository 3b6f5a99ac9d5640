"""Slaves of RocketMQ's follow a real node: byte for byte, whoever dies, and whoever else comes."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from ledgermq.client import Producer, ProducerOptions
from ledgermq.client.admin.broker_admins import AccessAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.formats.timer_wheel import TimerCheck
from ledgermq.gateway.slaves.slave_process import PIECE_SIZE
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.ha_frames import REPORT
from tests.process.batch_load import BatchLoad
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import free_port
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node
from tests.process.small_slave import SmallSlave
from tests.process.test_delivery import now_ms
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

SLAVES = 3
KILLS = 8
SEED = 47


class Master:
    """A node with a plain log that slaves may follow.

    Attributes:
        ha, remoting: where they find it.
    """

    def __init__(self, node: Node, *, is_shut: bool = False, **slaves: int) -> None:
        self.node = node
        self.ha = f"127.0.0.1:{free_port()}"
        self.remoting = start_remoting_node(
            node,
            log="commitlog",
            ack="majority-fsync",
            listen={"ha": self.ha},
            access={"enabled": is_shut},
            remoting={"registrations_from": ["127.0.0.1"]},
            supervision={"restarts_max": 1_000},
            slaves={"connections_max": SLAVES, **slaves},
        )

    def send(self, count: int, size: int = 3_000) -> None:
        """Store messages; on return they are acknowledged."""
        options = ProducerOptions(timeout_s=PATIENCE_S)
        with Producer(self.node.address, options=options) as producer:
            bodies = (b"%d " % number + os.urandom(size) for number in range(count))
            sent = [producer.send("orders", body) for body in bodies]
            for one in sent:
                one.result()

    @property
    def end(self) -> int:
        """End of what is committed."""
        found: int = self.node.status()["cursors"]["committed"]["position"]
        return found

    def counter(self, name: str) -> int:
        """One of the process."""
        found: int = self.node.status()["counters"]["slaves"][name]
        return found

    def log(self, begin: int, end: int) -> bytes:
        """What its files have there."""
        files = sorted((self.node.root / "commitlog").iterdir())
        first = int(files[0].name)
        return b"".join(path.read_bytes() for path in files)[begin - first : end - first]


@pytest.fixture
def master(make_node: Callable[[], Node]) -> Master:
    return Master(make_node())


@pytest.fixture
def slave(master: Master) -> Iterator[SmallSlave]:
    with closing(SmallSlave(master.ha)) as made:
        yield made


def test_a_slave_gets_all_files_and_what_comes_then(master: Master, slave: SmallSlave) -> None:
    master.send(900)
    slave.follow(master.end)
    behind = master.end
    master.send(20)
    slave.follow(master.end)

    assert master.end > behind > 2 * 1_048_576
    assert bytes(slave.log) == master.log(0, master.end)
    wait_until(lambda: master.counter("connections") == 1, "it is counted")
    wait_until(lambda: master.counter("behind_bytes") == 0, "it is level")


def test_a_slave_goes_on_anywhere_in_a_record(master: Master) -> None:
    master.send(40)
    end = master.end
    for begin in random.Random(SEED).sample(range(1, end), 12):
        with closing(SmallSlave(master.ha, begin)) as one:
            one.follow(end)
            assert bytes(one.log) == master.log(begin, end), begin


def test_whatever_is_killed_a_slave_has_the_same_bytes(master: Master, slave: SmallSlave) -> None:
    chance = random.Random(SEED)
    with BatchLoad(master.node.address) as load:
        for _ in range(KILLS):
            load.wait_more()
            role = chance.choice(("slaves", "writer", "raft"))
            os.kill(master.node.pid(role), signal.SIGKILL)
            slave.follow(master.end)
            if chance.random() < 0.5:
                slave.close()
    slave.follow(master.end)

    assert bytes(slave.log) == master.log(0, master.end)


def test_a_node_that_stops_gives_its_slaves_the_rest(master: Master, slave: SmallSlave) -> None:
    master.send(10)
    slave.follow(master.end)
    master.send(300)
    end = master.end
    master.node.signal(signal.SIGTERM)
    slave.follow(end)

    assert master.node.wait_end() == 0
    assert bytes(slave.log) == master.log(0, end)


@pytest.mark.parametrize(
    "said",
    [
        REPORT.pack(-1),
        REPORT.pack(-(2**63)),
        # Who is ahead is given five seconds, for what it tells may come before its own log has it.
        REPORT.pack(2**63 - 1),
        pytest.param(REPORT.pack(0) + REPORT.pack(2**62), marks=pytest.mark.long),
        REPORT.pack(64) + REPORT.pack(63),
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
)
def test_who_says_what_no_slave_has_is_let_go_and_nobody_else(
    master: Master, slave: SmallSlave, said: bytes
) -> None:
    master.send(5)
    slave.follow(master.end)
    with closing(SmallSlave(master.ha)) as hostile:
        hostile.connect_saying(said)

        assert hostile.is_let_go()
    wait_until(lambda: master.counter("refused") == 1, "it is counted")
    master.send(5)
    slave.follow(master.end)
    assert bytes(slave.log) == master.log(0, master.end)


def test_who_does_not_read_or_floods_keeps_nobody_from_the_log(
    master: Master, slave: SmallSlave
) -> None:
    master.send(1_500)
    with closing(SmallSlave(master.ha)) as lazy, closing(SmallSlave(master.ha)) as loud:
        for one in (lazy, loud):
            one.connect()
        loud.flood(REPORT.pack(0), seconds=1.0)
        slave.follow(master.end)
        with closing(SmallSlave(master.ha)) as late:
            late.connect_saying(b"")
            assert late.is_let_go()

    assert master.counter("requests_failed") == 0
    assert bytes(slave.log) == master.log(0, master.end)


def test_who_knocks_all_the_time_keeps_nobody_who_is_in_from_the_log(
    master: Master, slave: SmallSlave
) -> None:
    slave.connect()
    knocks = [SmallSlave(master.ha) for _ in range(300)]
    for one in knocks:
        one.connect_saying(b"")
    master.send(300)
    slave.follow(master.end)
    for one in knocks:
        one.close()
    master.send(10)
    slave.follow(master.end)

    assert bytes(slave.log) == master.log(0, master.end)
    assert master.counter("refused") > 0


def test_a_slave_gets_no_more_than_the_rate(make_node: Callable[[], Node]) -> None:
    rate = 1_048_576
    master = Master(make_node(), bytes_per_s=rate)
    master.send(600)
    begun = time.monotonic()
    with closing(SmallSlave(master.ha)) as slave:
        slave.follow(master.end)

    assert time.monotonic() - begun > (master.end - PIECE_SIZE) / rate > 1


def test_a_slave_that_registers_here_is_told_where_it_gets_all(master: Master) -> None:
    fields = {
        "brokerName": "broker-a",
        "brokerAddr": "127.0.0.1:30911",
        "clusterName": "DefaultCluster",
        "brokerId": "1",
        "haServerAddr": "127.0.0.1:30912",
    }
    client = RemotingClient(master.remoting)
    reply = client.ask(RequestCode.REGISTER_BROKER, fields)
    asked = client.ask(RequestCode.GET_BROKER_CLUSTER_INFO, {})
    client.close()

    assert reply.code == 0, reply.remark
    assert reply.fields["haServerAddr"] == master.ha
    assert reply.fields["masterAddr"].endswith(master.remoting.rpartition(":")[2])
    rows = json.loads(bytes(asked.body))["brokerAddrTable"].values()
    assert all("1" not in row["brokerAddrs"] for row in rows)


ASKED = (
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_TIMER_CHECK_POINT,
    RequestCode.GET_TIMER_METRICS,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
)


def test_a_slave_that_does_not_sign_is_known_by_its_address(make_node: Callable[[], Node]) -> None:
    master = Master(make_node(), is_shut=True)
    client = RemotingClient(master.remoting)
    before = {client.ask(code).code for code in ASKED}
    with connect_broker(master.node.address, name="operator", timeout_s=PATIENCE_S) as broker:
        admin = AccessAdmin(broker)
        admin.set_user("slave", {"whiteRemoteAddress": "127.0.0.1"}, mode="add")
    after = {client.ask(code).code for code in ASKED}
    checkpoint = TimerCheck.read(bytes(client.ask(RequestCode.GET_TIMER_CHECK_POINT).body))
    client.close()

    assert before == {ResponseCode.NO_PERMISSION}
    assert after == {ResponseCode.SUCCESS}
    assert checkpoint is not None
    assert 0 < now_ms() - checkpoint.delivered_before < PATIENCE_S * 1_000
