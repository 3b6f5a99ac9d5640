"""A real collector receives the traces of the native clients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.client import GroupConsumer, Producer, Tracing
from tests.collector.collector import built_collector, running_collector
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, make_node, wait_until
from tests.suite.patience import PATIENCE_S

__all__ = ["make_node"]

pytestmark = pytest.mark.slow


def test_one_message_is_one_trace_in_the_collector(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    program = built_collector(tmp_path)
    node = make_node()
    start_client_node(node)
    address = f"ipc://{node.runtime}"
    with running_collector(program, tmp_path) as collector:
        provider = collector.provider()
        tracing = Tracing(provider.get_tracer("test"))
        with Producer(address, name="shop", tracing=tracing) as producer:
            sent = producer.send("orders", b"3 books").result()
            producer.flush()
        with GroupConsumer(address, group="billing", tracing=tracing) as consumer:
            consumer.subscribe("orders")
            (message,) = wait_until(lambda: list(consumer.poll(1.0)), "it", timeout_s=PATIENCE_S)
            with consumer.processing(message):
                pass
        provider.shutdown()
        send, poll = collector.one("send orders"), collector.one("poll orders")
        process = collector.one("process orders")
        trace = collector.spans(send.trace)

    assert {span.name for span in trace} == {"send orders", "process orders"}
    assert (send.kind, process.kind, poll.kind) == ("PRODUCER", "CONSUMER", "CLIENT")
    assert (send.parent, process.parent, process.links) == ("", send.id, [send.id])
    assert (poll.links, send.events) == ([send.id], ["stored"])
    assert send.attributes["messaging.message.id"] == sent.unique_id
    assert process.attributes["messaging.message.id"] == sent.unique_id
    assert process.attributes["messaging.consumer.group.name"] == "billing"
    assert {span.attributes["messaging.system"] for span in trace} == {"ledgermq"}
