"""A group of RocketMQ becomes ours, then RocketMQ's again, while Java's clients go on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from tests.compat.other_clients import Command, NotToBeHadError, java5_through
from tests.compat.remoting_group import JavaProgram, client_program, java_command, java_program
from tests.compat.rocket_group import NAMES, Move, RocketGroup, slave_of
from tests.compat.rocket_group5 import RocketGroup5
from tests.compat.rocketmq import START_TIMEOUT_S
from tests.process.conftest import Node, wait_until

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

THROUGH = Path(__file__).with_name("Through.java")
RUNS_S = 150.0
LONG = pytest.mark.skipif(
    not os.environ.get("LEDGERMQ_MIGRATE_LONG"), reason="LEDGERMQ_MIGRATE_LONG is not set"
)


def made(
    product: int, folder: Path, *, names: Sequence[str]
) -> tuple[RocketGroup | RocketGroup5, Command]:
    """RocketMQ 4.9.4 or 5.5.1, not started, and clients that go on through whatever happens."""
    if product == 4:
        return RocketGroup(folder, names=names), java_command(THROUGH)
    try:
        return RocketGroup5(folder, names=names), java5_through()
    except NotToBeHadError as error:
        pytest.skip(str(error))


def check_through(java: JavaProgram) -> None:
    """The clients end, and nothing acknowledged is lost, turned round, or there twice."""
    java.tell("stop")
    lines = java.wait()
    print(*java.said("through "), *java.said("acked "), *java.said("again "), sep="\n")

    assert "ordered missing 0 turned 0" in lines, lines[-50:]
    assert "concurrent missing 0" in lines, lines[-50:]
    assert "doubled 0 0" in lines, lines[-50:]


@pytest.mark.parametrize("product", [4, 5])
def test_a_group_moves_to_us_and_back_under_clients_that_go_on(
    make_node: Callable[[], Node], tmp_path: Path, product: int
) -> None:
    """RocketMQ 4.9.4 and 5.5.1, with Java's client of the same age."""
    with ExitStack() as ends:
        rocketmq, client = made(product, tmp_path, names=NAMES)
        ends.callback(rocketmq.end)
        move = Move(rocketmq, make_node)
        rocketmq.start()
        java = ends.enter_context(
            client_program(rocketmq.places["namesrv"], client, "moved", "m", folder=tmp_path)
        )
        wait_until(lambda: java.has_said("runs"), "producers and consumers", RUNS_S)
        for name in NAMES:
            facts = move.migrate("check", rocketmq.conf(name))

            assert facts["broker"].startswith("runs as process ")
        leader: str = wait_until(rocketmq.leader, "RocketMQ's leader", START_TIMEOUT_S)
        rocketmq.stop()
        begin = time.monotonic()
        for name in set(NAMES) - {leader}:
            copytree(move.store(leader) / "config", move.store(name) / "config", dirs_exist_ok=True)
        taken = [move.take_over(name) for name in NAMES]
        group = move.start()
        group.leader()
        print(f"stopped to leading {time.monotonic() - begin:.1f} s")
        java.tell("ours")
        wait_until(lambda: java.has_said("through ours "), "clients with us", RUNS_S)
        group.wait_level()
        for name, facts in zip(NAMES, taken, strict=True):
            found = move.migrate("verify", tmp_path / f"{name}.before", move.store(name))

            assert found["compared"] == facts["messages"] > 0
            assert found["added"] > 0

        assert group.stop() == [0, 0, 0]
        back = [move.back(name) for name in NAMES]
        rocketmq.start()
        java.tell("theirs")
        wait_until(lambda: java.has_said("through theirs "), "clients with RocketMQ", RUNS_S)
        for name, facts in zip(NAMES, back, strict=True):
            found = move.migrate("verify", tmp_path / f"{name}.after", move.store(name))

            assert found["compared"] == facts["messages"] > 0
        check_through(java)
        rocketmq.stop()

    assert [name for name, node in move.nodes.items() if node.logged("ERROR")] == []


@pytest.mark.parametrize("with_slave", [False, pytest.param(True, marks=LONG)])
def test_a_plain_broker_moves_to_us_and_back_under_clients_that_go_on(
    make_node: Callable[[], Node], tmp_path: Path, *, with_slave: bool
) -> None:
    with ExitStack() as ends:
        role = ["--set", "brokerRole=SYNC_MASTER"] if with_slave else []
        rocketmq = RocketGroup(tmp_path, "--plain", *role, names=NAMES[:1])
        ends.callback(rocketmq.end)
        move, store = Move(rocketmq, make_node), tmp_path / "slave"
        rocketmq.start()
        slave = ExitStack()
        ends.push(slave)
        if with_slave:
            slave.enter_context(slave_of(rocketmq, store))
        (name,) = rocketmq.names
        java = ends.enter_context(
            java_program(rocketmq.places["namesrv"], THROUGH, "moved", "m", folder=tmp_path)
        )
        wait_until(lambda: java.has_said("runs"), "producers and consumers", RUNS_S)
        checked = move.migrate("check", rocketmq.conf(name))
        # The slave ends first: its master waits for it.
        slave.close()
        rocketmq.stop()
        begin = time.monotonic()
        taken = move.take_over(name)
        group = move.start()
        group.leader()
        print(f"stopped to leading {time.monotonic() - begin:.1f} s")
        java.tell("ours")
        wait_until(lambda: java.has_said("through ours "), "clients with us", RUNS_S)
        ours = move.migrate("verify", tmp_path / f"{name}.before", move.store(name))

        assert group.stop() == [0]
        back = move.back(name)
        rocketmq.start()
        if with_slave:
            slave.enter_context(slave_of(rocketmq, store))
        java.tell("theirs")
        wait_until(lambda: java.has_said("through theirs "), "clients with RocketMQ", RUNS_S)
        theirs = move.migrate("verify", tmp_path / f"{name}.after", move.store(name))
        if with_slave:
            # It goes on where it was, by the bytes that we have stored meanwhile.
            found: dict[str, Any] = wait_until(
                lambda: move.verified(tmp_path / f"{name}.after", store), "the slave", RUNS_S
            )

            assert found["compared"] == back["messages"]
        check_through(java)
        slave.close()
        rocketmq.stop()

    assert checked["broker"].startswith("runs as process ")
    assert ours["compared"] == taken["messages"] > 0
    assert ours["added"] > 0
    assert theirs["compared"] == back["messages"] > taken["messages"]
    assert not move.nodes[name].logged("ERROR")
