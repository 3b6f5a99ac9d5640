"""When the dispatcher believes, puts and writes the table of queue ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.dispatcher.dispatcher import EndTable
from ledgermq.model.config.settings import StoreSection
from ledgermq.model.ids import Position
from ledgermq.store.queues.dispatch_build import DispatchBuilder
from ledgermq.store.queues.queue_ends import (
    QueueEnds,
    ends_path,
    read_queue_ends,
    told_ends_path,
    write_queue_ends,
)

LOG_START, FILE = 1_000, 1_000
IDLE, TOLD = (b"idle", 0), (b"told", 2)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "ledgermq").mkdir()
    return tmp_path


def builder_at(root: Path, position: int) -> DispatchBuilder:
    section = StoreSection(path_root_dir=root, mapped_file_size_consume_queue=2_000)
    return DispatchBuilder.open(
        section,
        log_start=Position(LOG_START),
        log_end=Position(9_000),
        published=Position(position),
    )


def test_ends_are_put_once_all_before_the_tables_position_is_dispatched(root: Path) -> None:
    write_queue_ends(ends_path(root), QueueEnds(2_500, {IDLE: 4}))
    table = EndTable(root)
    table.open(LOG_START)
    builder = builder_at(root, 2_400)

    assert table.put(builder, LOG_START) == 0
    assert (table.is_waiting, builder.queues.end_of(*IDLE)) == (True, 0)
    builder.position = Position(2_500)
    assert table.put(builder, LOG_START) == 1
    assert (table.is_waiting, builder.queues.end_of(*IDLE)) == (False, 4)
    builder.close()


@pytest.mark.parametrize("content", [b"torn", None])
def test_a_store_without_a_table_gets_one_before_any_of_its_log_may_go(
    root: Path, content: bytes | None
) -> None:
    if content is not None:
        ends_path(root).write_bytes(content)
    table = EndTable(root)
    table.open(LOG_START)
    builder = builder_at(root, 3_200)
    builder.queues.put_ends({IDLE: 4}, log_start=LOG_START)
    due = table.due(builder, 3_000)

    assert table.position == 0
    assert due == QueueEnds(3_200, {IDLE: 4})
    builder.flush(ends=due)
    assert read_queue_ends(ends_path(root)) == due
    builder.close()


def test_a_table_is_written_for_each_file_of_the_log_and_forgets_no_queue(root: Path) -> None:
    known = QueueEnds(1_500, {IDLE: 4, TOLD: 9})
    write_queue_ends(ends_path(root), known)
    table = EndTable(root)
    table.open(LOG_START)
    builder = builder_at(root, 1_900)
    builder.queues.put_ends({IDLE: 4}, log_start=LOG_START)

    assert table.due(builder, 1_000) is None
    builder.position = Position(2_100)
    due = table.due(builder, 2_000)
    assert due == QueueEnds(2_100, known.ends)
    table.written(due)
    assert table.due(builder, 2_000) is None
    builder.close()


def test_a_log_that_never_lost_a_file_needs_no_table(root: Path) -> None:
    table = EndTable(root)
    table.open(0)
    builder = builder_at(root, LOG_START)

    assert table.due(builder, 0) is None
    builder.close()


def test_a_table_from_before_others_deleted_files_says_nothing(root: Path) -> None:
    write_queue_ends(ends_path(root), QueueEnds(LOG_START - 1, {IDLE: 4}))
    table = EndTable(root)
    table.open(LOG_START)
    builder = builder_at(root, 2_500)

    assert table.put(builder, LOG_START) == 0
    assert table.due(builder, 2_000) == QueueEnds(2_500, {})
    builder.close()


def test_what_a_snapshot_has_told_is_put_beside_what_is_known(root: Path) -> None:
    write_queue_ends(ends_path(root), QueueEnds(1_500, {IDLE: 4}))
    table = EndTable(root)
    table.open(LOG_START)
    builder = builder_at(root, 2_500)
    assert table.put(builder, LOG_START) == 1
    write_queue_ends(told_ends_path(root), QueueEnds(2_000, {IDLE: 3, TOLD: 9}))
    table.look()

    assert table.put(builder, LOG_START) == 1
    table.look()
    assert not table.is_waiting
    assert builder.queues.ends() == {IDLE: 4, TOLD: 9}
    builder.close()
