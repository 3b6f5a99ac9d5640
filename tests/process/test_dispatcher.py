"""The dispatcher process against a real broker's log, a real page and real sockets."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from ledgermq.broker.reading.store_upkeep import DispatcherRest
from ledgermq.dispatcher import dispatcher
from ledgermq.formats.kernels.kernel import scan_entries
from ledgermq.ipc.counters import DispatcherCounter
from ledgermq.ipc.cursor_page import CursorPage, LogCursor, Role
from ledgermq.ipc.doorbell import Bell, Inbox
from ledgermq.ipc.loop import StopFlag
from ledgermq.model.config.settings import ListenSection, Settings, StoreSection
from ledgermq.model.ids import Index, Position, Term
from ledgermq.store.queues import dispatch_checkpoint
from tests.process.conftest import wait_until
from tests.suite.patience import PATIENCE_S
from tests.suite.space import short_folder


@dataclass
class Node:
    """A node of which only the dispatcher runs; the test is its supervisor, writer and raft."""

    settings: Settings
    page: CursorPage
    context: zmq.Context[Any]
    broker: Inbox
    ends: list[int]

    @property
    def root(self) -> Path:
        return self.settings.store.path_root_dir

    def commit(self, position: int, *, written: int | None = None) -> None:
        end = LogCursor(Position(position), Index(1), Term(1))
        log_end = end._replace(position=Position(written or position))
        self.page.publish_written(log_end, 0)
        self.page.publish_durable(log_end, 1)
        self.page.publish_committed(end)

    def wait_dispatched(self, position: int) -> None:
        """Wait for bells, as the broker does, until the cursor is there."""
        self.wait(lambda: self.page.read_dispatched().position == position)

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            self.page.set_asleep(Role.BROKER, True)
            if not condition():
                self.broker.socket.poll(50)
            self.broker.drain(self.broker.sources)
            assert time.monotonic() < deadline, self.page.read_dispatched()

    def checkpoint(self) -> int:
        saved = dispatch_checkpoint.read(self.root / "ledgermq" / "dispatch-checkpoint")
        return -1 if saved is None else saved.position


@pytest.fixture
def node(golden: Any) -> Iterator[Node]:
    """A node whose log is that of gd0, and of which nothing is dispatched."""
    home = Path(tempfile.mkdtemp(prefix="dsp", dir=short_folder()))
    root, runtime = home / "store", home / "run"
    runtime.mkdir()
    shutil.copytree(golden("gd0") / "dledger-n0" / "data", root / "dledger-n0" / "data")
    settings = Settings(
        store=StoreSection(
            path_root_dir=root,
            mapped_file_size_consume_queue=4_000,
            max_hash_slot_num=500,
            max_index_num=400,
            flush_interval_ms=10,
        ),
        listen=ListenSection(runtime_dir=runtime),
    )
    context: zmq.Context[Any] = zmq.Context()
    page = CursorPage.create(runtime / "cursors")
    broker = Inbox(context, runtime, Role.BROKER)
    yield Node(settings, page, context, broker, entry_ends(root / "dledger-n0" / "data"))
    broker.close()
    context.destroy(linger=0)
    page.close()
    shutil.rmtree(home)


def entry_ends(folder: Path) -> list[int]:
    ends: list[int] = []
    for path in sorted(folder.iterdir()):
        content, base = path.read_bytes(), int(path.name)
        starts, sizes = np.zeros(1_000, np.int64), np.zeros(1_000, np.int64)
        count, _, _ = scan_entries(
            memoryview(content), 0, len(content), 48, base, starts.data, sizes.data
        )
        ends += (starts[:count] + sizes[:count] + base).tolist()
    return ends


@pytest.fixture
def start(node: Node) -> Iterator[Callable[[], Callable[[], int]]]:
    """Start the dispatcher in a thread; what it gives stops it and gives the exit status."""
    running: list[tuple[StopFlag, threading.Thread]] = []

    def started() -> Callable[[], int]:
        stop, status = StopFlag(), []
        thread = threading.Thread(target=lambda: status.append(dispatcher.run(node.settings, stop)))
        thread.start()
        running.append((stop, thread))

        def stopped() -> int:
            stop.reason = "test"
            thread.join()
            assert status, "the dispatcher ended with an exception"
            return status[0]

        return stopped

    yield started
    for stop, thread in running:
        stop.reason = "test"
        thread.join()


def content_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def assert_built_as_java_did(root: Path, golden_store: Path) -> None:
    assert content_of(root / "consumequeue") == content_of(golden_store / "consumequeue")
    ours = list(content_of(root / "index").values())
    assert ours == list(content_of(golden_store / "index").values())


@pytest.mark.slow
def test_it_follows_the_committed_cursor(node: Node, start: Any, golden: Any) -> None:
    stop = start()
    for position in (node.ends[0], node.ends[100], node.ends[430], node.ends[-1]):
        node.commit(position, written=node.ends[-1])
        node.wait_dispatched(position)
    status = stop()
    counters = node.page.counters(Role.DISPATCHER).tolist()

    assert status == 0
    assert (
        counters[DispatcherCounter.MESSAGES]
        == counters[DispatcherCounter.UNITS]
        == len(node.ends)
        == 444
    )
    assert counters[DispatcherCounter.BYTES] == node.ends[-1]
    assert (
        counters[DispatcherCounter.SKIPPED]
        == counters[DispatcherCounter.GAPS]
        == counters[DispatcherCounter.TRUNCATED]
        == 0
    )
    assert node.page.read_dispatched().messages == 444
    assert_built_as_java_did(node.root, golden("gd0"))


@pytest.mark.slow
def test_who_begins_to_wait_ends_a_rest(
    node: Node, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rest of an hour: only its end is seen, not how long it would have been."""
    monkeypatch.setattr(dispatcher, "REST_AWAY_MS", 3_600_000)
    start()
    rest = node.page.rest_cell()
    node.commit(node.ends[0], written=node.ends[-1])
    wait_until(lambda: rest[0], "a rest")
    bell = Bell(node.context, node.settings.listen.runtime_dir, node.page, Role.DISPATCHER)
    DispatcherRest(node.page, bell).end(rest[0])
    assert rest[0]
    DispatcherRest(node.page, bell).end(rest[0] - 1)
    wait_until(lambda: not rest[0], "the end of the rest")
    bell.close()


