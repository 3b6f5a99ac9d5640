"""Secrets of users that are sealed for the log: who opens them, and what is left of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.model.errors import ConfigError
from ledgermq.rules.access.sealed_secret import SEALED_SIZE_MAX, is_sealed, open_sealed, seal

KEY, OTHER = bytes(range(32)), bytes(32)
SECRETS = st.text(st.characters(exclude_categories=["Cs"]), max_size=255)


@given(SECRETS, st.binary(min_size=32, max_size=32))
def test_what_was_sealed_opens_with_its_key(secret: str, key: bytes) -> None:
    sealed = seal(key, "orders", secret)

    assert open_sealed([OTHER, key], "orders", sealed) == secret
    assert is_sealed(sealed)
    assert len(sealed) <= SEALED_SIZE_MAX
    assert sealed == seal(key, "orders", secret)


def test_a_sealed_secret_shows_neither_itself_nor_how_long_it_is() -> None:
    sealed = [seal(KEY, "orders", secret) for secret in ("12345678", "a-secret-of-25-characters")]

    assert len(sealed[0]) == len(sealed[1])
    assert seal(KEY, "orders", "12345678") != seal(KEY, "billing", "12345678")


def test_what_was_moved_to_another_user_or_sealed_with_another_key_does_not_open() -> None:
    sealed = seal(KEY, "orders", "12345678")
    with pytest.raises(ConfigError, match="not what was sealed"):
        open_sealed([KEY], "billing", sealed)
    with pytest.raises(ConfigError, match="key that this node does not have"):
        open_sealed([OTHER], "orders", sealed)


def test_a_character_that_changes_is_noticed() -> None:
    sealed = seal(KEY, "orders", "12345678")
    for at in range(len("sealed:"), len(sealed)):
        changed = sealed[:at] + ("A" if sealed[at] != "A" else "B") + sealed[at + 1 :]
        with pytest.raises(ConfigError):
            open_sealed([KEY], "orders", changed)
