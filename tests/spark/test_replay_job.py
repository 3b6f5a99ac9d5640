"""``spark replay``: what an archive has is sent once, as it was, wherever a run is stopped.

Its tasks run here, one after the other; ``test_replay_command`` has them run by Spark.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client import Producer
from ledgermq.formats.records.body_compression import plain_body
from ledgermq.model.errors import ConfigError, StoreLockedError
from ledgermq.pipeline.archive.folder_store import FolderStore
from ledgermq.pipeline.archive.replay_job import NOT_REPLAYED, ReplayOutcome, replay
from ledgermq.pipeline.archive.replay_layout import ORIGIN, ReplayChoice
from ledgermq.store.store_view import StoreView
from tests.process.conftest import Node, wait_until
from tests.suite.patience import PATIENCE_S
from tests.unit.pipeline.archives import TasksHere, archived, visible_rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
Row = dict[str, Any]


@pytest.fixture(scope="module")
def archive(golden: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a store that RocketMQ wrote; not to be changed but for its replays."""
    root: Path = tmp_path_factory.mktemp("archive")
    archived(golden("gs1"), root)
    return root


def replayed(archive: Path, node: Node, name: str, **choice: Any) -> ReplayOutcome:
    wanted = ReplayChoice(**{"to_topic": "orders", **choice})
    tasks = TasksHere()
    store, nodes = FolderStore(archive), [node.address]
    return replay(tasks, store, nodes, wanted, name=name, timeout_s=PATIENCE_S)


def stored(node: Node, topic: str, count: int) -> list[Any]:
    """All messages of a topic, once there are so many."""

    def found() -> list[Any]:
        return [one for one in StoreView(node.root).messages() if one.queue.topic == topic]

    wait_until(lambda: len(found()) >= count, "messages in the queues")
    return found()


def as_sent(row: Row) -> tuple[Any, ...]:
    properties = {name: value for name, value in row["properties"] if name not in NOT_REPLAYED}
    keys = (row["keys"] or "").split()
    return row["body"], row["tags"], keys, properties, row["flag"]


def as_stored(one: Any) -> tuple[Any, ...]:
    message = one.message
    properties = message.parsed_properties()
    others = {name: value for name, value in properties.items() if name not in NOT_REPLAYED}
    keys = properties.get("KEYS", "").split()
    body = bytes(plain_body(message.body, message.sys_flag))
    return body, properties.get("TAGS"), keys, others, message.flag


@pytest.mark.long
def test_messages_are_sent_as_they_were_and_in_their_order(archive: Path, node: Node) -> None:
    rows = visible_rows(archive)
    found = replayed(archive, node, "whole")
    again = replayed(archive, node, "whole")
    target = stored(node, "orders", len(rows))
    origins: dict[str, list[int]] = {}
    by_origin = {}
    for one in target:
        text = one.message.parsed_properties()[ORIGIN]
        queue, _, offset = text.rpartition("/")
        origins.setdefault(queue, []).append(int(offset))
        by_origin[text] = one

    assert found.sent == len(rows) == len(target) == len(by_origin)
    assert found.tasks > found.topics > 1
    assert again.sent == again.found == 0
    assert all(offsets == sorted(offsets) for offsets in origins.values())
    for row in rows:
        topic = row["topic"].replace("%25", "%")
        one = by_origin[f"whole/{topic}/{row['queueId']}/0/{row['queueOffset']}"]

        assert as_stored(one) == as_sent(row)
        assert one.queue.queue_id == row["queueId"] % 4


