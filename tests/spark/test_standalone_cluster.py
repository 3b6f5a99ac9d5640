"""Jobs and source on Spark's own cluster: a master and two workers, each a process of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pyspark
import pytest

from ledgermq.pipeline.source.store_source import StoreSource
from ledgermq.store.store_view import StoreView
from tests.format.test_dispatch_golden import SIZES as GOLDEN_SIZES
from tests.process.client_node import start_client_node
from tests.process.conftest import nodes_made, wait_until
from tests.spark.conftest import SHORT_LIVED
from tests.spark.test_rebuild_job import derived, size_options
from tests.unit.pipeline.archives import visible_rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
WORKERS = 2
MEMORY_MIB = 512
LOOPBACK = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": f"{MEMORY_MIB}m",
    "spark.executor.extraJavaOptions": SHORT_LIVED,
    "spark.executor.cores": "1",
    "spark.log.level": "ERROR",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.quantile": "0.5",
    # No task before both workers have given their slot.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
}


class Cluster(NamedTuple):
    """A running cluster."""

    master: str
    folder: Path

    def submit(self, *words: object, python: str = sys.executable) -> str:
        """What a program prints that ``spark-submit`` runs with ``python``."""
        settings = [f"--conf={name}={value}" for name, value in LOOPBACK.items()]
        done = subprocess.run(
            [
                str(SPARK_HOME / "bin" / "spark-submit"),
                "--master",
                self.master,
                *settings,
                *list(map(str, words)),
            ],
            env={**environment(self.folder), "PYTHONPATH": "", "PYSPARK_PYTHON": python},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr[-4_000:] + done.stdout[-4_000:]
        return done.stdout


def environment(folder: Path) -> dict[str, str]:
    """All processes on loopback, with this Python, their files below ``folder``."""
    return {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{SHORT_LIVED} -Dspark.master.rest.enabled=false"
        " -Dspark.ui.enabled=false",
        "PYSPARK_PYTHON": sys.executable,
    }


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A master and its workers on loopback."""
    with ExitStack() as running:

        def start(name: str, *words: str) -> Path:
            log = tmp_path / f"{name}.log"
            file = running.enter_context(log.open("wb"))
            process = subprocess.Popen(
                [
                    str(SPARK_HOME / "bin" / "spark-class"),
                    f"org.apache.spark.deploy.{words[0]}",
                    *list(words[1:]),
                ],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment(tmp_path),
                cwd=tmp_path,
            )
            running.callback(process.wait, 60)
            # A worker that is terminated stops its executors.
            running.callback(process.terminate)
            return log

        ports = ("--port", "0", "--webui-port", "0")
        log = start("master", "master.Master", "--host", "127.0.0.1", *ports)
        wait_until(lambda: master_in(log) is not None, "a master", 120)
        master = master_in(log)
        assert master is not None
        size = ("--cores", "1", "--memory", f"{MEMORY_MIB}m")
        for number in range(WORKERS):
            folder = str(tmp_path / f"work-{number}")
            # Each a host of its own: Spark starts no task twice on one.
            host = ("--host", f"127.0.0.{number + 1}")
            start(f"worker-{number}", "worker.Worker", *host, *ports, *size, "-d", folder, master)
        wait_until(
            lambda: log.read_text().count("Registering worker") == WORKERS, "both workers", 120
        )
        yield Cluster(master, tmp_path)


def master_in(log: Path) -> str | None:
    found = re.search(r"Starting Spark master at (spark://\S+)", log.read_text())
    return None if found is None else found[1]


def package_archive(folder: Path) -> Path:
    """The package as ``--py-files`` takes it."""
    archive = folder / "ledgermq.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted((ROOT / "ledgermq").rglob("*.py")):
            file.write(path, path.relative_to(ROOT))
    return archive


@pytest.mark.skipif(
    os.environ.get("LEDGERMQ_SPARK_CLUSTER") != "1", reason="LEDGERMQ_SPARK_CLUSTER is not 1"
)
def test_jobs_and_source_work_on_two_workers(cluster: Cluster, golden: Any, tmp_path: Path) -> None:
    program = ROOT / "ledgermq" / "pipeline" / "__main__.py"
    out = tmp_path / "derived"
    words = ("rebuild", golden("gd0"), "--out", out, "--json", "--split-mib=1")
    built = json.loads(cluster.submit(program, *words, *size_options(GOLDEN_SIZES)))
    replicas = [golden(name) for name in ("gd0", "gd1", "gd2")]
    archive = package_archive(tmp_path)
    read = json.loads(
        cluster.submit(
            "--py-files", archive, Path(__file__).with_name("cluster_read.py"), *replicas
        )
    )
    source = StoreSource(golden("gd0"))
    expected = sorted(
        position
        for range_ in source.bounds(source.queues()).values()
        for position in source.units(range_)["position"].tolist()
    )

    assert derived(out) == derived(golden("gd0"))
    assert built["units"] == built["messages"] > 200
    assert read["master"] == cluster.master
    assert read["faults"] == []
    assert len(set(read["records"])) == 1
    assert read["positions"] == expected
    assert read["whole"]
    # Workers have the package from the archive that was submitted, and are two.
    assert all("ledgermq.zip" in file for file in read["packages"])
    assert read["processes"] >= WORKERS


