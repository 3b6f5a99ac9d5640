"""Files of the broker's tables from outside: their place in the log is written into them once."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ledgermq.formats.config_json import APPLIED_KEY, decode_document
from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError
from ledgermq.model.names.queue_name import QueueName
from ledgermq.process.table_files import (
    OUTLIERS_TOLD_MAX,
    UnsettledTables,
    load_tables,
    offsets_taken,
    outliers_in,
    table_files,
    unreadable_tables,
)
from ledgermq.rules.state.state_tables import FILES, YOUNGER_FILES

JAVA = {"offsetTable": {"orders@g": {"0": 7}}}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "consumerOffset.json").write_text(json.dumps(JAVA))
    return folder


def no_end(_queue: QueueName) -> int | None:
    """Nobody knows where queues end."""
    return None


def places(config: Path) -> dict[str, object]:
    return {file: one.load().get(APPLIED_KEY) for file, one in table_files(config).items()}


def test_a_file_from_outside_is_given_its_place_once(config: Path) -> None:
    found = UnsettledTables.find(config)
    assert found is not None
    found.settle(5, no_end)
    path = config / "consumerOffset.json"

    assert decode_document(path.read_bytes()) == {**JAVA, APPLIED_KEY: 5}
    assert UnsettledTables.find(config) is None
    # RocketMQ and we go on from the copy where the file is lost.
    path.unlink()
    assert UnsettledTables.find(config) is None


def test_what_is_missing_beside_it_begins_where_the_log_does(config: Path) -> None:
    found = UnsettledTables.find(config)
    assert found is not None
    found.settle(5, no_end)

    assert places(config) == {
        **dict.fromkeys(FILES),
        **dict.fromkeys(YOUNGER_FILES, -1),
        "consumerOffset.json": 5,
    }


def test_what_is_made_is_a_whole_file(config: Path) -> None:
    """RocketMQ reads one of them, and ``ledgermq store check`` all."""
    found = UnsettledTables.find(config)
    assert found is not None
    found.settle(5, no_end)

    assert decode_document((config / "delayOffset.json").read_bytes())["offsetTable"] == {}


def test_killed_in_between_it_is_done_again(config: Path) -> None:
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": {"t": {}}}))
    obstacle = config / "topics.json.tmp"
    obstacle.mkdir()
    found = UnsettledTables.find(config)
    assert found is not None
    with pytest.raises(StorageError, match="topics"):
        found.settle(5, no_end)
    obstacle.rmdir()
    again = UnsettledTables.find(config)
    assert again is not None
    again.settle(5, no_end)

    assert (places(config)["topics.json"], places(config)["consumerOffset.json"]) == (5, 5)
    assert places(config)["moves.json"] == -1


def test_files_that_say_their_place_and_a_new_store_are_left_alone(tmp_path: Path) -> None:
    config = tmp_path / "config"
    fresh = UnsettledTables.find(config)
    config.mkdir()
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": {}, APPLIED_KEY: 3}))

    assert fresh is None
    assert UnsettledTables.find(config) is None


def test_a_position_beyond_its_queue_is_put_right_in_the_file_and_its_copy(
    config: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = UnsettledTables.find(config)
    assert found is not None
    found.settle(5, lambda _queue: 3)
    path = config / "consumerOffset.json"
    contents = [decode_document(one.read_bytes()) for one in (path, path.with_suffix(".json.bak"))]

    assert contents == [{"offsetTable": {"orders@g": {"0": 3}}, APPLIED_KEY: 5}] * 2
    assert [one.getMessage() for one in caplog.records if one.levelname == "WARNING"] == [
        "position outside of its queue put right: file=consumerOffset.json group=g topic=orders"
        " queue=0 was=7 is=3"
    ]


def test_of_many_such_positions_some_are_told_and_the_others_counted(
    config: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = {"orders@g": {str(queue): 7 for queue in range(OUTLIERS_TOLD_MAX + 23)}}
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    found = UnsettledTables.find(config)
    assert found is not None
    found.settle(5, lambda _queue: 0)
    told = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]

    assert len(told) == OUTLIERS_TOLD_MAX + 1
    assert told[-1] == "more positions outside of their queues put right: count=23"


def test_files_that_are_only_looked_at_stay_as_they_are(config: Path) -> None:
    before = (config / "consumerOffset.json").read_bytes()
    (one,) = outliers_in(config, lambda _queue: 3)

    assert (one.group, one.queue, one.was, one.position) == ("g", QueueName("orders", 0), 7, 3)
    assert (config / "consumerOffset.json").read_bytes() == before


TOPICS = {"topicConfigTable": {"alpha": {"perm": 6}}}
OLDER = {"topicConfigTable": {"beta": {"perm": 6}}}
DAMAGED = {
    "cut": json.dumps(TOPICS)[:-9],
    "zeros": "\0" * 64,
    "no number": json.dumps(TOPICS).replace("6", '"six"'),
    "no table": json.dumps({"topicConfigTable": [1]}),
}


def topics_of(config: Path) -> list[str]:
    _, state = load_tables(table_files(config), keeps=True)
    return [topic.name for topic in state.topics]


def kept(config: Path) -> dict[str, str]:
    """What was kept aside, by its name without the time."""
    folder = config.parent / "ledgermq" / "set-aside"
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return {path.name.rpartition("-")[0]: path.read_text() for path in found}


@pytest.mark.parametrize("damaged", DAMAGED.values(), ids=DAMAGED)
def test_a_file_that_cannot_be_read_is_kept_aside_before_its_copy_is_written_over_it(
    config: Path, damaged: str, caplog: pytest.LogCaptureFixture
) -> None:
    (config / "topics.json").write_text(damaged)
    (config / "topics.json.bak").write_text(json.dumps(OLDER))
    found = UnsettledTables.find(config)
    assert found is not None
    found.settle(5, no_end)
    told = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]

    assert topics_of(config) == ["beta"]
    assert kept(config) == {"config-topics.json": damaged}
    assert any("topics.json" in line and "set-aside" in line for line in told), told


@pytest.mark.parametrize("copy", [None, "", "damaged too", '{"topicConfigTable":3}'])
@pytest.mark.parametrize("damaged", DAMAGED.values(), ids=DAMAGED)
def test_where_nothing_can_be_read_nothing_is_touched(
    config: Path, damaged: str, copy: str | None
) -> None:
    (config / "topics.json").write_text(damaged)
    if copy is not None:
        (config / "topics.json.bak").write_text(copy)
    before = {path: path.read_bytes() for path in config.parent.rglob("*") if path.is_file()}
    with pytest.raises((ConfigError, CorruptLogError), match=r"topics\.json"):
        UnsettledTables.find(config)

    assert {path: path.read_bytes() for path in before} == before
    assert kept(config) == {}


@pytest.mark.parametrize("content", [None, ""])
def test_a_copy_that_is_taken_for_a_missing_file_is_told(
    config: Path, content: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """RocketMQ was killed between two steps of its own."""
    if content is not None:
        (config / "topics.json").write_text(content)
    (config / "topics.json.bak").write_text(json.dumps(OLDER))

    assert topics_of(config) == ["beta"]
    assert "table's copy is taken" in caplog.text
    assert kept(config) == {}


def test_what_was_written_by_hand_is_read_and_stays_where_it_can_be_looked_at(
    config: Path,
) -> None:
    text = "// ours\n{topicConfigTable:{alpha:{perm:6,},}}"
    (config / "topics.json").write_text(text)
    (config / "topics.json.bak").write_text(json.dumps(OLDER))
    names = [topics_of(config), topics_of(config)]
    found = UnsettledTables.find(config)
    assert found is not None
    found.settle(5, no_end)

    assert names == [["alpha"]] * 2
    assert kept(config) == {"config-topics.json": text}
    assert decode_document((config / "topics.json").read_bytes())[APPLIED_KEY] == 5


def test_who_only_reads_moves_nothing(config: Path) -> None:
    (config / "topics.json").write_text(DAMAGED["cut"])
    (config / "topics.json.bak").write_text(json.dumps(OLDER))
    _, state = load_tables(table_files(config), keeps=False)
    told = unreadable_tables(config)

    assert [topic.name for topic in state.topics] == ["beta"]
    assert [(table.path.name, table.copy_reason) for table in told] == [("topics.json", None)]
    assert kept(config) == {}


def test_no_document_in_a_file_is_an_empty_table(config: Path) -> None:
    for file in ("topics.json", "delayOffset.json"):
        (config / file).write_text("null")
    found = UnsettledTables.find(config)
    assert found is not None
    found.settle(5, no_end)

    assert topics_of(config) == []
    assert places(config)["delayOffset.json"] == -1


def test_offsets_of_a_broker_with_light_queues_are_taken_and_stand_in_both_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    config = tmp_path / "config"
    config.mkdir()
    light = config / "lmqConsumerOffset.json"
    theirs = {**JAVA, "lmqOffsetTable": {"%LMQ%one@g": 3}}
    light.write_text(json.dumps(theirs))
    found = UnsettledTables.find(config)
    assert found is not None
    found.settle(5, no_end)
    written = [decode_document(one.read_bytes()) for one in (light, config / "consumerOffset.json")]

    assert written == [{**theirs, APPLIED_KEY: 5}] * 2
    assert UnsettledTables.find(config) is None
    assert [one.getMessage() for one in caplog.records if "offsets" in one.getMessage()] == [
        f"consumed offsets are those of a broker with light queues: file={light}"
    ]


def test_of_both_files_the_younger_is_taken_and_both_are_named(
    config: Path, caplog: pytest.LogCaptureFixture
) -> None:
    usual, light = config / "consumerOffset.json", config / "lmqConsumerOffset.json"
    light.write_text(json.dumps({"offsetTable": {"orders@g": {"0": 9}}}))
    os.utime(usual, (1, 1))
    told = offsets_taken(config)
    _, state = load_tables(table_files(config), keeps=False)
    found = UnsettledTables.find(config)
    assert found is not None
    found.settle(5, no_end)
    again = UnsettledTables.find(config)

    assert state.offsets.offset("g", "orders", 0) == 9
    assert told == (
        "lmqConsumerOffset.json, and not consumerOffset.json, which was written before it"
    )
    assert [one.getMessage() for one in caplog.records if one.levelname == "WARNING"] == [
        f"consumed offsets are taken from the file that was written last: file={light} not={usual}"
    ]
    assert again is None
    assert decode_document(usual.read_bytes()) == decode_document(light.read_bytes())
    assert offsets_taken(config) == "consumerOffset.json"
