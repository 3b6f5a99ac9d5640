"""Driver, JVM, Python workers and node die by SIGKILL at random: each input is a row once.

A query of a driver of its own makes rows of one topic from messages of another, in small batches.
After each death there are as many rows as the query's group has consumed messages: neither the
offsets alone nor the rows alone were ever committed. ``LEDGERMQ_SPARK_COPY_LIVES`` is how many
lives the query has, ``LEDGERMQ_SPARK_COPY_SEED`` makes a run again.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ledgermq.client import Producer
from tests.process.conftest import Node, wait_until
from tests.spark.started_streams import run_to_end
from tests.spark.topic_copies import (
    QUEUES,
    ROWS_PER_BATCH,
    SOURCE,
    STARTED,
    consumed,
    copied,
    copying,
)
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

LIVES = int(os.environ.get("LEDGERMQ_SPARK_COPY_LIVES", "3"))
SEED = int(os.environ.get("LEDGERMQ_SPARK_COPY_SEED", time.time_ns() % 2**32))
PER_LIFE = 40 * ROWS_PER_BATCH
"""More than a life gets through."""

BEGIN_S = 600
"""For a JVM, its Python and a batch."""

STEP_S = 1.5
"""About what a batch takes: a death comes anywhere within it."""

ROOT = Path(__file__).parents[2]


class Copier:
    """A process that runs ``topic_copies``, its JVM, and their Python workers."""

    def __init__(self, addresses: list[str], folder: Path) -> None:
        (folder / STARTED).unlink(missing_ok=True)
        self._folder = folder
        self._log = (folder / "driver.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.topic_copies", ",".join(addresses), str(folder)],
            cwd=ROOT,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._process.poll() is not None

    def workers(self) -> list[int]:
        """The Python processes that the JVM has started, and theirs."""
        started = self._folder / STARTED
        if not started.exists():
            return []
        found: list[int] = []
        parents = [int(started.read_text())]
        while parents:
            parent = parents.pop()
            listed = subprocess.run(
                ["pgrep", "-P", str(parent)], check=False, capture_output=True, text=True
            )
            children = [int(word) for word in listed.stdout.split()]
            found += children
            parents += children
        return found

    def kill(self) -> None:
        """End driver, JVM and workers at once, as far as they live."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE_S)
        self._log.close()
        started = self._folder / STARTED
        if started.exists():
            jvm = Path("/proc", started.read_text(), "exe")
            wait_until(lambda: not jvm.exists(), "the JVM's end", PATIENCE_S)


def produce(addresses: list[str], numbers: range) -> None:
    """Send numbered messages, to all queues in turn."""
    with Producer(addresses) as producer:
        for queue_id in range(QUEUES):
            bodies = [b"%d" % number for number in numbers[queue_id::QUEUES]]
            producer.send_batch(SOURCE, bodies, queue_id=queue_id).result(PATIENCE_S)


def begun(addresses: list[str], folder: Path) -> Copier:
    """A driver whose query has committed a batch."""
    before = sum(consumed(addresses).values())
    copier = Copier(addresses, folder)
    wait_until(
        lambda: copier.has_ended or sum(consumed(addresses).values()) > before,
        "a batch, or the query's end",
        BEGIN_S,
    )
    assert not copier.has_ended, (folder / "driver.log").read_text()[-4_000:]
    return copier


def test_each_message_is_a_row_once_whoever_is_killed_and_whenever(
    spark: SparkSession, node: Node, tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    random_ = random.Random(SEED)
    addresses = [f"ipc://{node.runtime}"]
    for life in range(LIVES):
        produce(addresses, range(life * PER_LIFE, (life + 1) * PER_LIFE))
        copier = begun(addresses, tmp_path)
        try:
            for _ in range(random_.randrange(3)):
                time.sleep(random_.uniform(0, STEP_S))
                if workers := copier.workers():
                    with suppress(ProcessLookupError):
                        os.kill(random_.choice(workers), signal.SIGKILL)
            time.sleep(random_.uniform(0, STEP_S))
            dies_too = random_.random() < 0.5
            if dies_too:
                node.signal(signal.SIGKILL)
                node.wait_end()
                time.sleep(random_.uniform(0, STEP_S))
        finally:
            copier.kill()
        if dies_too:
            node.serve()
        rows, offsets = copied(addresses), consumed(addresses)

        assert set(rows.values()) == {1}
        assert rows.total() == sum(offsets.values())
    writer = copying(spark, addresses, tmp_path / "checkpoint", rows=PER_LIFE)
    run_to_end(writer.trigger(availableNow=True))

    assert copied(addresses) == Counter(range(LIVES * PER_LIFE))
    assert sum(consumed(addresses).values()) == LIVES * PER_LIFE
