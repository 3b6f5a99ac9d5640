"""Keys of a group: made for all members at once, and not believed when they could be wrong."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import zmq

from ledgermq.daemon.directory_check import check_directory
from ledgermq.model.config.settings import (
    ListenSection,
    NodeSection,
    RaftSection,
    Settings,
    StoreSection,
)
from ledgermq.model.errors import ConfigError
from ledgermq.model.ids import NodeId
from ledgermq.sessions.keys.peer_keys import init_keys, keys_directory, load_keys

NODES = [NodeId("n0"), NodeId("n1"), NodeId("n2")]


def settings_of(root: Path, *, node: str = "n0", curve: bool = True, size: int = 3) -> Settings:
    return Settings(
        node=NodeSection(
            self_id=node, peers=tuple(f"n{at}-127.0.0.1:{4_000 + at}" for at in range(size))
        ),
        store=StoreSection(path_root_dir=root / "store"),
        raft=RaftSection(curve=curve, keys_dir=root / "keys" / node),
        listen=ListenSection(runtime_dir=Path("/tmp/lmq-check")),
    )


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """The folder of node n0, beside those of the others."""
    init_keys(tmp_path / "keys", NODES)
    return tmp_path / "keys" / "n0"


def test_each_member_gets_its_own_secret_key_and_all_public_ones(
    keys: Path, tmp_path: Path
) -> None:
    loaded = [load_keys(settings_of(tmp_path, node=node)) for node in NODES]

    for node, found in zip(NODES, loaded, strict=True):
        assert found is not None
        assert list(found.public) == NODES
        assert zmq.curve_public(found.secret) == found.public[node]
        names = sorted(path.name for path in (tmp_path / "keys" / node).iterdir())
        assert names == sorted(
            ["users.key", f"{node}.secret", *(f"{other}.public" for other in NODES)]
        )
    assert stat.S_IMODE((keys / "n0.secret").stat().st_mode) == 0o600
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700


def test_keys_are_never_overwritten(keys: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    with pytest.raises(ConfigError, match="not overwritten"):
        init_keys(tmp_path / "keys", [NodeId("n3"), NodeId("n0")])

    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before
    assert not (tmp_path / "keys" / "n3").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_secret_key_that_others_can_get_at_is_refused(
    keys: Path, tmp_path: Path, mode: int
) -> None:
    (keys / "n0.secret").chmod(mode)
    with pytest.raises(ConfigError, match=rf"chmod 600.*n0\.secret.*{mode:04o}"):
        load_keys(settings_of(tmp_path))


@pytest.mark.parametrize("name", ["n0.secret", "n0.public", "n2.public"])
def test_a_missing_key_is_named_with_the_way_out(keys: Path, tmp_path: Path, name: str) -> None:
    (keys / name).unlink()
    with pytest.raises(ConfigError, match=rf"ledgermq keys init.*{name}.*raft\.keys_dir"):
        load_keys(settings_of(tmp_path))


@pytest.mark.parametrize("text", [b"", b"short", b"~" * 40, b"#" * 40, b"0" * 41, b"\xff" * 40])
def test_what_is_no_key_is_refused(keys: Path, tmp_path: Path, text: bytes) -> None:
    (keys / "n1.public").write_bytes(text)
    with pytest.raises(ConfigError, match=r"not a key.*n1\.public"):
        load_keys(settings_of(tmp_path))


def test_keys_that_do_not_belong_together_are_refused(keys: Path, tmp_path: Path) -> None:
    other = (keys / "n1.public").read_bytes()
    (keys / "n0.public").write_bytes(other)
    with pytest.raises(ConfigError, match="do not belong together"):
        load_keys(settings_of(tmp_path))


def test_two_members_with_one_key_are_refused(keys: Path, tmp_path: Path) -> None:
    (keys / "n2.public").write_bytes((keys / "n1.public").read_bytes())
    with pytest.raises(ConfigError, match=r"same key.*'n1', 'n2'"):
        load_keys(settings_of(tmp_path))


def test_who_talks_in_the_clear_or_alone_needs_no_keys(tmp_path: Path) -> None:
    assert load_keys(settings_of(tmp_path, curve=False)) is None
    assert load_keys(settings_of(tmp_path, size=1)) is None
    assert load_keys(settings_of(tmp_path, size=0)) is None


def test_keys_are_looked_for_in_the_store_unless_the_settings_say_where(tmp_path: Path) -> None:
    settings = Settings(store=StoreSection(path_root_dir=tmp_path))

    assert keys_directory(settings) == tmp_path / "ledgermq" / "keys"
    assert keys_directory(settings_of(tmp_path)) == tmp_path / "keys" / "n0"


def test_serve_check_finds_that_keys_are_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ledgermq keys init"):
        check_directory(settings_of(tmp_path))
    init_keys(tmp_path / "keys", NODES)

    assert check_directory(settings_of(tmp_path)).log == "dledger"
