"""RocketMQ's own Java clients use a group of ours as they use RocketMQ, with the same results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.remoting_group import BROKER_NAME, make_remoting_group, run_java
from tests.compat.rocketmq import oracle_program, rocketmq_serving
from tests.process.conftest import Node

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

FEATURES = Path(__file__).with_name("Features.java")
QUICK = {"transaction_check_interval_ms": 2_000, "transaction_timeout_ms": 1_000}


def features(lines: list[str]) -> dict[str, str]:
    """What the program says of each feature."""
    told = [line.removeprefix("feature ") for line in lines if line.startswith("feature ")]
    return {name: facts for name, _, facts in (line.partition(": ") for line in told)}


def test_each_feature_of_the_java_client_is_what_it_is_with_rocketmq(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    oracle_program()
    tables = {"transactions": QUICK, "node": {"broker_cluster_name": BROKER_NAME}}
    group, name_servers = make_remoting_group(make_node, tables=tables)
    group.leader()
    ours = features(run_java(name_servers, FEATURES, folder=tmp_path))
    statuses = group.stop()
    (tmp_path / "empty").mkdir()
    settings = {
        "enablePropertyFilter": "true",
        "transactionCheckInterval": 2_000,
        "transactionTimeOut": 1_000,
    }
    with rocketmq_serving(
        tmp_path / "empty", tmp_path / "java", plain=True, settings=settings
    ) as broker:
        theirs = features(run_java(broker.name_server, FEATURES, folder=tmp_path))

    assert ours == theirs
    assert not [name for name, facts in ours.items() if facts.startswith("FAILED")]
    assert statuses == [0, 0, 0]
    assert [one.name for one in group.members if one.node.logged("ERROR")] == []