@pytest.mark.slow
def test_a_stop_finishes_and_syncs_what_is_committed(node: Node, start: Any) -> None:
    stop = start()
    node.commit(node.ends[3], written=node.ends[-1])
    node.wait_dispatched(node.ends[3])
    node.commit(node.ends[-1])
    status = stop()

    assert status == 0
    assert node.page.read_dispatched().position == node.checkpoint() == node.ends[-1]


@pytest.mark.slow
def test_a_checkpoint_waits_for_the_log_to_be_durable(node: Node, start: Any) -> None:
    start()
    node.commit(node.ends[5])
    node.wait(lambda: node.checkpoint() == node.ends[5])
    behind = LogCursor(Position(node.ends[9]), Index(1), Term(1))
    node.page.publish_written(behind, 0)
    node.page.publish_committed(behind)
    node.wait_dispatched(node.ends[9])
    flushes = node.page.counters(Role.DISPATCHER)[DispatcherCounter.FLUSHES]
    before = node.checkpoint()
    node.page.publish_durable(behind, 2)
    node.wait(lambda: node.checkpoint() == node.ends[9])

    assert before == node.ends[5]
    assert node.page.counters(Role.DISPATCHER)[DispatcherCounter.FLUSHES] >= flushes


@pytest.mark.slow
def test_a_killed_dispatcher_goes_on_where_its_page_says(node: Node, golden: Any) -> None:
    code = (
        "import pickle, sys; from ledgermq.dispatcher import dispatcher; "
        "from ledgermq.ipc.loop import StopFlag; stop = StopFlag(); stop.install(); "
        "sys.exit(dispatcher.run(pickle.loads(sys.stdin.buffer.read()), stop))"
    )
    node.commit(node.ends[200], written=node.ends[-1])
    child = spawn(code, node.settings)
    try:
        node.wait_dispatched(node.ends[200])
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    node.commit(node.ends[-1])
    child = spawn(code, node.settings)
    try:
        node.wait_dispatched(node.ends[-1])
    finally:
        child.send_signal(signal.SIGTERM)
        status = child.wait(PATIENCE_S)

    assert status == 0
    assert node.page.counters(Role.DISPATCHER)[DispatcherCounter.MESSAGES] == 444
    assert_built_as_java_did(node.root, golden("gd0"))


def spawn(code: str, settings: Settings) -> subprocess.Popen[bytes]:
    import pickle

    source = Path(__file__).resolve().parents[2]
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(source)},
    )
    assert child.stdin is not None
    child.stdin.write(pickle.dumps(settings))
    child.stdin.close()
    return child


@pytest.mark.slow
def test_a_log_that_lost_its_end_takes_units_back(node: Node, start: Any, golden: Any) -> None:
    stop = start()
    node.commit(node.ends[-1])
    node.wait_dispatched(node.ends[-1])
    generation = node.page.read_dispatched().log_generation
    node.commit(node.ends[-40])
    node.wait_dispatched(node.ends[-40])
    shorter = content_of(node.root / "consumequeue")
    after = node.page.read_dispatched().log_generation
    node.commit(node.ends[-1])
    stop()

    assert after == generation + 1
    assert shorter != content_of(golden("gd0") / "consumequeue")
    assert_built_as_java_did(node.root, golden("gd0"))


@pytest.mark.slow
def test_a_new_page_goes_on_from_the_checkpoint(node: Node, start: Any, golden: Any) -> None:
    stop = start()
    node.commit(node.ends[300], written=node.ends[-1])
    node.wait_dispatched(node.ends[300])
    stop()
    node.page.close()
    node.page = CursorPage.create(node.page.path)
    stop = start()
    node.commit(node.ends[-1])
    node.wait_dispatched(node.ends[-1])
    stop()

    assert node.page.counters(Role.DISPATCHER)[DispatcherCounter.MESSAGES] == len(node.ends) - 301
    assert_built_as_java_did(node.root, golden("gd0"))
