"""What a batch has consumed, as Spark's checkpoint has it; a wrong one is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ledgermq.client.staging import ConsumedQueues
from ledgermq.model.errors import ConfigError
from ledgermq.pipeline.sink.sink_options import parse_sink_options
from ledgermq.pipeline.sink.spark_sink import FILE_SIZE_MAX, consumed_by
from ledgermq.pipeline.source_options import parse_options
from ledgermq.pipeline.stream_reader import lag

SINK = {"nodes": "ipc:///nowhere", "topic": "t", "commitOffsets": "true"}
SOURCE = {"nodes": "ipc:///nowhere"}
META = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


def of_group(topic: str, begin: int, end: int, *, group: str = "g") -> str:
    """Queue 0 of a topic, and a queue that is new in this batch."""
    consumer = {"group": group, "from": {topic: {"0": begin}}}
    return json.dumps({topic: {"0": end, "1": 3}, "@group": consumer})


def written(folder: Path, *lines: str, version: str = "v1") -> Path:
    (folder / "offsets").mkdir()
    (folder / "offsets" / "7").write_text("\n".join([version, META, *lines]))
    return folder


def test_a_batch_has_consumed_what_its_sources_have_for_their_group(tmp_path: Path) -> None:
    others = ["-", '{"logOffset":4}', '{"orders":{"0":99}}', "17"]
    checkpoint = written(tmp_path, of_group("a", 5, 9), *others, of_group("b", 0, 0))

    assert consumed_by(checkpoint, 7) == ConsumedQueues(
        "g", {("a", 0): (5, 9), ("a", 1): (None, 3), ("b", 0): (0, 0), ("b", 1): (None, 3)}
    )


def test_a_source_without_news_has_consumed_nothing(tmp_path: Path) -> None:
    lines = [of_group("a", 5, 9), of_group("b", 2, 4)]
    written(tmp_path, *lines)
    (tmp_path / "offsets" / "8").write_text("\n".join(["v1", META, lines[0], of_group("b", 4, 6)]))

    assert consumed_by(tmp_path, 8) == ConsumedQueues(
        "g", {("a", 0): (9, 9), ("a", 1): (3, 3), ("b", 0): (4, 6), ("b", 1): (None, 3)}
    )


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ([], "need one group"),
        (['{"orders":{"0":99}}'], "need one group"),
        ([of_group("a", 0, 1), of_group("b", 0, 1, group="h")], "need one group"),
        ([of_group("a", 0, 1), of_group("a", 0, 1)], "two sources of the query consume one queue"),
        (['{"a":{"0":1},"@group":7}'], "not a group and where the batch begins"),
        (['{"a":{"0":1},"@group":{"group":"g"}}'], "another form"),
        (['{"a":{"0":"x"},"@group":{"group":"g","from":{}}}'], "another form"),
    ],
)
def test_offsets_of_no_group_or_of_several_are_refused(
    tmp_path: Path, lines: list[str], what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        consumed_by(written(tmp_path, *lines), 7)


def test_a_checkpoint_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="in a folder that the driver sees"):
        consumed_by(tmp_path, 7)
    written(tmp_path, of_group("a", 0, 1), version="v2")
    with pytest.raises(ConfigError, match="form of the file is not known"):
        consumed_by(tmp_path, 7)
    with (tmp_path / "offsets" / "7").open("ab") as file:
        file.truncate(FILE_SIZE_MAX + 1)
    with pytest.raises(ConfigError, match="more than"):
        consumed_by(tmp_path, 7)


@pytest.mark.parametrize("given", ["/data/check point", "file:///data/check%20point"])
def test_the_checkpoint_is_a_folder_of_the_drivers_host(given: str) -> None:
    options = parse_sink_options({**SINK, "checkpointLocation": given}, streaming=True)

    assert options.checkpoint == Path("/data/check point")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({}, "needs another one .*checkpointLocation"),
        ({"checkpointLocation": "s3a://bucket/c"}, "folder of the driver's host"),
        ({"checkpointLocation": "hdfs://name/c"}, "folder of the driver's host"),
        ({"checkpointLocation": "file://host/c"}, "folder of the driver's host"),
        ({"commitOffsets": "yes"}, "neither true nor false"),
    ],
)
def test_a_sink_that_cannot_commit_offsets_says_so(options: dict[str, str], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        parse_sink_options({**SINK, **options}, streaming=True)


def test_offsets_are_committed_by_streams_alone() -> None:
    with pytest.raises(ConfigError, match="for a stream alone"):
        parse_sink_options(SINK, streaming=False)
    with pytest.raises(ConfigError, match="for a stream alone"):
        parse_options({**SOURCE, "group": "g"}, streaming=False)
    assert parse_sink_options({**SINK, "commitOffsets": "false"}, streaming=True).checkpoint is None


@pytest.mark.parametrize(
    ("options", "what"),
    [({"path": "/store"}, "asked of nodes"), ({**SOURCE, "group": ""}, "no name of a group")],
)
def test_a_stream_of_a_group_needs_nodes_and_a_name(options: dict[str, str], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        parse_options({"group": "g", **options}, streaming=True)


def test_the_lag_of_a_stream_of_a_group_is_that_of_its_queues() -> None:
    progress = {
        "endOffset": {"a": {"0": 5}, "@group": {"group": "g", "from": {"a": {"0": 1}}}},
        "latestOffset": {"a": {"0": 9}},
    }

    assert lag(progress) == {"a": {"0": 4}}
