"""A real node's log is sealed under load, and a moment between two changes restored from pieces."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client import Producer
from tests import left_out

if reason := left_out.without_spark(needs_java=False):
    pytest.skip(reason, allow_module_level=True)

from ledgermq.formats.records.message import decode_message
from ledgermq.model.names.queue_name import QueueName
from ledgermq.pipeline.pieces.cold_queues import ColdQueues
from ledgermq.pipeline.pieces.piece_places import SealedFolder
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory
from tests.process.batch_load import BATCH, BatchLoad
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import SIZES, TOPIC
from tests.process.node_start import run_command
from tests.process.running import topics_document
from tests.process.test_backup import bodies, faults
from tests.process.test_backup_stream import committed, topics

pytestmark = pytest.mark.slow


def log_up_to(root: Path, end: int) -> bytes:
    """The bytes of a stopped store's log before the position ``end``."""
    reader = LogReader(open_directory(root))
    try:
        files = [(part.files, start) for part in reader.parts for start in part.files.starts]
        return b"".join(bytes(one.view(start, one.file_size)) for one, start in files)[:end]
    finally:
        reader.close()


def test_a_moment_is_restored_from_pieces_with_the_tables_that_the_log_tells(
    make_node: Callable[[], Node],
) -> None:
    """All is sealed at once and late: no tables were put before the moment."""
    node, again = make_node(), make_node()
    node.configure(store=dict(SIZES))
    again.configure(store=dict(SIZES), node={"self_id": "n7", "group": "other"})
    (node.root / "config").mkdir(parents=True)
    (node.root / "config" / "topics.json").write_text(topics_document(TOPIC))
    node.serve()
    address = f"ipc://{node.runtime}"
    place = str(node.folder / "pieces")
    with BatchLoad(address, padding=b"x" * 600) as load:
        load.wait_more(300)
        assert run_command("topic", "create", "early", "--address", address).returncode == 0
        before, point = list(load.acknowledged), committed(node)
        load.wait_more(BATCH)
        assert run_command("topic", "create", "late", "--address", address).returncode == 0
        load.wait_more(BATCH)
        sealed = run_command(
            "piece", "seal", str(node.root), "--to", place, "--runtime-dir", str(node.runtime)
        )
        assert sealed.returncode == 0, sealed.stderr
        load.wait_more(BATCH)
    assert topics(node) == {TOPIC, "early", "late"}
    assert node.stop() == 0

    verified = run_command("backup", "verify", place, "--json")
    assert verified.returncode == 0, verified.stderr
    restored = run_command(
        "backup", "restore", place, str(again.root), "--to-position", str(point.position),
        "--group", "other", "--self-id", "n7", "--json",
    )  # fmt: skip
    assert restored.returncode == 0, restored.stderr
    assert json.loads(restored.stdout)["index"] == point.index
    assert log_up_to(again.root, point.position) == log_up_to(node.root, point.position)
    found = bodies(again.root)
    assert set(before) <= set(found) < set(load.acknowledged)
    assert faults(again.root) == []
    again.serve()
    assert topics(again) == {TOPIC, "early"}
    with Producer(f"ipc://{again.runtime}") as producer:
        producer.send_batch(TOPIC, [b"after"] * BATCH).result()
    assert again.stop() == 0
    assert bodies(again.root).count(b"after") == BATCH


@pytest.mark.long
def test_topics_are_kept_as_long_as_they_say_and_the_rest_is_restored(
    make_node: Callable[[], Node],
) -> None:
    node, again = make_node(), make_node()
    node.configure(store=dict(SIZES))
    again.configure(store=dict(SIZES), node={"self_id": "n7", "group": "other"})
    node.serve()
    address = f"ipc://{node.runtime}"
    place = str(node.folder / "pieces")

    def told(*words: str) -> Any:
        answer = run_command(*words, "--json")
        assert answer.returncode == 0, answer.stderr
        return json.loads(answer.stdout)

    def seal() -> int:
        to = ["--to", place, "--runtime-dir", str(node.runtime)]
        return int(told("piece", "seal", str(node.root), *to)["pieces"])

    created = told("topic", "create", "short", "--keep", "50ms", "--address", address)
    told("topic", "create", "long", "--address", address)
    altered = told("topic", "alter", "long", "--keep", "2y", "--keep-bytes", "1GiB",
                   "--address", address)  # fmt: skip
    assert (created["keep_ms"], altered["keep_ms"]) == (50, 2 * 365 * 86_400_000)
    assert told("topic", "show", "long", "--address", address)["keep_bytes"] == 1 << 30
    sent: dict[str, list[bytes]] = {"short": [], "long": []}
    with Producer(address) as producer:
        for _ in range(4):
            for topic in sent:
                # What does not become smaller on its way: the log is to have several files.
                more = [os.urandom(4_000) for _ in range(BATCH)]
                producer.send_batch(topic, more, queue_id=0).result()
                sent[topic] += more
            assert seal() > 0
        # What is sealed last is newer than all that is to go.
        wait_until(lambda: bool(told("piece", "prune", place, "--dry-run")), "it is beyond its age")
        producer.send("long", b"last", queue_id=0).result()
        sent["long"].append(b"last")
        assert seal() > 0
    found = told("piece", "prune", place)
    assert found["records"].keys() == {"short"}
    assert 0 < found["records"]["short"] <= len(sent["short"])
    assert run_command("piece", "verify", place).returncode == 0
    assert _sealed_bodies(place, "long") == sent["long"]
    left = _sealed_bodies(place, "short")
    assert left == sent["short"][len(sent["short"]) - len(left) :]
    assert len(left) == len(sent["short"]) - found["records"]["short"]

    # Behind what was dropped it is a log as ever.
    assert node.stop() == 0
    words = ["--group", "other", "--self-id", "n7"]
    restored = told("backup", "restore", place, str(again.root), *words)
    assert restored["end"] == told("piece", "list", place)[-1]["end"]
    assert faults(again.root) == []
    again.serve()
    assert topics(again) == {"short", "long"}
    with Producer(f"ipc://{again.runtime}") as producer:
        # Offsets go on where they were.
        assert producer.send("long", b"more", queue_id=0).result().queue_offset == len(sent["long"])
    assert again.stop() == 0


