"""A message goes from a native producer to a Java consumer and back: one trace, four records."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.client import Admin, GroupConsumer, Producer, TraceTopic, Tracing
from tests.collector.collector import built_collector, running_collector
from tests.compat.remoting_group import JavaProgram, java_program, make_remoting_group
from tests.compat.rocketmq import oracle_program
from tests.process.conftest import Node, wait_until
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

BESIDE = Path(__file__).parent
THERE, BACK = "orders-there", "orders-back"


def traced(mqadmin: JavaProgram, name_servers: str, unique_id: str, *wanted: str) -> None:
    """Ask mqadmin for a message's trace until it has all of that."""

    def said() -> bool:
        begun = len(mqadmin.said("mqadmin ended"))
        mqadmin.tell("\t".join(("queryMsgTraceById", "-i", unique_id, "-n", name_servers)))
        wait_until(
            lambda: len(mqadmin.said("mqadmin ended")) > begun, "mqadmin", timeout_s=PATIENCE_S
        )
        ends = [at for at, line in enumerate(mqadmin.lines) if line.startswith("mqadmin ended")]
        last = ends[-2] if len(ends) > 1 else 0
        text = "\n".join(mqadmin.lines[last : ends[-1]])
        return all(re.search(one, text) for one in wanted)

    wait_until(said, f"{wanted} in mqadmin's trace of {unique_id}", timeout_s=PATIENCE_S)


def test_a_message_goes_to_java_and_back_in_one_trace_and_mqadmin_sees_both_ways(
    make_node: Callable[[], Node], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    oracle_program()
    program = built_collector(tmp_path)
    group, name_servers = make_remoting_group(make_node)
    group.leader()
    addresses = group.addresses
    with Admin(addresses) as admin:
        for topic in (THERE, BACK):
            admin.create_topic(topic, queues=4)
    with (
        running_collector(program, tmp_path) as collector,
        java_program(name_servers, BESIDE / "Relay.java", THERE, BACK, folder=tmp_path) as relay,
    ):
        wait_until(lambda: relay.has_said("started"), "the relay", timeout_s=PATIENCE_S)
        provider = collector.provider()
        with TraceTopic(addresses) as topic:
            tracing = Tracing(provider.get_tracer("test"), topic=topic)
            with Producer(addresses, name="shop", tracing=tracing) as producer:
                sent = producer.send(THERE, b"3 books").result(PATIENCE_S)
                producer.flush()
            with GroupConsumer(addresses, group="billing", tracing=tracing) as consumer:
                consumer.subscribe(BACK)
                (back,) = wait_until(
                    lambda: list(consumer.poll(1.0)), "it is back", timeout_s=PATIENCE_S
                )
                with consumer.processing(back):
                    pass
        provider.shutdown()
        send, process = collector.one(f"send {THERE}"), collector.one(f"process {BACK}")
        # It says so a moment after the message was there for others.
        wait_until(lambda: relay.has_said("relayed "), "its word", timeout_s=PATIENCE_S)
        (relayed,) = relay.said("relayed ")
        with java_program(name_servers, BESIDE / "Mqadmin.java", folder=tmp_path) as mqadmin:
            traced(
                mqadmin, name_servers, sent.unique_id,
                r"Pub +shop +\S+ +.* success", r"Sub +relay +\S+ +.* success",
            )  # fmt: skip
            traced(
                mqadmin, name_servers, relayed,
                r"Pub +relay-producer +\S+ +.* success", r"Sub +billing +\S+ +.* success",
            )  # fmt: skip
        relay.tell("")
        relay.wait()
    capsys.readouterr()
    words = ["message", "track", relayed, "--topic", BACK, "--json"]
    status = main([*words, "--address", ",".join(addresses)])
    life = json.loads(capsys.readouterr().out)["life"]
    group.stop()

    assert (relayed, bytes(back.body)) == (back.unique_id, b"3 books")
    assert (process.trace, process.parent, process.links) == (send.trace, send.id, [send.id])
    assert status == 0
    assert [event["by"] for event in life if event["what"] == "sent"] == ["relay-producer"]
    assert [event["by"] for event in life if event["what"] == "processed"] == ["billing"]
