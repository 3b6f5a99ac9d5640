"""``/metrics`` of real nodes: values that are true, names that promtool takes, series that end."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ledgermq.broker.state import state_reader
from ledgermq.client import Consumer, Producer
from ledgermq.client.admin.broker_admins import ArchiveAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.ipc.counters import no_counts
from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.observer.health_source import HealthSource
from ledgermq.observer.metrics import lag_survey
from ledgermq.observer.metrics.scrapes import Scrapes
from ledgermq.observer.metrics.series import CATALOG
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.process.settings.settings_loading import load_settings
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.group_nodes import TOPIC, Member, make_group, producer
from tests.process.http_client import HttpAnswer, get
from tests.process.node_start import run_command
from tests.process.running import topics_document
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
_SAMPLE = re.compile(r"^([a-z_0-9]+)(?:\{(.*)\})? (\S+)$")


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with nodes_made() as make:
        made = make()
        start_client_node(made, listen={"http": "unix"})
        wait_until(lambda: is_there(made), "the observer to answer")
        yield made


def is_there(node: Node) -> bool:
    try:
        return get(socket_of(node), "/health/live").status == 200
    except OSError:
        return False


def socket_of(node: Node) -> Path:
    return node.runtime / "http.sock"


def scrape(node: Node) -> dict[str, float]:
    """Values by name and labels, as they are written."""
    found = {}
    for line in get(socket_of(node), "/metrics").text.splitlines():
        if not line.startswith("#"):
            match = _SAMPLE.match(line)
            assert match is not None, line
            found[f"{match[1]}{{{match[2]}}}" if match[2] else match[1]] = float(match[3])
    return found


def wait_value(node: Node, name: str, value: float) -> dict[str, float]:
    """All values, once one of them is ``value``."""

    def look() -> dict[str, float] | None:
        values = scrape(node)
        return values if values.get(name) == value else None

    found: dict[str, float] = wait_until(look, f"{name} to be {value}")
    return found


COMMITS = 200


def consume(address: str, group: str, count: int) -> None:
    """Read so many messages of the topic at least, and note how far."""
    with Consumer(address, topic="orders", group=group) as consumer:
        taken: list[object] = []

        def has_taken() -> bool:
            taken.extend(consumer.poll(timeout=1.0))
            return len(taken) >= count

        wait_until(has_taken, "the messages")
        consumer.commit()


def test_messages_and_lags_are_those_of_the_log(node: Node) -> None:
    address = f"ipc://{node.runtime}"
    before = scrape(node)
    with Producer(address) as one:
        one.send_batch("orders", [b"%d" % number for number in range(30)]).result()
    consume(address, "billing", 30)
    labels = 'group="billing",topic="orders"'
    wait_value(node, f"ledgermq_consumer_lag_messages{{{labels}}}", 0)
    with Producer(address) as one:
        one.send_batch("orders", [b"later"] * 12).result()
    named = 'cluster="DefaultCluster",consumer_group="billing",is_retry="false",node_id="broker-a"'
    named += ',node_type="broker",topic="orders"'
    # RocketMQ's names are those of a leader, which a node is not while its supervisor is silent.
    values = wait_value(node, f"rocketmq_consumer_lag_messages{{{named}}}", 12)
    begun = time.monotonic()
    age = f"rocketmq_consumer_lag_latency_milliseconds{{{named}}}"

    def with_age() -> dict[str, float] | None:
        found = scrape(node)
        return found if found.get(age, 0) > 0 else None

    later: dict[str, float] = wait_until(with_age, "the age")
    waited_s = time.monotonic() - begun

    stored = 'ledgermq_topic_messages_total{topic="orders"}'
    assert values[stored] - before.get(stored, 0) == 42
    assert values[f"ledgermq_consumer_lag_messages{{{labels}}}"] == 12
    assert 0 < later[f"ledgermq_consumer_lag_seconds{{{labels}}}"] < 60 + waited_s
    assert later[age] == pytest.approx(later[f"ledgermq_consumer_lag_seconds{{{labels}}}"] * 1_000)
    for name in (
        "ledgermq_acknowledgement_seconds",
        "ledgermq_sync_seconds",
        "ledgermq_put_lock_hold_seconds",
    ):
        counts = [value for key, value in later.items() if key.startswith(f"{name}_bucket")]
        assert counts == sorted(counts) and counts[-1] == later[f"{name}_count"] > 0
        assert later[f"{name}_sum"] > 0
    frames = later["ledgermq_writer_frames_total"]
    assert later["ledgermq_acknowledgement_seconds_count"] == frames
    assert later["ledgermq_put_lock_hold_seconds_count"] <= later["ledgermq_put_lock_taken_total"]
    assert values["ledgermq_writer_messages_total"] >= 42
    assert values['ledgermq_broker_messages_total{process="broker"}'] >= 30


def test_lags_are_told_when_all_commits_are_applied_in_however_small_slices(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"ipc://{node.runtime}"
    with Producer(address) as one:
        one.send_batch("often", [b"x"] * COMMITS, queue_id=0).result(PATIENCE_S)
    with Consumer(address, topic="often", group="eager") as consumer:
        for message in consumer:
            consumer.commit(message)
            if message.queue_offset == COMMITS - 1:
                break
    wait_value(node, 'ledgermq_consumer_lag_messages{group="eager",topic="often"}', 0)
    # What an observer that begins has before it is more than it applies in one look.
    monkeypatch.setattr(lag_survey, "APPLY_S", 0.0)
    monkeypatch.setattr(state_reader, "APPLY_NS", 0)
    paths = RuntimePaths(node.runtime)
    with ThreadPoolExecutor(1) as thread, CursorPage.attach(paths.cursors) as page:
        source = HealthSource(paths.control, thread)
        scrapes = Scrapes(page, load_settings(node.config), source, no_counts(), thread)
        counted = asyncio.run(scrapes.counted())

    assert (counted.groups["eager"], counted.is_old) == ((0, COMMITS), False)


def test_messages_of_a_few_of_many_queues_are_told(node: Node) -> None:
    stored = 'ledgermq_topic_messages_total{topic="BenchmarkTest"}'
    before = scrape(node)[stored]
    with Producer(f"ipc://{node.runtime}") as one:
        for number in (3, 700, 1_023, 700):
            one.send("BenchmarkTest", b"", queue_id=number).result()
    wait_value(node, stored, before + 4)


def test_the_node_is_told_as_status_tells_it(node: Node) -> None:
    wait_value(node, "ledgermq_leads", 1)
    values, status = scrape(node), node.status()
    roles = {
        re.findall('"(.*)"', name)[0]: value
        for name, value in values.items()
        if name.startswith("ledgermq_process_up")
    }

    assert values["ledgermq_ready"] == 1
    assert values["ledgermq_raft_term"] == status["raft"]["term"]
    assert values['ledgermq_raft_role{role="leader"}'] == 1
    assert values['ledgermq_raft_role{role="follower"}'] == 0
    assert 0 <= values["ledgermq_raft_majority_age_seconds"] < 60
    assert roles == dict.fromkeys(
        ("supervisor", "raft", "writer", "dispatcher", "broker", "observer"), 1
    )
    assert values["ledgermq_disk_size_bytes"] == status["disk"]["total"]
    committed = values['ledgermq_log_position_bytes{cursor="committed"}']
    assert committed == status["cursors"]["committed"]["position"]
    assert values['ledgermq_process_resident_bytes{process="writer"}'] > 1_000_000
    assert values["ledgermq_scrape_duration_seconds"] > 0


def test_every_series_is_of_the_catalogue_and_has_its_help(node: Node) -> None:
    text = get(socket_of(node), "/metrics").text
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.M))
    kinds = dict(re.findall(r"^# TYPE (\S+) (.*)$", text, re.M))

    assert set(helps) <= set(CATALOG)
    assert helps == {name: CATALOG[name].help for name in helps}
    assert kinds == {name: CATALOG[name].kind.value for name in kinds}
    # What a node that leads, without TLS, other members, gRPC, cold reads, slaves and receipts, has
    # not to tell.
    elsewhere = re.compile("member_|^ledgermq_(grpc|cold|slaves|receipts)_")
    assert {name for name in set(CATALOG) - set(helps) if not elsewhere.search(name)} <= {
        "ledgermq_not_ready_reason",
        "ledgermq_archive_behind_bytes",
        "ledgermq_archive_timestamp_seconds",
        "ledgermq_backup_behind_bytes",
        "ledgermq_backup_timestamp_seconds",
        "ledgermq_backup_stream_timestamp_seconds",
        "ledgermq_certificate_expiry_timestamp_seconds",
        "ledgermq_key_file_timestamp_seconds",
        "ledgermq_consumer_lag_look_age_seconds",
        "ledgermq_consumer_lag_messages",
        "ledgermq_consumer_lag_seconds",
        "rocketmq_consumer_lag_messages",
        "rocketmq_consumer_lag_latency_milliseconds",
    }


def test_openmetrics_is_given_to_who_asks_for_it(node: Node) -> None:
    answer: HttpAnswer = get(socket_of(node), "/metrics", accept=OPENMETRICS)

    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
    assert "# TYPE ledgermq_writer_messages counter" in answer.text
    assert "\nledgermq_writer_messages_total " in answer.text


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Debian's prometheus has promtool")
def test_promtool_has_nothing_to_say_of_our_names(node: Node) -> None:
    address = f"ipc://{node.runtime}"
    with Producer(address) as one:
        one.send_batch("orders", [b"first"]).result()
        consume(address, "style", 1)
        one.send_batch("orders", [b"later"]).result()
    lag = "rocketmq_consumer_lag_latency_milliseconds{"

    def lags() -> str | None:
        page: str = get(socket_of(node), "/metrics").text
        return page if lag in page else None

    text: str = wait_until(lags, "a group that lags")
    ours = "".join(
        line
        for line in text.splitlines(keepends=True)
        # RocketMQ's names are RocketMQ's: one ends with milliseconds.
        if not re.match(r"(# \w+ )?rocketmq_", line)
    )
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=ours, capture_output=True, text=True, check=False
    )
    read = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )

    assert (checked.returncode, checked.stderr) == (0, "")
    # 3: it could be read, and breaks a rule of style.
    assert read.returncode == 3
    assert {line.split()[0] for line in read.stderr.splitlines()} == {
        "rocketmq_consumer_lag_latency_milliseconds"
    }


def test_a_leader_tells_of_its_members(make_node: Callable[[], Node]) -> None:
    def with_http(member: Member) -> None:
        text = member.node.config.read_text()
        member.node.config.write_text(text.replace("[listen]", '[listen]\nhttp = "unix"'))

    group = make_group(
        make_node, ack="majority-fsync", supervision={"ready_within_ms": 2_000}, prepare=with_http
    )
    for member in group.members:
        member.node.wait_ready()
        wait_until(lambda member=member: is_there(member.node), "the observer")
    leader = group.leader()
    first, second = group.others(leader)
    with producer(leader) as one:
        one.send_batch(TOPIC, [b"body"] * 10).result()
    group.wait_equal()
    level = wait_value(leader.node, f'ledgermq_member_behind_entries{{member="{first.name}"}}', 0)
    follows = wait_value(first.node, "ledgermq_ready", 1)
    begun = time.monotonic()
    second.kill()
    with producer(leader) as one:
        one.send_batch(TOPIC, [b"body"] * 10).result()
    name = f'ledgermq_member_behind_entries{{member="{second.name}"}}'
    behind: dict[str, float] = wait_until(
        lambda: (found := scrape(leader.node))[name] > 0 and found, "a member to be behind"
    )
    waited_s = time.monotonic() - begun
    first.kill()
    alone = wait_value(leader.node, 'ledgermq_not_ready_reason{code="no_majority"}', 1)

    for unit in ("entries", "bytes", "seconds"):
        assert level[f'ledgermq_member_behind_{unit}{{member="{first.name}"}}'] == 0
        assert f'ledgermq_member_behind_{unit}{{member="{second.name}"}}' in level
    lags = [
        behind[f'ledgermq_member_behind_{unit}{{member="{second.name}"}}']
        for unit in ("entries", "bytes", "seconds")
    ]
    assert lags[1] > lags[0] * len(b"body")
    assert 0 < lags[2] <= waited_s
    assert not [key for key in follows if key.startswith(("ledgermq_member_", "rocketmq_mess"))]
    assert follows["ledgermq_ready"] == 1 and follows["ledgermq_leads"] == 0
    assert behind[f'ledgermq_member_silent_seconds{{member="{second.name}"}}'] > 0
    assert (alone["ledgermq_ready"], alone["ledgermq_leads"]) == (0, 0)


def test_ages_of_backups_and_archives_are_told(node: Node) -> None:
    before = scrape(node)
    begun_s = time.time()
    answer = run_command(
        "backup", "create", str(node.root), str(node.folder / "backups"),
        "--runtime-dir", str(node.runtime),
    )  # fmt: skip
    with connect_broker([f"ipc://{node.runtime}"], name="test", timeout_s=PATIENCE_S) as broker:
        ArchiveAdmin(broker).commit("nightly", 0)
    archived = 'ledgermq_archive_timestamp_seconds{archive="nightly"}'
    wait_until(lambda: archived in scrape(node), "the archive")
    with Producer(f"ipc://{node.runtime}") as one:
        one.send("orders", b"later").result()
    values: dict[str, float] = wait_until(
        lambda: (found := scrape(node))["ledgermq_backup_behind_bytes"] > 0 and found,
        "bytes that are not in the backup",
    )

    assert (answer.returncode, answer.stderr) == (0, "")
    assert "ledgermq_backup_timestamp_seconds" not in before
    for name in ("ledgermq_backup_timestamp_seconds", archived):
        assert begun_s - 1 <= values[name] <= time.time() + 1
    # It has nothing; the position of the log is read a moment earlier.
    committed = values['ledgermq_log_position_bytes{cursor="committed"}']
    assert values['ledgermq_archive_behind_bytes{archive="nightly"}'] >= committed


TOPICS, GROUPS, PAIRS_PER_GROUP, SERIES_MAX = 10_000, 2_000, 20, 50


@pytest.mark.long
def test_ten_thousand_topics_and_two_thousand_groups_have_as_many_series_as_are_wanted(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    node.configure(
        listen={"http": "unix"}, ack={"mode": "majority-memory"}, http={"series_max": SERIES_MAX},
        store={
            "mapped_file_size_commit_log": 16_777_216, "mapped_file_size_consume_queue": 20_000,
            "max_hash_slot_num": 500, "max_index_num": 400,
        },
    )  # fmt: skip
    names = [f"topic-{number:05d}" for number in range(TOPICS)]
    config = node.root / "config"
    config.mkdir(parents=True)
    (config / "topics.json").write_text(topics_document(*names, queues=1))
    table = {
        f"{names[(group * 7 + step * 13) % TOPICS]}@group-{group:04d}": {"0": 0}
        for group in range(GROUPS)
        for step in range(PAIRS_PER_GROUP)
    }
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    node.serve()
    with Producer(f"ipc://{node.runtime}") as one:
        sent = [one.send(name, b"body") for name in names[:300] for _ in range(3)]
        for result in sent:
            result.result()

    def look() -> dict[str, float] | None:
        """Round by round all are looked at."""
        values = scrape(node)
        shown = [name for name in values if name.startswith("ledgermq_topic_messages_total")]
        others = values.get("ledgermq_consumer_lag_others_pairs")
        is_known = len(shown) == SERIES_MAX and others == len(table) - SERIES_MAX
        return values if is_known and values["ledgermq_consumer_lag_others_messages"] else None

    wait_until(lambda: is_there(node), "the observer")
    values: dict[str, float] = wait_until(look, "all pairs to be looked at")
    per_pair = {
        name: sum(key.startswith(f"{name}{{") for key in values)
        for name in ("ledgermq_consumer_lag_messages", "ledgermq_consumer_lag_seconds")
    }
    lag = sum(
        value for key, value in values.items() if key.startswith("ledgermq_consumer_lag_messages")
    )

    assert per_pair == dict.fromkeys(per_pair, SERIES_MAX)
    assert lag == 3 * SERIES_MAX
    assert values["ledgermq_topics_others"] == values["ledgermq_topics"] - SERIES_MAX
    assert values["ledgermq_topics"] >= TOPICS
    assert len(values) < 350 + 6 * SERIES_MAX
