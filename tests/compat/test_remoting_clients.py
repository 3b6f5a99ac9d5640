"""RocketMQ's clients in Go, JavaScript, Python (C++), Rust and later Java (5), at our ports."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.compat.other_clients import (
    Command,
    NotToBeHadError,
    go_client,
    java5_features,
    node_client,
    python_client,
    run_client,
    rust_client,
)
from tests.compat.remoting_group import make_remoting_group
from tests.compat.test_remoting_features import QUICK, features
from tests.process.conftest import nodes_made
from tests.process.group_nodes import TOPIC, Group

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

COUNT = 50


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Group, str]]:
    with nodes_made() as make:
        group, name_servers = make_remoting_group(make, tables={"transactions": QUICK})
        group.leader()
        yield group, name_servers

        assert group.stop() == [0, 0, 0]
        assert [one.name for one in group.members if one.node.logged("ERROR")] == []


def had(make: Callable[[], Command]) -> Command:
    try:
        return make()
    except NotToBeHadError as reason:
        pytest.skip(str(reason))


def test_go_produces_consumes_retries_and_pulls(served: tuple[Group, str]) -> None:
    said = run_client(had(go_client), served[1], "from-go", str(COUNT))

    assert said[-4:] == [
        f"sent {COUNT + 11}", f"consumed {COUNT + 11}", "go-3 came 2 times", f"pulled {COUNT + 11}",
    ]  # fmt: skip


def test_javascript_produces_consumes_and_retries(served: tuple[Group, str]) -> None:
    # It makes no topics: it uses one that is there.
    said = run_client(had(node_client), served[1], TOPIC, str(COUNT))

    # An error that it logs stands between its own lines: a retry on a busy machine, for instance.
    assert [line for line in said if line.startswith(("sent", "consumed", "node-3"))] == [
        f"sent {COUNT}", f"consumed {COUNT}", "node-3 came 2 times",
    ], said  # fmt: skip


def test_python_produces_consumes_retries_and_ends_transactions(served: tuple[Group, str]) -> None:
    said = run_client(had(python_client), served[1], "from-python", str(COUNT))

    assert [line for line in said if line.startswith(("sent", "consumed", "py-3", "trans"))] == [
        f"sent {COUNT + 1}", f"consumed {COUNT + 1}", "py-3 came 2 times", "transaction committed",
    ]  # fmt: skip


def test_rust_produces_consumes_and_retries(served: tuple[Group, str]) -> None:
    said = run_client(had(rust_client), served[1], "from-rust", str(COUNT))

    assert [line for line in said if line.startswith(("sent", "consumed", "rust-3"))] == [
        f"sent {COUNT}", f"consumed {COUNT}", "rust-3 came 2 times",
    ]  # fmt: skip


def test_the_java_client_of_rocketmq_5_has_each_feature(served: tuple[Group, str]) -> None:
    said = run_client(had(java5_features), NAMESRV=served[1])
    told = features(said)

    assert "end" in said
    assert [name for name, facts in told.items() if facts.startswith("FAILED")] == []
    assert len(told) > 20
