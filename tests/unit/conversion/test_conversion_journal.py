"""A conversion that dies at any call is gone on with, or undone, and nothing shows of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.conversion import conversion_journal as journal
from ledgermq.conversion.conversion_journal import (
    Conversion,
    ConversionKind,
    FileRename,
    Patch,
    Phase,
)
from ledgermq.model.errors import ConfigError, CorruptLogError
from tests.conftest import Golden

KILLS = int(os.environ.get("LEDGERMQ_CONVERSION_KILLS", "12"))
PROGRAM = Path(__file__).with_name("killed_conversion.py")
MEMORY = Path("/dev/shm")

PATCH = Patch("old/file", 2, b"before", b"after!")
MOVES = (
    FileRename("queues", f"{journal.OLD}/queues"),
    FileRename(f"{journal.NEW}/queues", "queues"),
)


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """In memory where that can be: thousands of syncs have nothing to say about a disk here."""
    folder = tempfile.mkdtemp(prefix="lmq-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None)
    yield Path(folder)
    shutil.rmtree(folder)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "file").write_bytes(b"--before--")
    (tmp_path / "queues").mkdir()
    (tmp_path / "queues" / "which").write_text("old")
    return tmp_path


def begun(root: Path) -> Conversion:
    conversion = journal.begin(root, ConversionKind.DOWNGRADE, {"end": 7})
    (root / journal.NEW / "queues").mkdir()
    (root / journal.NEW / "queues" / "which").write_text("new")
    return replace(conversion, patches=(PATCH,), moves=MOVES)


def state(root: Path) -> tuple[bytes, str]:
    return (root / "old" / "file").read_bytes(), (root / "queues" / "which").read_text()


NEW_STATE = (b"--after!--", "new")
OLD_STATE = (b"--before--", "old")


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "name"), [("upgrade", "gs1"), ("downgrade", "gu0")])
def test_a_conversion_that_was_killed_at_any_call_is_resumed_or_undone(
    verb: str, name: str, golden: Golden, quick_folder: Path
) -> None:
    command = [sys.executable, str(PROGRAM), verb, str(golden(name)), str(quick_folder), str(KILLS)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, timeout=600
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert found["killed"] >= min(KILLS, found["calls"]) > 0


def test_a_switch_patches_and_moves_and_can_be_undone(root: Path) -> None:
    switched = journal.switch(root, begun(root))

    assert state(root) == NEW_STATE
    assert journal.read_journal(root) == switched
    assert switched.phase is Phase.SWITCHED

    journal.undo(root, switched)

    assert state(root) == OLD_STATE
    assert journal.read_journal(root) is None
    assert not (root / journal.FOLDER).exists()


def test_a_finished_conversion_leaves_nothing_but_the_new_store(root: Path) -> None:
    journal.finish(root, journal.switch(root, begun(root)))

    assert state(root) == NEW_STATE
    assert journal.read_journal(root) is None
    assert not (root / journal.FOLDER).exists()


def test_what_was_made_anew_since_gives_way_to_what_was_set_aside(root: Path) -> None:
    (root / "mark").write_text("old")
    conversion = begun(root)
    aside = FileRename("mark", f"{journal.OLD}/mark")
    switched = journal.switch(root, replace(conversion, moves=(*MOVES, aside)))
    (root / "mark").write_text("since")
    journal.undo(root, switched)

    assert (root / "mark").read_text() == "old"
    assert state(root) == OLD_STATE


def test_a_file_that_was_changed_since_is_not_patched(root: Path) -> None:
    conversion = begun(root)
    (root / "old" / "file").write_bytes(b"--CHANGED-")

    with pytest.raises(CorruptLogError, match="changed since") as refused:
        journal.switch(root, conversion)

    assert refused.value.details["offset"] == PATCH.offset


def test_a_patch_that_was_torn_is_gone_on_with(root: Path) -> None:
    conversion = begun(root)
    (root / "old" / "file").write_bytes(b"--aftore--")
    journal.switch(root, conversion)

    assert state(root) == NEW_STATE


@pytest.mark.parametrize(
    ("phase", "remedy"),
    [
        (Phase.PREPARING, "--undo"),
        (Phase.SWITCHING, "ledgermq store downgrade"),
        (Phase.UNDOING, "--undo"),
        (Phase.FINISHING, "--finish"),
    ],
)
def test_a_store_in_the_middle_of_a_conversion_is_refused_with_the_remedy(
    root: Path, phase: Phase, remedy: str
) -> None:
    (root / journal.OWN).mkdir()
    journal._write(root, Conversion(ConversionKind.DOWNGRADE, phase, {}))

    with pytest.raises(ConfigError, match=remedy):
        journal.refuse_unfinished(root)


def test_a_store_that_is_in_no_conversion_or_through_with_it_is_taken(root: Path) -> None:
    journal.refuse_unfinished(root)
    journal.switch(root, begun(root))
    journal.refuse_unfinished(root)
    names = sorted(path.name for path in (root / journal.OWN).iterdir())

    assert names == ["conversion", "conversion.json"]


def test_a_journal_that_was_changed_is_refused(root: Path) -> None:
    begun(root)
    path = journal.journal_path(root)
    path.write_bytes(path.read_bytes().replace(b"preparing", b"switching"))

    with pytest.raises(CorruptLogError):
        journal.read_journal(root)


@pytest.mark.parametrize(
    "changed",
    [
        {"moves": (FileRename("queues", "../elsewhere"),)},
        {"moves": (FileRename("/etc/passwd", "queues"),)},
        {"patches": (Patch("../file", 0, b"x", b"y"),)},
        {"facts": {"self_id": "x/../../y"}},
    ],
)
def test_a_journal_names_nothing_outside_of_the_store(
    root: Path, changed: dict[str, object]
) -> None:
    journal._write(root, replace(begun(root), **changed))  # type: ignore[arg-type]

    with pytest.raises(CorruptLogError, match="outside of its folder"):
        journal.read_journal(root)
