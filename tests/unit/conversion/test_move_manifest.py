"""Manifests of moves: blocks of queues that grow at one end and are cut off at the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.conversion import move_manifest
from ledgermq.conversion.move_manifest import (
    compare_move,
    make_move_manifest,
    read_move_manifest,
    write_move_manifest,
)
from ledgermq.model.errors import ConfigError
from tests.small_store import write_store


def nothing(done: int, of: int) -> None:
    assert 0 < done <= of


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move_manifest, "BLOCK_UNITS", 2)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("entries", [False, True])
def test_a_store_that_has_grown_has_all_that_it_had(tmp_path: Path, entries: bool) -> None:
    write_store(tmp_path / "less", entries=entries, messages=6)
    write_store(tmp_path / "more", entries=entries, messages=10)
    manifest = make_move_manifest(tmp_path / "less", progress=nothing)
    comparison, differences = compare_move(manifest, tmp_path / "more")

    assert differences == []
    assert (comparison.compared, comparison.added, comparison.removed) == (6, 4, 0)
    _, missing = compare_move(
        make_move_manifest(tmp_path / "more", progress=nothing), tmp_path / "less"
    )

    assert {one.what for one in missing} == {"queue orders/0", "queue orders/1"}


@pytest.mark.usefixtures("small_blocks")
def test_old_messages_may_be_gone(tmp_path: Path) -> None:
    write_store(tmp_path, entries=False)
    manifest = make_move_manifest(tmp_path, progress=nothing)
    first = min((tmp_path / "commitlog").iterdir())
    first.unlink()
    comparison, differences = compare_move(manifest, tmp_path)

    assert differences == []
    assert comparison.removed > 0
    assert comparison.removed + comparison.compared == 10


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_store(tmp_path / "store")
    manifest = make_move_manifest(tmp_path / "store", progress=nothing)
    write_move_manifest(tmp_path / "manifest", manifest)

    assert read_move_manifest(tmp_path / "manifest") == manifest
    assert manifest.messages == 10
    assert manifest.topics == {"orders"}


def test_another_document_is_no_manifest(tmp_path: Path) -> None:
    move_manifest.write_document(tmp_path / "other", {"version": 7})
    with pytest.raises(ConfigError, match="another version"):
        read_move_manifest(tmp_path / "other")
