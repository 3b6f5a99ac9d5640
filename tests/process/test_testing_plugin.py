"""The plugin of pytest, in a small suite of somebody's services, run by two workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tomli

from tests.process.conftest import is_alive, wait_until
from tests.process.node_start import SOURCES
from tests.suite.patience import PATIENCE_S

SUITE = """
import json, os, signal
from pathlib import Path
import pytest
from ledgermq.client import Consumer, Producer

def note(broker):
    seen = {"pid": broker.pid, "log": broker.nodes[0]["log"], "address": broker.address}
    Path(os.environ["NOTES"], f"{os.getpid()}-{broker.pid}").write_text(json.dumps(seen))

@pytest.mark.parametrize("time", range(2))
def test_a_service_goes_on_when_the_leader_dies(ledgermq_group, time):
    note(ledgermq_group)
    with Producer(ledgermq_group.address) as producer:
        topic = ledgermq_group.fresh_name()
        producer.send(topic, b"before").result()
        killed = ledgermq_group.kill_leader()
        assert killed in {node["name"] for node in ledgermq_group.nodes}
        producer.send(topic, b"behind").result()

@pytest.mark.parametrize("number", range(4))
def test_a_message_comes_back(ledgermq_node, number):
    note(ledgermq_node)
    topic = ledgermq_node.fresh_name("orders")
    with Producer(ledgermq_node.address) as producer:
        producer.send(topic, b"%d" % number).result()
    with Consumer(ledgermq_node.address, topic=topic, start="first") as consumer:
        assert [bytes(one.body) for one in consumer.poll(30)] == [b"%d" % number]

def test_fails(ledgermq_node):
    note(ledgermq_node)
    assert False

def test_takes_its_worker_with_it(ledgermq_node):
    note(ledgermq_node)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.long
@pytest.mark.slow
def test_each_worker_has_its_own_nodes_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_services.py").write_text(SUITE)
    notes = tmp_path / "notes"
    notes.mkdir()
    # As pip leaves it, whatever this environment was installed from.
    one, other = (
        tomli.loads((folder / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
        for folder in (SOURCES, SOURCES / "distributions" / "node")
    )
    assert one == other
    installed = tmp_path / "site" / "ledgermq_node-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Name: ledgermq-node\nVersion: 0\n")
    (installed / "entry_points.txt").write_text(
        "\n".join(["[pytest11]", *(f"{name} = {value}" for name, value in one.items())])
    )

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", tmp_path],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": f"{SOURCES}:{tmp_path / 'site'}", "NOTES": str(notes)},
        timeout=PATIENCE_S,
    )  # fmt: skip

    assert "6 passed" in done.stdout and "2 failed" in done.stdout, done.stdout
    seen = [json.loads(path.read_text()) for path in notes.iterdir()]
    workers = {path.name.partition("-")[0] for path in notes.iterdir()}
    assert len(workers) >= 2
    assert len({one["address"] for one in seen}) == len(seen)
    wait_until(lambda: not any(is_alive(one["pid"]) for one in seen), "the end of all nodes")
    assert [one["log"] for one in seen if Path(one["log"]).parents[1].exists()] == []
