"""Derived files are installed as a whole or not at all, wherever the command is killed."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgermq.model.errors import CorruptLogError
from ledgermq.repair.install_derived import install_derived
from ledgermq.store.store_directory import open_directory
from tests.small_store import SIZES, write_store
from tests.staged_derived import stage

PROGRAM = Path(__file__).with_name("killed_install.py")
KILLS = int(os.environ.get("LEDGERMQ_CONVERSION_KILLS", "12"))
ROOT = Path(__file__).parents[3]


def staged_store(root: Path) -> None:
    """A store with what a job builds of its log in the folder for it, and a damaged queue."""
    root.mkdir()
    write_store(root, messages=30)
    stage(root, root, SIZES)
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
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    said: dict[str, Any] = json.loads(done.stdout)

    assert said["wrong"] == []
    # Old queues and index go aside; new ones come, then two checkpoints.
    assert len(said["renames"]) >= 6
    assert said["untouched"] < said["killed"] // 2


def test_a_link_among_derived_files_is_followed_nowhere(tmp_path: Path) -> None:
    """Who made the files may be another account than who installs them."""
    root, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    staged_store(root)
    elsewhere.write_bytes(b"everybody's")
    elsewhere.chmod(0o644)
    link = root / "ledgermq" / "derived" / "consumequeue" / "orders" / "link"
    link.symlink_to(elsewhere)
    with pytest.raises(CorruptLogError, match="have a link") as caught:
        install_derived(open_directory(root), root / "ledgermq" / "derived")

    assert caught.value.details["file"] == str(link)
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o644
