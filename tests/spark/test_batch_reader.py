"""``spark.read.format("ledgermq")`` on directories that the Java broker wrote."""

from __future__ import annotations

import hashlib
import json
import shutil
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from ledgermq.model.errors import ConfigError
from ledgermq.pipeline.columns.message_schema import COLUMNS
from ledgermq.pipeline.spark_source import register

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STORES = ["gs1", "gs1.live", "gd0", "gd1", "gd2.live", "gu0", "gu1", "g6"]
EVERYTHING = {"subscribePattern": ".*"}
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
ADDED = {"MIN_OFFSET", "MAX_OFFSET"}
"""Properties that RocketMQ's client adds to what it has read."""

Row = dict[str, Any]


def load(spark: SparkSession, root: Path, **options: object) -> DataFrame:
    texts = {name: str(value) for name, value in (options or EVERYTHING).items()}
    return spark.read.format("ledgermq").options(**texts).load(str(root))


def rows_of(frame: DataFrame) -> list[Row]:
    rows: list[Row] = frame.toArrow().to_pylist()
    return rows


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row["physicalOffset"] for row in rows_of(frame.select("physicalOffset")))


def java_host(text: str) -> str:
    """``address:port`` as RocketMQ's client writes the address: IPv6 in full."""
    address = ip_address(text.rpartition(":")[0].strip("[]"))
    if address.version == 4:
        return str(address)
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))


def as_said(row: Row) -> Row:
    """What the answers of the broker say of a message that is a row."""
    host, port = java_host(row["storeHost"]), row["storeHost"].rpartition(":")[2]
    return {
        "topic": row["topic"],
        "queue": row["queueId"],
        "queueOffset": row["queueOffset"],
        "physicalOffset": row["physicalOffset"],
        "sysFlag": row["sysFlag"],
        "flag": row["flag"],
        "bodyCrc": row["bodyCrc"],
        "bornTimestamp": round(row["bornTimestamp"].timestamp() * 1_000),
        "storeTimestamp": round(row["storeTimestamp"].timestamp() * 1_000),
        "bornHost": java_host(row["bornHost"]),
        "storeHost": f"/[{host}]:{port}" if ":" in host else f"/{host}:{port}",
        "reconsumeTimes": row["reconsumeTimes"],
        "bodyLength": len(row["body"]),
        "bodyMd5": hashlib.md5(row["body"], usedforsecurity=False).hexdigest(),
        "properties": dict(row["properties"]),
    }


@pytest.mark.parametrize("name", STORES)
def test_rows_are_what_the_broker_said_field_by_field(
    spark: SparkSession, golden: Any, golden_json: Any, name: str
) -> None:
    answers = golden_json(name)
    rows = {
        row["physicalOffset"]: row
        for row in rows_of(load(spark, golden(name), minPartitions=3, **EVERYTHING))
    }
    ends = {(queue["topic"], queue["queue"]): queue["max"] for queue in answers["queues"]}
    for said in answers["messages"]:
        row = rows.pop(said["physicalOffset"])
        found = as_said(row)
        properties = {k: v for k, v in said["properties"].items() if k not in ADDED}

        assert found == {**{name: said[name] for name in found}, "properties": properties}
        assert (row["keys"], row["tags"]) == (properties.get("KEYS"), properties.get("TAGS"))
        assert row["crcOk"]
    # Messages that the broker stored after it had answered.
    assert all(
        row["queueOffset"] >= ends.get((row["topic"], row["queueId"]), 0) for row in rows.values()
    )


def test_index_and_term_are_those_of_the_entries(spark: SparkSession, golden: Any) -> None:
    rows = rows_of(load(spark, golden("gu0")).select("physicalOffset", "raftIndex", "raftTerm"))
    old = [row for row in rows if row["physicalOffset"] < 1_048_576]
    new = sorted(row["raftIndex"] for row in rows if row["physicalOffset"] >= 1_048_576)

    assert {(row["raftIndex"], row["raftTerm"]) for row in old} == {(None, None)}
    assert len(new) == len(set(new)) > 100
    assert {row["raftTerm"] for row in rows} > {None}


def test_topics_of_the_system_are_left_out_unless_they_are_asked_for(
    spark: SparkSession, golden: Any
) -> None:
    chosen = {row["topic"] for row in rows_of(load(spark, golden("gd0"), includeBody="false"))}
    asked = rows_of(load(spark, golden("gd0"), subscribe="SCHEDULE_TOPIC_XXXX"))

    assert "plain0" in chosen
    assert not any(topic.startswith(("SCHEDULE_TOPIC", "RMQ_SYS")) for topic in chosen)
    assert {row["topic"] for row in asked} == {"SCHEDULE_TOPIC_XXXX"}


