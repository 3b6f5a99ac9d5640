"""What others have stored, at an operator's terminal: it is seen, and does nothing."""

from __future__ import annotations

import os
import pty
from collections.abc import Iterator

import pytest

from ledgermq.client import Admin, Consumer, DeadLetters, OutgoingMessage, Producer, Queries
from ledgermq.model.errors import LedgerError
from tests.process.client_node import start_client_node
from tests.process.conftest import SOURCES, Node, nodes_made, wait_until
from tests.process.node_start import run_command, start_node
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

EVIL = "\x1b]0;owned\x07\x1b[31m\x1b[2J\r\x08\x9b31m\u202e"
BODY = f"seen {EVIL} as well".encode()


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """With a message, and a dead letter, that have control characters wherever there may be any."""
    with nodes_made() as make:
        made = make()
        start_client_node(made)
        address = f"ipc://{made.runtime}"
        sent = OutgoingMessage(
            BODY, tag=EVIL, keys=["key"], properties={f"name {EVIL}": EVIL}, unique_id="ID1"
        )
        with Producer(address, name=EVIL) as one, Admin(address, timeout_s=PATIENCE_S) as admin:
            one.send_batch("orders", [sent], queue_id=0).result(PATIENCE_S)
            admin.create_group("billing")
            wait_until(lambda: admin.topic("orders").messages == 1, "dispatch")
        with Consumer(address, topic="orders", group="billing", name=EVIL) as consumer:
            message = next(iter(consumer))
            consumer.retry_later(message, delay_level=1, times_max=0)
            consumer.commit(message)
        with DeadLetters(address, group="billing") as letters:
            wait_until(lambda: letters.queues() and letters.queues()[0].end, "the dead letter")
        yield made


def at_a_terminal(*words: str) -> bytes:
    """All that a terminal is told by a command, on either stream."""
    outer, inner = pty.openpty()
    process = start_node(
        ["-m", "ledgermq.cli.main", *words], given=inner, output=inner,
        environment={**os.environ, "PYTHONPATH": str(SOURCES), "TERM": "xterm-256color"},
    )  # fmt: skip
    os.close(inner)
    told = b""
    while True:
        try:
            part = os.read(outer, 65_536)
        except OSError:
            # So it ends where nobody has the other side open.
            break
        if not part:
            break
        told += part
    os.close(outer)
    process.wait(PATIENCE_S)
    return told


@pytest.mark.parametrize("words", [
    "receive orders",
    "receive orders --tag nothing||" + EVIL,
    "receive no-such-topic" + EVIL,
    "message browse orders --queue 0",
    "message show ID1 --topic orders",
    "message track ID1 --topic orders",
    "message find orders --key key",
    "query key orders key",
    "dlq list billing",
    "dlq show billing 0",
    "topic list",
    "topic show orders",
    "group list",
    "group show billing",
    "group members billing",
    "group lag no-such-group" + EVIL,
    "acl list",
    "quota list",
    "timer list",
    "transaction list",
])  # fmt: skip
def test_no_command_hands_on_what_a_terminal_would_do(node: Node, words: str) -> None:
    told = at_a_terminal(*words.split(" "), "--address", f"ipc://{node.runtime}")
    text = told.decode()

    # A terminal is told where lines end, and nothing else that cannot be seen.
    assert all(one.isprintable() for one in text.replace("\r\n", "").replace("\t", "")), text
    if words.startswith(("receive orders", "message show", "dlq show")) and "nothing" not in words:
        assert "seen ·]0;owned·" in text


def test_a_pipe_has_each_byte(node: Node) -> None:
    told = run_command("receive", "orders", "--address", f"ipc://{node.runtime}")

    assert (told.returncode, told.stdout.encode()) == (0, BODY + b"\n")


def test_the_message_is_as_it_was_sent(node: Node) -> None:
    with Queries(f"ipc://{node.runtime}") as queries:
        message = queries.message_by_id("ID1", topic="orders")

    assert message is not None and bytes(message.body) == BODY
    with pytest.raises(LedgerError), Queries(f"ipc://{node.runtime}") as queries:
        queries.by_key(f"no{EVIL}", "key")
