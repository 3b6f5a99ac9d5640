"""``ledgermq demo`` from the store of the real Java broker to a clean stop."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from ledgermq.cli.main import main
from ledgermq.cli.node.local_node import LocalNode
from ledgermq.formats.index_file import IndexLayout
from ledgermq.process import control
from ledgermq.store.store_view import StoreView
from tests.process.conftest import wait_until
from tests.suite.space import short_folder

SOURCES = Path(__file__).resolve().parents[2]


def run_demo(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ledgermq.cli.main", "demo", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )


def removable(folder: str) -> Path:
    """The demo's own folder: what a command printed is not removed unseen."""
    path = Path(folder)
    assert path.is_dir() and path.parent == Path("/tmp"), folder
    assert path.name.startswith("ledgermq-demo-"), folder
    return path


@pytest.mark.long
@pytest.mark.slow
def test_the_demo_takes_a_store_over_and_adds_to_it_exactly_what_was_acknowledged() -> None:
    done = run_demo("--json")
    assert not done.stderr, done.stderr
    assert done.returncode == 0
    summary = json.loads(done.stdout)
    folder = removable(summary["folder"])
    try:
        view = StoreView(folder / "store")
        topics = [queued.queue.topic for queued in view.messages(None, None)]
        view.close()
    finally:
        shutil.rmtree(folder)

    assert summary["found"]["messages"] == 444
    assert summary["sent"]["messages"] == summary["received"]["messages"] == 20_000
    assert sum(topic.startswith("demo-") for topic in topics) == 20_000


@pytest.mark.long
@pytest.mark.slow
def test_the_demo_shows_its_steps_and_how_to_go_on(golden_copy: object) -> None:
    store = golden_copy("gs1")  # type: ignore[operator]
    done = run_demo("--directory", str(store))
    assert not done.stderr, done.stderr
    assert done.returncode == 0
    folder = removable(done.stdout.rpartition("rm -r ")[2].strip())
    try:
        steps = [line for line in done.stdout.splitlines() if line[:1].isdigit()]
        assert [step[0] for step in steps] == list("123456")
        assert f"serve --config {folder}/node.toml" in done.stdout
        assert not (store / "abort").exists()
    finally:
        shutil.rmtree(folder)


@pytest.mark.long
@pytest.mark.slow
def test_a_supervisor_that_gets_no_processor_for_seconds_ends_no_demo(
    golden_copy: Callable[[str], Path],
) -> None:
    with ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix="demo-", dir=short_folder())
        folder = Path(stack.enter_context(made))
        shutil.copytree(golden_copy("gs1"), folder / "store")
        node = stack.enter_context(LocalNode.on_store(folder, IndexLayout(slots=500, items=400)))
        status = node.start()
        (writer,) = [one["pid"] for one in status["processes"] if one["role"] == "writer"]
        supervisor = psutil.Process(writer).parent()
        assert supervisor is not None
        supervisor.suspend()
        # Longer than one question to it may take.
        later = threading.Timer(control.ANSWER_TIMEOUT_S + 1, supervisor.resume)
        later.start()
        killed = node.kill("writer")
        later.join()

        assert killed == writer
        wait_until(lambda: is_begun_anew(node, writer), "another writer")


def is_begun_anew(node: LocalNode, before: int) -> bool:
    pids = [one["pid"] for one in node.status()["processes"] if one["role"] == "writer"]
    return pids not in ([None], [before])


def test_a_path_without_a_store_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--directory", str(tmp_path / "none.tar")]) == 1
    assert "cannot unpack the store" in capsys.readouterr().err