def test_a_schema_or_an_option_leaves_columns_out(spark: SparkSession, golden: Any) -> None:
    by_option = load(spark, golden("gd0"), columns="queueId, topic")
    reader = spark.read.format("ledgermq").schema("queueId int, topic string")
    by_schema = reader.load(str(golden("gd0")))
    no_body = load(spark, golden("gd0"), includeBody="false")

    assert by_option.columns == by_schema.columns == ["queueId", "topic"]
    assert sorted(by_option.collect()) == sorted(by_schema.collect())
    assert no_body.columns == [name for name in COLUMNS if name != "body"]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"subscribe": "plain0"}, lambda r: r["topic"] == "plain0"),
        ({"subscribePattern": "plain[01]"}, lambda r: r["topic"] in ("plain0", "plain1")),
        (
            {"assign": '{"plain0": [1, 2]}'},
            lambda r: r["topic"] == "plain0" and r["queueId"] in (1, 2),
        ),
        (
            {"subscribe": "plain0", "startingOffsets": '{"plain0": {"0": 3, "1": -2, "2": -1}}'},
            lambda r: (
                r["topic"] == "plain0"
                and ((r["queueId"] == 0 and r["queueOffset"] >= 3) or r["queueId"] in (1, 3))
            ),
        ),
        (
            {"subscribe": "plain0", "endingOffsets": '{"plain0": {"0": 3, "1": -1}}'},
            lambda r: r["topic"] == "plain0" and (r["queueId"] != 0 or r["queueOffset"] < 3),
        ),
    ],
)
def test_options_choose_queues_and_offsets(
    spark: SparkSession, golden: Any, options: dict[str, str], wanted: Any
) -> None:
    root = golden("gd0")
    expected = [row["physicalOffset"] for row in rows_of(load(spark, root)) if wanted(row)]

    assert expected
    assert offsets(load(spark, root, **options)) == sorted(expected)


