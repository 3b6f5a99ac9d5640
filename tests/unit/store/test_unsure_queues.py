"""Stores that RocketMQ had open when its machine stopped: what is in doubt is built again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.model.config.settings import StoreSection
from ledgermq.model.ids import Position
from ledgermq.store.files.store_checkpoint import StoreCheckpoint, encode_checkpoint
from ledgermq.store.log_family import LogFamily, LogFile
from ledgermq.store.log_reader import LogReader
from ledgermq.store.queues.derived_files import load_derived_files, settle
from ledgermq.store.queues.unsure_queues import UnsureQueues, unsure_queues
from ledgermq.store.store_directory import open_directory
from tests.small_store import BEGIN_MS, LOG_FILE_SIZE, SIZES, dispatch, write_store

SAFETY_MS = 123_000
"""So much before the time of the checkpoint all queues were synced."""


def log_of(root: Path) -> LogFamily:
    return open_directory(root).log_family


def derived(root: Path) -> list[bytes]:
    paths = [*sorted(root.glob("consumequeue/*/*/*")), *sorted(root.glob("index/*"))]
    return [path.read_bytes() for path in paths]


def leave_as_rocketmq(root: Path, *, synced_ms: int) -> None:
    """No checkpoint of ours; RocketMQ's says when the last message came that is in the queues."""
    (root / "ledgermq" / "dispatch-checkpoint").unlink()
    (root / "abort").touch()
    times = StoreCheckpoint(synced_ms, synced_ms, 0)
    (root / "checkpoint").write_bytes(encode_checkpoint(times))


def zero(path: Path, at: int, size: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(size))


def lose_units(root: Path) -> None:
    """The fourth unit of a queue; the fifth is there."""
    zero(sorted(root.glob("consumequeue/*/0/*"))[1], 0, UNIT_SIZE)


def lose_a_last_unit(root: Path) -> None:
    """The other queue goes further in the log, and says nothing of it."""
    zero(sorted(root.glob("consumequeue/*/0/*"))[1], UNIT_SIZE, UNIT_SIZE)


def lose_the_newest_index_file(root: Path) -> None:
    sorted(root.glob("index/*"))[-1].unlink()


@pytest.mark.parametrize("entries", [True, False], ids=["dledger", "plain"])
@pytest.mark.parametrize("synced_ms", [0, BEGIN_MS + 2_100 + SAFETY_MS], ids=["never", "once"])
@pytest.mark.parametrize("harm", [lose_units, lose_a_last_unit, lose_the_newest_index_file])
def test_what_rocketmq_had_not_synced_is_built_again(
    tmp_path: Path, *, harm: Callable[[Path], None], synced_ms: int, entries: bool
) -> None:
    write_store(tmp_path, entries=entries)
    whole = derived(tmp_path)
    leave_as_rocketmq(tmp_path, synced_ms=synced_ms)
    harm(tmp_path)
    unsure = unsure_queues(tmp_path, log_of(tmp_path))
    section = StoreSection(path_root_dir=tmp_path, **SIZES)
    files = load_derived_files(section, published=None, unsure=unsure)
    settle(files, log_start=Position(0), log_end=LogReader(open_directory(tmp_path)).end)
    files.close()
    sizes = {path.stat().st_size for path in tmp_path.glob("consumequeue/*/*/*")}
    dispatch(tmp_path)

    # They tell everybody else what size a file has.
    assert sizes == {SIZES["mapped_file_size_consume_queue"]}
    assert derived(tmp_path) == whole


def test_what_was_synced_is_not_looked_at_again(tmp_path: Path) -> None:
    write_store(tmp_path)
    starts = tuple(file.start for file in log_of(tmp_path).files())
    found = []
    for later_ms in (-1, 0, 700, 60_000):
        leave_behind_ms = BEGIN_MS + later_ms + SAFETY_MS
        (tmp_path / "abort").touch()
        times = StoreCheckpoint(leave_behind_ms, leave_behind_ms, 0)
        (tmp_path / "checkpoint").write_bytes(encode_checkpoint(times))
        found.append(unsure_queues(tmp_path, log_of(tmp_path)))

    assert starts[:2] == (0, LOG_FILE_SIZE)
    assert found == [UnsureQueues(Position(position), starts) for position in (0, 0, 0, starts[-1])]


def test_a_file_that_is_cut_off_while_it_is_looked_at_is_passed(tmp_path: Path) -> None:
    write_store(tmp_path)
    leave_as_rocketmq(tmp_path, synced_ms=BEGIN_MS + 60_000 + SAFETY_MS)

    class Cut(LogFamily):
        """Recovery deletes the last file behind the listing."""

        def files(self) -> list[LogFile]:
            found = super().files()
            found[-1].path.unlink()
            return found

    found = unsure_queues(tmp_path, Cut(*log_of(tmp_path).folders))

    assert found is not None
    assert found.position == found.file_starts[-2]


def test_nothing_is_in_doubt_after_a_clean_stop(tmp_path: Path) -> None:
    write_store(tmp_path)

    assert unsure_queues(tmp_path, log_of(tmp_path)) is None


def test_the_file_of_a_position_is_the_last_one_that_does_not_begin_behind_it() -> None:
    unsure = UnsureQueues(Position(0), (200, 300))

    assert [unsure.file_start(at) for at in (-1, 199, 200, 299, 300, 999)] == [
        0, 0, 200, 200, 300, 300
    ]  # fmt: skip
