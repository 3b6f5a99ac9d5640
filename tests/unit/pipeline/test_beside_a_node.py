"""What reads a store for Spark leaves its node alone, and ends where the log is committed."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Index
from ledgermq.pipeline.columns.queued_records import QueuedRecords
from ledgermq.pipeline.jobs.derived_pieces import (
    BatchQueues,
    PieceTask,
    dispatch_piece,
    log_splits,
)
from ledgermq.pipeline.source.file_source import FileSource
from ledgermq.pipeline.source.replica_source import ReplicaSource
from ledgermq.pipeline.source.store_source import StoreSource
from ledgermq.store.files.properties_file import DLedgerCheckpoint, encode_dledger_checkpoint
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory
from tests.small_store import write_store

COMMITTED = 6
"""Index of the last entry that is committed, of ten."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of ten messages; the last ones are not known to be committed."""
    root = tmp_path / "store"
    root.mkdir()
    write_store(root)
    checkpoint = DLedgerCheckpoint(Index(9), Index(COMMITTED))
    (root / "dledger-n0" / "checkpoint").write_bytes(encode_dledger_checkpoint(checkpoint))
    return root


def pieces(root: Path, staging: Path) -> list[PieceTask]:
    directory = open_directory(root)
    reader = LogReader(directory)
    splits = log_splits(reader, split_bytes=300)
    reader.close()
    (staging / "consumequeue").mkdir(parents=True)
    return [
        PieceTask(
            number=number,
            split=split,
            root=root,
            self_id=directory.self_id,
            staging=staging,
            queue_file_size=60,
            batches=BatchQueues(),
            delays_ms=(),
            with_keys=True,
            with_tags=False,
        )
        for number, split in enumerate(splits)
    ]


def test_a_rebuild_ends_with_the_last_committed_entry(store: Path, tmp_path: Path) -> None:
    reader = LogReader(open_directory(store))
    positions = [int(record.position) for record in reader.iterate()]
    reader.close()
    built = [dispatch_piece(task) for task in pieces(store, tmp_path / "derived")]

    assert len(positions) == 10
    assert built[-1].reached == positions[COMMITTED + 1]
    assert sum(piece.messages for piece in built) == COMMITTED + 1


def test_a_rebuild_whose_file_is_deleted_says_which_and_builds_nothing_wrong(
    store: Path, tmp_path: Path
) -> None:
    tasks = pieces(store, tmp_path / "derived")
    file = min((store / "dledger-n0" / "data").iterdir())
    file.unlink()
    with pytest.raises(CorruptLogError, match="not within the log") as caught:
        dispatch_piece(tasks[0])

    assert caught.value.details["file"] == str(file)


def reading(source: FileSource) -> Iterator[QueuedRecords]:
    held = source.bounds(source.queues()).values()
    return source.read(
        [range_ for range_ in held if range_.first < range_.end], fail_on_data_loss=True
    )


@pytest.mark.parametrize("opened", [StoreSource, lambda root: ReplicaSource([root, root])])
def test_a_read_needs_no_lock_takes_none_and_can_write_nothing(
    store: Path, opened: Callable[[Path], FileSource]
) -> None:
    with (store / "lock").open("rb+") as lock:
        # As the node has it that runs on the store.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        before = locks_of(os.getpid())
        source = opened(store)
        read = reading(source)
        first = next(read)
        maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
        ours = [line for line in maps if line[-1].startswith(str(store))]

        assert len(first.records.starts) > 0
        assert locks_of(os.getpid()) == before
        assert ours
        assert {line[1] for line in ours} == {"r--s"}
        assert writable_files(store) == {str(store / "lock")}
        # What is mapped can be deleted, as retention does it, and the batch stays whole.
        whole = bytes(first.records.view)
        for file in (store / "dledger-n0" / "data").iterdir():
            file.unlink()

        assert bytes(first.records.view) == whole
        source.close()


def locks_of(pid: int) -> int:
    """How many locks of files a process holds, or waits for."""
    # A line: its number, ``->`` where it waits, three words of its kind, the process, the file and
    # which bytes of it: a port that another test has claimed is such a byte.
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return sum(line[5 if line[1] == "->" else 4] == str(pid) for line in lines)


def writable_files(root: Path) -> set[str]:
    """Files below ``root`` that this process could write to: maps keep theirs open."""
    found: set[str] = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = str(link.readlink())
            mode = fcntl.fcntl(int(link.name), fcntl.F_GETFL) & os.O_ACCMODE
        except OSError:
            # The descriptor of this very listing.
            continue
        if target.startswith(str(root)) and mode != os.O_RDONLY:
            found.add(target)
    return found
