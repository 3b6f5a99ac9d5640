"""A backup stream of a real node under load, killed, and a moment between two changes restored."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.client import Admin, Producer
from ledgermq.conversion.last_backup import STREAM_NAME, read_last_backup
from ledgermq.conversion.stream.repository import Repository
from ledgermq.conversion.stream.stream_places import StreamPlaces, places_at
from ledgermq.daemon import backup_streaming
from ledgermq.daemon.backup_streaming import BackupStreaming, StreamOrder
from ledgermq.ipc.cursor_page import CursorPage, LogCursor
from ledgermq.store.queues.queue_ends import ends_path, read_queue_ends
from tests.process.batch_load import BATCH, BatchLoad
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.faults import paused
from tests.process.group_nodes import SIZES, TOPIC
from tests.process.node_start import SOURCES, Process, run_command, start_node
from tests.process.running import topics_document
from tests.process.test_backup import bodies, faults
from tests.process.test_delivery import now_ms
from tests.process.test_state_log import broker_of

pytestmark = pytest.mark.slow

PATIENCE_S = 120.0


class RealStream:
    """``ledgermq backup stream`` of a node."""

    def __init__(self, node: Node, target: Path) -> None:
        self._node = node
        self._words = ["backup", "stream", node.root, target, "--runtime-dir", node.runtime]
        self._process: Process | None = None

    def start(self) -> None:
        words = [str(word) for word in (*self._words, "--interval", 0.1)]
        self._process = start_node(
            ["-m", "ledgermq.cli.main", *words],
            environment={**os.environ, "PYTHONPATH": str(SOURCES)}, output=1, errors=2,
        )  # fmt: skip

    def kill(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None
        self._process.kill()
        self._process.wait()

    def wait_has(self, position: int) -> None:
        """Until all up to ``position`` is in the repository."""

        def has() -> bool:
            last = read_last_backup(self._node.root, name=STREAM_NAME)
            return last is not None and last.end >= position

        wait_until(has, f"position {position} in the stream")


def committed(node: Node) -> LogCursor:
    with CursorPage.attach(node.runtime / "cursors") as page:
        return page.read_committed()


def topics(node: Node) -> set[str]:
    answer = run_command("topic", "list", "--address", f"ipc://{node.runtime}", "--json")
    assert answer.returncode == 0, answer.stderr
    return {row["topic"] for row in json.loads(answer.stdout)["topics"]}


def test_a_moment_between_two_changes_is_restored_with_the_tables_of_it(
    make_node: Callable[[], Node],
) -> None:
    node, again = make_node(), make_node()
    node.configure(store=dict(SIZES))
    again.configure(store=dict(SIZES), node={"self_id": "n7", "group": "other"})
    (node.root / "config").mkdir(parents=True)
    (node.root / "config" / "topics.json").write_text(topics_document(TOPIC))
    node.serve()
    address = f"ipc://{node.runtime}"
    target = node.folder / "streams"
    stream = RealStream(node, target)
    with BatchLoad(address, padding=b"x" * 600) as load:
        stream.start()
        load.wait_more(300)
        stream.wait_has(committed(node).position)
        stream.kill()
        load.wait_more(300)
        stream.start()
        assert run_command("topic", "create", "early", "--address", address).returncode == 0
        before, point = list(load.acknowledged), committed(node)
        load.wait_more(BATCH)
        assert run_command("topic", "create", "late", "--address", address).returncode == 0
        load.wait_more(BATCH)
    stream.wait_has(committed(node).position)
    stream.kill()
    assert topics(node) == {TOPIC, "early", "late"}
    assert node.stop() == 0

    verified = run_command("backup", "verify", str(target), "--json")
    assert verified.returncode == 0, verified.stderr
    restored = run_command(
        "backup", "restore", str(target), str(again.root), "--to-index", str(point.index),
        "--group", "other", "--self-id", "n7", "--json",
    )  # fmt: skip
    assert restored.returncode == 0, restored.stderr
    assert json.loads(restored.stdout)["index"] == point.index
    found = bodies(again.root)
    assert set(before) <= set(found) < set(load.acknowledged)
    assert faults(again.root) == []
    again.serve()
    assert topics(again) == {TOPIC, "early"}
    with Producer(f"ipc://{again.runtime}") as producer:
        producer.send_batch(TOPIC, [b"after"] * BATCH).result()
    assert again.stop() == 0
    assert bodies(again.root).count(b"after") == BATCH


class LevelError(Exception):
    """The stream has all that there is."""


def test_where_much_is_waiting_a_turn_does_not_wait_for_its_time(
    make_node: Callable[[], Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup_streaming, "SOON_BYTES", 1_000)
    node = make_node()
    node.configure(store=dict(SIZES))
    node.serve()
    places = places_at(str(node.folder / "streams"))
    order = StreamOrder(root=node.root, runtime=node.runtime, self_id=None, keep_ms=None)
    had: list[int] = []
    until_s = time.monotonic() + PATIENCE_S

    with Producer(f"ipc://{node.runtime}") as producer:
        producer.send(TOPIC, b"first").result()

        def pause(seconds: float) -> None:
            note = read_last_backup(node.root, name=STREAM_NAME)
            assert note is not None
            if not had or note.end > had[-1]:
                had.append(note.end)
                if len(had) == 3:
                    raise LevelError
                producer.send(TOPIC, b"x" * 1_000).result()
            assert time.monotonic() < until_s, had
            time.sleep(min(seconds, 0.5))

        streaming = BackupStreaming(order, lambda: Repository(places.writable("n0"), None))
        with pytest.raises(LevelError):
            streaming.run(3_600.0, pause=pause)
        assert had[2] - had[1] >= 1_000
    assert node.stop() == 0


def begin_of(places: StreamPlaces) -> int:
    """Where the log begins in the one stream that is there."""
    (place,) = places.streams().values()
    return Repository(place, None).runs()[0].start


def ends_position(node: Node) -> int:
    """From where on the log alone tells the ends of the node's queues."""
    ends = read_queue_ends(ends_path(node.root))
    return 0 if ends is None else ends.position


