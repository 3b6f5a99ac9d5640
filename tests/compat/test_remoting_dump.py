"""What Java's tools load through our port and read back is what RocketMQ reads of the directory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.dump_checks import Json, by_place, without_bounds
from tests.compat.remoting_group import BROKER_NAME, make_remoting_group, run_java
from tests.compat.rocketmq import oracle_program, rocketmq_serving
from tests.process.conftest import Node
from tests.process.group_nodes import SIZES

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

SEED, COUNT = 7, 300
NEVER_MS = 3_600_000
JAVA_SIZES = {
    "mappedFileSizeCommitLog": 1_048_576,
    "mappedFileSizeConsumeQueue": SIZES["mapped_file_size_consume_queue"],
    "maxHashSlotNum": SIZES["max_hash_slot_num"],
    "maxIndexNum": SIZES["max_index_num"],
    "transactionCheckInterval": NEVER_MS,
}


def test_a_dump_through_our_port_is_that_of_rocketmq_on_the_same_directory(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    oracle_program()
    group, name_servers = make_remoting_group(
        make_node,
        members=1,
        sizes={**SIZES, "mapped_file_size_commit_log": JAVA_SIZES["mappedFileSizeCommitLog"]},
        tables={"transactions": {"transaction_check_interval_ms": NEVER_MS}},
    )
    member = group.leader()
    said = run_java(name_servers, "Golden", name_servers, str(SEED), str(COUNT), folder=tmp_path)

    assert said[-1] == "golden done", said[-20:]
    target = tmp_path / "ours.json"
    run_java(name_servers, "Dump", name_servers, str(target), BROKER_NAME, folder=tmp_path)
    ours: Json = json.loads(target.read_text())
    assert group.stop() == [0]
    with rocketmq_serving(
        member.node.root, tmp_path / "java", plain=False, settings=JAVA_SIZES, self_id=member.name
    ) as broker:
        theirs = broker.dump(tmp_path / "theirs.json")

    check_messages(ours, theirs)
    check_queries(ours, theirs)


def check_messages(ours: Json, theirs: Json) -> None:
    """All that was read of ours is read again, field by field; what is new came afterwards."""
    before, after = by_place(ours["messages"]), by_place(theirs["messages"])
    last = max(message["storeTimestamp"] for message in before.values())

    assert len(before) > COUNT
    for at, message in before.items():
        assert without_bounds(after[at]) == without_bounds(message)
    assert all(after[at]["storeTimestamp"] >= last for at in after.keys() - before.keys())
    bounds = {(one["topic"], one["queue"]): one for one in theirs["queues"]}
    for one in ours["queues"]:
        if one["max"]:
            found = bounds[one["topic"], one["queue"]]

            assert found["min"] == one["min"]
            assert found["max"] >= one["max"]


def check_queries(ours: Json, theirs: Json) -> None:
    """Keys find at least what they found, and times the same offsets in queues that stood still."""
    keys = {(one["topic"], one["key"]): set(one["physicalOffsets"]) for one in theirs["keyQueries"]}
    asked = [one for one in ours["keyQueries"] if (one["topic"], one["key"]) in keys]
    ends = {(one["topic"], one["queue"]): one["max"] for one in ours["queues"]}
    same = {
        (one["topic"], one["queue"])
        for one in theirs["queues"]
        if ends.get((one["topic"], one["queue"])) == one["max"]
    }
    times = {
        (one["topic"], one["queue"], one["timestamp"]): one["offset"]
        for one in theirs["timeQueries"]
        if (one["topic"], one["queue"]) in same
    }
    compared = 0

    assert len(asked) > COUNT // 20
    for one in asked:
        assert set(one["physicalOffsets"]) <= keys[one["topic"], one["key"]]
    for one in ours["timeQueries"]:
        found = times.get((one["topic"], one["queue"], one["timestamp"]))
        if found is not None:
            compared += 1

            assert found == one["offset"], one
    assert compared > 20
