"""A consumer that asks and does not read: bounded, counted, and nobody waits for it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from ledgermq.client import Consumer, Producer, ProducerOptions
from tests.process.conftest import Node, wait_until
from tests.process.raw_consumer import RawConsumer
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

WINDOW = 8 * 1024 * 1024
ANSWER = 1024 * 1024
PULLS = 40
BODY = Random(7).randbytes(65_536)
"""That cannot be compressed."""


def test_a_consumer_that_does_not_read_holds_its_window_and_delays_nobody(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    node.configure(
        store={"max_hash_slot_num": 500, "max_index_num": 400,
               "mapped_file_size_commit_log": 16 * 1024 * 1024},
        limits={"client_window_bytes": WINDOW},
        ack={"mode": "lossy-leader"},
    )  # fmt: skip
    node.serve()
    address = f"ipc://{node.runtime}"
    with Producer(address, options=ProducerOptions(timeout_s=PATIENCE_S)) as sender:
        sender.send_batch("t", [BODY] * 16, queue_id=0).result()
        with Consumer(address, topic="t", start="first", queues=[0]) as reader:
            wait_until(lambda: len(reader.poll(1.0)), "what was sent")
            slow = RawConsumer(node.runtime, queued_max=1)
            try:
                for _ in range(PULLS):
                    slow.send_pull("t", 0, 0, size=ANSWER)

                def counters() -> dict[str, int]:
                    found: dict[str, int] = node.status()["counters"]["broker"]
                    return found

                wait_until(lambda: counters()["slow_refused"] > 0, "a refusal")
                held = counters()["answers_bytes"]
                sender.send("t", b"last", queue_id=0).result()
                bodies = wait_until(
                    lambda: [m.body for m in reader.poll(1.0) if bytes(m.body) == b"last"], "last"
                )
                refused = 0
                for _ in range(PULLS):
                    parts = slow.receive(40_000)
                    refused += len(parts) == 2 and b"WINDOW_FULL" in parts[1]
                # It has read all: it is served again.
                again = slow.pull("t", 0, 0, size=ANSWER)
                wait_until(
                    lambda: counters()["answers_bytes"] == 0, "what it held to be free", 40.0
                )
            finally:
                slow.close()

    assert 0 < held <= WINDOW + 2 * ANSWER
    assert len(bodies) == 1
    assert refused > 0
    assert again.records
