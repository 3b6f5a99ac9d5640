"""``ledgermq topic``, ``group`` and ``offset`` on a real node: what people and scripts see."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ledgermq.cli.main import main
from ledgermq.client.admin.admin import Admin
from ledgermq.client.blocking.producer import Producer
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow


Told = tuple[int, str, str]
"""Exit status, standard output, standard error."""

Command = Callable[..., Told]


@pytest.fixture
def node(make_node: Callable[[], Node]) -> Node:
    made = make_node()
    start_client_node(made)
    return made


@pytest.fixture
def command(node: Node, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command as a shell runs it, but in this process."""

    def run(*words: str) -> Told:
        capsys.readouterr()
        status = main([*words, "--address", f"ipc://{node.runtime}", "--timeout", "60"])
        told = capsys.readouterr()
        return status, told.out, told.err

    return run


def answer(told: Told) -> Any:
    status, out, err = told
    assert (status, err) == (0, ""), told
    return json.loads(out)


def store(node: Node, topic: str, count: int) -> None:
    """Have messages in queue 0, and dispatched."""
    address = f"ipc://{node.runtime}"
    with Producer(address) as one, Admin(address, timeout_s=PATIENCE_S) as admin:
        one.send_batch(topic, [b"x"] * count, queue_id=0).result()
        wait_until(lambda: admin.topic(topic).messages >= count, "dispatch", timeout_s=PATIENCE_S)


def test_topics_are_administered_by_hand(node: Node, command: Command) -> None:
    made = command("topic", "create", "sales", "--queues", "3", "--order", "on")
    store(node, "sales", 1_234)
    listed = command("topic", "list")[1].splitlines()
    shown = command("topic", "show", "sales")[1].splitlines()
    as_json = answer(command("topic", "show", "sales", "--json"))
    altered = command("topic", "alter", "sales", "--write-queues", "2", "--perm", "r")
    refused = command("topic", "alter", "sales", "--read-queues", "0")
    asked = command("topic", "delete", "sales")
    deleted = command("topic", "delete", "sales", "--yes")
    unknown = command("topic", "show", "sales")

    assert made == (0, "sales: 3 queues, rw\n", "")
    assert listed[0].split() == ["topic", "queues", "perm", "messages"]
    assert "sales 3 rw 1,234" in [" ".join(line.split()) for line in listed]
    assert shown[0].split() == ["topic", "sales"]
    assert "order" in shown[3]
    assert shown[3].endswith(":3")
    assert [line.split()[:4] for line in shown[-2:]] == [
        ["queue", "first", "end", "messages"],
        ["0", "0", "1,234", "1,234"],
    ]
    assert (as_json["topic"], as_json["read_queues"], as_json["queues"][0]["end"]) == (
        "sales", 3, 1_234,
    )  # fmt: skip
    assert altered[:2] == (0, "sales: 3r/2w queues, r\n")
    assert "warning: queues 2 to 2 take no messages any more" in altered[2]
    assert "warning: may not be written to" in altered[2]
    assert refused[0] == 1
    assert "read_queues" in refused[2]
    assert asked[0] == 1
    assert "with 1,234 messages" in asked[2]
    assert "--yes" in asked[2]
    assert deleted == (0, "sales: deleted\n", "")
    assert unknown[0] == 1
    assert "topic does not exist" in unknown[2]


def test_groups_and_offsets_are_administered_by_hand(node: Node, command: Command) -> None:
    store(node, "sales", 10)
    made = command("group", "create", "billing", "--retry-max", "3")
    planned = command("offset", "reset", "billing", "sales", "--to", "4", "--queue", "0",
                      "--dry-run")  # fmt: skip
    before = command("offset", "show", "billing")
    unknown = command("group", "lag", "billing"), command("group", "lag", "billing", "--json")
    moved = answer(
        command("offset", "reset", "billing", "sales", "--to", "4", "--queue", "0", "--json")
    )
    lag = command("group", "lag", "billing")[1].splitlines()
    cloned = answer(command("offset", "clone", "billing", "audit", "--create", "--json"))
    shown = answer(command("offset", "show", "audit", "sales", "--json"))
    off = command("group", "alter", "billing", "--consume", "off")
    listed = [line.split() for line in command("group", "list")[1].splitlines()]
    detail = command("group", "show", "billing")[1]
    everything = answer(command("group", "list", "--all", "--json"))["groups"]
    gone = command("group", "delete", "billing", "--offsets", "--yes")

    assert made == (0, "billing: may consume, 3 retries\n", "")
    assert [line.split() for line in planned[1].splitlines()] == [
        ["topic", "queue", "from", "to"],
        ["sales", "0", "-", "4"],
        ["nothing", "was", "changed", "(--dry-run)"],
    ]
    assert before[1] == unknown[0][1] == "billing has consumed nothing yet\n"
    assert answer(unknown[1]) == {"group": "billing", "lag": None, "queues": []}
    assert moved == {
        "group": "billing",
        "done": True,
        "queues": [{"topic": "sales", "queue": 0, "old": None, "new": 4}],
    }
    assert lag[0].split()[:6] == ["topic", "queue", "first", "end", "consumed", "lag"]
    assert lag[1].split()[:6] == ["sales", "0", "0", "10", "4", "6"]
    assert lag[-1] == "lag 6"
    assert [row["new"] for row in cloned["queues"]] == [4]
    assert shown["queues"][0]["offset"] == 4
    assert off[1] == "billing: may not consume, 3 retries\n"
    assert ["billing", "off", "3", "sales"] in listed
    assert "consumeEnable" in detail
    assert any(row["group"] == "TOOLS_CONSUMER" and row["system"] for row in everything)
    assert gone == (0, "billing: deleted\n", "")


def test_what_cannot_be_done_says_what_to_do(command: Command) -> None:
    for words, said in (
        (("topic", "create", "a b"), "allowed"),
        (("topic", "create", "TBW102"), "reserved"),
        (("topic", "create", "x", "--perm", "q"), "rw, r, w, none"),
        (("topic", "alter", "x"), "--help"),
        (("topic", "alter", "x", "--queues", "3"), "does not exist"),
        (("topic", "delete", "TBW102", "--yes"), "reserved"),
        (("group", "alter", "g"), "--help"),
        (("group", "alter", "g", "--consume", "off"), "does not exist"),
        (("group", "create", "g", "--retry-max", "-1"), "retryMaxTimes"),
        (("group", "delete", "g"), "--yes"),
        (("group", "lag", "g"), "does not exist"),
        (("group", "lag", "g", "--topic", "none"), "group does not exist"),
        (("group", "members", "g"), "does not exist"),
        (("dlq", "list", "g"), "does not exist"),
        (("dlq", "replay", "g", "--all"), "does not exist"),
        (("offset", "reset", "g", "none", "--to", "first"), "(--create) makes it"),
        (("offset", "reset", "g", "none", "--to", "first", "--force"), "(--create) makes it"),
        (("offset", "reset", "g", "none", "--to", "first", "--create"), "topic does not exist"),
        (("offset", "show", "g", "none"), "group does not exist"),
        (("offset", "reset", "g", "none", "--to", "middle"), "time=TIME"),
        (("offset", "reset", "g", "none", "--to", "time=noon"), "noon"),
        (("offset", "clone", "g", "h"), "nothing that could be cloned"),
    ):
        status, out, err = command(*words)

        assert (status, out) == (1, ""), words
        assert said in err, (words, err)
        assert "bug" not in err
