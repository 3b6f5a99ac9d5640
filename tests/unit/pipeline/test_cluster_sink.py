"""A batch over two groups is the rows of one attempt, whatever dies between its two commits."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from ledgermq.client import Consumer, Producer
from ledgermq.model.errors import ConfigError, LedgerError
from ledgermq.pipeline.sink.commit_plan import (
    GroupStage,
    GroupStages,
    PlanFolder,
    commit_in_groups,
    drop_in_groups,
)
from ledgermq.pipeline.sink.sink_options import SinkOptions, parse_sink_options
from ledgermq.pipeline.sink.spark_sink import RowStager, check_sink_columns
from tests.process.two_groups import HOME, OTHER, QUEUES, TOPIC, TwoGroups, two_groups
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

SINK = "spark-query"


@pytest.fixture
def groups(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[TwoGroups]:
    with two_groups(capsys, tmp_path) as made:
        made.spread()
        yield made


def options_of(groups: TwoGroups, folder: Path, **more: str) -> SinkOptions:
    given = {"nodes": groups.home.address, "brokerGroups": "all", "topic": TOPIC}
    given |= {"checkpointLocation": str(folder), **more}
    return parse_sink_options(given, streaming=True)


def stage(
    options: SinkOptions, rows: list[dict[str, object]], *, batch: int = 0, first_queue: int = 0
) -> dict[str, GroupStage]:
    """What one task stages, each row a batch of Arrow's own."""
    stages = GroupStages(options, SINK, batch)
    try:
        stager = RowStager(stages, stages.queues_of, TOPIC, first_queue, stages.open_queues)
        for row in rows:
            stager.add(pa.RecordBatch.from_pylist([row]))
        return stages.finish()
    finally:
        stages.close()


def numbered(numbers: range) -> list[dict[str, object]]:
    return [{"body": b"%d" % number} for number in numbers]


def stored(groups: TwoGroups) -> dict[str, Counter[tuple[int, bytes]]]:
    """What each group has, by queue."""
    found: dict[str, Counter[tuple[int, bytes]]] = {}
    for group in (groups.home, groups.other):
        of_group = found[group.name] = Counter()
        with Consumer(group.address, topic=TOPIC, start="first", one_group=True) as consumer:
            ends = consumer.ends()
            while any(consumer.offsets()[queue] < end for queue, end in ends.items()):
                for message in consumer.poll(PATIENCE_S):
                    of_group[message.queue_id, bytes(message.body)] += 1
    return found


@pytest.mark.long
def test_a_batch_that_died_between_two_groups_is_finished_with_the_rows_of_its_first_attempt(
    groups: TwoGroups, tmp_path: Path
) -> None:
    options = options_of(groups, tmp_path / "checkpoint")
    hasty = options_of(groups, tmp_path / "checkpoint", timeoutMs="3000")
    first = [stage(options, numbered(range(10))), stage(options, numbered(range(10, 20)))]
    groups.other.node.end()
    with pytest.raises(LedgerError, match=f"broker_group='{OTHER}'"):
        commit_in_groups(hasty, SINK, 0, first)
    # As Spark does when a commit has failed; and its next attempt, for which one group is there.
    drop_in_groups(hasty, SINK, 0, first)
    second = [stage(options, numbered(range(20)))]
    groups.other.start_again()
    commit_in_groups(options, SINK, 0, second)
    commit_in_groups(options, SINK, 0, [stage(options, numbered(range(20)), first_queue=1)])
    found = stored(groups)

    assert set(second[0]) == {HOME}
    bodies = Counter(body for rows in found.values() for _, body in rows.elements())
    assert bodies == Counter(b"%d" % number for number in range(20))
    assert all(rows.total() == 10 for rows in found.values())
    assert sorted(one.name for one in (tmp_path / "checkpoint" / "ledgermq").iterdir()) == [
        f"{SINK}-0.json"
    ]


def test_a_key_has_the_queue_that_a_producer_gives_it(groups: TwoGroups, tmp_path: Path) -> None:
    keys = [f"key-{number}" for number in range(20)]
    rows: list[dict[str, object]] = [{"body": key.encode(), "queueKey": key} for key in keys]
    options = options_of(groups, tmp_path / "checkpoint")
    commit_in_groups(options, SINK, 0, [stage(options, rows)])
    with Producer(groups.other.address) as producer:
        for key in keys:
            producer.send(TOPIC, key.encode(), queue_key=key)
        producer.flush(PATIENCE_S)
    found = stored(groups)

    assert all(found.values())
    assert all(count == 2 for of_group in found.values() for count in of_group.values())
    assert len({(name, queue) for name in found for queue, _ in found[name]}) == 2 * QUEUES


def test_a_plan_is_read_as_it_was_written_and_another_file_is_refused(tmp_path: Path) -> None:
    folder = PlanFolder(tmp_path / "plans")
    options = parse_sink_options(
        {"nodes": "tcp://a:1", "brokerGroups": "a,b", "commitFolder": str(tmp_path)},
        streaming=True,
    )
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / f"{SINK}-3.json").write_text(json.dumps({"version": 2}))

    assert folder.read(SINK, 2) is None
    assert options.plans == tmp_path
    with pytest.raises(ConfigError, match="no plan of a batch's commits"):
        folder.read(SINK, 3)


@pytest.mark.parametrize(
    ("given", "streaming", "said"),
    [
        ({}, True, "needs='checkpointLocation'"),
        ({"jobId": "j"}, False, "needs='commitFolder'"),
        ({"commitFolder": "s3a://b/c"}, False, "driver's host alone"),
        (
            {"commitOffsets": "true", "checkpointLocation": "/c"},
            True,
            "options=['brokerGroups', 'commitOffsets']",
        ),
        ({"brokerGroups": " "}, False, "names no group"),
    ],
)
def test_what_cannot_be_committed_once_is_refused(
    given: dict[str, str], streaming: bool, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_sink_options(
            {"nodes": "tcp://a:1", "brokerGroups": "all", **given}, streaming=streaming
        )

    assert said in str(caught.value)


def test_a_queue_without_its_group_is_refused() -> None:
    types = {"body": "binary", "queueId": "int"}
    check_sink_columns(types, topic="t")

    with pytest.raises(ConfigError, match="a queue is one group's"):
        check_sink_columns(types, topic="t", is_over_groups=True)