def test_a_part_is_chosen_by_all_that_is_said(archive: Path, node: Node) -> None:
    rows = [row for row in visible_rows(archive) if row["topic"] == "plain0"]
    times = sorted(row["storeTimestamp"] for row in rows)
    middle = round(times[len(times) // 2].timestamp() * 1_000)
    tag = Counter(row["tags"] for row in rows if row["tags"]).most_common(1)[0][0]
    key = next(row["keys"].split()[0] for row in rows if row["keys"])
    only = {"topics": ("plain0",), "to_topic": "other"}

    def expected(wanted: Any) -> int:
        return sum(map(wanted, rows))

    def ms(row: Row) -> int:
        return round(row["storeTimestamp"].timestamp() * 1_000)

    assert replayed(archive, node, "q", **only, queues=(1,)).sent == expected(
        lambda row: row["queueId"] == 1
    )
    assert replayed(archive, node, "t", **only, tag=tag).sent == expected(
        lambda row: row["tags"] == tag
    )
    assert replayed(archive, node, "k", **only, key=key).sent == expected(
        lambda row: key in (row["keys"] or "").split()
    )
    assert replayed(archive, node, "b", **only, begin_ms=middle).sent == expected(
        lambda row: ms(row) >= middle
    )
    assert replayed(archive, node, "e", **only, end_ms=middle).sent == expected(
        lambda row: ms(row) < middle
    )


def ran(plans: list[str], archive: Path, node: Node, topic: str) -> list[str]:
    """How runs end that die by their plans."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.unit.pipeline.replay_dying"),
            *(str(archive), node.address, topic),
        ],
        input="\n".join(plans) + "\n",
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.long
def test_a_run_that_dies_anywhere_sends_nothing_twice(archive: Path, node: Node) -> None:
    rows = visible_rows(archive)
    plans = ["sent 1", "noted 12", "sent 9", "sent 12", "noted 30", "sent 3", "never", "never"]
    outcomes = ran(plans, archive, node, "orders")
    target = stored(node, "orders", len(rows))
    origins = Counter(one.message.parsed_properties()[ORIGIN] for one in target)

    assert outcomes == ["died"] * 6 + ["ended"] * 2
    assert len(origins) == len(rows)
    assert set(origins.values()) == {1}


@pytest.fixture
def archive_of_runs(node: Node, tmp_path: Path) -> Path:
    """Of the node itself, in three runs; the second one has nothing of the topic."""
    root = tmp_path / "runs"
    with Producer(node.address) as producer:
        for topic in ("orders", "bills", "orders"):
            futures = [
                producer.send(topic, b"%d" % n, tag="red", keys=[f"k{n}"], queue_id=n % 4)
                for n in range(60)
            ]
            for future in futures:
                future.result(PATIENCE_S)
            stored(node, topic, 60 if not root.exists() or topic == "bills" else 120)
            archived(node.root, root)
    return root


def test_a_replay_by_a_sink_that_dies_anywhere_stores_nothing_twice(
    archive_of_runs: Path, node: Node
) -> None:
    rows = [row for row in visible_rows(archive_of_runs) if row["topic"] == "orders"]
    plans = ["staged 1", "committed 1", "staged 1", "committed 2", "stored", "stored"]
    outcomes = ran(plans, archive_of_runs, node, "again")
    target = stored(node, "again", len(rows))
    by_origin = {one.message.parsed_properties()[ORIGIN]: one for one in target}

    assert outcomes == ["died"] * 4 + ["ended"] * 2
    assert len(rows) == len(target) == len(by_origin) == 120
    for row in rows:
        one = by_origin[f"again/orders/{row['queueId']}/0/{row['queueOffset']}"]

        assert as_stored(one) == as_sent(row)
        assert one.message.parsed_properties()["UNIQ_KEY"] == dict(row["properties"])["UNIQ_KEY"]
        assert one.queue.queue_id == row["queueId"]


def test_a_replay_by_a_sink_stores_what_came_since_and_nothing_else(
    archive: Path, archive_of_runs: Path, node: Node
) -> None:
    rows = [row for row in visible_rows(archive) if row["topic"] == "plain0"]
    choice = {"topics": ("plain0",), "to_topic": "other", "by_sink": True}
    found = [replayed(archive, node, "sink", **choice) for _ in range(2)]
    others = replayed(archive_of_runs, node, "sink", to_topic="other", by_sink=True)

    assert [one.sent for one in found] == [len(rows), 0]
    # Another archive's replay of the same name is another one.
    assert others.sent == 180
    assert len(stored(node, "other", len(rows) + 180)) == len(rows) + 180
    with pytest.raises(ConfigError, match="begun otherwise"):
        replayed(archive, node, "sink", topics=("plain0",), to_topic="other")


def test_what_cannot_be_replayed_is_refused(archive: Path, node: Node, tmp_path: Path) -> None:
    replayed(archive, node, "first", topics=("plain1",))
    with pytest.raises(ConfigError, match="begun otherwise"):
        replayed(archive, node, "first")
    with pytest.raises(ConfigError, match="no such topic"):
        replayed(archive, node, "other", topics=("nothing",))
    with pytest.raises(ConfigError, match="not the name"):
        replayed(archive, node, "a/b")
    with pytest.raises(ConfigError, match="no archive"):
        replayed(tmp_path, node, "other")
    lock = archive / "_ledgermq" / "replays" / "first" / "lock"
    with lock.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StoreLockedError, match="runs already"):
            replayed(archive, node, "first", topics=("plain1",))
