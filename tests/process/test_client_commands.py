"""``ledgermq send``, ``receive`` and ``topic`` against the real node, as a shell runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.process.conftest import SOURCES, Node, nodes_made
from tests.process.node_start import run_program
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

COMMAND = ["-m", "ledgermq.cli.main"]


@pytest.fixture
def node(make_node: Callable[[], Node]) -> Node:
    return started(make_node())


@pytest.fixture(scope="module")
def served() -> Iterator[Node]:
    """One for all tests that ask only for what they have stored themselves."""
    with nodes_made() as make:
        yield started(make())


def started(node: Node) -> Node:
    node.configure(
        store={
            "mapped_file_size_commit_log": 1_048_576,
            "mapped_file_size_consume_queue": 20_000,
            "max_hash_slot_num": 500,
            "max_index_num": 400,
        }
    )
    node.serve()
    return node


def run(node: Node, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return run_program(
        [*COMMAND, *words, "--address", f"ipc://{node.runtime}"],
        environment={**os.environ, "PYTHONPATH": str(SOURCES)}, given=stdin, timeout_s=PATIENCE_S,
    )  # fmt: skip


def rows(done: subprocess.CompletedProcess[bytes]) -> list[dict[str, Any]]:
    assert (done.returncode, done.stderr) == (0, b""), done
    return [json.loads(line) for line in done.stdout.splitlines()]


def messages_of(node: Node, topic: str) -> list[dict[str, Any]]:
    done = run_program(
        [*COMMAND, "store", "dump", str(node.root), "--topic", topic, "--json"],
        environment={**os.environ, "PYTHONPATH": str(SOURCES)}, timeout_s=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
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


def test_lines_of_standard_input_are_messages(served: Node) -> None:
    done = run(served, "send", "lines", "-", "--queue", "0", "--batch", "2", stdin=b"a\n\nb\xff")

    assert (done.returncode, done.stderr) == (0, b"")
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        [b"lines/0", b"0"],
        [b"lines/0", b"1"],
        [b"lines/0", b"2"],
    ]


def test_many_made_up_messages_are_told_as_a_sum(node: Node) -> None:
    count = ["--count", "1000", "--size", "100", "--batch", "64", "--json"]
    told = rows(run(node, "send", "orders", *count))
    topics = rows(run(node, "topic", "list", "--json"))[0]["topics"]

    assert (told[0]["stored"], told[0]["bodyBytes"]) == (1_000, 100_000)
    assert [row["topic"] for row in topics] == ["orders"]


def test_what_was_sent_is_received_in_the_order_of_each_queue(served: Node) -> None:
    for queue in ("0", "1"):
        run(
            served,
            "send",
            "ordered",
            "-",
            "--queue",
            queue,
            "--tag",
            queue,
            stdin=b"a\nb\xff\nc",
        )
    received = rows(run(served, "receive", "ordered", "--json"))
    plain = run(served, "receive", "ordered", "--queue", "1")
    one = rows(run(served, "receive", "ordered", "--count", "1", "--json"))
    nothing = run(served, "receive", "ordered", "--from", "last")

    assert len(received) == 6
    for queue in (0, 1):
        own = [row for row in received if row["queue"] == queue]
        assert [row["queueOffset"] for row in own] == [0, 1, 2]
        assert [row.get("body") for row in own] == ["a", None, "c"]
        assert own[1]["bodyBase64"] == "Yv8="
    assert plain.stdout == b"a\nb\xff\nc\n"
    assert {row["properties"]["TAGS"] for row in received} == {"0", "1"}
    assert len(one) == 1
    assert (nothing.returncode, nothing.stdout) == (0, b"")


def test_what_is_received_has_a_tag_that_was_asked_for(served: Node) -> None:
    for tag in ("1", "0"):
        run(served, "send", "tagged", "a", "b", "c", "--queue", "0", "--tag", tag)
    # Its end comes with the third: that there are no more, the node says after fifteen seconds.
    words = ("receive", "tagged", "--tag", "0||none", "--count", "3", "--json")
    received = rows(run(served, *words))

    assert [row["queueOffset"] for row in received] == [3, 4, 5]
    assert {row["properties"]["TAGS"] for row in received} == {"0"}


def test_a_group_goes_on_where_it_ended(served: Node) -> None:
    run(served, "send", "grouped", "a", "b", "c", "d", "--queue", "0")
    first = run(served, "receive", "grouped", "--group", "g", "--count", "3")
    second = run(served, "receive", "grouped", "--group", "g")
    third = run(served, "receive", "grouped", "--group", "g")
    again = run(served, "receive", "grouped", "--group", "g", "--from", "first")

    assert (first.stdout, second.stdout, third.stdout) == (b"a\nb\nc\n", b"d\n", b"")
    assert again.stdout == b"a\nb\nc\nd\n"


def test_a_time_is_a_place_to_begin(served: Node) -> None:
    early = rows(run(served, "send", "timed", "early", "--queue", "0", "--json"))[0]
    late = rows(run(served, "send", "timed", "late", "--queue", "0", "--json"))[0]
    received = run(
        served, "receive", "timed", "--from", str(late["storeTimestamp"]), "--queue", "0"
    )

    assert early["storeTimestamp"] < late["storeTimestamp"]
    assert received.stdout == b"late\n"


def test_following_gives_what_is_stored_later(served: Node) -> None:
    run(served, "topic", "create", "followed", "--queues", "2")
    follower = subprocess.Popen(
        [
            sys.executable, *COMMAND, "receive", "followed", "--follow", "--count", "2",
            "--address", f"ipc://{served.runtime}",
        ],
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )  # fmt: skip
    try:
        rows(run(served, "send", "followed", "one", "--queue", "0", "--json"))
        assert follower.stdout is not None
        first = follower.stdout.readline()
        rows(run(served, "send", "followed", "two", "--queue", "1", "--json"))
        rest, _ = follower.communicate(timeout=PATIENCE_S)
    finally:
        follower.kill()
        follower.communicate()

    assert (first, rest, follower.returncode) == (b"one\n", b"two\n", 0)


def test_a_topic_is_created_with_its_queues_and_listed(node: Node) -> None:
    made = rows(run(node, "topic", "create", "wide", "--queues", "12", "--json"))
    run(node, "send", "wide", "x", "y")
    listed = run(node, "topic", "list").stdout.decode().splitlines()
    every = rows(run(node, "topic", "list", "--all", "--json"))[0]["topics"]

    assert (made[0]["topic"], made[0]["write_queues"]) == ("wide", 12)
    assert listed[0].split() == ["topic", "queues", "perm", "messages"]
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
        (["receive", "unknown"], b"unknown"),
        (["receive", "orders", "--from", "stored"], b"--group"),
        (["receive", "orders", "--from", "yesterday"], b"yesterday"),
        (["receive", "orders", "--count", "0"], b"--count"),
    ],
)
def test_what_cannot_be_done_ends_with_one_and_says_why(
    served: Node, words: list[str], said: bytes
) -> None:
    done = run(served, *words)

    assert (done.returncode, done.stdout) == (1, b"")
    assert said in done.stderr
    assert b"bug" not in done.stderr


def test_without_a_node_the_error_names_where_it_was_looked_for() -> None:
    words = ["send", "t", "x", "--address", "ipc:///tmp/no-such-node", "--timeout", "0.3", "--json"]
    done = subprocess.run(
        [sys.executable, *COMMAND, *words],
        capture_output=True, check=False, timeout=PATIENCE_S, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )  # fmt: skip
    error = json.loads(done.stderr)["error"]

    assert done.returncode == 1
    assert error["kind"] == "NotLeaderError"
    assert "no-such-node" in str(error["details"])
