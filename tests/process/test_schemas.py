"""Schemas by the command line and over a restart: numbered, compared, and the same afterwards."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.suite.patience import PATIENCE_S

from ledgermq.cli.main import main
from ledgermq.client.admin.schema_admin import SchemaAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.errors import ConfigError

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
