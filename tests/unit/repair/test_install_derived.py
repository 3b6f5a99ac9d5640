"""Derived files are installed as a whole or not at all, wherever the command is killed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgermq.model.settings import StoreSection
from ledgermq.repair.install_derived import StagedDerived, message_crc, queue_paths, write_staged
from ledgermq.store.derived_files import load_derived_files
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory
from tests.small_store import BEGIN_MS, SIZES, write_store

PROGRAM = Path(__file__).with_name("killed_install.py")
KILLS = int(os.environ.get("LEDGERMQ_CONVERSION_KILLS", "12"))
ROOT = Path(__file__).parents[3]


def staged_store(root: Path) -> None:
    """A store with what a job builds of its log in the folder for it, and a damaged queue."""
    root.mkdir()
    write_store(root, messages=30)
    staging = root / "ledgermq" / "derived"
    staging.mkdir()
    for name in ("consumequeue", "index"):
        shutil.copytree(root / name, staging / name)
    section = StoreSection(path_root_dir=staging, **SIZES)
    files = load_derived_files(section, published=None)
    assert files.index is not None
    reader = LogReader(open_directory(root))
    last = max(int(record.position) for record in reader.iterate()) + 48
    staged = StagedDerived(
        complete=True,
        first=int(reader.first),
        end=int(reader.end),
        messages=30,
        units=30,
        ends=files.queues.units,
        queue_files=len(queue_paths(staging)),
        index_end=files.index.end_position,
        store_timestamp=BEGIN_MS + 700 * 29,
        last=last,
        last_crc=message_crc(reader, last),
        queue_file_size=SIZES["mapped_file_size_consume_queue"],
        hash_slots=SIZES["max_hash_slot_num"],
        index_items=SIZES["max_index_num"],
    )
    files.close()
    reader.close()
    write_staged(staging, staged)
    unit = next((root / "consumequeue" / "orders" / "0").iterdir())
    unit.write_bytes(b"\x01" + unit.read_bytes()[1:])


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """In memory where that can be: syncs have nothing to say about a disk here."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="lmq-", dir=place) as folder:
        yield Path(folder)


@pytest.mark.slow
def test_a_death_at_any_call_leaves_a_store_that_starts_and_is_right(
    quick_folder: Path,
) -> None:
    template = quick_folder / "template"
    staged_store(template)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(template), str(quick_folder), str(KILLS)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    said: dict[str, Any] = json.loads(done.stdout)

    assert said["wrong"] == []
    # Old queues and index go aside; new ones come, then two checkpoints.
    assert len(said["renames"]) >= 6
    assert said["untouched"] < said["killed"] // 2