def test_times_choose_what_was_stored_then(spark: SparkSession, golden: Any) -> None:
    root = golden("gd0")
    rows = rows_of(load(spark, root))
    times = sorted(round(row["storeTimestamp"].timestamp() * 1_000) for row in rows)
    first, end = times[len(times) // 4], times[len(times) // 2]
    found = load(spark, root, startingTimestamp=first, endingTimestamp=end, **EVERYTHING)
    expected = [
        row["physicalOffset"]
        for row in rows
        if first <= round(row["storeTimestamp"].timestamp() * 1_000) < end
    ]

    assert len(expected) > 10
    assert offsets(found) == sorted(expected)


@contextmanager
def pushdown(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(PUSHDOWN, "true")
    try:
        yield
    finally:
        spark.conf.set(PUSHDOWN, "false")


def filters(rows: list[Row]) -> list[tuple[str, list[int]]]:
    """Conditions, and the positions of the rows that each must find."""
    middle = sorted(row["storeTimestamp"] for row in rows)[len(rows) // 2]
    high = sorted(row["physicalOffset"] for row in rows)[-20]
    time = middle.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    cases: list[tuple[str, Any]] = [
        (
            "topic in ('plain0', 'warm') and queueOffset < 2 and queueId = 1",
            lambda r: (
                r["topic"] in ("plain0", "warm") and r["queueOffset"] < 2 and r["queueId"] == 1
            ),
        ),
        (
            f"storeTimestamp < timestamp'{time}' and queueId > 1",
            lambda r: r["storeTimestamp"] < middle and r["queueId"] > 1,
        ),
        (
            f"physicalOffset > {high} and storeTimestamp >= timestamp'{time}'",
            lambda r: r["physicalOffset"] > high and r["storeTimestamp"] >= middle,
        ),
        (
            "tags = 'TagA' and topic like 'pla%'",
            lambda r: r["tags"] == "TagA" and r["topic"].startswith("pla"),
        ),
    ]
    return [
        (text, sorted(r["physicalOffset"] for r in rows if wanted(r))) for text, wanted in cases
    ]


def test_filters_find_the_same_rows_with_and_without_push_down(
    spark: SparkSession, golden: Any
) -> None:
    root = golden("gd0")
    rows = rows_of(load(spark, root))
    for text, expected in filters(rows):
        assert expected
        assert offsets(load(spark, root).where(text)) == expected
        with pushdown(spark):
            # Loaded for this query alone: Spark keeps what it pushed with what was loaded.
            pushing = load(spark, root, pushFilters="true", **EVERYTHING)

            assert offsets(pushing.where(text)) == expected


def test_a_pushed_filter_keeps_files_closed(spark: SparkSession, golden_copy: Any) -> None:
    root = golden_copy("gd0")
    rows = rows_of(load(spark, root))
    last_start = max(int(path.name) for path in (root / "dledger-n0" / "data").iterdir())
    late = [row for row in rows if row["physicalOffset"] >= last_start]
    assert 0 < len(late) < len(rows)
    # A file that is read now is found to be damaged.
    damaged = root / "dledger-n0" / "data" / ("0" * 20)
    damaged.write_bytes(b"\xff" * damaged.stat().st_size)
    with pushdown(spark):
        query = load(spark, root, pushFilters="true", **EVERYTHING).where(
            f"physicalOffset >= {last_start}"
        )

        assert offsets(query) == sorted(row["physicalOffset"] for row in late)


def test_a_pushing_reader_without_sparks_setting_is_told_so(
    spark: SparkSession, golden: Any
) -> None:
    with pytest.raises(AnalysisException, match="filterPushdown"):
        load(spark, golden("gd0"), pushFilters="true").count()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscrib": "x"}, "no such option (option='subscrib'"),
        (
            {"subscribe": "no-such-topic"},
            "no such topic (option='subscribe', topics=['no-such-topic'])",
        ),
        (
            {"startingOffsets": '{"plain0": {"0": 99999}}', "subscribe": "plain0"},
            "queue ends before",
        ),
    ],
)
def test_a_wrong_option_is_named(
    spark: SparkSession, golden: Any, options: dict[str, str], said: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        load(spark, golden("gd0"), **options).count()

    assert said in str(caught.value)


def test_a_column_of_another_type_is_refused(spark: SparkSession, golden: Any) -> None:
    reader = spark.read.format("ledgermq").schema("queueId bigint")

    with pytest.raises(AnalysisException, match=r"another type .*queueId.*type='int'"):
        reader.load(str(golden("gd0"))).count()


def test_sealed_files_alone_are_read(spark: SparkSession, golden_copy: Any) -> None:
    root = golden_copy("gd0")
    expected = offsets(load(spark, root))
    for name in ("consumequeue", "index", "config"):
        shutil.rmtree(root / name)

    assert offsets(load(spark, root)) == expected


def test_what_retention_has_deleted_is_told_or_left_out(
    spark: SparkSession, golden_copy: Any
) -> None:
    root = golden_copy("gd0")
    first = root / "dledger-n0" / "data" / ("0" * 20)
    size = first.stat().st_size
    rows = rows_of(load(spark, root, columns="topic,queueId,physicalOffset"))
    topic, queue_id = next(
        (row["topic"], row["queueId"]) for row in rows if row["physicalOffset"] >= size
    )
    wanted = {
        "assign": json.dumps({topic: [queue_id]}),
        "startingOffsets": json.dumps({topic: {str(queue_id): 0}}),
    }
    before = offsets(load(spark, root, **wanted))
    first.unlink()
    left = [position for position in before if position >= size]

    assert 0 < len(left) < len(before)
    with pytest.raises(AnalysisException) as caught:
        load(spark, root, **wanted).count()
    assert f"topic='{topic}', queueId={queue_id}, wanted=0" in str(caught.value)
    assert f"missing={len(before) - len(left)}" in str(caught.value)
    assert offsets(load(spark, root, failOnDataLoss="false", **wanted)) == left


def test_times_are_the_same_in_every_time_zone(spark: SparkSession, golden: Any) -> None:
    frame = load(spark, golden("gd0"), columns="storeTimestamp", subscribe="plain0")
    seconds = [row[0] for row in frame.selectExpr("unix_millis(storeTimestamp)").collect()]
    arrow = [row["storeTimestamp"] for row in rows_of(frame)]

    assert sorted(seconds) == sorted(round(time.timestamp() * 1_000) for time in arrow)
    assert all(time > datetime(2026, 1, 1, tzinfo=UTC) for time in arrow)


def test_a_session_whose_python_lacks_the_package_is_refused_when_it_begins(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python)

    with pytest.raises(ConfigError, match=rf"PYSPARK_PYTHON.*{python}"):
        register(spark)
