"""The last entry that a copy has is known by the position up to which it holds the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.formats.dledger_index import FILE_SIZE as INDEX_FILE_SIZE
from ledgermq.model.ids import NO_INDEX, Index, Position
from ledgermq.observer.metrics.node_series import index_held
from ledgermq.store.log.entry_files import EntryFiles
from tests.unit.raft_node.mirror_pair import FILE_SIZE, StoredLog

ENTRIES = 600


@pytest.fixture
def log(tmp_path: Path) -> StoredLog:
    """A log of three files, each with zeros behind its last entry."""
    made = StoredLog(tmp_path, "n0")
    made.put(ENTRIES, term=1)
    return made


def ends(log: StoredLog) -> list[Position]:
    """Where each entry ends."""
    assert log.paths.index is not None
    files = EntryFiles(
        log.paths.data, log.paths.index, file_size=FILE_SIZE, index_file_size=INDEX_FILE_SIZE
    )
    last = log.end.index_
    return [files.end_of(Index(index)).position for index in range(last + 1)]


def test_each_end_of_an_entry_is_held_up_to_it_across_files(log: StoredLog) -> None:
    last, found = log.end.index_, ends(log)
    # The last position is the log's own end, behind which nothing begins.
    held = [index_held(log.settings, position, last) for position in found[:-1]]

    assert len(list(log.paths.data.iterdir())) >= 3
    assert held == list(range(last))


def test_a_mirror_that_has_nothing_holds_no_entry(log: StoredLog) -> None:
    assert index_held(log.settings, Position(0), log.end.index_) == NO_INDEX


def test_of_a_position_before_the_log_begins_nothing_is_known(log: StoredLog) -> None:
    first = min(log.paths.data.iterdir())
    before = ends(log)[10]
    first.unlink()

    assert index_held(log.settings, before, log.end.index_) is None
