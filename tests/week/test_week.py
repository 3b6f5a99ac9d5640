"""A week of twenty topics with ages of their own, in an hour, on small disks.

Three nodes keep some megabytes of the log, and pieces in a bucket have the rest: leaders are
killed, the bucket is away for minutes and busy for others, and a node is begun anew with an empty
disk. Meanwhile each message within its age is read by our client, and in the end by RocketMQ's and
Spark, too, with equal sums, and none that is beyond it.

``LEDGERMQ_WEEK_MINUTES`` says how long the week is; ``python -m tests.week --minutes 10``.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.client import Admin, Producer, ProducerOptions
from ledgermq.model.errors import LedgerError, StorageError
from ledgermq.pipeline.pieces.piece_manifest import PieceManifest, read_manifest
from ledgermq.pipeline.pieces.piece_places import place_at
from tests.buckets.object_server import BUCKET, FaultyProxy
from tests.compat.remoting_group import make_remoting_group
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import SIZES, Member
from tests.process.test_retention import begin_of, set_retention
from tests.suite.patience import PATIENCE_S
from tests.week.week_load import QUEUES, AgedTopic, WeekLoad, aged_topics
from tests.week.week_reading import java_sums, read_natively, spark_sums

MINUTES = float(os.environ.get("LEDGERMQ_WEEK_MINUTES") or 0)
SEED = int(os.environ.get("LEDGERMQ_WEEK_SEED") or random.SystemRandom().randrange(10**6))

pytestmark = [
    pytest.mark.slow, pytest.mark.long, pytest.mark.oracle, pytest.mark.spark,
    pytest.mark.skipif(not MINUTES, reason="the week: LEDGERMQ_WEEK_MINUTES, make check-all"),
]  # fmt: skip

LOCAL = "24MiB"
FILLER, FILLER_SIZE, FILLER_COUNT = "filler", 200_000, 200
"""Behind all, so that nothing else is in the logs."""

SEAL_S, PRUNES_EACH = 10.0, 3
COLD_READ_S = 20.0


def say(begun: float, text: str) -> None:
    print(f"week: {time.monotonic() - begun:6.0f} s  {text}", flush=True)


class Week:
    """Nodes, bucket and load of one run."""

    def __init__(self, make_node: Callable[[], Node], proxy: FaultyProxy, minutes: float) -> None:
        self.seconds = minutes * 60
        self.topics = aged_topics(minutes)
        self.proxy = proxy
        self.chance = random.Random(SEED)
        self.place = f"s3://{BUCKET}/week-{SEED}"
        self.group, self.name_servers = make_remoting_group(
            make_node,
            ack="majority-fsync",
            sizes={**SIZES, "mapped_file_size_commit_log": 1_048_576},
            tables={"cold": {"place": self.place, "refresh_s": 1}},
        )
        self.group.leader()
        self.begun = time.monotonic()
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        with Admin(self.group.addresses, timeout_s=PATIENCE_S) as admin:
            admin.create_topic(FILLER, queues=1)
            for topic in self.topics:
                admin.create_topic(topic.name, queues=QUEUES)
                if topic.keep_ms:
                    admin.alter_topic(topic.name, keep_ms=topic.keep_ms)
        for member in self.group.members:
            set_retention(member, bytes_max=LOCAL)
        self.load = WeekLoad(self.group.addresses, self.topics, SEED)

    def live(self) -> None:
        """Let the week pass."""
        is_over = threading.Event()
        with ThreadPoolExecutor(1) as timers:
            house = timers.submit(self._keep_house, is_over)
            try:
                for at, fault in self._faults():
                    while time.monotonic() - self.begun < at * self.seconds:
                        assert not house.done(), house.exception()
                        self.load.check()
                        self._read_one()
                    self.done[fault.__name__] += 1
                    say(self.begun, fault.__name__)
                    fault()
            finally:
                is_over.set()
                self.give_bucket()
            house.result()
        self.load.stop()

    def _faults(self) -> Iterator[tuple[float, Callable[[], None]]]:
        """What happens, and after which part of the week."""
        planned = [
            (0.30, self.take_bucket), (0.40, self.give_bucket),
            (0.55, self.have_bucket_busy), (0.62, self.give_bucket),
            (0.72, self.empty_a_disk),
        ]  # fmt: skip
        planned += [(number / 10 + 0.05, self.kill_leader) for number in range(10)]
        yield from sorted(planned, key=lambda one: one[0])
        yield 1.0, self.give_bucket

    def take_bucket(self) -> None:
        self.proxy.fault = lambda _number, _head: "gone"

    def have_bucket_busy(self) -> None:
        self.proxy.fault = lambda number, _head: "busy" if number % 2 else ""

    def give_bucket(self) -> None:
        self.proxy.fault = lambda _number, _head: ""

    def kill_leader(self) -> None:
        leader = self.group.leader()
        leader.kill()
        self.group.leader()
        leader.start()
        leader.node.wait_ready()

    def empty_a_disk(self) -> None:
        wiped = self.chance.choice(self.group.others(self.group.leader()))
        wiped.kill()
        shutil.rmtree(wiped.node.root)
        wiped.start()
        wait_until(wiped.status, "the new one's answer")
        for member in self.group.others(wiped):
            answer = member.command("raft", "forget", wiped.name, "--json")
            assert json.loads(answer.stdout) == {"forgotten": True}
        wiped.node.wait_ready()

    def _keep_house(self, is_over: threading.Event) -> None:
        """What timers do: seal, and at times drop what is too old; what fails is done again."""
        turn = 0
        while not is_over.wait(SEAL_S):
            turn += 1
            if not self.seal():
                self.refused["seal"] += 1
            elif turn % PRUNES_EACH == 0:
                is_pruned = main(["piece", "prune", self.place]) == 0
                (self.done if is_pruned else self.refused)["prune"] += 1

    def seal(self) -> bool:
        """Seal what any of the members has; whether that went well."""
        member = self.chance.choice(self.group.up())
        words = ["piece", "seal", str(member.node.root), "--to", self.place]
        is_sealed = main([*words, "--runtime-dir", str(member.node.runtime)]) == 0
        self.done["seal"] += is_sealed
        return is_sealed

    def _read_one(self) -> None:
        """Read a topic from its first message, and miss nothing that is within its age."""
        topic = self.chance.choice(self.topics)
        wanted = self.load.acknowledged(topic.name)
        try:
            read = read_natively(self.group.addresses, topic.name, timeout_s=COLD_READ_S)
        except LedgerError as error:
            # The bucket is away, or nobody leads: it is said, and nothing is passed over.
            self.refused[f"read: {type(error).__name__}"] += 1
            return
        since_ms = time.time_ns() // 1_000_000 - topic.keep_ms if topic.keep_ms else 0
        for queue, stored in wanted.items():
            lacking = [
                offset
                for offset, one in stored.items()
                if one.stored_ms >= since_ms and read.messages[queue].get(offset) != one
            ]
            assert not lacking, (topic, queue, lacking[:10], len(lacking))
        self.done["read"] += 1

    def end(self) -> int:
        """Have nothing but messages of the filler in the logs; the position of its first one."""
        options = ProducerOptions(timeout_s=PATIENCE_S)
        chance = random.Random(SEED)
        with Producer(self.group.addresses, options=options) as producer:
            sent = [
                producer.send(FILLER, chance.randbytes(FILLER_SIZE), queue_id=0).result(PATIENCE_S)
                for _ in range(FILLER_COUNT)
            ]
        first = sent[0].physical_offset
        self.group.wait_equal()
        wait_until(
            lambda: self.seal() and self.manifest().end > sent[-1].physical_offset,
            "all to be sealed",
        )
        for member in self.group.members:
            wait_until(lambda one=member: begin_of(one) > first, "the logs to go")
        return first

    def manifest(self) -> PieceManifest:
        return read_manifest(place_at(self.place))

    def forget_manifests(self) -> None:
        """Have all nodes read the manifest anew."""
        for member in self.group.members:
            before = member.node.pid("cold")
            os.kill(before, signal.SIGKILL)
            wait_until(lambda one=member, old=before: _is_other(one, old), "the next one")


def _is_other(member: Member, before: int) -> bool:
    try:
        return member.node.pids().get("cold", before) != before
    except StorageError:
        return False


def check_ages(
    manifest: PieceManifest, topics: Sequence[AgedTopic], *, now_ms: int, before: int
) -> None:
    """No piece that ends before a position has a topic of which all is beyond its age there."""
    for row in manifest.rows:
        for topic in topics:
            stretches = row.queues.get(topic.name, ())
            if topic.keep_ms and stretches and row.end <= before:
                newest = max(one.max_ms for one in stretches)
                assert newest >= now_ms - topic.keep_ms, (topic, row.name, newest, now_ms)


def test_a_week_of_topics_with_ages_loses_nothing_and_keeps_nothing_too_long(
    make_node: Callable[[], Node],
    proxy: FaultyProxy,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    print(f"week: seed {SEED}, {MINUTES} minutes", flush=True)
    week = Week(make_node, proxy, MINUTES)
    try:
        week.live()
    finally:
        say(week.begun, f"done {dict(week.done)}, refused {dict(week.refused)}")
    say(week.begun, f"acknowledged {week.load.count()}, refused {dict(week.load.refused)}")
    filler = week.end()
    before_ms = time.time_ns() // 1_000_000
    assert main(["piece", "prune", week.place]) == 0
    after_ms = time.time_ns() // 1_000_000
    manifest = week.manifest()
    check_ages(manifest, week.topics, now_ms=before_ms, before=filler)
    week.forget_manifests()
    say(week.begun, f"{len(manifest.rows)} pieces, log {manifest.end}, of the week {filler}")

    native, within, beyond = {}, 0, 0
    for topic in week.topics:
        read = read_natively(week.group.addresses, topic.name, timeout_s=PATIENCE_S)
        native[topic.name] = read.sum
        since_ms = after_ms - topic.keep_ms if topic.keep_ms else 0
        for queue, stored in week.load.acknowledged(topic.name).items():
            for offset, one in stored.items():
                if one.stored_ms >= since_ms:
                    assert read.messages[queue].get(offset) == one, (topic, queue, offset)
                    within += 1
                elif offset not in read.messages[queue]:
                    beyond += 1
        having = [row for row in manifest.rows if topic.name in row.queues]
        for messages in read.messages.values():
            for one in messages.values():
                assert any(row.start <= one.position < row.end for row in having), (topic, one)
    say(week.begun, f"{within} within their ages, and read; {beyond} beyond, and gone")
    names = [topic.name for topic in week.topics]
    java = java_sums(week.name_servers, names, tmp_path)
    say(week.begun, "read by RocketMQ's client")
    kept = [name for name in names if any(name in row.queues for row in manifest.rows)]
    spark = request.getfixturevalue("spark")
    in_spark = spark_sums(spark, week.place, kept)
    say(week.begun, "read by Spark")

    assert java == native
    assert in_spark == {name: native[name] for name in kept}
    assert all(native[name].count == 0 for name in names if name not in kept)
    assert within > 0
    assert beyond > 0
    assert {"kill_leader", "take_bucket", "have_bucket_busy", "empty_a_disk"} <= week.done.keys()
    assert week.done["read"] > 0
    week.group.stop()
