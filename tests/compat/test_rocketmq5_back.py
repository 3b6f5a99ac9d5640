"""Timers go to a node with RocketMQ 5's directory, and back to the real broker, and come once."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.client import Producer
from ledgermq.remoting.codes import RequestCode
from tests.compat.other_clients import NotToBeHadError
from tests.compat.rocketmq5 import fetch, rocketmq5_serving
from tests.conftest import Golden
from tests.process.conftest import Node, wait_until
from tests.process.remoting_client import RemotingClient
from tests.process.test_delivery import DAY_MS, now_ms, received
from tests.process.test_rocketmq_5_store import STORE
from tests.process.test_state_log import broker_of
from tests.process.test_wheel_timers import BEFORE, set_times
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

SIZES = {
    "mappedFileSizeCommitLog": 1_048_576,
    "mappedFileSizeConsumeQueue": 4_000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 400,
}
WAIT_MS = 45_000
"""Until the timer is due: the node has ended by then."""


def test_rocketmq_5_delivers_at_its_time_what_a_node_hands_back_and_the_node_the_rest(
    make_node: Callable[[], Node],
    golden: Golden,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    try:
        fetch()
    except NotToBeHadError as error:
        pytest.skip(str(error))
    node = make_node()
    shutil.copytree(golden("p551"), node.root)
    node.configure(store=STORE)
    set_times(node.root, DAY_MS, 2 * DAY_MS, 9 * DAY_MS)
    node.serve()
    with Producer(node.address) as producer:
        due = now_ms() + WAIT_MS
        producer.send("timer", b"ours", deliver_at=due, queue_id=2).result()
    assert node.stop() == 0
    words = ["migrate", "back", str(node.root), "--manifest", str(tmp_path / "m"), "--to", "5"]
    status = main([*words, "--json"])
    facts = json.loads(capsys.readouterr().out)

    assert (status, facts["timers_handed_over"]) == (0, 3)
    assert facts["stays"] == ["LEDGERMQ_TIMER: 1 messages, until a node comes"]
    size = facts["mappedFileSizeTimerLog"]
    with rocketmq5_serving(node.root, tmp_path, **SIZES, mappedFileSizeTimerLog=size) as address:
        client = RemotingClient(address)
        queue = {"topic": "timer", "queueId": 2}
        wait_until(
            lambda: client.ask(RequestCode.GET_MAX_OFFSET, queue).fields["offset"] == "2",
            "RocketMQ to deliver the timer",
            PATIENCE_S,
        )
        client.close()
    node.serve()
    found = received(node.address, "timer", 3)
    with broker_of(node.address) as broker:
        wait_until(lambda: broker.timers().waiting == 3, "the timers to be counted", PATIENCE_S)

    assert node.stop() == 0
    (delivered,) = [one for one in found if bytes(one.body) == b"ours"]
    assert delivered.store_timestamp >= due - 1_000
    assert "TIMER_DEQUEUE_MS" in delivered.properties
    assert Counter(bytes(one.body) for one in found) == Counter([*BEFORE, b"ours"])
