"""Promotion: what the folder lacks is built, and topics that no table has are made or left."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.conversion.understudy_note import UnderstudyNote, read_note, refuse_understudy
from ledgermq.formats.config_json import decode_document
from ledgermq.model.errors import ConfigError
from ledgermq.process.clock import MachineClock
from ledgermq.understudy.promotion import finish_store, mark_promoted, refuse_living_master
from ledgermq.understudy.understudy_status import UnderstudyStatus, read_status
from tests.unit.understudy.test_received_log import log_bytes
from tests.unit.understudy.test_understudy import (
    Follow,
    folder,
    follow,
    master_of,
    queue_bytes,
    store,
    wait_level,
)

pytestmark = pytest.mark.slow

__all__ = ["folder", "follow", "store"]


@pytest.fixture
def followed(store: Path, folder: Path, follow: Follow) -> UnderstudyNote:
    """A folder that has all of its master, which had deleted its topic, and is gone."""
    topics = store / "config" / "topics.json"
    topics.write_text(json.dumps({"dataVersion": {"counter": 2}, "topicConfigTable": {}}))
    with master_of(store) as master:
        follower = follow(master)
        wait_level(follower, master)
        follower.end()
    note = read_note(folder)
    assert note is not None
    return note


def told(folder: Path) -> UnderstudyStatus:
    found = read_status(folder)
    assert found is not None
    return found


def topics_in(folder: Path) -> object:
    return decode_document((folder / "config" / "topics.json").read_bytes())["topicConfigTable"]


def test_a_topic_that_was_deleted_before_the_last_look_is_not_made_again(
    followed: UnderstudyNote, folder: Path, store: Path
) -> None:
    done = finish_store(folder, followed, told(folder))

    assert (done.begin, done.end, done.messages) == (0, len(log_bytes(store)), 20)
    assert done.topics_made == ()
    assert topics_in(folder) == {}


def test_a_topic_that_was_made_since_the_last_look_is_made_with_its_queues(
    followed: UnderstudyNote, folder: Path
) -> None:
    end = told(folder).durable
    before = replace(told(folder), tables_position=end - end % 900)

    assert finish_store(folder, followed, before).topics_made == ("orders",)
    # Run again, as after a death, it finds that done.
    assert finish_store(folder, followed, before).topics_made == ()
    table = topics_in(folder)
    assert isinstance(table, dict)
    assert table["orders"]["writeQueueNums"] == 2


def test_queues_that_are_gone_are_built_again(
    followed: UnderstudyNote, folder: Path, store: Path
) -> None:
    shutil.rmtree(folder / "consumequeue")
    finish_store(folder, followed, told(folder))

    assert queue_bytes(folder) == queue_bytes(store)


def test_a_folder_without_log_or_tables_is_not_promoted(
    followed: UnderstudyNote, folder: Path, tmp_path: Path
) -> None:
    for root, status in (
        (folder, None),
        (folder, replace(told(folder), tables_at_ms=0)),
        (tmp_path / "empty", told(folder)),
    ):
        with pytest.raises(ConfigError, match="no log, or no tables"):
            finish_store(root, followed, status)


def test_a_table_that_cannot_be_read_is_named(followed: UnderstudyNote, folder: Path) -> None:
    for name in ("topics.json", "topics.json.bak"):
        (folder / "config" / name).write_text('{"topicConfigTable": {"orders": 7}}')

    with pytest.raises(ConfigError, match="cannot be read"):
        finish_store(folder, followed, told(folder))


def test_a_folder_is_a_nodes_from_its_promotion_on(followed: UnderstudyNote, folder: Path) -> None:
    with pytest.raises(ConfigError, match="promote"):
        refuse_understudy(folder)
    refuse_living_master(followed, None)
    mark_promoted(folder, followed, MachineClock())

    refuse_understudy(folder)