@pytest.mark.long
def test_a_running_node_is_told_of_and_its_pieces_are_compacted_and_lose_what_is_named(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    node.configure(store=dict(SIZES))
    node.serve()
    address = f"ipc://{node.runtime}"
    place = str(node.folder / "pieces")

    def told(*words: str) -> Any:
        answer = run_command(*words, "--json")
        assert answer.returncode == 0, answer.stderr
        return json.loads(answer.stdout)

    def seal() -> None:
        told("piece", "seal", str(node.root), "--to", place, "--runtime-dir", str(node.runtime))

    made = told("topic", "create", "prices", "--queues", "1", "--compact", "on",
                "--address", address)  # fmt: skip
    told("topic", "create", "others", "--queues", "1", "--address", address)
    assert made["compact"] is True
    newest: dict[str, bytes] = {}
    sent = 0
    with Producer(address) as producer:
        for turn in range(4):
            for number in range(10):
                body = b"" if number == turn else b"%d of %d" % (number, turn)
                producer.send("prices", body, keys=[f"key-{number}"], queue_id=0).result()
                newest[f"key-{number}"] = body
                sent += 1
            # What does not become smaller on its way: the log is to have several files.
            producer.send_batch("others", [os.urandom(4_000) for _ in range(BATCH * 4)]).result()
            seal()
        seal()

        # What is not sealed yet is told out of the live log.
        live = ["--store", str(node.root), "--runtime-dir", str(node.runtime), "--from", place]
        producer.send("prices", b"live", keys=["key-0"], queue_id=0).result()
        reset = ["offset", "reset", "billing", "prices", "--to", "7", "--create"]
        told(*reset, "--address", address)
        now_ms = str(time.time_ns() // 1_000_000)
        explained = ["explain", "billing", "prices", "--as-of", now_ms]
        (queue,) = told(*explained, *live)["queues"]
        assert (queue["committed"], queue["end"], queue["lag"]) == (7, sent + 1, sent - 6)
        (offset,) = told("offset", "show", "billing", "--as-of", now_ms, *live)["queues"]
        assert (offset["topic"], offset["committed"]) == ("prices", 7)
        # Pieces alone do not know of the group.
        assert told(*explained, "--from", place)["groupWasThere"] is False
        told(*reset[:4], "--to", "9", "--address", address)
        assert told(*explained, *live)["queues"][0]["committed"] == 7

        _compact_and_delete(told, place, newest, sent)
    assert node.stop() == 0
    # Of a node that stands still, up to its last entry.
    stopped = ["--store", str(node.root), "--from", place]
    assert told(*explained, *stopped)["queues"][0]["committed"] == 7


def _compact_and_delete(
    told: Callable[..., Any], place: str, newest: dict[str, bytes], sent: int
) -> None:
    """Compact the pieces, delete a message of them, and compare what is left."""
    found = told("piece", "prune", place, "--tombstones", "off")
    assert found["records"].keys() == {"prices"}
    records = list(queues_of(place).read("prices", 0, 0))
    assert len(records) == sent - found["records"]["prices"] < sent
    bodies = {}
    for one in records:
        message = decode_message(memoryview(one.record))
        bodies[message.parsed_properties()["KEYS"]] = bytes(message.body)
    # Of each key the newest message, and none of those that were ended; what is in pieces that
    # stay as they are is as it was.
    assert {key: body for key, body in newest.items() if body}.items() <= bodies.items()
    assert all(bodies[key] in (b"", newest[key]) for key in bodies)
    first = decode_message(memoryview(records[0].record)).queue_offset
    deleted = told("piece", "delete", "prices", "0", str(first), "--from", place, "--yes")
    assert deleted["deleted"] == 1
    verified = told("piece", "verify", place)
    assert verified["deleted"] == 1
    assert next(queues_of(place).read("prices", 0, 0)).position > records[0].position


def queues_of(place: str) -> ColdQueues:
    return ColdQueues(SealedFolder(Path(place)))


def _sealed_bodies(place: str, topic: str) -> list[bytes]:
    """Bodies of all messages of queue 0 that the pieces have."""
    queues = ColdQueues(SealedFolder(Path(place)))
    bounds = queues.queues().get(QueueName(topic, 0))
    if bounds is None:
        return []
    records = list(queues.read(topic, 0, bounds.first))
    assert len(records) == bounds.end - bounds.first
    return [bytes(decode_message(memoryview(one.record)).body) for one in records]
