"""Old messages that still wait, and retention: real nodes whose log has no room for more."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable

import pytest

from ledgermq.client import Producer
from ledgermq.model.errors import MessageIllegalError
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.test_delivery import (
    DAY_MS,
    now_ms,
    received,
)
from tests.process.test_state_log import broker_of
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

WAIT_MS = 12_000
BATCH = [b"x" * 1_000] * 50


def start(node: Node) -> str:
    """A node whose log has room for some files of 64 KiB; its address."""
    start_client_node(node, file_size=65_536, retention={"bytes_max": "1MiB"})
    return f"ipc://{node.runtime}"


def begin_of(node: Node) -> int:
    """Position of the oldest file."""
    return min(int(path.name) for path in node.root.glob("dledger-*/data/*"))


def fill(producer: Producer) -> None:
    """Send twice as much as the log has room for, which nobody reads."""
    sent = [producer.send_batch("other", BATCH, queue_id=0) for _ in range(40)]
    for one in sent:
        one.result()


@pytest.mark.long
def test_far_timers_do_not_keep_the_log_and_are_delivered_once(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    address = start(node)
    with Producer(address) as one, broker_of(address) as broker:
        due = now_ms() + WAIT_MS
        far = [
            one.send("orders", b"far", deliver_at=due + DAY_MS + number).result()
            for number in range(3)
        ]
        soon = [one.send("orders", b"%d" % number, deliver_at=due + number) for number in range(20)]
        end = max(sent.result().physical_offset for sent in soon)
        fill(one)
        wait_until(
            lambda: node.logged("old timers are stored again"), "old timers to move", PATIENCE_S
        )
        node.signal(signal.SIGKILL)
        node.wait_end()
        node.serve()
        wait_until(lambda: begin_of(node) > end, "the log to begin behind them", PATIENCE_S)
        waiting = broker.timers()
        one.cancel(far[0].unique_id)
        with pytest.raises(MessageIllegalError, match="no timer of that id"):
            one.cancel(far[0].unique_id)
        found = Counter(bytes(message.body) for message in received(address, "orders", 20))
        left = broker.timers()
    assert node.stop() == 0

    assert found == Counter(b"%d" % number for number in range(20))
    assert {sent.unique_id for sent in far} <= {row.unique_id for row in waiting.timers}
    assert len(waiting.timers) == len({row.unique_id for row in waiting.timers})
    assert [row.unique_id for row in left.timers] == [sent.unique_id for sent in far[1:]]


@pytest.mark.long
def test_the_log_is_kept_for_a_message_of_a_delay_level(make_node: Callable[[], Node]) -> None:
    node = make_node()
    address = start(node)
    begins: list[tuple[int, int]] = []
    with Producer(address) as one:
        one.send("orders", b"later", delay_level=3).result()

        def is_cut() -> bool:
            time_ms = now_ms()
            begins.append((time_ms, begin_of(node)))
            return begins[-1][1] > 0

        fill(one)
        wait_until(is_cut, "the log to go on", PATIENCE_S)
        found = received(address, "orders", 1)
    assert node.stop() == 0

    (message,) = found
    assert bytes(message.body) == b"later"
    cut_ms, _ = begins[-1]
    assert cut_ms >= message.store_timestamp
