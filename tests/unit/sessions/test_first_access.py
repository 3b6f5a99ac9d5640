"""Where a first access is made: in a folder of ours, which nobody else has put there."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.model.errors import ConfigError
from ledgermq.model.ids import NodeId
from ledgermq.sessions.keys import first_access
from ledgermq.sessions.keys.client_keys import make_client_keys, make_node_key
from ledgermq.sessions.keys.first_access import AccessWish, NewNode, make_first_access
from ledgermq.sessions.keys.peer_keys import init_keys
from ledgermq.sessions.keys.user_secrets import make_user_key
from ledgermq.store.files.disk_sync import make_directories

WISH = AccessWish(
    nodes=[NewNode(NodeId("n0"), "10.0.0.1")],
    users={},
    place=Path("/etc/ledgermq"),
    has_remoting=False,
)


MAKERS: dict[str, Callable[[Path], object]] = {
    "access": lambda path: make_first_access(path, WISH),
    "keys of members": lambda path: init_keys(path, [NodeId("n0"), NodeId("n1")]),
    "key of a node": make_node_key,
    "keys of a client": lambda path: make_client_keys(path, server="x" * 40),
    "key of users": make_user_key,
}


@pytest.mark.parametrize("maker", MAKERS)
def test_in_a_folder_that_others_may_change_no_keys_are_made(tmp_path: Path, maker: str) -> None:
    place = tmp_path / "open"
    place.mkdir()
    place.chmod(0o777)
    with pytest.raises(ConfigError, match="others may change the folder"):
        MAKERS[maker](place / "keys")
    assert list(place.iterdir()) == []

    # As of /tmp: nobody removes what is another's.
    place.chmod(0o1777)
    MAKERS[maker](place / "keys")
    assert [path.name for path in place.iterdir()] == ["keys"]
    assert (place / "keys").stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be in two groups")
@pytest.mark.parametrize("maker", MAKERS)
def test_of_groups_the_processs_own_alone_may_change_the_folder(tmp_path: Path, maker: str) -> None:
    tmp_path.chmod(0o770)
    MAKERS[maker](tmp_path / "keys")
    os.chown(tmp_path, 0, 65_534)
    with pytest.raises(ConfigError, match="others may change the folder"):
        MAKERS[maker](tmp_path / "more")


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
