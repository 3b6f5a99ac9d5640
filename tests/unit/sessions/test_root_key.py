"""Root key of a cluster: a file of its operator's, which nobody else reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.model.errors import ConfigError, StorageError
from ledgermq.sessions.keys.root_key import new_root_key, read_root_key, write_root_key


def test_a_key_is_read_as_it_was_written_and_its_owner_alone_can(tmp_path: Path) -> None:
    path, key = tmp_path / "root.json", new_root_key("c")._replace(epoch=1, home="a")
    path.with_name("root.json.new").write_text("left by a command that was killed")
    write_root_key(path, key)

    assert read_root_key(path) == key
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["root.json"]
    assert new_root_key("c").secret != key.secret


def test_where_no_file_is_there_is_no_key(tmp_path: Path) -> None:
    assert read_root_key(tmp_path / "root.json") is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"cluster": "c", "secret": "AAAA", "epoch": 1, "home": "a"}',
        '{"cluster": "c", "secret": "%", "epoch": 1, "home": "a"}',
        '{"cluster": "c", "secret": "' + "A" * 43 + '=", "epoch": "1", "home": "a"}',
        '{"cluster": 7, "secret": "' + "A" * 43 + '=", "epoch": 1, "home": "a"}',
        "x" * 10_000,
    ],
)
def test_what_is_no_key_is_refused_with_its_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / "root.json"
    path.touch(0o600)
    path.write_text(content)

    with pytest.raises(ConfigError, match=r"not a cluster's root key.*root\.json"):
        read_root_key(path)


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "root.json"
    write_root_key(path, new_root_key("c"))
    path.chmod(0o640)

    with pytest.raises(ConfigError, match="others can read or change the root key"):
        read_root_key(path)


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="root key not written"):
        write_root_key(tmp_path / "none" / "root.json", new_root_key("c"))
