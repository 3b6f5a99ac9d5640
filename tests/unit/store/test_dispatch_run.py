"""Queues of a whole log in one go are those that RocketMQ's dispatch has made."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from ledgermq.model.config.settings import StoreSection
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Position
from ledgermq.store.log_reader import LogReader
from ledgermq.store.queues.dispatch_build import DispatchBuilder, dispatch_log
from ledgermq.store.store_directory import open_directory
from tests.conftest import Golden


def built(root: Path, log: LogReader, end: Position) -> list[tuple[int, int]]:
    """Build queues in ``root``; what was told of the progress."""
    section = StoreSection(
        path_root_dir=root, mapped_file_size_consume_queue=4_000, message_index_enable=False
    )
    builder = DispatchBuilder.open(section, log_start=log.first, log_end=end, published=log.first)
    told: list[tuple[int, int]] = []
    try:
        dispatch_log(builder, log, end, lambda done, total: told.append((done, total)))
    finally:
        builder.close()
    return told


def queues(root: Path) -> dict[str, bytes]:
    folder = root / "consumequeue"
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("name", ["gs1", "gd0", "gu0"])
def test_all_parts_of_a_log_are_dispatched(name: str, golden: Golden, tmp_path: Path) -> None:
    with closing(LogReader(open_directory(golden(name)))) as log:
        told = built(tmp_path, log, log.end)

        assert told[-1] == (log.end - log.first, log.end - log.first)
    assert queues(tmp_path) == queues(golden(name))


def test_a_log_that_lacks_what_it_should_have_is_refused(golden: Golden, tmp_path: Path) -> None:
    with closing(LogReader(open_directory(golden("gs1")))) as log:
        for end in (log.end + 5, Position(2 * 1_048_576)):
            with pytest.raises(CorruptLogError):
                built(tmp_path, log, Position(end))
