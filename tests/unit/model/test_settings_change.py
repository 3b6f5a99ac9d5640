"""Reloading, and the fingerprint that members of a group compare."""

from __future__ import annotations

from ledgermq.model.config.settings import Settings
from ledgermq.model.config.settings_change import (
    CLUSTER_KEYS,
    RELOADABLE,
    changed_keys,
    cluster_fingerprint,
    reload_settings,
)
from ledgermq.model.config.settings_file import read_settings
from ledgermq.model.config.settings_rules import RULES

BASE = '[node]\npeers = ["n0-a:1", "n1-b:1"]\n'


def read(text: str) -> Settings:
    return read_settings(text, name="test")


def test_a_reload_takes_what_may_change_and_names_what_waits_for_a_restart() -> None:
    new = read('[node]\nlisten_port = 1\n[log]\nlevel = "DEBUG"\n[limits]\nheld_pulls_max = 5\n')

    settings, waiting = reload_settings(Settings(), new)

    assert changed_keys(Settings(), settings) == ("limits.held_pulls_max", "log.level")
    assert settings.limits.held_pulls_max == 5
    assert waiting == ("node.listen_port",)


def test_a_reload_of_the_same_file_changes_nothing() -> None:
    settings, waiting = reload_settings(read(BASE), read(BASE))

    assert settings == read(BASE)
    assert waiting == ()


def test_members_that_differ_only_in_their_own_settings_have_one_fingerprint() -> None:
    member = read('[node]\nself_id = "n1"\npeers = ["n1-b:1", "n0-a:1"]\n[log]\nlevel = "DEBUG"\n')

    assert cluster_fingerprint(member) == cluster_fingerprint(read(BASE))


def test_a_cluster_setting_changes_the_fingerprint() -> None:
    prints = {
        cluster_fingerprint(read(text))
        for text in (
            BASE,
            f'{BASE}[ack]\nmode = "lossy-leader"\n',
            f"{BASE}[store]\nmapped_file_size_commit_log = 1048576\n",
            f'{BASE}group = "other"\n',
        )
    }

    assert len(prints) == 4


def test_what_members_must_have_alike_cannot_be_reloaded_by_one_of_them() -> None:
    assert set(CLUSTER_KEYS) & RELOADABLE == set()
    assert set(CLUSTER_KEYS) | RELOADABLE <= set(RULES)
