"""Clients of three real nodes while the leader is killed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from ledgermq.client import Consumer, Producer, ProducerOptions
from ledgermq.client.core.results import SendResult
from ledgermq.client.sending.send_future import SendFuture
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, make_group
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

SENDERS = 2
OPTIONS = ProducerOptions(timeout_s=PATIENCE_S)
AFTER_S = 1.0
"""How long is sent on when acknowledgements come again."""


class Sender:
    """A thread that sends numbered messages to one queue; notes when each was acknowledged."""

    def __init__(self, addresses: list[str], number: int) -> None:
        self.number = number
        self.acked: list[bytes] = []
        self.acked_at: list[float] = []
        self.errors: list[Exception] = []
        self.stopping = threading.Event()
        self._addresses = addresses
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        with Producer(self._addresses, options=OPTIONS) as producer:
            count = 0
            while not self.stopping.is_set():
                body = b"%d-%08d-" % (self.number, count) + b"x" * 200
                count += 1

                def note(future: SendFuture[SendResult], body: bytes = body) -> None:
                    error = future.exception()
                    if error is not None:
                        self.errors.append(error)
                        return
                    self.acked.append(body)
                    self.acked_at.append(time.monotonic())

                producer.send(TOPIC, body, queue_id=self.number, callback=note)
                time.sleep(0.000_5)

    def longest_gap_s(self) -> float:
        pairs = zip(self.acked_at, self.acked_at[1:], strict=False)
        return max(later - earlier for earlier, later in pairs)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("ack", ["majority-memory", "majority-fsync"])
def test_a_killed_leader_costs_its_clients_nothing_but_time(
    make_node: Callable[[], Node], ack: str, capsys: pytest.CaptureFixture[str]
) -> None:
    group = make_group(make_node, ack=ack)
    leader = group.leader()
    senders = [Sender(group.addresses, number) for number in range(SENDERS)]
    try:
        wait_until(lambda: all(len(one.acked) > 200 for one in senders), "messages before")
        killed_at = time.monotonic()
        leader.kill()
        wait_until(
            lambda: all(one.acked_at[-1] > killed_at + AFTER_S for one in senders), "messages after"
        )
    finally:
        for one in senders:
            one.stopping.set()
        for one in senders:
            one.thread.join()
    count = sum(len(one.acked) for one in senders)
    found = []
    with Consumer(group.addresses, topic=TOPIC) as consumer:
        until = time.monotonic() + PATIENCE_S
        while len(found) < count and time.monotonic() < until:
            found += [bytes(message.body) for message in consumer.poll(0.2)]
    leader.start()
    group.wait_equal()
    group.stop()
    with capsys.disabled():
        gaps = ", ".join(f"{one.longest_gap_s():.3f} s" for one in senders)
        print(f"\n{ack}: {count} acknowledged, longest gaps {gaps}")

    for one in senders:
        mine = b"%d-" % one.number
        assert one.errors == []
        assert one.acked == sorted(one.acked)
        assert [body for body in found if body.startswith(mine)] == one.acked
        for member in group.members:
            assert [body for body in member.bodies() if body.startswith(mine)] == one.acked
