"""Stores of a RocketMQ with ``enableLmq``: all groups go on, light queues are left alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client import Consumer, Producer, ProducerOptions
from ledgermq.client.admin.admin import Admin
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.formats.config_json import decode_document
from tests.conftest import Golden
from tests.process.conftest import SOURCES, Node
from tests.process.group_nodes import COMMAND
from tests.process.test_foreign_names import GIVEN
from tests.process.test_foreign_names import settings as store_settings
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

OPTIONS = ConsumerOptions(hold_ms=500, timeout_s=PATIENCE_S)
LIGHT = ("%LMQ%one", "%LMQ%two")
ODD = (
    b"%LMQ%home%$room.1",
    b"%LMQ%a b",
    b"%LMQ%a$b",
    b"%LMQ%\xff\xfe",
    "%LMQ%\u00e4\n".encode(),
    b"%RETRY%" + b"g" * 60 + b"_" + b"t" * 100,
)
"""What producers, and groups that consume by POP, make folders of."""


@pytest.fixture
def node(make_node: Callable[[], Node], golden_copy: Golden) -> Node:
    """A stopped node on the directory that RocketMQ 4.9.4 has left."""
    made = make_node()
    shutil.copytree(golden_copy("l494"), made.root)
    made.configure(store=store_settings("gs1"), node={"self_id": "n0"})
    return made


def offsets_in(path: Path) -> dict[str, Any]:
    table = decode_document(path.read_bytes())["offsetTable"]
    assert isinstance(table, dict)
    return table


def content_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, check=False, encoding="utf-8",
        errors="surrogateescape", env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )  # fmt: skip


def made_folders(node: Node) -> list[Path]:
    """Queues of names that no topic has here, with the units of a light queue that has one."""
    root = os.fsencode(node.root / "consumequeue")
    for name in ODD:
        shutil.copytree(root + b"/%LMQ%one", root + b"/" + name)
    return [Path(os.fsdecode(root + b"/" + name)) for name in ODD]


def test_groups_go_on_and_what_they_consume_here_is_written_for_rocketmq(node: Node) -> None:
    config = node.root / "config"
    usual, light = config / "consumerOffset.json", config / "lmqConsumerOffset.json"
    before = offsets_in(light)
    lights = {name: content_of(node.root / "consumequeue" / name) for name in LIGHT}
    node.serve()
    with Admin(node.address, timeout_s=PATIENCE_S) as admin:
        taken = {
            f"{row.topic}@{group}": {str(one.queue): one.offset for one in admin.lag(group)}
            for group in ("g5-retry", "g5-pull")
            for row in admin.lag(group)
            if not row.topic.startswith("%")
        }
        behind = {
            (row.topic, row.queue): row.end - (row.offset or 0)
            for row in admin.lag("g5-retry")
            if row.topic == "work"
        }
        topics = {row.topic for row in admin.topics()}
    with Producer(node.address, options=ProducerOptions(timeout_s=PATIENCE_S)) as producer:
        producer.send("work", b"here", queue_id=1).result()
    with Consumer(node.address, topic="work", group="g5-retry", options=OPTIONS) as consumer:
        batch = next(found for found in iter(lambda: consumer.poll(1.0), None) if len(found))
        consumed = [bytes(one.body) for one in batch]
        consumer.commit()
    assert node.stop() == 0
    log = node.log.read_text().splitlines()

    assert taken == before
    assert behind == {("work", queue): 0 for queue in range(4)}
    assert consumed == [b"here"]
    assert not topics & {*LIGHT}
    assert offsets_in(usual)["work@g5-retry"] == {"0": 3, "1": 4, "2": 3, "3": 3}
    assert light.read_bytes() == usual.read_bytes()
    assert decode_document(light.read_bytes())["lmqOffsetTable"] == {}
    assert not {*LIGHT} & {*json.loads((config / "topics.json").read_text())["topicConfigTable"]}
    assert {name: content_of(node.root / "consumequeue" / name) for name in LIGHT} == lights
    assert sum("consumed offsets are those of" in line for line in log) == 1
    told = [line.partition("alone: ")[2] for line in log if "queues of no topic" in line]
    assert told == ["count=2 %LMQ%one, %LMQ%two"]


def test_queues_whose_names_are_no_topics_are_named_once_and_keep_their_place(node: Node) -> None:
    folders = made_folders(node)
    before = [content_of(folder) for folder in folders]
    node.serve()
    with Admin(node.address, timeout_s=PATIENCE_S) as admin:
        topics = {row.topic for row in admin.topics()}
    stopped = node.stop()
    log = node.log.read_text().splitlines()
    checked = ran("store", "check", str(node.root), *GIVEN[2:])
    rebuilt = ran("store", "rebuild", str(node.root), *GIVEN)
    again = ran("store", "check", str(node.root), *GIVEN[2:])
    after = [content_of(folder) for folder in folders]
    node.serve()
    node.stop()

    assert stopped == 0
    assert "work" in topics and not any(topic.startswith("%LMQ%") for topic in topics)
    assert not [line for line in log if "MessageIllegalError" in line]
    assert [line for line in log if "queues of no topic" in line and "count=8" in line]
    assert [line for line in log if "queues of no topic" in line and "and 5 more" in line]
    assert checked.returncode == 0, checked.stdout + checked.stderr
    # The copies have units of messages that do not name them.
    assert "0 damage, 0 derived" in checked.stdout
    assert "it is left alone" in checked.stdout
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert (
        again.stdout.splitlines()[-1].partition(";")[0]
        == (checked.stdout.splitlines()[-1].partition(";")[0])
    )
    assert before == after == [content_of(folder) for folder in folders]