def test_what_was_acknowledged_outlives_the_files_of_the_log_that_a_stream_lets_go(
    make_node: Callable[[], Node],
) -> None:
    """An offset and a timer whose commands are in the oldest file, and not in the tables on disk
    when the stream reads them: the broker gets no processor.
    """
    node, again = make_node(), make_node()
    size = SIZES["mapped_file_size_commit_log"]
    start_client_node(node, file_size=size)
    again.configure(store=dict(SIZES), node={"self_id": "n7", "group": "other"})
    places = places_at(str(node.folder / "streams"))
    order = StreamOrder(root=node.root, runtime=node.runtime, self_id=None, keep_ms=1)
    streaming = BackupStreaming(order, lambda: Repository(places.writable("n7"), None))

    with Producer(node.address) as producer, Admin(node.address) as admin:
        far = producer.send("orders", b"far", deliver_at=now_ms() + 30 * 86_400_000).result()
        while committed(node).position < size - 20_000:
            producer.send("orders", b"x" * 10_000).result()
        admin.reset_offsets("workers", "orders", "last", create=True)
        with paused([node.pid("broker")]):
            while committed(node).position < size:
                producer.send("orders", b"x" * 10_000).result()
            wait_until(lambda: ends_position(node) >= size, "the table of queue ends")
            done = streaming.turn()
        offsets = [row.offset for row in admin.lag("workers")]
    assert node.stop() == 0
    restored = run_command(
        "backup", "restore", str(node.folder / "streams"), str(again.root),
        "--group", "other", "--self-id", "n7",
    )  # fmt: skip
    assert restored.returncode == 0, restored.stderr
    again.serve()
    with Admin(again.address) as admin, broker_of(again.address) as broker:
        assert [row.offset for row in admin.lag("workers")] == offsets
        assert [row.unique_id for row in broker.timers().timers] == [far.unique_id]
    assert again.stop() == 0
    assert begin_of(places) == 0

    # Nothing waits any more, and the next leader begins with a snapshot.
    node.serve()
    with Producer(node.address) as producer:
        producer.cancel(far.unique_id)
    assert node.stop() == 0
    node.serve()
    with Producer(node.address) as producer:
        while committed(node).position < done.end + size:
            producer.send("orders", b"x" * 10_000).result()
    streaming.turn()
    assert begin_of(places) > 0
    assert node.stop() == 0
