"""Timers of RocketMQ 5's wheel: whoever has the directory delivers each once, at its time."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.formats.timer_wheel import TimerCheck
from ledgermq.store.origin import Product, origin_of
from ledgermq.store.wheel_files import WheelFiles
from tests.conftest import Golden
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import Member, make_group
from tests.process.test_delivery import DAY_MS, received
from tests.process.test_rocketmq_5_store import STORE
from tests.process.test_state_log import broker_of
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

TIMES = re.compile(rb"TIMER_OUT_MS\x01([0-9]{13})")
BEFORE = [b"timer 1500", b"timer 4000"]
"""What RocketMQ had delivered itself."""


def set_times(root: Path, *ahead_ms: int) -> list[int]:
    """Have the three messages that wait due so long after now; RocketMQ stopped a while ago."""
    now_ms = int(time.time() * 1_000)
    log = root / "commitlog" / f"{0:020d}"
    content = bytearray(log.read_bytes())
    # The first two are delivered, and stand twice.
    found = [one.start(1) for one in TIMES.finditer(content)][2:5]
    dues = [(now_ms + ahead) // 1_000 * 1_000 for ahead in ahead_ms]
    for at, due in zip(found, dues, strict=True):
        content[at : at + 13] = b"%d" % due
    log.write_bytes(content)
    return dues


@pytest.fixture
def node(make_node: Callable[[], Node], golden: Golden) -> Node:
    """A node that is not started, on p551."""
    made = make_node()
    shutil.copytree(golden("p551"), made.root)
    made.configure(store=STORE)
    return made


def test_what_waits_in_the_wheel_is_delivered_once_at_its_time(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    due, _, _ = set_times(node.root, 4_000, -5_000, DAY_MS)
    address = f"ipc://{node.runtime}"
    node.serve()
    with broker_of(address) as broker:
        wait_until(lambda: node.logged("wheel taken over"), "the timers to be taken", PATIENCE_S)
        node.signal(signal.SIGKILL)
        node.wait_end()
        node.serve()
        found = received(address, "timer", 4)
        left = broker.timers().timers
    origin = origin_of(node.root)
    assert node.stop() == 0
    words = ["migrate", "back", str(node.root), "--manifest", str(node.folder / "m"), "--json"]
    assert main(words) == 0
    stays = json.loads(capsys.readouterr().out)["stays"]

    at = {bytes(one.body): one for one in found}
    soon = at[b"timer 3600000"]
    assert Counter(bytes(one.body) for one in found) == Counter(
        [*BEFORE, b"timer 3600000", b"timer 7200000"]
    )
    assert (soon.queue_id, soon.properties["KEYS"]) == (3, "t2")
    assert soon.properties["TIMER_DELAY_SEC"] == "3600"
    assert soon.store_timestamp >= due
    assert [(row.topic, row.unique_id) for row in left] == [
        ("timer", "7F0000010C714E0E2F2A9281B977007C")
    ]
    assert stays[0] == "LEDGERMQ_TIMER: 1 messages, until a node comes"
    assert "topics.json: message.type=FIFO of 1, which RocketMQ 4.9 drops" in stays
    assert origin.product is Product.OURS
    assert not (node.root / "timerwheel").exists()
    assert (node.root / "ledgermq" / "rocketmq-wheel" / "timerwheel").exists()
    assert WheelFiles(node.root).check() == TimerCheck(1_795_949_216_000, 0, 5, 5)


@pytest.mark.long
def test_a_dledger_group_takes_its_timers_over_once_whoever_leads(
    make_node: Callable[[], Node], golden: Golden
) -> None:
    def prepare(member: Member) -> None:
        shutil.rmtree(member.node.root)
        shutil.copytree(golden(f"d551-{member.name}"), member.node.root)

    sizes = {key: size for key, size in STORE.items() if key != "log"}
    group = make_group(make_node, ack="majority-fsync", sizes=sizes, prepare=prepare)
    leader = group.leader()
    wait_until(lambda: leader.node.logged("wheel taken over"), "the timers", PATIENCE_S)
    leader.node.signal(signal.SIGKILL)
    leader.node.wait_end()
    others = [member.node for member in group.members if member is not leader]
    found = received([node.address for node in others], "timer", 4)
    for node in others:
        wait_until(lambda node=node: not (node.root / "timerwheel").exists(), "the wheel to go")

    # The last one is due on a day that has passed, or passes.
    bodies = Counter(bytes(one.body) for one in found) - Counter([b"timer 86400000"])
    assert bodies == Counter([*BEFORE, b"timer 3600000", b"timer 7200000"])
    assert {node.stop() for node in others} == {0}
