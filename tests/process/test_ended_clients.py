"""What clients say that are used when they are closed, or in a child that was forked."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from ledgermq.client import Admin, Consumer
from ledgermq.model.errors import ClosedError
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, nodes_made
from tests.process.every_client import AWAITED, BLOCKING, TOPIC, kinds, verbs_of
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a node with a topic that has messages."""
    with nodes_made() as make:
        node: Node = make()
        start_client_node(node)
        at = f"ipc://{node.runtime}"
        with Admin(at, timeout_s=PATIENCE_S) as admin:
            admin.create_topic(TOPIC, queues=1)
            admin.create_group("members")
        yield at


def test_no_kind_of_client_is_left_out() -> None:
    assert set(kinds()) == BLOCKING.keys() | AWAITED.keys()


@pytest.mark.parametrize("kind", BLOCKING, ids=lambda kind: kind.__name__)
def test_a_closed_client_says_so_at_each_verb(kind: type[Any], address: str) -> None:
    client = BLOCKING[kind][0](address)
    client.close()
    client.close()
    for verb in verbs_of(kind):
        if verb not in kind.AFTER_CLOSE:
            with pytest.raises(ClosedError, match=kind.__name__):
                getattr(client, verb)()


@pytest.mark.parametrize("kind", AWAITED, ids=lambda kind: kind.__name__)
def test_a_closed_client_of_a_loop_says_so_at_each_verb_until_it_is_opened_again(
    kind: type[Any], address: str
) -> None:
    make, use = AWAITED[kind]

    async def steps() -> None:
        client = make(address)
        async with asyncio.timeout(PATIENCE_S):
            async with client:
                await use(client)
            for verb in verbs_of(kind):
                if verb not in kind.AFTER_CLOSE:
                    with pytest.raises(ClosedError, match=kind.__name__):
                        await getattr(client, verb)()
            if kind.OPENS_AGAIN:
                async with client:
                    await use(client)
            else:
                with pytest.raises(ClosedError, match=kind.__name__):
                    await client.__aenter__()

    asyncio.run(steps())


@pytest.mark.parametrize("how", ["fork", "multiprocessing"])
def test_a_child_that_is_forked_is_told_and_its_parent_goes_on(how: str, address: str) -> None:
    told = run(address, how)

    verbs = [f"{kind.__name__}.{verb}" for kind in BLOCKING for verb in verbs_of(kind)]
    assert told["answers"].keys() > set(verbs)
    assert set(told["answers"].values()) == {"ClosedError"}, told["answers"]
    assert told["status"] == 0
    # No connection of the parent was ended by what the child closed and dropped.
    assert told["links"][0] == told["links"][1]
    with Consumer(address, topic=TOPIC, start="first") as consumer:
        bodies: list[bytes] = []
        while f"child {how}".encode() not in bodies:
            bodies += [bytes(one.body) for one in consumer.poll(PATIENCE_S)]
    assert bodies.count(f"before {how}".encode()) == 1


def test_a_child_that_is_forked_in_a_loop_is_told_and_the_loop_goes_on(address: str) -> None:
    told = run(address, "loop")

    assert set(told["answers"].values()) == {"ClosedError"}, told["answers"]
    assert told["status"] == 0


def run(address: str, how: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.process.forking_clients", address, how],
        capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told
