"""Files that are put aside, also on another file system."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.store.files.kept_aside import keep_aside, move, settle_last_file

SIZE = 1 << 20


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system")
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        yield Path(folder)


def test_a_folder_goes_to_another_file_system_with_its_holes(
    tmp_path: Path, elsewhere: Path
) -> None:
    queue = elsewhere / "orders"
    (queue / "0").mkdir(parents=True)
    with (queue / "0" / f"{0:020d}").open("wb") as file:
        file.truncate(64 * SIZE)
        os.pwrite(file.fileno(), b"in the middle", 32 * SIZE)
    before = (queue / "0" / f"{0:020d}").read_bytes()
    now = keep_aside(queue, tmp_path / "aside", reason="a test")

    moved = now / "0" / f"{0:020d}"
    assert not queue.exists()
    assert moved.read_bytes() == before
    assert moved.stat().st_blocks * 512 < SIZE
    assert [path.name for path in (tmp_path / "aside").iterdir()] == [now.name]


def test_what_was_copied_in_part_is_copied_again(tmp_path: Path, elsewhere: Path) -> None:
    (elsewhere / "log").write_bytes(b"whole")
    (tmp_path / "log.copied").write_bytes(b"wh and more")
    move(elsewhere / "log", tmp_path / "log")

    assert (tmp_path / "log").read_bytes() == b"whole"
    assert not (tmp_path / "log.copied").exists() and not (elsewhere / "log").exists()


@pytest.mark.parametrize("size", [SIZE - 7, SIZE + 7])
def test_the_last_file_of_a_log_gets_its_size_where_the_log_has_a_file_system_of_its_own(
    tmp_path: Path, elsewhere: Path, size: int
) -> None:
    content = os.urandom(size)
    (elsewhere / "lost+found").mkdir()
    (elsewhere / f"{0:020d}").write_bytes(content)
    now = settle_last_file(elsewhere, expected=SIZE, aside=tmp_path / "aside")

    assert now is not None and now.read_bytes() == content
    assert (elsewhere / f"{0:020d}").read_bytes() == content[:SIZE].ljust(SIZE, b"\0")
    assert settle_last_file(elsewhere, expected=SIZE, aside=tmp_path / "aside") is None
