"""The keys of users' secrets: made, changed while they count, refused when others can read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.model.config.settings import NodeSection, RaftSection, Settings, StoreSection
from ledgermq.model.errors import ConfigError
from ledgermq.model.ids import NodeId
from ledgermq.rules.access.access import SECRET_SIZE_MAX
from ledgermq.rules.access.sealed_secret import PLAIN_SIZE_MAX, is_sealed, key_id
from ledgermq.sessions.keys.peer_keys import CLUSTER_USERS_FILE, init_keys
from ledgermq.sessions.keys.user_secrets import (
    KEYS_MAX,
    UserSecrets,
    make_user_key,
    read_user_keys,
    write_user_keys,
)


def alone(folder: Path) -> Settings:
    return Settings(store=StoreSection(path_root_dir=folder))


def member(folder: Path, keys: Path) -> Settings:
    return Settings(
        node=NodeSection(self_id="n0", peers=("n0-10.0.0.1:1", "n1-10.0.0.2:1")),
        store=StoreSection(path_root_dir=folder),
        raft=RaftSection(keys_dir=keys),
    )


def test_a_node_that_is_alone_makes_itself_a_key_with_its_first_secret(tmp_path: Path) -> None:
    secrets = UserSecrets(alone(tmp_path))
    file = tmp_path / "ledgermq" / "keys" / "users.key"
    was_there = file.exists()
    sealed = secrets.sealed("orders", "12345678")

    assert not was_there
    assert is_sealed(sealed)
    assert file.stat().st_mode & 0o777 == 0o600
    assert UserSecrets(alone(tmp_path)).opened("orders", sealed) == "12345678"


def test_a_member_without_a_key_keeps_secrets_as_they_are_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secrets = UserSecrets(member(tmp_path, tmp_path / "keys"))

    assert secrets.sealed("orders", "12345678") == "12345678"
    assert secrets.opened("orders", "12345678") == "12345678"
    assert "stands in the log as it is" in caplog.text
    assert "12345678" not in caplog.text


def test_the_members_of_a_group_get_one_key_and_one_that_joins_gets_none(tmp_path: Path) -> None:
    folders = init_keys(tmp_path / "group", [NodeId("n0"), NodeId("n1")])
    (joining,) = init_keys(tmp_path / "new", [NodeId("n2")])
    found = [read_user_keys(folder / "users.key") for folder in folders]

    assert found[0] == found[1] != ()
    assert read_user_keys(joining / "users.key") == ()


def test_a_key_is_changed_while_what_the_old_one_has_sealed_still_opens(tmp_path: Path) -> None:
    file = tmp_path / "keys" / "users.key"
    make_user_key(file)
    secrets = UserSecrets(member(tmp_path, file.parent))
    before = secrets.sealed("orders", "12345678")
    make_user_key(file)
    secrets.read_again()
    after = secrets.renewed("orders", before)
    keys = read_user_keys(file)
    opened = [secrets.opened("orders", text) for text in (before, after)]
    write_user_keys(file, keys[:1])
    secrets.read_again()

    assert opened == ["12345678"] * 2
    assert key_id(keys[0]) in after and key_id(keys[1]) in before
    assert secrets.opened("orders", after) == "12345678"
    with pytest.raises(ConfigError, match="does not have"):
        secrets.opened("orders", before)
    assert secrets.renewed("orders", before) == before


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "users.key"
    make_user_key(file)
    file.chmod(0o640)
    with pytest.raises(ConfigError, match="others can read"):
        UserSecrets(member(tmp_path, tmp_path))


@pytest.mark.parametrize("content", [b"", b"short\n", b"\xff" * 40])
def test_what_is_no_key_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "users.key"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(ConfigError):
        read_user_keys(file)


def test_there_are_only_so_many_keys(tmp_path: Path) -> None:
    file = tmp_path / "users.key"
    for _ in range(KEYS_MAX):
        make_user_key(file)
    with pytest.raises(ConfigError, match="too many"):
        make_user_key(file)


def test_a_secret_cannot_pass_for_a_sealed_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="begins as a sealed one"):
        UserSecrets(alone(tmp_path)).sealed("orders", "sealed:1:00000000:AAAA")


def test_a_secret_is_taken_if_its_sealed_form_is_one_that_older_members_take(
    tmp_path: Path,
) -> None:
    secrets = UserSecrets(alone(tmp_path))
    longest = secrets.sealed("orders", "s" * PLAIN_SIZE_MAX)
    with pytest.raises(ConfigError, match="too long to be sealed"):
        secrets.sealed("orders", "s" * (PLAIN_SIZE_MAX + 1))
    with pytest.raises(ConfigError, match="too long to be sealed"):
        secrets.sealed("orders", "€" * (PLAIN_SIZE_MAX // 3 + 1))

    assert len(longest) <= SECRET_SIZE_MAX
    assert secrets.opened("orders", longest) == "s" * PLAIN_SIZE_MAX


def test_a_longer_secret_that_was_there_before_stays_as_it_is(tmp_path: Path) -> None:
    secrets = UserSecrets(alone(tmp_path))
    before = "s" * SECRET_SIZE_MAX

    assert secrets.renewed("orders", before) == before


def test_secrets_for_something_else_are_those_of_all_members_and_stay_with_their_line(
    tmp_path: Path,
) -> None:
    folders = init_keys(tmp_path / "group", [NodeId("n0"), NodeId("n1")])
    one, other = (UserSecrets(member(tmp_path, folder)) for folder in folders)
    (before,) = one.derived(b"home")

    assert other.derived(b"home") == [before]
    assert one.derived(b"another") != [before]
    make_user_key(folders[0] / "users.key")
    assert one.derived(b"home")[1:] == [before]


def test_nothing_is_derived_where_there_is_no_key_and_a_node_alone_makes_one(
    tmp_path: Path,
) -> None:
    lonely = UserSecrets(alone(tmp_path))

    assert UserSecrets(member(tmp_path, tmp_path / "keys")).derived(b"home", makes=True) == []
    assert lonely.derived(b"home") == []
    assert lonely.derived(b"home", makes=True) == lonely.derived(b"home") != []


def test_secrets_of_a_clusters_users_have_a_key_of_all_groups_and_none_without_it(
    tmp_path: Path,
) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    home, other = (UserSecrets(member(tmp_path, folder)) for folder in folders)
    with pytest.raises(ConfigError, match="no key to seal secrets of the cluster's users"):
        home.sealed("shop", "12345678", of_cluster=True)
    make_user_key(folders[0] / CLUSTER_USERS_FILE)
    sealed = home.sealed("shop", "12345678", of_cluster=True)
    with pytest.raises(ConfigError, match=CLUSTER_USERS_FILE):
        other.opened("shop", sealed)
    (folders[1]).mkdir()
    key = folders[1] / CLUSTER_USERS_FILE
    key.touch(mode=0o600)
    key.write_bytes((folders[0] / CLUSTER_USERS_FILE).read_bytes())
    opened = other.opened("shop", sealed)
    make_user_key(folders[0] / CLUSTER_USERS_FILE)
    renewed = home.renewed("shop", sealed, of_cluster=True)

    assert is_sealed(sealed) and "12345678" not in sealed
    assert opened == "12345678"
    assert home.renewed("shop", renewed, of_cluster=True) == renewed != sealed
    assert home.opened("shop", renewed) == "12345678"
    assert not other.opens("shop", renewed)
    # A group's own secrets and what it signs with have nothing to do with that key.
    assert (home.derived(b"home"), other.derived(b"home")) == ([], [])
    assert other.sealed("own", "12345678") == "12345678"
