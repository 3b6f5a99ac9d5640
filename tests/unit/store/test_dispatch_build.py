"""What makes a dispatch durable, when many files are to be synced."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.model.errors import StorageError
from ledgermq.store.files.store_checkpoint import StoreCheckpoint
from ledgermq.store.queues import dispatch_build, dispatch_checkpoint
from ledgermq.store.queues.dispatch_build import SYNCED_ALONE_MAX, FlushJob
from ledgermq.store.queues.dispatch_checkpoint import DispatchCheckpoint

FEW, MANY = 3, 2 * SYNCED_ALONE_MAX


def job(root: Path, count: int) -> FlushJob:
    (root / "ledgermq").mkdir()
    files = [root / "queues" / str(number) / "file" for number in range(count)]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_bytes(b"x")
    return FlushJob(
        root,
        frozenset(map(str, files)),
        frozenset(str(file.parent) for file in files),
        DispatchCheckpoint(7, 7, bytes(16), 1, -1),
        StoreCheckpoint(1, 1, 1),
    )


@pytest.mark.parametrize("count", [FEW, MANY])
def test_all_files_and_folders_are_synced_before_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    made = job(tmp_path, count)
    order: list[str] = []
    signs: list[int] = []
    own = tmp_path / "ledgermq" / "dispatch-checkpoint"
    monkeypatch.setattr(
        dispatch_build, "_sync_file", lambda path: order.append(path) or own.exists()
    )
    monkeypatch.setattr(dispatch_build, "sync_directory", lambda path: order.append(str(path)))
    made.run(lambda: signs.append(1))
    saved = dispatch_checkpoint.read(own)

    assert set(order[:count]) == made.files
    assert set(order[count:]) == made.directories
    assert saved is not None and saved.position == 7
    assert len(signs) == (2 * count if count == MANY else 0)


@pytest.mark.parametrize("count", [FEW, MANY])
def test_no_checkpoint_is_written_when_one_file_cannot_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    made = job(tmp_path, count)
    bad = sorted(made.files)[count // 2]

    def sync(path: str) -> None:
        if path == bad:
            raise StorageError("file not synced", file=path)

    monkeypatch.setattr(dispatch_build, "_sync_file", sync)
    with pytest.raises(StorageError, match="not synced"):
        made.run()

    assert not (tmp_path / "ledgermq" / "dispatch-checkpoint").exists()
