"""A writer whose node has nobody to ask commits by itself, as long as raft lets it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from ledgermq.client import Consumer, Producer
from ledgermq.ipc.cursor_page import CursorPage
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow


@pytest.fixture(params=[("dledger", "majority-memory"), ("commitlog", "majority-fsync")])
def lone_node(make_node: Callable[[], Node], request: pytest.FixtureRequest) -> Node:
    log, ack = request.param
    node = make_node()
    start_client_node(node, log=log, ack=ack)
    return node


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        # Its supervisor may have taken it for one that hangs.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def test_a_message_needs_no_raft_process_where_nobody_else_is_asked(lone_node: Node) -> None:
    address = f"ipc://{lone_node.runtime}"
    with Producer(address) as producer, Consumer(address, topic="orders", start="first") as reader:
        producer.send("orders", b"first", queue_id=0).result(PATIENCE_S)
        wait_until(lambda: run_of(lone_node), "a run of the writer")
        with stopped(lone_node.pid("raft")):
            sent = producer.send("orders", b"second", queue_id=0).result(PATIENCE_S)
            messages = iter(reader)
            read = [bytes(next(messages).body) for _ in range(2)]

    assert (sent.queue_offset, read) == (1, [b"first", b"second"])


def test_raft_knows_what_was_committed_without_it_and_goes_on(lone_node: Node) -> None:
    with Producer(f"ipc://{lone_node.runtime}") as producer:
        producer.send("orders", b"first").result(PATIENCE_S)
        for victim in ("raft", "writer", "raft"):
            deaths = lone_node.child(victim)["restarts"] + 1
            os.kill(lone_node.pid(victim), signal.SIGKILL)
            wait_until(
                lambda name=victim, count=deaths: lone_node.child(name)["restarts"] == count,
                "restart",
            )
            producer.send("orders", victim.encode()).result(PATIENCE_S)
        wait_until(lambda: run_of(lone_node), "a run of the writer again")
        with CursorPage.attach(lone_node.runtime / "cursors") as page:
            written = page.read_written()
            wait_until(lambda: page.read_committed() == written, "the commit of all")


def run_of(node: Node) -> int:
    """Term of the node's run and one more; 0 without a run."""
    with CursorPage.attach(node.runtime / "cursors") as page:
        return page.run_cell()[0]
