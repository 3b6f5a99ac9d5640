"""A running RocketMQ 5.5.1 is replaced by its understudy, and comes back as the node's slave."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from ledgermq.formats.config_json import decode_document
from ledgermq.remoting.codes import RequestCode, ResponseCode
from tests.compat.java_broker import JavaBroker
from tests.compat.other_clients import NotToBeHadError, java5_through
from tests.compat.remoting_group import client_program
from tests.compat.rocket_group5 import RocketGroup5
from tests.compat.test_migrate import RUNS_S, check_through
from tests.compat.test_understudy import SIZES, log_bytes_of_master, status_of
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import Member, add_settings, free_port
from tests.process.remoting_client import RemotingClient
from tests.process.understudy_process import UnderstudyProcess, understudy
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

MASTER = "n0"
TOPIC, GROUPS = "moved", ("m-ordered", "m-concurrent")


def has_tables(store: Path) -> bool:
    """Whether a slave has asked for the topic, and for how far its groups are."""
    tables = []
    for name, key in (("topics", "topicConfigTable"), ("consumerOffset", "offsetTable")):
        path = store / "config" / f"{name}.json"
        if not path.exists():
            return False
        table = decode_document(path.read_bytes()).get(key)
        assert isinstance(table, dict)
        tables.append(table)
    topics, offsets = tables
    return TOPIC in topics and all(f"{TOPIC}@{group}" in offsets for group in GROUPS)


def test_a_master_that_is_killed_is_replaced_under_load_and_its_kind_comes_back(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    node, ha = make_node(), f"127.0.0.1:{free_port()}"
    process = UnderstudyProcess(tmp_path / "understudy", tmp_path / "said")
    with ExitStack() as ends:
        try:
            rocketmq = RocketGroup5(tmp_path, names=[MASTER], **SIZES)
            client = java5_through()
        except NotToBeHadError as error:
            pytest.skip(str(error))
        places = rocketmq.places
        ends.callback(rocketmq.end)
        ends.callback(process.kill)
        rocketmq.start()
        process.add(rocketmq.ha, places[MASTER])
        process.start()
        wait_until(lambda: process.show()["state"] == "following", "it follows", PATIENCE_S)
        # As mqadmin updateBrokerConfig does: from now on it acknowledges what is on two disks.
        admin = RemotingClient(places[MASTER])
        rows = b"brokerRole=SYNC_MASTER\ninSyncReplicas=2\n"
        assert admin.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, rows).code == ResponseCode.SUCCESS
        admin.close()
        java = ends.enter_context(
            client_program(places["namesrv"], client, TOPIC, "m", folder=tmp_path)
        )
        wait_until(lambda: java.has_said("runs"), "producers and consumers", RUNS_S)
        wait_until(lambda: has_tables(process.folder), "its tables", PATIENCE_S)

        rocketmq.end()
        begin = time.monotonic()
        assert process.stop() == 0
        promoted = understudy(
            "promote", "--folder", process.folder, "--settings", node.config,
            "--remoting", places[MASTER], "--name-server", places["namesrv"],
            "--broker-ip", "127.0.0.1", "--runtime-dir", node.runtime,
        )  # fmt: skip
        promoted_s = time.monotonic() - begin
        assert promoted.returncode == 0, promoted.stderr
        add_settings(
            Member(node, MASTER),
            {"listen": {"ha": ha}, "remoting": {"registrations_from": ["127.0.0.1"]}},
        )
        node.serve()
        print(f"promoted {promoted_s:.1f} s, killed to ready {time.monotonic() - begin:.1f} s")
        java.tell("ours")
        wait_until(lambda: java.has_said("through ours "), "clients with us", RUNS_S)

        slave = JavaBroker(5, tmp_path, namesrvAddr=places["namesrv"])
        ends.callback(slave.kill)
        slave.start("SLAVE")
        wait_until(lambda: has_tables(slave.store), "the slave has tables", PATIENCE_S)
        begin = time.monotonic()
        assert node.stop() == 0
        assert log_bytes_of_master(slave.store) == log_bytes_of_master(process.folder)
        slave.stop()
        rocketmq.start("namesrv")
        slave.start("ASYNC_MASTER")
        print(f"stopped to the slave's lead {time.monotonic() - begin:.1f} s")
        java.tell("theirs")
        wait_until(lambda: java.has_said("through theirs "), "clients with RocketMQ", RUNS_S)
        check_through(java)
        slave.stop()

    assert status_of(process).state == "ended"
    assert not node.logged("ERROR")
