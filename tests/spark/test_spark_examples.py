"""The notebooks of ``examples/`` do what they say, and a second run adds what is new."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ledgermq.client import Admin, OutgoingMessage, Producer
from ledgermq.client.broker_connection import connect_broker
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, nodes_made
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EXAMPLES = Path(__file__).parents[2] / "examples"

Run = Callable[..., list[str]]
"""Runs a notebook with its arguments; the lines that it prints."""


@pytest.fixture
def run(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    del spark  # the session that a notebook finds

    def run(name: str, *arguments: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        capsys.readouterr()
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run


@pytest.fixture
def store() -> Iterator[Path]:
    """A stopped node's directory: thirty orders of three kinds."""
    with nodes_made() as make:
        node = make()
        start_client_node(node)
        with Producer(f"ipc://{node.runtime}") as producer:
            for queue_id in range(3):
                orders = [
                    OutgoingMessage(f"order {number}".encode(), tag="abc"[number % 3])
                    for number in range(10)
                ]
                producer.send_batch("orders", orders, queue_id=queue_id).result(PATIENCE_S)
        assert node.stop() == 0
        yield node.root


@pytest.mark.long
def test_orders_are_counted_and_archived(run: Run, store: Path, tmp_path: Path) -> None:
    once = ["orders: 30", "a: 12", "b: 9", "c: 9", "queues with gaps: 0", "archived: 30"]

    for _ in range(2):
        assert run("spark_orders.py", str(store), str(tmp_path)) == once


def send(node: Node, topic: str, messages: list[OutgoingMessage]) -> None:
    with Producer(f"ipc://{node.runtime}") as producer:
        producer.send_batch(topic, messages, queue_id=0).result(PATIENCE_S)


def orders_of(customers: str, *numbers: int) -> list[OutgoingMessage]:
    return [
        OutgoingMessage(b"", tag=customer, keys=(f"o{number}",))
        for customer, number in zip(customers, numbers, strict=True)
    ]


def make_topics(node: Node, *names: str) -> None:
    with Admin(f"ipc://{node.runtime}", timeout_s=PATIENCE_S) as admin:
        for name in names:
            admin.create_topic(name, queues=4)


@pytest.mark.long
def test_an_order_that_is_sent_twice_counts_once(run: Run, node: Node, tmp_path: Path) -> None:
    address = f"ipc://{node.runtime}"
    make_topics(node, "counts")
    send(node, "orders", orders_of("aabaa", 1, 2, 3, 1, 2))
    first = run("spark_counts.py", address, str(tmp_path))
    # One that was counted by the run before, and one that is new.
    send(node, "orders", orders_of("bb", 3, 4))
    second = run("spark_counts.py", address, str(tmp_path))
    with connect_broker(address, name="test", timeout_s=PATIENCE_S) as broker:
        committed = broker.group_offset("counting", "orders")

    assert first == ["a: 2", "b: 1"]
    assert second == ["a: 2", "b: 2"]
    assert committed == {0: 7, 1: 0, 2: 0, 3: 0}


def happened(times: dict[str, str]) -> list[OutgoingMessage]:
    """Orders by name, with the time of a day."""
    return [
        OutgoingMessage(json.dumps({"order": name, "at": f"2026-11-22T{time}:00"}).encode())
        for name, time in times.items()
    ]


@pytest.mark.long
def test_what_comes_too_late_is_not_joined_and_is_counted(
    run: Run, node: Node, tmp_path: Path
) -> None:
    address = f"ipc://{node.runtime}"
    make_topics(node, "payments", "paid")
    send(node, "orders", happened({"o1": "08:00", "o2": "08:10", "o3": "08:30"}))
    send(node, "payments", happened({"o1": "08:05", "o3": "09:40", "o4": "08:40"}))
    first = run("spark_joined.py", address, str(tmp_path))
    # The first one is late by now; the last two tell that nothing of that day comes any more.
    send(node, "payments", happened({"o2": "08:11", "o5": "12:10"}))
    send(node, "orders", happened({"o5": "12:00"}))
    second = run("spark_joined.py", address, str(tmp_path))

    assert first == ["paid: o1", "in both: True", "too late: 0"]
    assert second == ["paid: o1, o5", "in both: True", "too late: 1"]
