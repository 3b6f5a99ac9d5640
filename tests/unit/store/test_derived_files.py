"""Queues and index of each state that a crash, a disk or a hand can leave, built whole again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.formats.index_file import IndexLayout
from ledgermq.model.errors import ConfigError
from ledgermq.model.ids import Position
from ledgermq.repair.check.check_store import CheckOptions, check_store
from ledgermq.store.queues.derived_files import load_derived_files
from ledgermq.store.queues.dispatch_build import DispatchBuilder
from tests.small_store import SIZES, dispatch, write_store
from tests.unit.store.test_dispatch_checkpoint import Store, leave_behind, lose_power, store, whole

__all__ = ["store", "whole"]


def queue_files(store: Store) -> list[Path]:
    return sorted(store.section.path_root_dir.glob("consumequeue/*/*/*"))


def index_files(store: Store) -> list[Path]:
    return sorted(store.section.path_root_dir.glob("index/*"))


def zero(path: Path, at: int, size: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(size))


def harm_queue_folder(store: Store) -> None:
    shutil.rmtree(store.section.path_root_dir / "consumequeue")


def harm_topic(store: Store) -> None:
    shutil.rmtree(store.section.path_root_dir / "consumequeue" / "T" / "1")


def harm_last_file(store: Store) -> None:
    queue_files(store)[1].unlink()


def harm_size(store: Store) -> None:
    os.truncate(queue_files(store)[0], 30)


def harm_last_size(store: Store) -> None:
    os.truncate(queue_files(store)[-1], 45)


def harm_last_unit(store: Store) -> None:
    zero(queue_files(store)[1], 20, 20)


def harm_index_folder(store: Store) -> None:
    shutil.rmtree(store.section.path_root_dir / "index")


def harm_newest_index_file(store: Store) -> None:
    index_files(store)[-1].unlink()


def harm_index_size(store: Store) -> None:
    os.truncate(index_files(store)[0], 99)


def harm_index_header(store: Store) -> None:
    with index_files(store)[-1].open("r+b") as file:
        file.seek(32)
        file.write(b"\x7f" * 8)


def harm_both_checkpoints(store: Store) -> None:
    store.path.write_bytes(b"torn")
    (store.section.path_root_dir / "checkpoint").write_bytes(b"torn")
    harm_queue_folder(store)


QUEUES = [
    harm_queue_folder,
    harm_topic,
    harm_last_file,
    harm_size,
    harm_last_size,
    harm_last_unit,
]
INDEX = [
    harm_index_folder,
    harm_newest_index_file,
    harm_index_size,
    harm_index_header,
]


@pytest.mark.parametrize(
    ("harm", "power_lost"),
    [
        *((harm, False) for harm in [*QUEUES, *INDEX, harm_both_checkpoints]),
        (harm_topic, True),
        (harm_size, True),
        (harm_newest_index_file, True),
    ],
)
def test_what_is_missing_is_built_again(
    store: Store, whole: list[bytes], harm: Callable[[Store], None], power_lost: bool
) -> None:
    leave_behind(store, flushed=8, built=9)
    if power_lost:
        lose_power(store)
    harm(store)
    builder = store.open()
    store.build(builder, len(store.log))
    builder.flush()
    builder.close()
    again = store.open()
    again.close()

    assert store.content() == whole
    # Said once, and then forgotten.
    assert again.position == len(store.log)


@pytest.mark.parametrize(
    "harm",
    [harm_queue_folder, harm_last_size, harm_index_folder, harm_index_header],
    ids=lambda harm: harm.__name__,
)
def test_a_crash_while_it_is_built_again_does_no_harm(
    store: Store, whole: list[bytes], harm: Callable[[Store], None]
) -> None:
    leave_behind(store, flushed=8, built=9)
    harm(store)
    for end in (0, 3, 7):
        builder = store.open()
        store.build(builder, max(builder.position, store.ends[end]))
        builder.close()
    builder = store.open()
    store.build(builder, len(store.log))
    builder.close()

    assert store.content() == whole


@pytest.mark.parametrize("kept", [0, 4], ids=["from the beginning", "for a while"])
@pytest.mark.parametrize("flushed", [6, 10])
def test_keys_of_messages_that_came_while_no_index_was_kept_are_put_when_it_is_again(
    store: Store, whole: list[bytes], kept: int, flushed: int
) -> None:
    with_index = store.section
    without = replace(with_index, message_index_enable=False)
    for section, end in ((with_index, kept), (without, flushed)):
        if end:
            store.section = section
            leave_behind(store, flushed=end, built=end)
    store.section = with_index
    builder = store.open()
    position = builder.position
    store.build(builder, len(store.log))
    builder.flush()
    builder.close()
    again = store.open()
    again.close()

    assert (position, again.position) == (0, len(store.log))
    assert store.content() == whole


def test_an_index_is_of_the_log_that_there_is_now(store: Store, whole: list[bytes]) -> None:
    """The log was cut and written anew while no index was kept."""
    with_index = store.section
    log, store.log = store.log, store.log.replace(b"KEYS\x01k", b"KEYS\x01c")
    leave_behind(store, flushed=8, built=8)
    store.section = replace(with_index, message_index_enable=False)
    leave_behind(store, flushed=8, built=8)
    store.log, store.section = log, with_index
    builder = store.open()
    store.build(builder, len(store.log))
    builder.close()

    assert store.content() == whole


def test_an_index_file_whose_header_was_never_written_doubles_no_key(tmp_path: Path) -> None:
    root = tmp_path / "store"
    write_store(root, messages=9)
    files = sorted((root / "index").iterdir())
    fresh = files[-1].with_name(f"{int(files[-1].name) + 1:017d}")
    before = [path.read_bytes() for path in files]
    # Its death came when it had made the file at its full size.
    fresh.write_bytes(bytes(len(before[0])))
    for _ in range(2):
        dispatch(root)

    layout = IndexLayout(slots=SIZES["max_hash_slot_num"], items=SIZES["max_index_num"])
    assert check_store(root, CheckOptions(index_layout=layout)).findings == []
    assert [path.read_bytes() for path in sorted((root / "index").iterdir())] == before


@pytest.mark.parametrize("power_lost", [False, True])
def test_a_log_that_begins_behind_the_checkpoint_is_dispatched_from_its_beginning(
    store: Store, whole: list[bytes], power_lost: bool
) -> None:
    # Retention took the log behind the checkpoint. Of what was dispatched since, the page with one
    # queue's unit was lost, or not written yet, and later ones of the other queue are there.
    leave_behind(store, flushed=3, built=8)
    if power_lost:
        lose_power(store)
    zero(queue_files(store)[1], 0, 20)
    builder = store.open(log_start=store.ends[4])
    position = builder.position
    store.build(builder, len(store.log))
    builder.close()

    assert position == store.ends[4]
    # Also the units whose messages are gone, and which nothing else knows.
    assert store.content() == whole


def test_what_is_found_before_the_log_is_known_serves_its_opening(
    store: Store, whole: list[bytes]
) -> None:
    leave_behind(store, flushed=3, built=8)
    signs: list[int] = []
    files = load_derived_files(store.section, published=None, sign_of_life=lambda: signs.append(1))
    builder = DispatchBuilder.open(
        store.section,
        log_start=Position(0),
        log_end=Position(len(store.log)),
        published=None,
        files=files,
    )
    position = builder.position
    store.build(builder, len(store.log))
    builder.close()

    assert position == store.ends[2]
    assert store.content() == whole
    assert signs


def test_a_setting_that_was_changed_is_told_and_nothing_is_built(store: Store) -> None:
    leave_behind(store, flushed=8, built=8)
    before = store.content()
    changed = type(store.section)(
        path_root_dir=store.section.path_root_dir,
        mapped_file_size_consume_queue=100,
        max_hash_slot_num=11,
        max_index_num=5,
    )

    with pytest.raises(ConfigError, match="mapped_file_size_consume_queue"):
        load_derived_files(changed, published=None)
    assert store.content() == before
