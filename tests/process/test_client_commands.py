"""``ledgermq send`` and ``topic`` against the real node, as a shell runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.process.conftest import SOURCES, Node

pytestmark = pytest.mark.slow

COMMAND = ["-m", "ledgermq.cli.main"]


@pytest.fixture
def node(make_node: Callable[[], Node]) -> Node:
    made = make_node()
    made.configure(
        store={
            "mapped_file_size_commit_log": 1_048_576,
            "mapped_file_size_consume_queue": 20_000,
            "max_hash_slot_num": 500,
            "max_index_num": 400,
        }
    )
    made.launch([*COMMAND, "serve", "--config", str(made.config)])
    made.wait_ready()
    return made


def run(node: Node, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, *COMMAND, *words, "--address", f"ipc://{node.runtime}"],
        input=stdin, capture_output=True, check=False, timeout=60,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )  # fmt: skip


def rows(done: subprocess.CompletedProcess[bytes]) -> list[dict[str, Any]]:
    assert (done.returncode, done.stderr) == (0, b""), done
    return [json.loads(line) for line in done.stdout.splitlines()]


def messages_of(node: Node, topic: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, *COMMAND, "store", "dump", str(node.root), "--topic", topic, "--json"],
        capture_output=True, check=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_each_body_is_told_with_its_place(node: Node) -> None:
    words = ["--tag", "A", "--key", "k1", "--key", "k2", "--property", "a=b=c", "--queue", "1"]
    told = rows(run(node, "send", "orders", "one", "two", *words, "--json"))
    node.stop()
    stored = messages_of(node, "orders")
    properties = stored[0]["properties"]

    assert [row["queueOffset"] for row in told] == [0, 1]
    for name in ("topic", "queue", "queueOffset", "physicalOffset", "msgId", "offsetMsgId"):
        assert [row[name] for row in stored] == [row[name] for row in told]
    assert [row["bodyLength"] for row in stored] == [3, 3]
    assert (properties["TAGS"], properties["KEYS"], properties["a"]) == ("A", "k1 k2", "b=c")


def test_lines_of_standard_input_are_messages(node: Node) -> None:
    done = run(node, "send", "orders", "-", "--queue", "0", "--batch", "2", stdin=b"a\n\nb\xff")

    assert (done.returncode, done.stderr) == (0, b"")
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        [b"orders/0", b"0"],
        [b"orders/0", b"1"],
        [b"orders/0", b"2"],
    ]


def test_many_made_up_messages_are_told_as_a_sum(node: Node) -> None:
    count = ["--count", "1000", "--size", "100", "--batch", "64", "--json"]
    told = rows(run(node, "send", "orders", *count))
    topics = rows(run(node, "topic", "list", "--json"))[0]["topics"]

    assert (told[0]["stored"], told[0]["bodyBytes"]) == (1_000, 100_000)
    assert [row["topic"] for row in topics] == ["orders"]


def test_a_topic_is_created_with_its_queues_and_listed(node: Node) -> None:
    made = rows(run(node, "topic", "create", "wide", "--queues", "12", "--json"))
    run(node, "send", "wide", "x", "y")
    listed = run(node, "topic", "list").stdout.decode().splitlines()
    every = rows(run(node, "topic", "list", "--all", "--json"))[0]["topics"]

    assert (made[0]["topic"], made[0]["write_queues"]) == ("wide", 12)
    assert listed[0].split() == ["topic", "queues", "messages"]
    assert [line.split()[:2] for line in listed[1:]] == [["wide", "12"]]
    assert {row["system"] for row in every} == {True, False}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["send", "orders", "x", "--property", "a"], b"NAME=VALUE"),
        (["send", "orders", "--count", "3"], b"--size"),
        (["send", "orders", "x", "--size", "3"], b"--size"),
        (["send", "orders", "x", "--count", "0"], b"--count"),
        (["send", "orders", "x", "--batch", "0"], b"--batch"),
        (["send", "no topic", "x"], b"not allowed"),
        (["send", "orders", "x", "--queue", "999"], b"queue_id=999"),
        (["send", "orders", "--size", "5000000"], b"store.max_message_size"),
        (["send", "LEDGERMQ_SYSTEM", "x"], b"LEDGERMQ_SYSTEM"),
        (["topic", "create", "a b"], b"a b"),
    ],
)
def test_what_cannot_be_done_ends_with_one_and_says_why(
    node: Node, words: list[str], said: bytes
) -> None:
    done = run(node, *words)

    assert (done.returncode, done.stdout) == (1, b"")
    assert said in done.stderr
    assert b"bug" not in done.stderr


def test_without_a_node_the_error_names_where_it_was_looked_for() -> None:
    words = ["send", "t", "x", "--address", "ipc:///tmp/no-such-node", "--timeout", "0.3", "--json"]
    done = subprocess.run(
        [sys.executable, *COMMAND, *words],
        capture_output=True, check=False, timeout=60, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )  # fmt: skip
    error = json.loads(done.stderr)["error"]

    assert done.returncode == 1
    assert error["kind"] == "NotLeaderError"
    assert "no-such-node" in str(error["details"])
