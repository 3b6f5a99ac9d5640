"""Tables that cannot be read, on a real node: told, kept aside, and never written over before."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from ledgermq.cli.main import main
from ledgermq.client import Admin
from ledgermq.formats.config_json import decode_document
from tests.process.client_node import start_client_node
from tests.process.conftest import Node
from tests.process.node_start import SERVE
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow


@pytest.fixture(params=["commitlog", "dledger"])
def node(request: pytest.FixtureRequest, make_node: Callable[[], Node]) -> Node:
    """A stopped node with topics ``orders`` and ``other``."""
    made = make_node()
    start_client_node(made, log=request.param)
    assert made.stop() == 0
    return made


def start(node: Node) -> None:
    node.forget_told()
    node.launch([*SERVE, str(node.config)])


def test_a_damaged_table_is_kept_aside_and_named_by_log_status_and_check(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    path = node.root / "config" / "topics.json"
    cut = path.read_bytes()[:-20]
    path.with_name("topics.json.bak").write_bytes(path.read_bytes())
    path.write_bytes(cut)
    start(node)
    node.wait_ready()
    with Admin(f"ipc://{node.runtime}", timeout_s=PATIENCE_S) as admin:
        admin.create_topic("made", queues=1)
        names = {row.topic for row in admin.topics()}
    told = node.status()["set_aside"]
    main(["status", "--config", str(node.config)])
    shown = capsys.readouterr().out
    log = node.log.read_text()
    node.stop()
    main(["store", "check", str(node.root), "--json"])
    found = json.loads(capsys.readouterr().out)["findings"]

    assert {"orders", "other", "made"} <= names
    (name,) = told
    assert (node.root / "ledgermq" / "set-aside" / name).read_bytes() == cut
    assert name in shown
    assert [line for line in log.splitlines() if "WARNING" in line and name in line]
    assert [one["what"] for one in found if name in one["file"]] == ["kept aside"]
    assert "made" in str(decode_document(path.read_bytes())["topicConfigTable"])


def test_a_node_without_a_table_that_can_be_read_says_what_to_do_and_changes_nothing(
    node: Node,
) -> None:
    config = node.root / "config"
    for name in ("topics.json", "topics.json.bak"):
        (config / name).write_text('{"topicConfigTable":{"orders"')
    before = {path: path.read_bytes() for path in config.iterdir()}
    start(node)
    status = node.wait_end()
    log = node.log.read_text()

    assert status != 0
    assert "put back one that is whole, or move both away" in log
    assert str(config / "topics.json") in log
    assert {path: path.read_bytes() for path in config.iterdir()} == before
    for name in ("topics.json", "topics.json.bak"):
        (config / name).unlink()
    start(node)
    node.wait_ready()
