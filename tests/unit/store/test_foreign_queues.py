"""Queues of no topic here, as light queues: opening a store, cutting and rebuilding leave them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from ledgermq.formats.arrays import UNIT, Units
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.model.config.settings import StoreSection
from ledgermq.model.ids import Position
from ledgermq.store.files.file_names import is_topic_name, queues_of_no_topic
from ledgermq.store.queues import dispatch_checkpoint
from ledgermq.store.queues.derived_files import load_derived_files, own_path, settle
from ledgermq.store.queues.dispatch_checkpoint import DispatchCheckpoint
from ledgermq.store.queues.known_ends import ends_in_queues
from ledgermq.store.queues.queue_files import Offsets, QueueFiles
from tests.conftest import Golden

LIGHT = "%LMQ%one"
LOG_END = 232_752
FILE_SIZE = 4_000


def content_of(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def opened(root: Path) -> QueueFiles:
    return QueueFiles(root / "consumequeue", file_size=FILE_SIZE, aside=root / "aside")


def units(*positions: int) -> tuple[Offsets, Units]:
    found = np.zeros(len(positions), UNIT)
    found["position"], found["size"] = positions, 100
    return np.arange(len(positions)), found


@pytest.mark.parametrize("name", ["t", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "t" * 127, "%LMQ"])
def test_names_of_topics(name: str) -> None:
    assert is_topic_name(name)


@pytest.mark.parametrize(
    "name",
    ["%LMQ%one", "%LMQ%a b", "%LMQ%a$b", "%LMQ%", "t" * 128, "%RETRY%" + "g" * 161, "a b", ""],
)
def test_names_that_no_topic_has_here(name: str) -> None:
    assert not is_topic_name(name)


def test_only_folders_that_may_be_queues_are_told_of(tmp_path: Path) -> None:
    names = ("t", "%LMQ%a b", "t" * 128, "lost+found", ".nfs1")
    for name in names:
        (tmp_path / name).mkdir()
    (tmp_path / "%LMQ%file").write_bytes(b"")

    assert [path.name for path in queues_of_no_topic(tmp_path)] == ["%LMQ%a b", "t" * 128]
    assert queues_of_no_topic(tmp_path / "none") == []


@pytest.mark.parametrize("position", [0, 10_000, LOG_END])
def test_after_a_power_failure_they_are_as_they_were(golden_copy: Golden, position: int) -> None:
    """What is dispatched again does not bring them back."""
    root = golden_copy("l494")
    light = root / "consumequeue" / LIGHT
    with (light / "0" / f"{0:020d}").open("r+b") as file:
        # Behind its end, where nothing is left of a queue that is built again.
        file.seek(FILE_SIZE - UNIT_SIZE)
        file.write(b"x" * UNIT_SIZE)
    before = content_of(light)
    checkpoint = DispatchCheckpoint(position, position, bytes(16))
    own_path(root).parent.mkdir()
    own_path(root).write_bytes(dispatch_checkpoint.encode(checkpoint))
    section = StoreSection(path_root_dir=root, message_index_enable=False)
    files = load_derived_files(section, published=None)
    begin, _ = settle(files, log_start=Position(0), log_end=Position(LOG_END))
    files.close()

    assert files.lost_power
    assert begin == position
    assert content_of(light) == before


def test_units_of_messages_that_the_log_does_not_have_are_taken_away(golden_copy: Golden) -> None:
    root = golden_copy("l494")
    queues = opened(root)
    last = queues.log_end
    ends = {name for name, _ in queues.ends()}
    path = root / "consumequeue" / LIGHT / "0" / f"{0:020d}"
    position = int(np.frombuffer(path.read_bytes(), UNIT)["position"][2])
    cut = queues.truncate_foreign(position)
    queues.close()

    assert LIGHT.encode() not in ends
    assert 0 < last <= LOG_END
    # Both light queues had the last message.
    assert cut == 2
    assert path.read_bytes()[2 * UNIT_SIZE :] == bytes(FILE_SIZE - 2 * UNIT_SIZE)
    assert path.read_bytes()[: 2 * UNIT_SIZE] != bytes(2 * UNIT_SIZE)


def test_files_that_are_too_old_are_deleted_as_rocketmq_does(tmp_path: Path) -> None:
    queues = QueueFiles(tmp_path, file_size=2 * UNIT_SIZE, aside=tmp_path / "aside")
    queues.append(LIGHT.encode(), 0, *units(100, 200, 300, 400, 500))
    deleted = queues.delete_before(300)
    queues.close()

    assert deleted == 1
    assert sorted(content_of(tmp_path)) == [
        f"{LIGHT}/0/{2 * UNIT_SIZE:020d}", f"{LIGHT}/0/{4 * UNIT_SIZE:020d}",
    ]  # fmt: skip


def test_messages_whose_topic_is_such_a_name_go_on_behind_what_is_there(
    golden_copy: Golden,
) -> None:
    root = golden_copy("l494")
    path = root / "consumequeue" / LIGHT / "0" / f"{0:020d}"
    before = path.read_bytes()
    queues = opened(root)
    end = queues.end_of(LIGHT.encode(), 0)
    counted = queues.units, queues.all_units
    offsets, block = units(LOG_END)
    put = queues.append(LIGHT.encode(), 0, offsets + end, block)
    again = queues.append(LIGHT.encode(), 0, offsets + end, block)
    queues.close()
    after = path.read_bytes()

    assert (end, put, again) == (3, 1, 0)
    assert counted == (queues.units, queues.all_units - 1)
    assert after[: end * UNIT_SIZE] == before[: end * UNIT_SIZE]
    assert after[end * UNIT_SIZE : (end + 1) * UNIT_SIZE] == block.tobytes()


def test_one_that_is_damaged_is_left_alone_and_nothing_is_built_again(
    golden_copy: Golden, caplog: pytest.LogCaptureFixture
) -> None:
    root = golden_copy("l494")
    path = root / "consumequeue" / LIGHT / "0" / f"{0:020d}"
    os.truncate(path, 77)
    queues = opened(root)
    queues.close()
    told = [one.getMessage() for one in caplog.records]

    assert queues.lost == []
    assert path.stat().st_size == 77
    assert told == [
        f"no files of the store, left where they are: {path.parent}",
        "queues of no topic here, as light queues, are left alone: count=1 %LMQ%two",
    ]


def test_ends_that_the_queues_say_are_those_of_topics(golden: Golden) -> None:
    found = ends_in_queues(golden("l494") / "consumequeue", FILE_SIZE, position=LOG_END)

    assert (b"work", 0) in found.ends
    assert not [name for name, _ in found.ends if name.startswith(b"%LMQ%")]
