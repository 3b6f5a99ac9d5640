"""The real RocketMQ follows a node as its slave, and takes its place when it is gone."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.store.wheel_files import WheelFiles
from tests.compat.java_broker import JavaBroker
from tests.compat.other_clients import NotToBeHadError
from tests.compat.remoting_group import java_program, run_java
from tests.compat.rocketmq import BROKER, START_TIMEOUT_S, oracle_program
from tests.compat.rocketmq5 import fetch
from tests.compat.test_name_server import NAME_SERVER
from tests.compat.test_understudy import (
    GROUP,
    QUEUES,
    TOPIC,
    acknowledged,
    commit,
    consumed,
    loaded,
    log_bytes_of_master,
    offsets_in,
)
from tests.conftest import Golden
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import free_port
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node
from tests.process.remoting_steps import messages_of, pull_fields
from tests.process.test_delivery import DAY_MS, now_ms, received
from tests.process.test_rocketmq_5_store import STORE
from tests.process.test_wheel_timers import set_times
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

KILLS = 3
READ_ON = Path(__file__).with_name("ReadOn.java")
LATER_MS = 150_000
"""Until the timer is due: the slave is the master by then."""


def slave_of(product: int, folder: Path, master: str, ha: str) -> JavaBroker:
    """A broker that may follow the node with the port ``master``, which is its name server, too."""
    rows = {"namesrvAddr": master, "slaveReadEnable": "true"}
    # RocketMQ 5 forgets it when it starts, and asks nobody for another one then.
    return JavaBroker(product, folder, **rows, **({"haMasterAddress": ha} if product == 4 else {}))


def read_all(address: str) -> dict[tuple[int, int], bytes]:
    """All messages of the topic that a broker gives, by queue and offset."""
    found: dict[tuple[int, int], bytes] = {}
    client = RemotingClient(address)
    for queue_id in range(QUEUES):
        offset, code = 0, ResponseCode.SUCCESS
        while code == ResponseCode.SUCCESS:
            fields = pull_fields(TOPIC, queue_id, offset, group=GROUP, subscription="*")
            reply = client.ask(RequestCode.PULL_MESSAGE, fields)
            messages = messages_of(reply)
            found |= {(queue_id, one.queue_offset): bytes(one.body) for one in messages}
            code, offset = reply.code, int(reply.fields["nextBeginOffset"])
    client.close()
    return found


class Master:
    """A node that is followed, and what it has acknowledged.

    Attributes:
        address, ha: of its port, and where it gives its log.
    """

    def __init__(self, node: Node, **remoting: object) -> None:
        """It serves.

        Args:
            remoting: more settings of the port.
        """
        self.node = node
        self.ha = f"127.0.0.1:{free_port()}"
        self.address = start_remoting_node(
            node,
            log="commitlog",
            ack="majority-fsync",
            node={"broker_name": BROKER, "broker_cluster_name": BROKER},
            listen={"ha": self.ha},
            remoting={"registrations_from": ["127.0.0.1"], **remoting},
        )
        self.stored: dict[tuple[int, int], bytes] = {}

    def produce(self, count: int, *, killed: bool = False) -> None:
        """Send until so many are acknowledged, up to its death if it is ``killed`` then."""
        with loaded(self.address) as load:
            wait_until(lambda: len(acknowledged(load)) >= count, "messages")
            if killed:
                self.node.end()
        self.stored |= acknowledged(load)

    @property
    def end(self) -> int:
        """End of what is committed."""
        found: int = self.node.status()["cursors"]["committed"]["position"]
        return found

    def check_followed(self, java: JavaBroker) -> None:
        """A slave gets what there is, and nothing else."""
        end = self.end
        wait_until(lambda: len(log_bytes_of_master(java.store)) >= end, "the slave is level")

        assert log_bytes_of_master(java.store) == log_bytes_of_master(self.node.root)


@pytest.mark.parametrize("product", [4, 5])
def test_a_slave_has_each_byte_whoever_is_killed_and_becomes_the_master(
    make_node: Callable[[], Node], tmp_path: Path, product: int
) -> None:
    """RocketMQ 4.9.4 and 5.5.1."""
    if product == 5:
        try:
            fetch()
        except NotToBeHadError as error:
            pytest.skip(str(error))
    master = Master(make_node())
    java = slave_of(product, tmp_path, master.address, master.ha)
    with ExitStack() as ends:
        ends.callback(java.kill)
        master.produce(200)
        java.start("SLAVE")
        master.produce(50)
        master.check_followed(java)
        for _ in range(KILLS):
            java.kill()
            master.produce(50)
            java.start("SLAVE")
            master.produce(50, killed=True)
            master.node.serve()
            master.produce(10)
            master.check_followed(java)
        client = RemotingClient(master.address)
        for queue_id in range(QUEUES):
            commit(client, queue_id, 7 + queue_id)
        client.close()
        wanted = {str(queue_id): 7 + queue_id for queue_id in range(QUEUES)}
        wait_until(lambda: offsets_in(java.store) == wanted, "offsets are followed")
        # Some that were on their way when the node was killed are there, too.
        there = read_all(master.address)
        assert master.stored.items() <= there.items()
        wait_until(lambda: read_all(java.address) == there, "the slave gives them")
        master.produce(100)
        there, end = read_all(master.address), master.end
        assert master.node.stop() == 0
        before = log_bytes_of_master(java.store)
        assert before == log_bytes_of_master(master.node.root)
        assert len(before) == end
        wait_until(lambda: read_all(java.address) == there, "the slave gives them alone")
        java.stop()
        java.start("ASYNC_MASTER")
        assert consumed(java.address) == {queue: str(7 + queue) for queue in range(QUEUES)}
        with loaded(java.address) as load:
            wait_until(lambda: len(acknowledged(load)) >= 20, "messages of the new master")
        after = acknowledged(load)
        assert not there.keys() & after.keys()
        wait_until(lambda: read_all(java.address) == there | after, "old and new")
        java.stop()
    assert log_bytes_of_master(java.store)[:end] == before


def test_javas_consumers_read_from_the_slave_when_the_node_is_gone(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    """RocketMQ 4.9.4, whose name server tells the slave where the log is, and consumers of both."""
    oracle_program()
    names = f"127.0.0.1:{free_port()}"
    config = tmp_path / "namesrv.conf"
    config.write_text(f"listenPort={names.rpartition(':')[2]}\n")
    with ExitStack() as ends:
        java = ends.enter_context(java_program("", NAME_SERVER, "-c", str(config), folder=tmp_path))
        wait_until(lambda: java.has_said("The Name Server boot success"), "it", START_TIMEOUT_S)
        master = Master(make_node(), name_servers=[names])
        master.produce(60)
        slave = JavaBroker(4, tmp_path, namesrvAddr=names, slaveReadEnable="true")
        ends.callback(slave.kill)
        slave.start("SLAVE")
        topics = slave.store / "config" / "topics.json"
        wait_until(
            lambda: topics.exists() and f'"{TOPIC}"' in topics.read_text(), "the slave has topics"
        )
        master.check_followed(slave)
        count = len(read_all(master.address))
        master.node.end()
        words = [str(READ_ON), names, "readers", TOPIC, str(count)]
        lines = run_java(names, *words, folder=tmp_path)

    found = [tuple(map(int, line.split()[1:])) for line in lines if line.startswith("read ")]
    assert len(found) == count
    assert set(found) >= master.stored.keys()


def test_a_slave_that_becomes_the_master_delivers_what_its_wheel_has_and_nothing_again(
    make_node: Callable[[], Node], golden: Golden, tmp_path: Path
) -> None:
    """RocketMQ 5.5.1: its directory goes to a node, and the way back is a slave."""
    try:
        fetch()
    except NotToBeHadError as error:
        pytest.skip(str(error))
    node, ha, port = make_node(), f"127.0.0.1:{free_port()}", free_port()
    address = f"127.0.0.1:{port}"
    shutil.copytree(golden("p551"), node.root)
    _, due, _ = set_times(node.root, 2_000, LATER_MS, DAY_MS)
    node.configure(
        store=STORE,
        node={"broker_name": BROKER, "broker_cluster_name": BROKER, "listen_port": port},
        listen={"ha": ha, "remoting": address},
        remoting={"registrations_from": ["127.0.0.1"]},
    )
    node.serve()
    java = slave_of(5, tmp_path, address, ha)
    with ExitStack() as ends:
        ends.callback(java.kill)
        java.start("SLAVE")
        before = received(node.address, "timer", 3)

        def has_wheel() -> bool:
            check = WheelFiles(java.store).check()
            return check is not None and check.enqueued == check.master_enqueued > 0

        wait_until(has_wheel, "the slave has its wheel", PATIENCE_S)
        topics = java.store / "config" / "topics.json"

        def has_topics() -> bool:
            return topics.exists() and '"timer"' in topics.read_text()

        # Once a minute.
        wait_until(has_topics, "the slave has topics", PATIENCE_S)
        assert node.stop() == 0
        assert log_bytes_of_master(java.store) == log_bytes_of_master(node.root)
        java.stop()
        java.start("ASYNC_MASTER")
        assert now_ms() < due, "slow: LATER_MS"
        client = RemotingClient(java.address)
        ends.callback(client.close)

        def delivered() -> list[bytes]:
            found = []
            for queue_id in range(QUEUES):
                fields = pull_fields("timer", queue_id, 0, group=GROUP, subscription="*")
                reply = client.ask(RequestCode.PULL_MESSAGE, fields)
                found += [bytes(one.body) for one in messages_of(reply)]
            return sorted(found)

        known = sorted(bytes(one.body) for one in before)
        assert delivered() == known
        wait_until(lambda: len(delivered()) > len(known), "the timer that was due", PATIENCE_S)
        assert now_ms() >= due
        assert Counter(delivered()) == Counter([*known, b"timer 7200000"])
        java.stop()
