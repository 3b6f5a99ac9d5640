"""Folders that are made are there after a power failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.store.files.disk_sync import make_directories, watched

PRODUCT = Path(__file__).parents[3] / "ledgermq"

MADE_OTHERWISE = {
    # What is put together in a folder that is synced whole before it gets its name.
    "conversion/backup_create.py": 4,
    "conversion/backup_restore.py": 4,
    "conversion/conversion_journal.py": 2,
    "conversion/stream/stream_restore.py": 4,
    "conversion/upgrade.py": 2,
    # What is looked at, and goes when that is done.
    "conversion/rocksdb_tables.py": 4,
    "pipeline/archive/folder_store.py": 1,
    "pipeline/jobs/derived_pieces.py": 3,
    "pipeline/jobs/rebuild_job.py": 3,
    "pipeline/tables/table_files.py": 1,
    "repair/rebuild.py": 2,
    "store/recovery/staged_log.py": 1,
    # Their parents are synced with the next flush, before a checkpoint counts on them.
    "store/queues/queue_files.py": 1,
    # Reports, and what a run can make again.
    "pipeline/jobs/job_reports.py": 2,
    "pipeline/archive/replay_layout.py": 1,
    "cli/node/cluster_command.py": 1,
    # To develop against: who wants what is kept of it has a disk that works.
    "cli/node/dev_run.py": 2,
    "doctor/recording/record_folder.py": 1,
    # The client has nothing of the store, and syncs each folder that it makes.
    "client/groups/group_member.py": 1,
    # This is it.
    "store/files/disk_sync.py": 1,
}
"""How many calls of ``mkdir`` a module has beside ``make_directories``."""


class Synced:
    """Paths of what became durable, in order."""

    def __init__(self) -> None:
        self.paths: list[Path] = []

    def synced(self, fd: int) -> None:
        self.paths.append(Path(f"/proc/self/fd/{fd}").readlink())


def test_the_parent_of_each_folder_that_is_made_is_synced_from_the_outermost_on(
    tmp_path: Path,
) -> None:
    synced = Synced()
    with watched(synced):
        made = make_directories(tmp_path / "a" / "b" / "c", mode=0o750)

    assert made
    assert synced.paths == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    assert (tmp_path / "a" / "b" / "c").stat().st_mode & 0o777 == 0o750


def test_a_folder_that_is_there_costs_no_sync(tmp_path: Path) -> None:
    synced = Synced()
    with watched(synced):
        made = make_directories(tmp_path)

    assert not made
    assert synced.paths == []


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").touch()

    for folder in (tmp_path / "a", tmp_path / "a" / "b"):
        with pytest.raises(FileExistsError):
            make_directories(folder)


def test_whoever_makes_folders_of_the_product_makes_them_durable_or_says_why_not() -> None:
    found = {
        str(path.relative_to(PRODUCT)): count
        for path in PRODUCT.rglob("*.py")
        if (count := path.read_text().count(".mkdir("))
    }

    assert found == MADE_OTHERWISE
