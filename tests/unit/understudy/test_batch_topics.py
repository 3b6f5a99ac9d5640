"""An understudy of RocketMQ 5 whose master makes a batch topic while it is followed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ledgermq.cli.main import main
from ledgermq.conversion.understudy_note import read_note
from ledgermq.store.store_view import StoreView
from ledgermq.understudy.promotion import finish_store
from ledgermq.understudy.understudy_status import read_status
from tests.process.batch_store import FILE_SIZE, TOPIC, Stored, write_batch_store
from tests.process.conftest import wait_until
from tests.unit.understudy.small_master import SmallMaster, small_master
from tests.unit.understudy.test_understudy import Follow, Follower, folder, follow, wait_level

pytestmark = pytest.mark.slow

__all__ = ["folder", "follow"]

AHEAD = 5
NOBODY = {"nobody": "knows it"}
"""Accounts of a master that answers no question."""


class Master:
    """A store with a batch topic, of which its table says nothing yet.

    Attributes:
        stored: messages of the topic.
        first: position of the first of them in the log.
    """

    def __init__(self, root: Path, built: Path) -> None:
        self.root = root
        self.stored = write_batch_store(root, records=40, body=300, ahead=AHEAD)
        self._topics = root / "config" / "topics.json"
        self._with = self._topics.read_text()
        shutil.copytree(root, built)
        assert main(["store", "rebuild", str(built)]) == 0
        with closing(StoreView(built)) as view:
            self.first = next(view.messages(TOPIC)).message.physical_offset
        document: dict[str, Any] = json.loads(self._with)
        del document["topicConfigTable"][TOPIC]
        self._topics.write_text(json.dumps(document))
        for name in ("subscriptionGroup", "consumerOffset"):
            row = {"subscriptionGroup": "subscriptionGroupTable", "consumerOffset": "offsetTable"}
            (root / "config" / f"{name}.json").write_text(json.dumps({row[name]: {}}))

    def make_topic(self) -> None:
        self._topics.write_text(self._with)

    @contextmanager
    def served(self) -> Iterator[SmallMaster]:
        with small_master(self.root) as master:
            master.version = "V5_5_1"
            master.config |= {
                "mappedFileSizeCommitLog": str(FILE_SIZE),
                "mappedFileSizeConsumeQueue": "4000",
            }
            master.end = self.first
            yield master


@pytest.fixture
def master(tmp_path: Path) -> Master:
    return Master(tmp_path / "master", tmp_path / "built")


def messages_in(root: Path) -> list[Stored]:
    with closing(StoreView(root)) as view:
        queues = [queue for queue in view.queues() if queue.topic == TOPIC]
        return [
            Stored(
                one.queue_offset, bytes(one.message.body), one.message.tags,
                one.message.parsed_properties()["number"],
            )
            for one in (view.messages(TOPIC) if queues else ())
        ]  # fmt: skip


def follow_past_the_table(served: SmallMaster, follow: Follow) -> Follower:
    """Have the topic's messages dispatched before anybody has said what the topic is."""
    follower = follow(served)
    wait_level(follower, served)
    served.secrets = NOBODY
    served.grow(served.whole)
    wait_until(lambda: follower.status.dispatched == served.whole, "all is dispatched")
    return follower


def test_its_messages_are_found_once_the_table_tells_it(
    master: Master, folder: Path, follow: Follow
) -> None:
    with master.served() as served:
        follower = follow_past_the_table(served, follow)
        before = messages_in(folder)
        master.make_topic()
        served.secrets = {}
        wait_level(follower, served)
        follower.end()

    assert before != master.stored
    assert messages_in(folder) == master.stored
    assert main(["store", "check", str(folder)]) == 0


def test_they_are_found_where_the_process_has_died_when_it_had_written_the_table(
    master: Master, folder: Path, follow: Follow
) -> None:
    with master.served() as served:
        follow_past_the_table(served, follow).end()
        master.make_topic()
        shutil.copy(master.root / "config" / "topics.json", folder / "config" / "topics.json")
        served.secrets = {}
        wait_level(follow(served), served)

    assert messages_in(folder) == master.stored


def test_a_promotion_makes_the_topic_that_no_table_has_told(
    master: Master, folder: Path, follow: Follow
) -> None:
    with master.served() as served:
        follow_past_the_table(served, follow).end()
    note, status = read_note(folder), read_status(folder)
    assert note is not None

    done = finish_store(folder, note, status)

    assert done.topics_made == (TOPIC,)
    assert messages_in(folder) == master.stored
    assert finish_store(folder, note, status).topics_made == ()
    assert messages_in(folder) == master.stored
