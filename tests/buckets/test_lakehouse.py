"""The notebook of a lake: a group of three whose leaders die, a bucket, two engines, a restore."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ledgermq.client import Admin
from ledgermq.conversion.last_backup import STREAM_NAME, read_last_backup
from tests.buckets.object_server import BUCKET, KEYS, ObjectServer
from tests.buckets.test_readers import HERE, jars, program
from tests.process.conftest import nodes_made, wait_until
from tests.process.group_nodes import Group, Member, make_group, producer
from tests.spark.conftest import SHORT_LIVED

pytestmark = [pytest.mark.slow, pytest.mark.long]

EXAMPLE = HERE.parents[1] / "examples" / "spark_lakehouse.py"
AGAIN = ("bash", "-c", 'while :; do "$@"; sleep 0.2; done', "unit")
"""As a unit is started again when its node was away."""

REPOSITORY = f"s3://{BUCKET}/streams-of-orders"
MILLISECONDS = timedelta(milliseconds=3)
SHOWN = ("runs", "Spark", "DuckDB", "orders")
TABLE = "lake.mq.orders"


@contextmanager
def streamed(member: Member) -> Iterator[None]:
    """``ledgermq backup stream`` of a member's store."""
    words = [
        "backup", "stream", member.node.root, "--to", REPOSITORY,
        "--runtime-dir", member.node.runtime, "--interval", 0.1,
    ]  # fmt: skip
    process = subprocess.Popen(
        [*AGAIN, sys.executable, "-m", "ledgermq.cli.main", *map(str, words)],
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_streamed(group: Group, member: Member) -> None:
    """Until all that is committed is in the repository."""
    end = group.leader().cursors()["committed"]["position"]

    def has() -> bool:
        last = read_last_backup(member.node.root, name=STREAM_NAME)
        return last is not None and last.end >= end

    wait_until(has, f"position {end} in the stream")


class Orders:
    """What was acknowledged."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.cents: Counter[str] = Counter()
        self.count = 0

    def send(self, count: int) -> None:
        """So many more, of three customers."""
        numbers = range(self.count, self.count + count)
        orders = [("abc"[number % 3], 100 + number) for number in numbers]
        bodies = [json.dumps({"customer": who, "cents": cents}).encode() for who, cents in orders]
        with producer(*self._group.members) as one:
            one.send_batch("orders", bodies).result()
        self.count += count
        for who, cents in orders:
            self.cents[who] += cents

    @property
    def told(self) -> str:
        """As the notebook prints them."""
        return ", ".join(f"{who} {cents}" for who, cents in sorted(self.cents.items()))


def kill_leader(group: Group) -> None:
    """Somebody else leads then, and it is back."""
    leader = group.leader()
    leader.kill()
    group.leader()
    leader.start()
    leader.node.wait_ready()


def now_text() -> str:
    """Now, when it is over: messages have milliseconds."""
    moment = datetime.now(UTC)
    wait_until(lambda: datetime.now(UTC) > moment + MILLISECONDS, "the next milliseconds")
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@pytest.fixture
def surroundings(
    tmp_path: Path, straight: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> ObjectServer:
    """PyIceberg's configuration and Spark's, as they are on a driver's host."""
    fetched = jars(tmp_path / "jars")
    endpoint = f"http://127.0.0.1:{straight.port}"
    catalog = {
        "URI": f"sqlite:///{tmp_path}/catalog.db",
        "WAREHOUSE": f"s3://{BUCKET}/lake",
        "S3__ENDPOINT": endpoint,
        "S3__ACCESS_KEY_ID": KEYS["ROOT_ACCESS_KEY"],
        "S3__SECRET_ACCESS_KEY": KEYS["ROOT_SECRET_KEY"],
        "S3__REGION": "us-east-1",
    }
    for name, value in catalog.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", value)
    settings = {
        "spark.master": "local[2]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.jars": fetched,
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    words = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{words} pyspark-shell")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", SHORT_LIVED)
    return straight


@pytest.fixture
def group() -> Iterator[Group]:
    with nodes_made() as make:
        yield make_group(make, ack="majority-fsync")


@pytest.mark.usefixtures("surroundings")
def test_two_engines_have_the_sums_of_all_that_was_acknowledged_and_a_moment_is_restored(
    group: Group, tmp_path: Path
) -> None:
    group.leader()
    nodes = ",".join(group.addresses)
    with Admin(nodes) as admin:
        admin.create_topic("orders", queues=4)
    orders = Orders(group)
    source = group.others(group.leader())[0]

    def notebook(moment: str, folder: str) -> list[str]:
        arguments = (nodes, TABLE, REPOSITORY, moment, tmp_path / folder)
        return program(EXAMPLE, *arguments).splitlines()

    with streamed(source):
        orders.send(30)
        # Points begin with the first tables that a stream puts.
        wait_streamed(group, source)
        kill_leader(group)
        orders.send(6)
        moment = now_text()
        orders.send(24)
        wait_streamed(group, source)
        first = notebook(moment, "first")
        before = orders.told
        kill_leader(group)
        orders.send(9)
        wait_streamed(group, source)
        second = notebook(moment, "second")
    statuses = group.stop()

    for printed, runs, sums, count in ((first, 1, before, 60), (second, 2, orders.told, 69)):
        assert [line for line in printed if line.startswith(SHOWN)] == [
            f"runs: {runs}",
            f"Spark: {sums}",
            "DuckDB has the same: True",
            f"orders without a region: {count}",
            f"orders at {moment}: 36",
        ]
    assert statuses == [0, 0, 0]
