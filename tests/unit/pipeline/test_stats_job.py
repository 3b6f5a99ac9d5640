"""What ``stats`` counts is what the messages say, one by one."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ledgermq.formats.config_json import encode_document
from ledgermq.model.errors import ConfigError
from ledgermq.pipeline.jobs import stats_counts
from ledgermq.pipeline.jobs.job_reports import stats_as_html, write_stats
from ledgermq.pipeline.jobs.stats_counts import OTHER_TAGS
from ledgermq.pipeline.jobs.stats_job import GroupLag, Stats, stats
from ledgermq.pipeline.source_options import parse_options
from ledgermq.store.store_view import StoreView
from tests.unit.pipeline.archives import TasksHere

MINUTE = 60_000


def counted(root: Path, *, bucket_ms: int = MINUTE, **options: str) -> Stats:
    given = {"path": str(root), "subscribePattern": ".*", **options}
    checked = parse_options(given, streaming=False)
    return stats(TasksHere(), checked, bucket_ms=bucket_ms, split_bytes=1 << 16)


def messages_of(root: Path) -> dict[str, list[Any]]:
    found = defaultdict(list)
    for stored in StoreView(root).messages():
        found[stored.queue.topic].append(stored.message)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gs1", "gd0", "gu0"])
def test_counts_are_those_of_the_messages(golden: Any, name: str) -> None:
    found = counted(golden(name), bucket_ms=1_000)
    expected = messages_of(golden(name))

    assert found.tasks > 1
    assert found.topics.keys() == expected.keys()
    for topic, messages in expected.items():
        one = found.topics[topic]
        properties = [message.parsed_properties() for message in messages]
        rates = Counter(
            (held.get("TAGS"), message.store_timestamp // 1_000)
            for held, message in zip(properties, messages, strict=True)
        )
        keys = Counter(key for held in properties for key in held.get("KEYS", "").split(" ") if key)
        waits = [message.store_timestamp - message.born_timestamp for message in messages]

        assert one.messages == len(messages)
        assert one.sizes.total == sum(len(message.body) for message in messages)
        assert {place: rate[0] for place, rate in one.rates.items()} == rates
        assert sum(rate[1] for rate in one.rates.values()) == one.sizes.total
        assert one.first_stored == min(message.store_timestamp for message in messages)
        assert one.last_stored == max(message.store_timestamp for message in messages)
        assert one.latencies.largest == max(0, *waits)
        assert one.early == sum(wait < 0 for wait in waits)
        if len(keys) <= 100:
            assert dict(one.keys) == keys
            assert one.keys_lost == 0


@pytest.mark.slow
def test_lags_are_those_of_the_offsets_that_are_stored(golden: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(golden("gs1"), root)
    ends = {
        queue.queue_id: queue.end for queue in StoreView(root).queues() if queue.topic == "plain0"
    }
    path = root / "config" / "consumerOffset.json"
    path.write_bytes(
        encode_document(
            {"offsetTable": {"plain0@billing": {"0": 1, "1": ends[1]}, "gone@x": {"0": 1}}}
        )
    )
    lags = counted(root).lags

    assert lags == (
        GroupLag("billing", "plain0", 0, 1, ends[0], ends[0] - 1, 0),
        GroupLag("billing", "plain0", 1, ends[1], ends[1], 0, 0),
    )
    path.write_bytes(encode_document({"offsetTable": {"plain0@billing": {"0": "x"}}}))
    with pytest.raises(ConfigError, match="no offset of a queue"):
        counted(root)


@pytest.mark.slow
def test_offsets_of_a_broker_with_light_queues_count_and_their_messages_once(golden: Any) -> None:
    found = counted(golden("l494"))

    assert {lag.group for lag in found.lags} == {"g5-retry", "g5-pull"}
    assert [lag.offset for lag in found.lags if lag.topic == "work"] == [3] * 4
    assert found.messages == 116
    assert not [topic for topic in found.topics if topic.startswith("%LMQ%")]


@pytest.mark.slow
def test_times_and_topics_choose_messages(golden: Any) -> None:
    messages = messages_of(golden("gs1"))["plain0"]
    times = sorted(message.store_timestamp for message in messages)
    middle = times[len(times) // 2]
    found = counted(golden("gs1"), subscribePattern="plain0", startingTimestamp=str(middle))

    assert list(found.topics) == ["plain0"]
    assert found.messages == sum(time >= middle for time in times)


@pytest.mark.slow
def test_rare_tags_and_keys_are_put_together(golden: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = counted(golden("gs1"))
    monkeypatch.setattr(stats_counts, "TAGS_MAX", 1)
    monkeypatch.setattr(stats_counts, "KEYS_KEPT", 3)
    found = counted(golden("gs1"))
    folded = [topic for topic, one in whole.topics.items() if len({t for t, _ in one.rates}) > 1]

    assert folded
    for topic, one in whole.topics.items():
        fewer = found.topics[topic]
        tags = {tag for tag, _ in fewer.rates}

        assert tags == {OTHER_TAGS} if topic in folded else len(tags) == 1
        assert sum(rate[0] for rate in fewer.rates.values()) == one.messages
        for key, count in fewer.keys.items():
            assert count <= one.keys.get(key, count) <= count + fewer.keys_lost


@pytest.mark.slow
def test_the_tables_and_the_page_say_it_and_need_nothing_else(golden: Any, tmp_path: Path) -> None:
    found = counted(golden("gs1"))
    paths = {path.name: path for path in write_stats(found, tmp_path / "out")}
    tables = {
        name: pq.read_table(str(paths[f"{name}.parquet"])).to_pylist()
        for name in ("rates", "topics", "distributions", "keys", "lags")
    }
    document = json.loads(paths["stats.json"].read_text())
    page = paths["stats.html"].read_text()

    assert sum(row["messages"] for row in tables["rates"]) == found.messages
    assert sum(row["messages"] for row in tables["topics"]) == found.messages
    sizes = [row for row in tables["distributions"] if row["what"] == "size"]
    assert sum(row["messages"] for row in sizes) == found.messages
    assert len(tables["lags"]) == len(found.lags) == len(document["lags"]) > 0
    assert document["messages"] == found.messages
    assert not re.search(r"(src|href)=|url\(|@import|<script", page)
    assert page.count("<svg") >= 4
    assert all(topic in page for topic in found.topics)


def test_names_on_the_page_are_escaped() -> None:
    lag = GroupLag("<b>", "a&b", 0, 1, 5, 4, 0)
    page = stats_as_html(Stats("<source>", MINUTE, {}, (lag,), 0))

    assert "<b> " not in page
    assert "&lt;b&gt; a&amp;b" in page
    assert "&lt;source&gt;" in page


def test_a_bucket_shorter_than_a_second_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="too short"):
        counted(tmp_path, bucket_ms=999)
