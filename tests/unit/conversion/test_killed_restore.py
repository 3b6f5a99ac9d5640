"""Restores that end while a store moves to its place: no node starts on a part, and they go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledgermq.conversion import backup_restore
from ledgermq.daemon.directory_check import check_own_files
from ledgermq.formats.findings import Severity
from ledgermq.members.peer_identity import identity_of
from ledgermq.model.config.settings import Settings, StoreSection
from ledgermq.model.errors import ConfigError
from ledgermq.model.exit_status import EXIT_CONFIG
from ledgermq.process.store_kind import check_kind
from ledgermq.store.files.store_paths import StorePaths
from tests.small_store import write_store
from tests.unit.conversion.test_backup import back_up, bodies, log_bytes, restore

CALLS_MAX = 100


class Killed(BaseException):
    """What no clean-up of the product catches."""


class Killer:
    """Ends a restore instead of the call with the number ``at`` once all is made."""

    def __init__(self, patched: pytest.MonkeyPatch, at: int) -> None:
        self.has_killed = False
        self._left = at
        for name in ("rename", "rmdir", "unlink"):
            patched.setattr(backup_restore.Path, name, self._may_end(getattr(Path, name)))

    def _may_end(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            if self.has_killed or self._left == 0:
                self.has_killed = True
                raise Killed
            self._left -= 1
            return call(*arguments, **named)

        return called


def killed_restore(backup: Path, root: Path, at: int, *words: str) -> bool:
    """Whether it was killed, which it is not once it makes fewer calls than ``at``."""
    with pytest.MonkeyPatch.context() as patched:
        move, killer = backup_restore._tell_that_all_is_made, None

        def begin(*arguments: Path) -> None:
            nonlocal killer
            killer = Killer(patched, at)
            move(*arguments)

        patched.setattr(backup_restore, "_tell_that_all_is_made", begin)
        try:
            assert restore(backup, root, *words) == 0
        except Killed:
            return True
    return False


def refuses_a_node(root: Path, settings: Settings) -> bool:
    try:
        check_kind(StorePaths.of(settings), settings)
    except ConfigError as error:
        assert "run the same ledgermq backup restore again" in str(error)
        return True
    return False


def test_a_restore_killed_at_any_of_its_last_moves_goes_on(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    write_store(root)
    backup = back_up(root, tmp_path / "backups")
    for at in range(CALLS_MAX):
        again = tmp_path / f"again-{at}"
        settings = Settings(store=StoreSection(path_root_dir=again))
        if not killed_restore(backup, again, at):
            break
        in_place = {path.name for path in again.iterdir()} - {"lock", "ledgermq", "restoring"}
        # A node that were started at first would begin an empty store.
        assert refuses_a_node(again, settings) is (at > 0), at
        assert in_place or at < 6, at
        assert restore(backup, again) == 0, at
        assert not refuses_a_node(again, settings)
        assert bodies(again) == bodies(root), at
        assert log_bytes(again) == log_bytes(root), at
        own = {path.name for path in (again / "ledgermq").iterdir()}
        assert own == {"dispatch-checkpoint", "identity", "lock", "state-snapshot"}, at
        assert not (again / "restoring").exists()
    assert 8 < at < CALLS_MAX - 1


def test_what_was_begun_is_gone_on_with_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, again = tmp_path / "store", tmp_path / "again"
    root.mkdir()
    write_store(root)
    first, second = (back_up(root, tmp_path / "backups") for _ in range(2))
    words = ("--group", "other", "--self-id", "n2")
    assert killed_restore(first, again, 3, *words)

    assert [
        (finding.severity, finding.what)
        for finding in check_own_files(again, None)
        if finding.file == "ledgermq/restore.json"
    ] == [(Severity.DAMAGE, "a restore was begun and is not done")]
    for backup, others in (
        (second, words),
        (first, ()),
        (first, ("--group", "third", "--self-id", "n2")),
        (first, ("--group", "other", "--self-id", "n1")),
    ):
        assert restore(backup, again, *others) == EXIT_CONFIG
        assert "go on with that one, or empty the folder" in capsys.readouterr().err
    begun = identity_of(again / "ledgermq" / "identity")
    assert restore(first, again, *words) == 0
    assert identity_of(again / "ledgermq" / "identity") == begun
    assert log_bytes(again, "n2") == log_bytes(root)
