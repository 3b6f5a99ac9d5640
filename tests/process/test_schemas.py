"""Schemas by the command line and over a restart: numbered, compared, and the same afterwards."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledgermq.cli.main import main
from ledgermq.client import Consumer, Producer
from ledgermq.client.admin.broker_admins import SchemaAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.schemas.typed_bodies import TypedBodies
from ledgermq.model.errors import BodyUnreadableError, ConfigError, MessageIllegalError
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow


def record(kind: str) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]})


def test_schemas_are_there_after_the_broker_was_killed(
    make_node: Callable[[], Node], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = make_node()
    start_client_node(node)
    address = f"ipc://{node.runtime}"
    file = tmp_path / "order.avsc"

    def command(*words: str, kind: str = "int", status: int = 0) -> Any:
        file.write_text(record(kind))
        assert main(["schema", *words, "--json", "--address", address]) == status
        return json.loads(capsys.readouterr().out)

    wanted = ("orders", str(file))
    first = command("register", *wanted)
    again = command("register", *wanted)
    refused = command("check", *wanted, kind="string", status=1)
    allowed = command("check", *wanted, kind="long")
    command("rule", "orders", "FULL_TRANSITIVE")
    with (
        connect_broker([address], name="test", timeout_s=PATIENCE_S) as broker,
        pytest.raises(ConfigError, match="not compatible"),
    ):
        SchemaAdmin(broker).register("orders", "AVRO", record("long"))
    before = command("list")
    killed = node.pid("broker")
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: node.pids().get("broker", killed) != killed, "another broker")

    assert first == again == {"subject": "orders", "version": 1, "id": 1}
    assert refused["conflicts"][0]["reason"] == "int is not read as string"
    assert allowed == {"compatible": True, "conflicts": []}
    assert before["subjects"][0]["compatibility"] == "FULL_TRANSITIVE"
    assert command("list") == before
    assert command("show", "1")["schema"] == record("int")
    command("delete", "orders", "--yes")
    assert command("list") == {"subjects": []}


def test_values_are_sent_by_their_schema_and_read_by_the_id_in_the_message(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    start_client_node(node)
    address = f"ipc://{node.runtime}"
    with connect_broker([address], name="test", timeout_s=PATIENCE_S) as broker:
        admin, bodies = SchemaAdmin(broker), TypedBodies(broker)
        admin.register("orders", "AVRO", record("int"))
        first = bodies.write("orders", {"a": 7})
        # The last version of a subject is asked for anew by another reader alone.
        admin.register("orders", "AVRO", record("long"))
        second = TypedBodies(broker).write("orders", {"a": 2**40})
        with Producer([address]) as producer:
            for typed in (first, second):
                sent = producer.send("orders", typed.body, properties=typed.properties, queue_id=0)
                sent.result(PATIENCE_S)
        with Consumer([address], topic="orders", start="first") as consumer:
            received = []
            while len(received) < 2:
                received += consumer.poll(PATIENCE_S)
        values = [TypedBodies(broker).read(one.body, one.properties) for one in received]
        with pytest.raises(MessageIllegalError):
            bodies.write("orders", {"a": "text"})
        with pytest.raises(ConfigError, match="no such subject"):
            bodies.write("payments", {})
        with pytest.raises(BodyUnreadableError):
            bodies.read(b"", {})

    assert [one.properties["SCHEMA_ID"] for one in received] == ["1", "2"]
    assert values == [{"a": 7}, {"a": 2**40}]
