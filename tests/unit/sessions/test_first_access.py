"""Where a first access is made: in a folder of ours, which nobody else has put there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ledgermq.model.errors import ConfigError
from ledgermq.model.ids import NodeId
from ledgermq.sessions.keys import first_access
from ledgermq.sessions.keys.first_access import AccessWish, NewNode, make_first_access
from ledgermq.store.files.disk_sync import make_directories

WISH = AccessWish(
    nodes=[NewNode(NodeId("n0"), "10.0.0.1")],
    users={},
    place=Path("/etc/ledgermq"),
    has_remoting=False,
)


def test_in_a_folder_that_everybody_may_change_no_keys_are_made(tmp_path: Path) -> None:
    place = tmp_path / "open"
    place.mkdir()
    place.chmod(0o777)
    with pytest.raises(ConfigError, match="everybody may change the folder"):
        make_first_access(place / "keys", WISH)
    assert list(place.iterdir()) == []

    # As of /tmp: nobody removes what is another's.
    place.chmod(0o1777)
    make_first_access(place / "keys", WISH)
    assert [path.name for path in place.iterdir()] == ["keys"]
    assert stat.S_IMODE((place / "keys").stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two accounts")
def test_what_a_killed_run_has_left_goes_and_what_is_somebody_elses_stays(tmp_path: Path) -> None:
    ours, theirs = (tmp_path / f"keys{first_access._MAKING}{name}" for name in ("a", "b"))
    for folder in (ours, theirs):
        folder.mkdir()
        (folder / "file").touch()
    os.chown(theirs, 65_534, 65_534)
    make_first_access(tmp_path / "keys", WISH)

    assert sorted(tmp_path.iterdir()) == [tmp_path / "keys", theirs]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two accounts")
def test_a_folder_that_another_account_was_faster_to_make_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = Path.mkdir

    def slower(path: Path, mode: int = 0o777) -> None:
        """Just before this process another account makes the folder."""
        mkdir(path, mode)
        os.chown(path, 65_534, 65_534)
        mkdir(path, mode)

    monkeypatch.setattr(Path, "mkdir", slower)
    with pytest.raises(FileExistsError):
        make_directories(tmp_path / "keys", mode=0o700)
