"""``ledgermq top`` at a real terminal, with a real group of three."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from ledgermq.client import GroupConsumer
from ledgermq.client.broker_connection import connect_broker
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.group_nodes import TOPIC, Group, make_group, producer
from tests.process.node_start import run_command
from tests.process.pty_program import PtyProgram
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

CONSUMED = 40
SENT = 100


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    """Three nodes; ``billing`` has consumed some of what there is, and has a member."""
    with nodes_made() as make:
        made = make_group(make, ack="majority-memory")
        with producer(*made.members) as one:
            one.send_batch(TOPIC, [b"message"] * SENT, queue_id=0).result()
        with connect_broker(made.addresses, name="test", timeout_s=PATIENCE_S) as broker:
            wait_until(lambda: broker.queue(TOPIC, 0).end == SENT, "dispatch")
            broker.group_commit("billing", TOPIC, {0: CONSUMED})
        yield made
        made.stop()


def top(group: Group, *words: str) -> list[str]:
    return ["top", "--address", ",".join(group.addresses), "--interval", "0.3", *words]


def row(lines: list[str], begin: str) -> list[str]:
    """The words of the first line that begins so."""
    return next(line.split() for line in lines if line.split()[:1] == [begin])


def test_a_terminal_of_80_columns_shows_all_nodes_and_groups(group: Group) -> None:
    leader = group.leader()
    with PtyProgram(top(group)) as program:
        program.wait_for("billing")
        lines = program.wait_for("services granted")

        text = "\n".join(lines)
        assert "3 of 3 nodes" in lines[0]
        assert f"leader {leader.name}" in lines[0]
        assert "leader" in row(lines, leader.name)
        for other in group.others(leader):
            assert "follower" in row(lines, other.name)
        assert row(lines, "billing")[-1] == str(SENT - CONSUMED)
        assert "roomy" in text
        assert "RESERVE" in text
        assert "…" not in text, text
        memory = lines.index(next(line for line in lines if line.startswith("MEMORY")))
        assert all(line.endswith("M") for line in lines[memory + 1 : memory + 4]), text
        program.type("q")
        assert program.wait_end() == 0


def test_keys_choose_a_node_a_group_an_order_and_a_pause(group: Group) -> None:
    with PtyProgram(top(group), lines=40) as program:
        program.wait_for("by lag")
        program.type("s")
        program.wait_for("by rate")
        program.type("n")
        program.wait_for("PROCESS")
        lines = program.wait_for("writer:")
        assert not any("billing" in line for line in lines)
        program.type("\x1b")
        program.wait_for("billing")
        program.type("g")
        lines = program.wait_for("group billing: 0 members, lag 60")
        assert row(lines, TOPIC)[-1] == str(SENT - CONSUMED)
        program.type("p")
        program.wait_for("PAUSED")
        program.type("p")
        program.wait_until(lambda lines: "PAUSED" not in lines[0], "going on")
        program.type("\x03")
        assert program.wait_end() == 0


def test_another_size_of_the_terminal_is_drawn_at_once(group: Group) -> None:
    with PtyProgram(top(group)) as program:
        program.wait_for("q quit")
        program.type("p")
        program.wait_for("PAUSED")
        program.resize(120, 40)
        lines = program.wait_for("q quit")
        assert "PAUSED" in lines[0]
        program.resize(40, 10)
        # Nothing is asked meanwhile: what is drawn was drawn for the size alone.
        program.wait_until(lambda lines: lines[0].endswith("…"), "a narrow drawing")
        program.type("q")
        assert program.wait_end() == 0


def test_a_node_that_is_away_is_named_and_the_others_are_shown(
    make_node: Callable[[], Node],
) -> None:
    made = make_group(make_node, ack="majority-memory")
    leader = made.leader()
    gone = made.others(leader)[0]
    with PtyProgram(top(made, "--timeout", "1")) as program:
        program.wait_for("3 of 3 nodes")
        gone.kill()
        lines = program.wait_for("2 of 3 nodes")
        assert "away" in row(lines, gone.name)
        gone.start()
        program.wait_for("3 of 3 nodes")
        program.type("q")
        assert program.wait_end() == 0
    made.stop()


def test_one_look_is_printed_for_people_and_for_programs(group: Group) -> None:
    told = run_command(*top(group, "--once", "--json"))
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert {node["name"] for node in found["nodes"]} == {"n0", "n1", "n2"}
    assert [node["role"] for node in found["nodes"]].count("leader") == 1
    assert all(node["memory"]["writer"] > 0 for node in found["nodes"])
    assert all(node["rates"]["in_messages"] is not None for node in found["nodes"])
    assert all(node["disk"]["reserve"] > 0 for node in found["nodes"])
    assert found["groups"][0]["topics"] == {TOPIC: SENT - CONSUMED}
    printed = run_command(*top(group, "--once"))
    assert printed.returncode == 0, printed.stderr
    lines = printed.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert row(lines, "billing")[-1] == str(SENT - CONSUMED)


def test_without_a_terminal_it_says_what_to_use(group: Group) -> None:
    refused = run_command(*top(group))

    assert refused.returncode == 1
    assert "--once" in refused.stderr


def test_nobody_there_is_an_error_that_names_the_addresses(tmp_path: object) -> None:
    refused = run_command(
        "top", "--once", "--address", f"ipc://{tmp_path}", "--timeout", "0.3", "--interval", "0.2"
    )

    assert refused.returncode == 1
    assert str(tmp_path) in refused.stderr


def test_members_that_want_different_things_are_named(group: Group) -> None:
    with ExitStack() as stack:
        for expression in ("red", "blue"):
            one = stack.enter_context(
                GroupConsumer(group.addresses, group="mixed", name=expression)
            )
            one.subscribe(TOPIC, expression)
            one.poll(0)
        with PtyProgram(top(group), lines=40) as program:
            program.wait_for("members differ")
            assert "2" in row(program.lines(), "mixed")
            program.type("g")
            program.wait_for("group ")
            if not any("group mixed" in line for line in program.lines()):
                program.type("g")
            program.wait_for("members differ in expression")
            program.type("q")
            assert program.wait_end() == 0
