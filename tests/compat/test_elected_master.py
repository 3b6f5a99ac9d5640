"""A broker set of RocketMQ 5.5.1 with a controller: it is followed, also when another one leads."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ledgermq.cli.main import main
from ledgermq.remoting.codes import ResponseCode
from tests.compat.broker_set import BrokerSet, SetBroker, broker_set
from tests.compat.other_clients import NotToBeHadError
from tests.compat.rocketmq5 import fetch
from tests.compat.test_understudy import (
    SIZES,
    Load,
    acknowledged,
    compare,
    loaded,
    log_bytes_of_master,
    promoted,
    status_of,
    wait_level,
)
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import free_port
from tests.process.remoting_client import RemotingClient
from tests.process.test_delivery import received
from tests.process.understudy_process import UnderstudyProcess
from tests.suite.patience import PATIENCE_S
from tests.unit.understudy.test_received_log import log_bytes

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

GET_HA_STATUS = 907
MESSAGES = 60
UNCONFIRMED = 2


@pytest.fixture(autouse=True)
def _at_hand() -> None:
    try:
        fetch()
    except NotToBeHadError as error:
        pytest.skip(str(error))


def connections(broker: SetBroker) -> list[dict[str, Any]]:
    """Who has the master's log, as it says."""
    client = RemotingClient(broker.address)
    body = client.ask(GET_HA_STATUS).body
    client.close()
    found: list[dict[str, Any]] = json.loads(bytes(body))["haConnectionInfo"]
    return found


def fill(broker: SetBroker) -> Load:
    with loaded(broker.address) as load:
        wait_until(lambda: len(acknowledged(load)) >= MESSAGES, "messages")
    codes = [one.code for one in load.stored]
    # One that was elected just now does not take any at once.
    taken = codes.index(ResponseCode.SUCCESS)
    assert set(codes[:taken]) <= {ResponseCode.SERVICE_NOT_AVAILABLE}
    assert set(codes[taken:]) == {ResponseCode.SUCCESS}
    return load


def both_in_sync(brokers: BrokerSet) -> tuple[SetBroker, SetBroker, Load]:
    first, second = brokers.brokers
    first.start()
    brokers.wait_master(first)
    # Nobody is in sync with a log that is empty.
    before = fill(first)
    second.start()
    wait_until(lambda: any(one["inSync"] for one in connections(first)), "both in sync", PATIENCE_S)
    return first, second, before


def test_what_a_master_alone_had_is_taken_back_when_another_one_is_elected(
    make_node: Callable[[], Node], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process = UnderstudyProcess(tmp_path / "understudy", tmp_path / "said")
    with ExitStack() as ends:
        brokers = ends.enter_context(broker_set(tmp_path, **SIZES, allAckInSyncStateSet="true"))
        ends.callback(process.kill)
        first, second, before = both_in_sync(brokers)
        # The one that is asked need not be the master.
        process.add(second.ha, second.address)
        process.start()
        between = fill(first)
        wait_level(process, first.root)
        wait_until(
            lambda: status_of(process).unconfirmed_bytes == 0, "it hears that all is confirmed"
        )
        compare(process, first.root)
        assert sorted(one["inSync"] for one in connections(first)) == [False, True]

        second.pause()
        lone = Load(first.address, seed=UNCONFIRMED)
        lone.stored += [lone.send() for _ in range(UNCONFIRMED)]
        lone._client.close()
        assert {one.code for one in lone.stored} == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
        wait_until(
            lambda: status_of(process).durable == len(log_bytes_of_master(first.root)),
            "the understudy has what the other broker has not",
        )
        assert status_of(process).unconfirmed_bytes > 0
        held = log_bytes(process.folder)
        # In this order: it leaves a set that nobody is left of.
        first.kill()
        second.kill()
        second.start()
        brokers.wait_master(second)
        after = fill(second)
        wait_level(process, second.root)
        compare(process, second.root)
        followed = process.show()
        second.stop()
        wait_until(lambda: process.show()["state"] == "away", "the master is away")
        assert process.stop() == 0

    assert all(one.body in held for one in lone.stored)
    assert not any(one.body in log_bytes(process.folder) for one in lone.stored)
    assert "takes back" in process.said.read_text()
    assert followed["remoting"] == second.address
    node = make_node()
    assert promoted(process, node, free_port()) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["behind_the_master"], facts["unconfirmed"]) == (0, 0)
    assert main(["store", "check", str(process.folder)]) == 0
    node.serve()
    expected = {**acknowledged(before), **acknowledged(between), **acknowledged(after)}
    found = received(node.address, "followed", len(expected))
    assert {(one.queue_id, one.queue_offset): bytes(one.body) for one in found} == expected
    assert node.stop() == 0


def test_the_directory_of_a_master_that_was_killed_is_taken_and_said_how_far_it_is_confirmed(
    make_node: Callable[[], Node], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with broker_set(tmp_path, **SIZES, allAckInSyncStateSet="true") as brokers:
        first, second, before = both_in_sync(brokers)
        second.pause()
        lone = Load(first.address, seed=UNCONFIRMED)
        lone.stored += [lone.send() for _ in range(UNCONFIRMED)]
        lone._client.close()
        first.kill()
    node = make_node()
    node.root = first.root
    node.configure(
        store={
            "path_root_dir": str(node.root),
            "log": "commitlog",
            "mapped_file_size_commit_log": SIZES["mappedFileSizeCommitLog"],
            "mapped_file_size_consume_queue": SIZES["mappedFileSizeConsumeQueue"],
            "max_hash_slot_num": SIZES["maxHashSlotNum"],
            "max_index_num": SIZES["maxIndexNum"],
        }
    )
    conf = first.home / "broker.conf"
    assert main(["migrate", "check", str(conf), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["store_of"] == "RocketMQ 5, controller"
    (said,) = [text for text in facts["taken_over"] if "confirmed" in text]
    assert f" {UNCONFIRMED} messages" in said
    assert "epoch 1" in said
    node.serve()
    expected = {**acknowledged(before), **acknowledged(lone)}
    found = received(node.address, "followed", len(expected))
    assert {(one.queue_id, one.queue_offset): bytes(one.body) for one in found} == expected
    assert node.stop() == 0