@pytest.mark.skipif(
    os.environ.get("LEDGERMQ_SPARK_SPECULATION") != "1",
    reason="LEDGERMQ_SPARK_SPECULATION is not 1",
)
def test_tasks_that_spark_starts_twice_write_their_rows_once(
    cluster: Cluster, golden: Any, tmp_path: Path
) -> None:
    program, target = Path(__file__).with_name("cluster_speculation.py"), tmp_path / "archive"
    marks = tmp_path / "marks"
    marks.mkdir()
    with nodes_made() as make:
        node = make()
        start_client_node(node)
        words = (f"ipc://{node.runtime}", golden("gd0"), target, marks)
        said = json.loads(cluster.submit("--conf=spark.speculation=true", program, *words))

        def bodies() -> list[bytes]:
            messages = StoreView(node.root).messages()
            return [one.message.body for one in messages if one.queue.topic == "orders"]

        wait_until(lambda: len(bodies()) >= 2_000, "rows in the queues")
        counted = Counter(bodies())
    rows = visible_rows(target)
    source = StoreSource(golden("gd0"))
    held = source.bounds(queue for queue in source.queues() if queue[0] in topics_of(rows))
    source.close()

    # Both attempts of both jobs came to the end of their work.
    assert said["marks"] == ["archive-False", "archive-True", "sink-False", "sink-True"]
    assert counted == Counter(b"%d" % number for number in range(2_000))
    assert said["archived"] == len(rows) == sum(one.end - one.first for one in held.values())
    assert len({(row["topic"], row["queueId"], row["queueOffset"]) for row in rows}) == len(rows)


def topics_of(rows: list[Any]) -> set[str]:
    return {row["topic"].replace("%25", "%") for row in rows}


@pytest.mark.skipif(
    os.environ.get("LEDGERMQ_SPARK_WHEEL") != "1", reason="LEDGERMQ_SPARK_WHEEL is not 1"
)
def test_the_wheel_works_in_a_virtual_environment_and_as_an_archive(
    cluster: Cluster, golden: Any, tmp_path: Path
) -> None:
    wheel = built_wheel(tmp_path)
    python = environment_with(wheel, tmp_path / "venv")
    program = Path(__file__).with_name("cluster_read.py")
    replicas = [golden(name) for name in ("gd0", "gd1", "gd2")]
    installed = f"--conf=spark.pyspark.python={python}"
    in_venv = json.loads(cluster.submit(installed, program, *replicas, python=python))
    # Spark takes a file by this name into the path of its workers, and no wheel by its own.
    archive = Path(shutil.copy2(wheel, tmp_path / "ledgermq-wheel.zip"))
    as_archive = json.loads(cluster.submit("--py-files", archive, program, *replicas))

    assert in_venv["whole"] and as_archive["whole"]
    assert in_venv["positions"] == as_archive["positions"] != []
    assert all(file.startswith(str(tmp_path / "venv")) for file in in_venv["packages"])
    assert all(archive.name in file for file in as_archive["packages"])


def built_wheel(folder: Path) -> Path:
    """The wheel of this checkout, with its kernels."""
    words = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    copied = folder / "source"
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, stdout=subprocess.PIPE
    ).stdout.split(b"\0")
    for name in filter(None, map(os.fsdecode, tracked)):
        target = copied / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    subprocess.run([*words, "--wheel-dir", str(folder), str(copied)], check=True, timeout=600)
    (wheel,) = folder.glob("ledgermq-*.whl")
    return wheel


def environment_with(wheel: Path, folder: Path) -> str:
    """A Python that has the wheel, and this one's libraries, but not this checkout."""
    venv.create(folder, with_pip=False)
    (libraries,) = folder.glob("lib/python*/site-packages")
    # What a ``.pth`` file of theirs adds is not taken over: it would be the checkout.
    (libraries / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    words = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target")
    subprocess.run([*words, str(libraries), str(wheel)], check=True, timeout=300)
    return str(folder / "bin" / "python")
