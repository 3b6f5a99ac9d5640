"""Feature levels: which version knows which."""

from __future__ import annotations

import pytest

from ledgermq.model.features import LEVEL, LEVELS, level_of, version_of


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ("0.1.0", 0),
        ("0.1.0-1", 0),
        ("0.1.0+git20261120.abc-1~bpo12+1", 0),
        ("1:0.2.0-1", 1),
        ("0.2.0~rc1", 1),
        ("0.1.9", 0),
        ("0.0.1", 0),
        ("0.2.0rc1", 1),
        ("1", LEVEL),
        ("7.0", LEVEL),
    ],
)
def test_the_level_of_a_version_is_the_highest_that_it_knows(version: str, level: int) -> None:
    assert level_of(version) == level


@pytest.mark.parametrize("version", ["", "x", ".1", "latest"])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(ValueError):
        level_of(version)


def test_a_level_names_the_first_version_that_knows_it() -> None:
    named = [version_of(level.number) for level in LEVELS]
    assert named == ["0.1.0", "0.2.0", *["0.3.0"] * 5, "0.4.0"]
    assert version_of(LEVEL + 1) == "one newer than 0.4.0"
